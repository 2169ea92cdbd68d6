//go:build e2e

package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestReset: a host of one's own becomes new by one command, which says before
// what goes. What others have put beside stays. The process may die at any time
// meanwhile; it goes on when it starts. The machine can then be set up again, as
// another one.
func TestReset(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "rst", "10.84")
	n := lab.NewAppliance(t, net, 1, "", map[string]any{"mode": "form", "storage": map[string]any{"kind": "local"}})
	n.Launch(t)
	n.WaitReady(t, 1)
	key := n.Applianced(t, "join-string").Out

	data := filepath.Join(n.Dir, "data")
	mine := filepath.Join(data, "notes of mine")
	if err := os.WriteFile(mine, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}

	if r := n.Applianced(t, "reset"); r.Code != 64 ||
		!strings.Contains(r.Err, "would be removed: "+data+"/node\n") || !strings.Contains(r.Err, "nothing was done") {
		t.Fatalf("%d %s%s", r.Code, r.Out, r.Err)
	}

	if r := n.Applianced(t, "setup", "back"); r.Code == 0 || !strings.Contains(r.Err, "applianced reset") {
		t.Errorf("back from a node that serves: %d %s", r.Code, r.Err)
	}

	answers, err := os.ReadFile(n.Answers())
	if err == nil {
		err = os.Remove(n.Answers()) // they would be taken again
	}

	if err != nil {
		t.Fatal(err)
	}

	if r := n.Applianced(t, "reset", "--yes"); r.Code != 0 || !strings.Contains(r.Out, "this machine is new") {
		t.Fatalf("%d %s%s", r.Code, r.Out, r.Err)
	}

	isNew(t, n)
	if left := entries(t, data); left != "notes of mine" {
		t.Errorf("left in the data directory: %s", left)
	}

	if err := os.Remove(mine); err != nil {
		t.Fatal(err)
	}

	// Again as another machine, and with the process killed at many points.
	for i, after := range []time.Duration{0, 40, 80, 120, 160, 250} {
		if err := os.WriteFile(n.Answers(), answers, 0o600); err != nil {
			t.Fatal(err)
		}

		if r := n.Applianced(t, "setup", "start", n.Answers()); r.Code != 0 {
			t.Fatalf("set up again: %d %s%s", r.Code, r.Out, r.Err)
		}

		n.WaitReady(t, 1)
		if again := n.Applianced(t, "join-string").Out; again == key {
			t.Fatal("the cluster's key and secret are those of before")
		}

		if err := os.Remove(n.Answers()); err != nil {
			t.Fatal(err)
		}

		done := make(chan lab.Result, 1)
		go func() { done <- n.Applianced(t, "reset", "--yes") }()
		lab.Eventually(t, 10*time.Second, "the reset is ordered, or done", func() error {
			if _, err := os.Stat(filepath.Join(n.Dir, ".reset-appliance.yaml")); err == nil {
				return nil
			}
			if _, err := os.Stat(n.Config()); errors.Is(err, os.ErrNotExist) {
				return nil
			}
			return errors.New("not yet")
		})

		time.Sleep(after * time.Millisecond)
		if err := syscall.Kill(n.PID(), syscall.SIGKILL); err != nil { // it alone: the load balancer lives on
			t.Fatal(err)
		}

		lab.Eventually(t, 10*time.Second, "it is dead", func() error {
			if n.Running() {
				return errors.New("not yet")
			}
			return nil
		})

		left := entries(t, data)
		n.Launch(t)
		if r := <-done; r.Code != 0 {
			t.Errorf("killed after %d ms: %d %s%s", after, r.Code, r.Out, r.Err)
		}

		isNew(t, n)
		t.Logf("%d: killed after %d ms with %q left", i, after, left)
		if left := entries(t, data); left != "" {
			t.Errorf("killed after %d ms: left %s", after, left)
		}
	}
}

// isNew waits until a node is as if it had never been set up.
func isNew(t *testing.T, n *lab.Appliance) {
	t.Helper()
	lab.Eventually(t, 30*time.Second, "the machine is new", func() error {
		d, err := n.Status(t)
		if err == nil && (d.Setup != status.SetupNew || d.Exit != status.ExitUnconfigured) {
			err = errors.New("set-up " + string(d.Setup))
		}
		return err
	})
	for _, name := range []string{"appliance.yaml", ".reset-appliance.yaml"} {
		if _, err := os.Stat(filepath.Join(n.Dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is left", name)
		}
	}
}

func entries(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	var names []string
	for _, e := range list {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

// TestResetRejoins: a node that has left its cluster becomes new and joins again,
// and the other one has lost nothing.
func TestResetRejoins(t *testing.T) {
	t.Parallel()
	net := lab.NewNetwork(t, "rsj", "10.85")
	shared := lab.Dir(t)
	n1 := lab.NewAppliance(t, net, 1, shared, map[string]any{"mode": "form", "secret": lab.ApplianceSecret})
	n1.Launch(t)
	n1.WaitReady(t, 1)
	n2 := lab.NewAppliance(t, net, 2, "",
		map[string]any{"mode": "join", "join": strings.TrimSpace(n1.Applianced(t, "join-string").Out)})
	n2.Launch(t)
	n2.WaitReady(t, 2)

	if r := n2.Applianced(t, "setup", "back"); r.Code == 0 {
		t.Error("a node that has joined can be taken back")
	}

	if r := n2.Applianced(t, "reset"); r.Code != 64 ||
		!strings.Contains(r.Err, "one of the cluster lab, with n1") || !strings.Contains(r.Err, "would stay: "+shared) {
		t.Errorf("%d %s", r.Code, r.Err)
	}

	must(t, n2.Applianced(t, "leave", "--yes"))
	if err := os.Remove(n2.Answers()); err != nil {
		t.Fatal(err)
	}

	must(t, n2.Applianced(t, "reset", "--yes"))
	isNew(t, n2)
	if _, err := os.Stat(filepath.Join(shared, "pki/cluster.pem")); err != nil {
		t.Errorf("the shared directory has lost the cluster's key: %v", err)
	}

	n1.WaitReady(t, 1)
	n2.Answer(t,
		map[string]any{
			"join":     strings.TrimSpace(n1.Applianced(t, "join-string").Out),
			"node":     "n2",
			"address":  n2.Addr,
			"front":    []string{n2.Addr},
			"settings": map[string]any{"limits": map[string]any{"disk_low_percent": 0.2, "disk_full_percent": 0.1}},
		})

	must(t, n2.Applianced(t, "setup", "start", n2.Answers()))
	n2.WaitReady(t, 2)
}
