//go:build e2e

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
)

// TestHungMaster: a master that is stopped by SIGSTOP takes connections and
// answers none. The status says so as soon as the load balancer knows, and the
// supervisor ends it and starts another, with its reason.
func TestHungMaster(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{Options: map[string]any{"gather_job_timeout": 1}})
	accepted(t, n, "web1", lab.Newest)
	hung, _ := pid(t, n, "master")
	time.Sleep(5 * time.Second) // the load balancer may lag behind a start

	if err := syscall.Kill(hung, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { _ = syscall.Kill(hung, syscall.SIGCONT) })
	stopped := time.Now()
	said, again := time.Duration(0), time.Duration(0)
	lab.Eventually(t, 60*time.Second, "another master runs", func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}

		if said == 0 && d.Health == status.NotServing && d.Nodes[0].Master == "failing" {
			said = time.Since(stopped)
		}

		now, s := pid(t, n, "master")
		if now == 0 || now == hung || s.State != "running" {
			return fmt.Errorf("%+v", s)
		}

		again = time.Since(stopped)
		if !strings.HasPrefix(s.LastExit, "did not answer for 1") ||
			!strings.Contains(s.LastExit, "timed out") || s.Restarts != 1 {
			t.Errorf("%+v", s)
		}

		if !slices.ContainsFunc(s.Events,
			func(e status.Event) bool { return strings.Contains(e.Message, "stopping it: it did not answer") }) {
			t.Errorf("events %+v", s.Events)
		}

		return nil
	})

	t.Logf("told after %s, another one after %s", said, again)
	if said == 0 || said > 12*time.Second {
		t.Errorf("told after %s", said)
	}

	if again < 15*time.Second || again > 45*time.Second {
		t.Errorf("restarted after %s", again)
	}

	n.Ping(t, 60*time.Second, "web1")
	lab.Eventually(t, 20*time.Second, "all is told and well", func() error {
		r := n.Applianced(t, "status")
		if r.Code == status.ExitNotServing || !strings.Contains(r.Out, "1 restart  before that: did not answer for 1") {
			return fmt.Errorf("exit %d:\n%s", r.Code, r.Out)
		}
		return nil
	})

	r := n.Applianced(t, "events", "--since", "5m")
	for _, want := range []string{"not serving (was", "SCA-203", "over after", "ended after", "did not answer for 1"} {
		if r.Code != 0 || !strings.Contains(r.Out, want) {
			t.Errorf("no %q in the events, exit %d:\n%s", want, r.Code, r.Out)
		}
	}

	if r := n.Applianced(t, "logs", "master", "--since", "5m"); r.Code != 0 ||
		strings.Count(r.Out, "salt-master is ready") != 2 {
		t.Errorf("log, exit %d:\n%s", r.Code, r.Out)
	}

	t.Logf("events:\n%s", r.Out)
}
