//go:build e2e

package e2e

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// accepted starts a minion and accepts its key.
func accepted(t *testing.T, n *lab.Node, id, version string) *lab.Minion {
	t.Helper()
	m := lab.StartMinion(t, n, id, version, nil)
	accept(t, n, id)
	return m
}

// accept accepts a key as soon as it is there, and waits for the minion.
func accept(t *testing.T, n *lab.Node, id string) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, "key of "+id, func() error {
		if k := n.Keys(t); !slices.Contains(k["pending"], id) {
			return fmt.Errorf("keys: %v", k)
		}
		if r := n.Key(t, "-y", "-a", id); r.Code != 0 {
			return fmt.Errorf("salt-key -a: %+v", r)
		}
		return nil
	})
	n.Ping(t, 60*time.Second, id)
}

// pid finds the process of a service in the status.
func pid(t *testing.T, n *lab.Node, name string) (int, status.Service) {
	t.Helper()
	d, err := n.Status(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range d.Services {
		if s.Name == name {
			return s.PID, s
		}
	}
	t.Fatalf("no service %s in %+v", name, d.Services)
	return 0, status.Service{}
}

// TestMasterKilled: the master dies, is started again, and the minion answers
// without being touched.
func TestMasterKilled(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{})
	m := accepted(t, n, "web1", lab.Newest)
	before, _ := pid(t, n, "master")
	if err := syscall.Kill(before, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, 60*time.Second, "master is back", func() error {
		after, s := pid(t, n, "master")
		if after == 0 || after == before || s.State != "running" {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})

	n.Ping(t, 60*time.Second, "web1")
	if _, lb := pid(t, n, "lb"); lb.Restarts != 0 {
		t.Errorf("the load balancer was restarted as well: %+v", lb)
	}

	if !m.Running() {
		t.Error("the minion ended")
	}
}

// TestStopLeavesNothing: after SIGTERM no process and no listening port is
// left, and the next start finds everything as it was.
func TestStopLeavesNothing(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{})
	accepted(t, n, "web1", lab.Newest)
	p := n.Proc
	if err := p.Stop(40 * time.Second); err != nil {
		t.Error(err)
	}

	if left := p.Left(); len(left) > 0 {
		t.Errorf("processes left: %v", left)
	}

	for _, port := range []int{n.Settings.Front.PublishPort, n.Settings.Front.RequestPort,
		n.Settings.Master.PublishPort, n.Settings.Master.RequestPort} {
		ln, err := net.Listen("tcp", net.JoinHostPort(n.Addr, fmt.Sprint(port)))
		if err != nil {
			t.Errorf("port %d: %v", port, err)
			continue
		}
		_ = ln.Close()
	}

	if _, err := os.Stat(n.Settings.APISocket()); !os.IsNotExist(err) {
		t.Errorf("the API's socket is left: %v", err)
	}

	if r := n.Applianced(t, "status"); r.Code != status.ExitUnknown || !strings.Contains(r.Err, "not running") {
		t.Errorf("status of a stopped node: %+v", r)
	}

	n.Launch(t)
	n.Ping(t, 60*time.Second, "web1")
}

// TestBalancerVerbs: maintenance stops service and is said, undrain brings it
// back; a cut minion comes back by itself.
func TestBalancerVerbs(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{})
	accepted(t, n, "web1", lab.Newest)
	if r := n.Applianced(t, "lb", "cut", "node1"); r.Code != 0 || strings.HasPrefix(r.Out, "0 ") {
		t.Errorf("cut: %+v", r)
	}

	n.Ping(t, 60*time.Second, "web1")
	if r := n.Applianced(t, "lb", "maint", "node1"); r.Code != 0 {
		t.Errorf("maint: %+v", r)
	}

	lab.Eventually(t, 30*time.Second, "status says so", func() error {
		d, err := n.Status(t)
		if err == nil && d.Health != status.NotServing {
			err = fmt.Errorf("health %s %+v", d.Health, d.Problems)
		}
		return err
	})

	if r := n.Applianced(t, "lb", "status"); r.Code != status.ExitNotServing ||
		!strings.Contains(r.Out, "maintenance") {
		t.Errorf("lb status: %+v", r)
	}

	if r := n.Applianced(t, "lb", "undrain", "node1"); r.Code != 0 {
		t.Errorf("undrain: %+v", r)
	}

	n.Ping(t, 60*time.Second, "web1")
	if r := n.Applianced(t, "lb", "weight", "node1", "zero"); r.Code == 0 || !strings.Contains(r.Err, "not a number") {
		t.Errorf("weight: %+v", r)
	}

	if r := n.Applianced(t, "lb", "drain", "nobody"); r.Code == 0 {
		t.Errorf("drain of an unknown master: %+v", r)
	}
}
