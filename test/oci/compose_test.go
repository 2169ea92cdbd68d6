package oci

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// minion starts a real minion of the newest release of Salt outside of the
// containers.
func minion(t *testing.T, id, master string) {
	t.Helper()
	dir := lab.Dir(t)
	text := fmt.Sprintf("id: %s\nmaster: %s\nroot_dir: %s\nacceptance_wait_time: 1\nrandom_startup_delay: 0\nenable_fqdns_grains: False\nenable_gpu_grains: False\nlog_level_logfile: quiet\n",
		id, master, dir)
	for _, d := range []string{"pki", "cache", "sock"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
		key := map[string]string{"pki": "pki_dir", "cache": "cachedir", "sock": "sock_dir"}[d]
		text += fmt.Sprintf("%s: %s\n", key, filepath.Join(dir, d))
	}

	lab.WriteTree(t, dir, map[string]string{"etc/minion": text})
	lab.Start(t, "minion "+id, filepath.Join(dir, "out"),
		filepath.Join(lab.Venv(t, lab.Newest), "salt-minion"), "-c", filepath.Join(dir, "etc"))
}

// accept accepts the key of a minion, and has it answer.
func (e *engine) accept(t *testing.T, container, id string) {
	t.Helper()
	e.until(t, container, id, "salt-key", "-l", "un")
	e.must(t, "exec", container, "salt-key", "-y", "-a", id)
	e.until(t, container, id+": True", "salt", "-t", "10", id, "test.ping", "--out", "txt")
}

func (e *engine) healthy(t *testing.T, container string) {
	t.Helper()
	lab.Eventually(t, 3*time.Minute, container+" is healthy", func() error {
		if r := e.try(t, "healthcheck", "run", container); r.Code != 0 {
			s := e.try(t, "exec", container, "applianced", "status")
			l := e.try(t, "logs", "--tail", "20", container)
			return fmt.Errorf("%s%s\n%s%s\n%s%s", r.Out, r.Err, s.Out, s.Err, l.Out, l.Err)
		}
		return nil
	})
}

// network gives a network and the first numbers of its addresses.
func network(t *testing.T) (net *lab.Network, base string) {
	net = lab.NewNetwork(t, "oci", "10.45")
	return net, strings.TrimSuffix(net.Outside(), ".254")
}

// TestOne: the node of one.yaml sets itself up and serves a real minion, also from the
// next container with the same volumes.
func TestOne(t *testing.T) {
	e := newEngine(t, "oci", "")
	net, base := network(t)
	p := e.project(t, "../../examples/compose/one.yaml", "SALTERN_NET="+base, "SALTERN_MASTER_OPTIONS={timeout: 12}")
	e.up(t, net, p)
	e.healthy(t, "salt1")
	minion(t, "web1", base+".11")
	e.accept(t, "salt1", "web1")
	e.until(t, "salt1", "12", "salt-run", "config.get", "timeout")

	e.must(t, "stop", "-t", "30", "salt1")
	if code := strings.TrimSpace(e.must(t, "inspect", "salt1", "--format", "{{.State.ExitCode}}")); code != "0" {
		t.Errorf("podman stop: exit status %s", code)
	}

	e.must(t, "rm", "salt1")
	e.must(t, e.run(t, p.Services["salt1"], net.Namespace(base+".11"))...)
	e.healthy(t, "salt1")
	e.until(t, "salt1", "web1: True", "salt", "-t", "10", "web1", "test.ping", "--out", "txt")
}

// TestThree: the services of three.yaml form a cluster; a real minion answers through
// each node, from each node; when one is gone the others serve and are healthy.
func TestThree(t *testing.T) {
	e := newEngine(t, "oci", "")
	net, base := network(t)
	p := e.project(t, "../../examples/compose/three.yaml", "SALTERN_NET="+base,
		"SALTERN_SECRET=a-secret-that-no-other-test-has-5k")
	nodes := []string{"salt1", "salt2", "salt3"}
	e.up(t, net, p)

	for _, n := range nodes {
		e.healthy(t, n)
		e.until(t, n, "HEALTHY", "applianced", "status")
		for _, other := range nodes {
			e.until(t, n, other, "applianced", "status")
		}
	}

	for i := range nodes {
		minion(t, fmt.Sprintf("web%d", i+1), fmt.Sprintf("%s.1%d", base, i+1))
	}

	for i := range nodes {
		e.accept(t, "salt1", fmt.Sprintf("web%d", i+1))
	}

	for _, n := range nodes {
		for i := range nodes {
			id := fmt.Sprintf("web%d", i+1)
			e.until(t, n, id+": True", "salt", "-t", "10", id, "test.ping", "--out", "txt")
		}
	}

	e.must(t, "kill", "salt2")
	for _, n := range []string{"salt1", "salt3"} {
		e.until(t, n, "DEGRADED", "applianced", "status", "--serving")
		e.healthy(t, n)
		for _, id := range []string{"web1", "web3"} {
			e.until(t, n, id+": True", "salt", "-t", "10", id, "test.ping", "--out", "txt")
		}
	}
}
