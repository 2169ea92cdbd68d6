//go:build e2e

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/api"
	"saltern/test/lab"
)

// TestTurn restarts nodes of a cluster one at a time: who has the turn is
// drained, nobody else gets it until that node is back, and nobody at all while
// a node is away. A minion is answered all the time.
func TestTurn(t *testing.T) {
	t.Parallel()
	nodes := threeNodes(t, lab.NewNetwork(t, "trn", "10.71"))
	var ask []*api.Client
	for _, n := range nodes {
		n.Launch(t)
		ask = append(ask, api.NewClient(n.Dir+"/run/applianced.sock"))
	}

	for _, n := range nodes {
		n.WaitReady(t, 3)
	}

	nodes[1].StartMinion(t, "m1", lab.Newest)
	nodes[1].Ping(t, 90*time.Second, "m1")

	refused := func(c *api.Client, why string) {
		t.Helper()
		if err := c.TakeTurn(t.Context(), false); !errors.Is(err, api.ErrState) || !strings.Contains(err.Error(), why) {
			t.Errorf("turn taken, want %q: %v", why, err)
		}
	}

	taken := func(c *api.Client) {
		t.Helper()
		lab.Eventually(t, 60*time.Second, "the turn is taken", func() error { return c.TakeTurn(t.Context(), false) })
		if now, err := c.Turn(t.Context()); err != nil || !now.Mine {
			t.Errorf("after it was taken: %+v %v", now, err)
		}
	}

	nobody := func(c *api.Client) {
		t.Helper()
		lab.Eventually(t, 90*time.Second, "the turn is given back", func() error {
			now, err := c.Turn(t.Context())
			if err == nil && now.Now != nil {
				err = fmt.Errorf("%+v", now.Now)
			}
			return err
		})
	}

	for i := range 2 {
		taken(ask[i])
		refused(ask[2], nodes[i].Name)
		lab.Eventually(t, 60*time.Second, "the minion leaves "+nodes[i].Name, func() error {
			now, err := ask[i].Turn(t.Context())
			if err == nil && now.Sessions > 0 {
				err = fmt.Errorf("%d sessions", now.Sessions)
			}
			return err
		})

		nodes[2].Ping(t, 90*time.Second, "m1")
		nodes[i].Kill()
		nodes[i].Launch(t)
		nobody(ask[2])

		for _, n := range nodes {
			n.WaitReady(t, 3)
		}
	}

	taken(ask[2]) // and does not restart after all
	if err := ask[2].EndTurn(t.Context()); err != nil {
		t.Fatal(err)
	}

	nobody(ask[0])

	nodes[2].Kill()
	lab.Eventually(t, 60*time.Second, "the loss is noticed", func() error {
		now, err := ask[0].Turn(t.Context())
		if err == nil && now.Needed == "" {
			err = errors.New("not yet")
		}
		return err
	})

	refused(ask[0], nodes[2].Name+" is unreachable")
	if err := ask[0].TakeTurn(t.Context(), true); err != nil {
		t.Errorf("by force: %v", err)
	}
}
