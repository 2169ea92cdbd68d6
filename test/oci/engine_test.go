package oci

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/compose-spec/compose-go/v2/cli"
	"github.com/compose-spec/compose-go/v2/types"

	"saltern/test/lab"
)

// engine is a podman, or a docker, with storage of its own.
type engine struct {
	root    string
	image   string
	program []string // with the options that all its commands have
}

// newEngine loads the image of a layout. SALTERN_OCI is the folder that has the
// layouts oci and oci-python, SALTERN_OCI_VERSION the version of both.
func newEngine(t *testing.T, layout, suffix string) *engine {
	t.Helper()
	dir, version := os.Getenv("SALTERN_OCI"), os.Getenv("SALTERN_OCI_VERSION")
	if dir == "" || os.Getuid() != 0 {
		t.Skip("NOT TESTED: make test-oci, as root, says where the images are")
	}

	root, err := os.MkdirTemp("/var/tmp", "oci") // an overlay cannot lie on another one
	if err != nil {
		t.Fatal(err)
	}

	e := &engine{
		root:    root,
		program: []string{"podman", "--root", root + "/storage", "--runroot", root + "/run", "--runtime", "runc"},
	}

	t.Cleanup(func() {
		e.try(t, "rm", "-f", "-a", "-t", "5")
		e.try(t, "volume", "rm", "-a", "-f")
		e.try(t, "rmi", "-f", "-a")
		_ = syscall.Unmount(filepath.Join(root, "storage/overlay"), 0)
		_ = os.RemoveAll(root)
	})

	e.image = strings.TrimSpace(e.must(t, "pull", "-q",
		fmt.Sprintf("oci:%s:saltern:%s%s", filepath.Join(dir, layout), version, suffix)))
	return e
}

func (e *engine) try(t *testing.T, args ...string) lab.Result {
	return lab.Run(t, 3*time.Minute, e.program[0], slices.Concat(e.program[1:], args)...)
}

func (e *engine) must(t *testing.T, args ...string) string {
	t.Helper()
	r := e.try(t, args...)
	if r.Code != 0 {
		t.Fatalf("%s %s: %d\n%s%s", e.program[0], strings.Join(args, " "), r.Code, r.Out, r.Err)
	}
	return r.Out
}

// until runs a command in a container until its output has a text.
func (e *engine) until(t *testing.T, container, text string, command ...string) {
	t.Helper()
	lab.Eventually(t, 3*time.Minute, container+": "+strings.Join(command, " "), func() error {
		r := e.try(t, append([]string{"exec", container}, command...)...)
		if r.Code != 0 || !strings.Contains(r.Out, text) {
			return fmt.Errorf("%d\n%s%s", r.Code, r.Out, r.Err)
		}
		return nil
	})
}

// project reads a compose file as docker compose does.
func (e *engine) project(t *testing.T, file string, env ...string) *types.Project {
	t.Helper()
	o, err := cli.NewProjectOptions([]string{file}, cli.WithEnv(append(env, "SALTERN_IMAGE="+e.image)),
		cli.WithInterpolation(true))
	if err != nil {
		t.Fatal(err)
	}
	p, err := o.LoadProject(t.Context())
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return p
}

// up starts the services of a project in the order of their names.
func (e *engine) up(t *testing.T, net *lab.Network, p *types.Project) {
	t.Helper()
	names := p.ServiceNames()
	slices.Sort(names)
	for _, name := range names {
		s := p.Services[name]
		addr := s.Networks["salt"].Ipv4Address
		host := net.Host(t, number(t, addr))
		if host != addr {
			t.Fatalf("%s has the address %s, the network gives %s", name, addr, host)
		}
		e.must(t, e.run(t, s, net.Namespace(addr))...)
	}
}

// run gives the command line of podman for a service. Ports are those of the host's
// addresses and need nothing here: the container is reached by its own address.
func (e *engine) run(t *testing.T, s types.ServiceConfig, namespace string) []string {
	t.Helper()
	args := []string{"run", "-d", "--name", s.Name, "--network", "ns:" + namespace, "--ulimit",
		"nproc=1000:1000", "--health-interval", "disable"}
	for key, value := range s.Environment {
		if value == nil {
			t.Fatalf("%s: %s has no value", s.Name, key)
		}
		args = append(args, "-e", key+"="+*value)
	}

	for _, v := range s.Volumes {
		args = append(args, "-v", v.Source+":"+v.Target)
	}

	for _, c := range s.CapDrop {
		args = append(args, "--cap-drop", c)
	}

	for _, o := range s.SecurityOpt {
		args = append(args, "--security-opt", strings.TrimSuffix(o, ":true"))
	}

	var most syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &most); err != nil {
		t.Fatal(err)
	}

	files := min(s.Ulimits["nofile"].Single, int(most.Max)) // no more may be had here
	args = append(args, "--ulimit", fmt.Sprintf("nofile=%d:%d", files, files))
	if len(s.HealthCheck.Test) < 2 || s.HealthCheck.Test[0] != "CMD" {
		t.Fatalf("%s: the health check %q needs a shell", s.Name, s.HealthCheck.Test)
	}

	quoted := make([]string, len(s.HealthCheck.Test)-1)
	for i, w := range s.HealthCheck.Test[1:] {
		quoted[i] = fmt.Sprintf("%q", w)
	}

	args = append(args, "--health-cmd", "["+strings.Join(quoted, ", ")+"]", s.Image)
	return append(args, s.Command...)
}

func number(t *testing.T, addr string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(addr[strings.LastIndex(addr, ".")+1:], &n); err != nil {
		t.Fatalf("the address %q: %v", addr, err)
	}
	return n
}
