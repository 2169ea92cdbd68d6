//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestSupervisorKilled: the load balancer outlives SIGKILL of the supervisor
// and is adopted by the next one; a master that is stuck is removed, and stale
// sockets do not stand in its way. An ordinary stop then leaves nothing.
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{Options: map[string]any{"gather_job_timeout": 1}})
	m := accepted(t, n, "web1", lab.Newest)
	lb, _ := pid(t, n, "lb")
	stuck, _ := pid(t, n, "master")
	if err := errors.Join(syscall.Kill(stuck, syscall.SIGSTOP),
		syscall.Kill(n.Proc.PID(), syscall.SIGKILL)); err != nil {
		t.Fatal(err)
	}

	n.Launch(t)
	if slices.Contains(n.Left(), stuck) {
		t.Errorf("the stuck master %d lives beside the new one", stuck)
	}

	if now, s := pid(t, n, "lb"); now != lb {
		t.Errorf("the load balancer is process %d, not %d as before: %+v", now, lb, s)
	}

	n.Ping(t, 60*time.Second, "web1")

	// The adopted one is watched like a child.
	if err := syscall.Kill(lb, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, 60*time.Second, "a load balancer is back", func() error {
		if now, s := pid(t, n, "lb"); now == 0 || now == lb || s.State != "running" {
			return fmt.Errorf("%d: %+v", now, s)
		}
		return nil
	})

	n.Ping(t, 60*time.Second, "web1")
	if !m.Running() {
		t.Error("the minion ended")
	}

	if err := n.Proc.Stop(40 * time.Second); err != nil {
		t.Error(err)
	}

	if left := n.Left(); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}
}

// TestBalancerReload: a reload goes on with the same load balancer; after an
// upgrade, a reload goes on as the new program in the same process, and a new
// load balancer takes the place of the old one while minions are served.
func TestBalancerReload(t *testing.T) {
	t.Parallel()
	bin := lab.Dir(t) // a copy of the programs, to be replaced
	for _, name := range []string{"applianced", "salt-master", "salt", "salt-key", "salt-run", "salt-cp"} {
		install(t, lab.Bin(t, name), filepath.Join(bin, name))
	}

	n := lab.StartNode(t, lab.NodeConfig{Bin: bin, Options: map[string]any{"gather_job_timeout": 1}})
	accepted(t, n, "web1", lab.Newest)
	first, _ := pid(t, n, "lb")
	reload := func() {
		t.Helper()
		before, _ := pid(t, n, "master")
		if r := n.Applianced(t, "reload"); r.Code != 0 {
			t.Fatalf("reload: %+v", r)
		}

		lab.Eventually(t, 60*time.Second, "started anew", func() error {
			d, err := n.Status(t)
			if err != nil {
				return err
			}
			if len(d.Services) == 0 { // the new life has not looked yet
				return errors.New("no services")
			}

			for _, s := range d.Services {
				if s.State != "running" || s.PID == 0 || s.PID == before {
					return fmt.Errorf("%+v", s)
				}
			}

			return nil
		})
	}

	reload()
	if now, s := pid(t, n, "lb"); now != first {
		t.Errorf("the load balancer is process %d, not %d as before: %+v", now, first, s)
	}

	n.Ping(t, 60*time.Second, "web1")

	install(t, lab.Bin(t, "applianced"), filepath.Join(bin, "applianced"))
	reload()
	exe := fmt.Sprintf("/proc/%d/exe", n.Proc.PID())
	if own, err := os.Readlink(exe); err != nil || own != filepath.Join(bin, "applianced") {
		t.Errorf("the supervisor, process %d, runs %s, %v", n.Proc.PID(), own, err)
	}

	if now, s := pid(t, n, "lb"); now == first {
		t.Errorf("the load balancer is the old one: %+v", s)
	}

	n.Ping(t, 60*time.Second, "web1")
	lab.Eventually(t, 60*time.Second, "the first load balancer has let go", func() error {
		if slices.Contains(n.Left(), first) {
			return fmt.Errorf("process %d lives", first)
		}
		return nil
	})

	if r := n.Applianced(t, "logs", "lb"); !strings.Contains(r.Out, "listeners handed over") {
		t.Errorf("no hand-over in the log: %+v", r)
	}
}

// install puts a copy of a program in the place of another, as install(1) does.
func install(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to+".new", b, 0o755)
	}
	if err == nil {
		err = os.Rename(to+".new", to)
	}
	if err != nil {
		t.Fatal(err)
	}
}
