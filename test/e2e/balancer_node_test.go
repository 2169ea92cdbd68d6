//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestSupervisorKilled: the load balancer outlives SIGKILL of the supervisor
// and is adopted by the next one; a master that is stuck is removed, and stale
// sockets do not stand in its way. An ordinary stop then leaves nothing.
func TestSupervisorKilled(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{})
	m := accepted(t, n, "web1", lab.Newest)
	lb, _ := pid(t, n, "lb")
	stuck, _ := pid(t, n, "master")
	if err := errors.Join(syscall.Kill(stuck, syscall.SIGSTOP), syscall.Kill(n.Proc.PID(), syscall.SIGKILL)); err != nil {
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

// TestBalancerReload: a reload goes on with the same load balancer; a restart
// of it, and a reload that changes its configuration, put another into its
// place while minions are served.
func TestBalancerReload(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{})
	accepted(t, n, "web1", lab.Newest)
	first, _ := pid(t, n, "lb")
	since := func() time.Time {
		d, err := n.Status(t)
		if err != nil {
			return time.Time{}
		}
		for _, s := range d.Services {
			if s.Name == "master" && s.State == "running" && d.Health == status.Healthy {
				return s.Since
			}
		}
		return time.Time{}
	}
	began := since()
	if err := syscall.Kill(n.Proc.PID(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	lab.Eventually(t, 60*time.Second, "started anew", func() error {
		if now := since(); !now.After(began) {
			return fmt.Errorf("master runs since %s", now)
		}
		return nil
	})
	if now, s := pid(t, n, "lb"); now != first {
		t.Errorf("the load balancer is process %d, not %d as before: %+v", now, first, s)
	}
	n.Ping(t, 60*time.Second, "web1")

	if r := n.Applianced(t, "restart", "lb"); r.Code != 0 {
		t.Fatalf("restart lb: %+v", r)
	}
	lab.Eventually(t, 60*time.Second, "another load balancer", func() error {
		if now, s := pid(t, n, "lb"); now == 0 || now == first || s.State != "running" || s.Restarts != 1 {
			return fmt.Errorf("%d: %+v", now, s)
		}
		return nil
	})
	n.Ping(t, 60*time.Second, "web1")
	lab.Eventually(t, 60*time.Second, "the first one has let go", func() error {
		if slices.Contains(n.Left(), first) {
			return fmt.Errorf("process %d lives", first)
		}
		return nil
	})
	if r := n.Applianced(t, "logs", "lb"); !strings.Contains(r.Out, "listeners handed over") {
		t.Errorf("no hand-over in the log: %+v", r)
	}
}
