//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"syscall"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/test/lab"
)

// TestExplainRealMinion: of a real minion that answers, works, hangs and ends, applianced explain names
// what it does.
func TestExplainRealMinion(t *testing.T) {
	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{
		Options: map[string]any{"auto_accept": true},
		States:  map[string]string{"top.sls": "base:\n  'web*': [nginx]\n", "nginx.sls": "a: {test.nop: []}\n"},
		Pillar:  map[string]string{"top.sls": "base:\n  '*': [common]\n", "common.sls": "role: TOPSECRET\n"},
	})
	m := lab.StartMinion(t, n, "web1", lab.Newest, nil)
	n.Ping(t, time.Minute, "web1")

	want := func(code string, exit int) control.Explanation {
		t.Helper()
		var e control.Explanation
		lab.Eventually(t, 90*time.Second, code, func() error {
			r := n.Applianced(t, "explain", "web1", "--json")
			e = control.Explanation{}
			if err := json.Unmarshal([]byte(r.Out), &e); err != nil {
				return fmt.Errorf("%w: %s%s", err, r.Out, r.Err)
			}
			if e.Causes[0].Code != code || r.Code != exit {
				return fmt.Errorf("exit code %d, causes %+v, connection %+v", r.Code, e.Causes, e.Connection)
			}
			return nil
		})
		return e
	}

	e := want("answers", 0)
	if len(e.States.Matches) != 1 || len(e.Pillar.Keys) != 1 || e.Pillar.Keys[0].Key != "role" || e.Connection.Version == "" {
		t.Errorf("states %+v, pillar %+v, connection %+v", e.States, e.Pillar, e.Connection)
	}
	t.Log(n.Applianced(t, "explain", "web1").Out)

	n.Salt(t, "--async", "web1", "test.sleep", "20")
	want("at work", 0)

	signal := func(s syscall.Signal) { // to the whole group of its processes
		t.Helper()
		if err := syscall.Kill(-m.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	want("deaf", 2)
	signal(syscall.SIGCONT)
	want("answers", 0)
}
