package oci

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// newDocker starts a dockerd of its own with the image.
func newDocker(t *testing.T) *engine {
	t.Helper()
	dir, version := os.Getenv("SALTERN_OCI"), os.Getenv("SALTERN_OCI_VERSION")
	if dir == "" || os.Getuid() != 0 {
		t.Skip("NOT TESTED: make test-oci, as root, says where the images are")
	}

	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip("NOT TESTED: there is no dockerd: apt-get install docker.io")
	}

	if out, err := exec.Command("docker", "compose", "version").CombinedOutput(); err != nil {
		t.Skipf("NOT TESTED: docker compose of version 2 is missing: %s", out)
	}

	root, err := os.MkdirTemp("/var/tmp", "docker") // an overlay cannot lie on another one
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = os.RemoveAll(root) })
	socket := "unix://" + root + "/socket"
	e := &engine{root: root, program: []string{"docker", "-H", socket}}
	d := lab.Start(t, "dockerd", root+"/log", "dockerd", "--iptables=false", "--bridge=none", "--data-root",
		root+"/data", "--exec-root", root+"/exec", "-p", root+"/pid", "-H", socket)
	t.Cleanup(func() { // it ends its containerd with it
		if err := d.Stop(30 * time.Second); err != nil {
			t.Error(err)
		}
	})

	lab.Eventually(t, time.Minute, "dockerd answers", func() error {
		if r := e.try(t, "info"); r.Code != 0 {
			return fmt.Errorf("%s%s", r.Out, r.Err)
		}
		return nil
	})

	e.image = "localhost/saltern:" + version
	archive := root + "/image"
	if r := lab.Run(t, 3*time.Minute, "skopeo", "copy", "-q",
		fmt.Sprintf("oci:%s:saltern:%s", filepath.Join(dir, "oci"), version),
		"docker-archive:"+archive+":"+e.image); r.Code != 0 {
		t.Fatalf("skopeo: %s%s", r.Out, r.Err)
	}

	e.must(t, "load", "-i", archive)
	return e
}

// compose gives the beginning of a command for the project of a file.
func (e *engine) compose(t *testing.T, file string, services []string, env ...string) []string {
	t.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}

	settings := filepath.Join(e.root, filepath.Base(file)+".env")
	if err := os.WriteFile(settings, []byte(strings.Join(append(env, "SALTERN_IMAGE="+e.image), "\n")),
		0o600); err != nil {
		t.Fatal(err)
	}

	out := []string{"compose", "--env-file", settings, "-f", path}
	var most syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &most); err != nil {
		t.Fatal(err)
	}

	if most.Max < 200000 { // no more may be had here
		less := "services:\n"
		for _, s := range services {
			less += fmt.Sprintf("  %s: {ulimits: {nofile: %d}}\n", s, most.Max)
		}

		file := settings + ".yaml"
		if err := os.WriteFile(file, []byte(less), 0o600); err != nil {
			t.Fatal(err)
		}

		out = append(out, "-f", file)
	}

	return out
}

// composeUp starts the services of a project, waits until they are healthy, and gives the names of
// their containers.
func (e *engine) composeUp(t *testing.T, project []string, services ...string) (containers map[string]string) {
	t.Helper()
	e.must(t, slices.Concat(project, []string{"up", "-d", "--wait"})...)
	containers = map[string]string{}
	for _, s := range services {
		containers[s] = strings.TrimSpace(e.must(t, slices.Concat(project, []string{"ps", "-q", s})...))
	}
	return containers
}

// TestDockerCompose: docker compose starts one.yaml and three.yaml as docs/containers.md
// says; real minions are served through the ports of the host, also when a node is gone.
func TestDockerCompose(t *testing.T) {
	e := newDocker(t)
	one := e.compose(t, "../../examples/compose/one.yaml", []string{"salt1"})
	node := e.composeUp(t, one, "salt1")["salt1"]
	minion(t, "web0", "127.0.0.1")
	e.accept(t, node, "web0")
	e.must(t, slices.Concat(one, []string{"restart"})...)
	e.until(t, node, "web0: True", "salt", "-t", "10", "web0", "test.ping", "--out", "txt")
	e.must(t, slices.Concat(one, []string{"down", "-v"})...)

	three := e.compose(t, "../../examples/compose/three.yaml", []string{"salt1", "salt2", "salt3"},
		"SALTERN_SECRET=a-secret-that-no-other-test-has-6m", "SALTERN_NET=10.45.7")
	nodes := e.composeUp(t, three, "salt1", "salt2", "salt3")
	minion(t, "web1", "[127.0.0.1, 127.0.0.2, 127.0.0.3]")
	e.accept(t, nodes["salt2"], "web1")
	e.must(t, slices.Concat(three, []string{"kill", "salt1"})...)

	for _, n := range []string{"salt2", "salt3"} {
		e.until(t, nodes[n], "DEGRADED", "applianced", "status", "--serving")
		e.until(t, nodes[n], "web1: True", "salt", "-t", "10", "web1", "test.ping", "--out", "txt")
	}

	e.must(t, slices.Concat(three, []string{"down", "-v"})...)
}
