//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"syscall"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/crypt"
	"saltern/test/lab"
	"saltern/test/minion"
)

// TestExplainOnThreeNodes: of a minion that knows one node alone, each of three nodes names why it does not
// answer: its process hangs, its clock is wrong, its node is lost. SALTERN_FLEET runs it.
func TestExplainOnThreeNodes(t *testing.T) {
	if os.Getenv("SALTERN_FLEET") == "" {
		t.Skip("SKIPPED: SALTERN_FLEET=2000 (make e2e-fleet) forms a cluster of three nodes and asks each, a minute")
	}
	t.Parallel()
	net := lab.NewNetwork(t, "exp", "10.84")
	nodes := threeNodes(t, net)
	for _, n := range nodes {
		n.Launch(t)
	}
	for _, n := range nodes {
		n.WaitReady(t, 3)
	}
	last := nodes[2]
	web := last.StartMinion(t, "web1", lab.Newest)
	for _, n := range nodes {
		n.Ping(t, 2*time.Minute, "web1")
	}

	// explained waits until each node names the cause first.
	explained := func(on []*lab.Appliance, id, code string) {
		t.Helper()
		for _, n := range on {
			lab.Eventually(t, 2*time.Minute, code+" by "+n.Name, func() error {
				r := n.Applianced(t, "explain", id, "--json")
				var e control.Explanation
				if err := json.Unmarshal([]byte(r.Out), &e); err != nil {
					return fmt.Errorf("%w: %s%s", err, r.Out, r.Err)
				}
				if e.Causes[0].Code != code {
					return fmt.Errorf("causes %+v, connection %+v", e.Causes, e.Connection)
				}
				return nil
			})
		}
	}

	explained(nodes, "web1", "answers")
	signal := func(s syscall.Signal) { // to the whole group of its processes
		t.Helper()
		if err := syscall.Kill(-web.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	signal(syscall.SIGSTOP)
	explained(nodes, "web1", "deaf")
	signal(syscall.SIGCONT)
	explained(nodes, "web1", "answers")

	// The sign-in and requests of a minion with a wrong clock reach one master alone.
	late := wrongClock(t, "late1", last.Addr)
	lab.Eventually(t, time.Minute, "a request with a wrong time is refused", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := late.SignIn(ctx); err != nil {
			return err
		}
		_, err := late.Ask(ctx, "_return", "jid", "20261129120000000000", "fun", "test.ping", "return", true)
		if err == nil {
			return errors.New("it was taken")
		}
		return nil
	})
	explained(nodes, "late1", "clock")

	last.Kill()
	explained(nodes[:2], "web1", "node not asked")
}

// wrongClock returns a scripted minion whose clock is an hour ahead.
func wrongClock(t *testing.T, id, address string) *minion.Minion {
	t.Helper()
	key, err := crypt.LoadPrivate("../../master/testdata/wire/keys/min7_TESTONLY.pem", "")
	if err != nil {
		t.Fatal(err)
	}
	m, err := minion.New(minion.Config{
		ID:         id,
		Key:        key,
		Request:    fmt.Sprint(address, ":", lab.FrontRequest),
		ClockAhead: time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return m
}
