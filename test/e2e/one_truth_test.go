//go:build e2e && appliance

package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/lbproxy"
	"saltern/test/lab"
)

// truth asks nodes of a cluster for what they know of 300 scripted and three real
// minions.
type truth struct {
	c        *lab.Cluster
	s        *swarm
	real     []string
	everyone int
}

// alike waits until the grains and mines of all minions are the same on these nodes,
// byte for byte, with those that the scripted ones told in a job.
func (w *truth) alike(t *testing.T, why, jid string, nodes ...*lab.Member) {
	t.Helper()
	began := time.Now()
	lab.Eventually(t, 2*time.Minute, "the same on all nodes after "+why, func() error {
		var first [sha256.Size]byte
		for i, m := range nodes {
			all := ""
			for _, fun := range []string{"cache.grains", "cache.mine"} {
				var got map[string]map[string]any
				r := m.SaltRun(t, fun, "*", "--out", "json")
				if err := json.Unmarshal([]byte(r.Out), &got); err != nil || len(got) != w.everyone {
					return fmt.Errorf("%s: %s of %d minions: %v %.200s", m.Addr, fun, len(got), err, r.Err)
				}

				for _, id := range w.s.ids() {
					if turn := fmt.Sprint(got[id]["turn"]); turn != jid {
						return fmt.Errorf("%s: %s of %s is of %s", m.Addr, fun, id, turn)
					}
				}

				b, err := json.Marshal(got) // sorted
				if err != nil {
					return err
				}

				all += string(b)
			}

			sum := sha256.Sum256([]byte(all))
			if i == 0 {
				first = sum
			}

			if sum != first {
				return fmt.Errorf("%s has other data than %s", m.Addr, nodes[0].Addr)
			}
		}

		return nil
	})

	took := time.Since(began)
	t.Logf("after %s grains and mines of %d minions are the same on %d nodes: %.1f s, asking included", why,
		w.everyone, len(nodes), took.Seconds())
	strictly(t, "the same after "+why, took, 10*time.Second)
}

// answered has all minions with a grain answer each of the nodes.
func (w *truth) answered(t *testing.T, nodes ...*lab.Member) {
	t.Helper()
	want := []string{fmt.Sprintf("# of minions targeted: %d", w.everyone),
		fmt.Sprintf("# of minions returned: %d", w.everyone)}
	for _, m := range nodes {
		lab.Eventually(t, time.Minute, "all answer "+m.Addr, func() error {
			r := m.Salt(t, "-G", "role:web", "test.ping", "--summary", "-t", "10")
			for _, l := range want {
				if !strings.Contains(r.Out, l) {
					_, end, _ := strings.Cut(r.Out, "Summary")
					return fmt.Errorf("not %q: %s %s", l, end, r.Err)
				}
			}

			return nil
		})
	}
}

// mines has each real minion read the mine of all.
func (w *truth) mines(t *testing.T) {
	t.Helper()
	m, others := w.c.Alive()[0], strings.Join(w.real, ",")
	if _, err := m.JSON(t, "-t", "30", "-L", others, "mine.update"); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	lab.Eventually(t, time.Minute, "all mines from all minions", func() error {
		got, err := m.JSON(t, "-t", "10", "-L", others, "mine.get", "*", "turn")
		first := ""
		for _, id := range w.real {
			v, _ := got[id].(map[string]any)
			b, merr := json.Marshal(v)
			if err = errors.Join(err, merr); err == nil && len(v) != w.everyone {
				err = fmt.Errorf("%s has %d mines", id, len(v))
			}

			if first == "" {
				first = string(b)
			}

			if err == nil && string(b) != first {
				err = fmt.Errorf("%s has other mines than %s", id, w.real[0])
			}
		}

		return err
	})

	took := time.Since(began)
	t.Logf("three real minions read the same %d mines %.1f s after mine.update, asking included", w.everyone,
		took.Seconds())
	strictly(t, "mine.get", took, 5*time.Second)
}

// sharedFolder is a variable of the environment: an empty folder on a volume.
const sharedFolder = "SALTERN_SHARED"

// TestOneTruth: what minions tell one master, all have: at rest, with a node that is
// apart for a minute, a fourth that joins, and one that is killed. The folder that
// they share is sharedFolder's, or one on this disk.
func TestOneTruth(t *testing.T) {
	net := lab.NewNetwork(t, "sot", "10.51")
	c := lab.StartCluster(t,
		lab.ClusterConfig{
			Network: net,
			Shared:  os.Getenv(sharedFolder),
			Options: map[string]any{"auto_accept": true, "log_level": "warning"},
		})

	net.Move(t, c.Members[0].Addr)
	w := &truth{c: c, s: enroll(t, c, 300)}
	for _, v := range lab.Versions() {
		id := "m" + strings.ReplaceAll(v, ".", "-")
		w.real = append(w.real, id)
		c.StartMinion(t, id, v, net.Virtual(), map[string]any{"grains": map[string]any{"role": "web"},
			"mine_functions": map[string]any{"turn": []any{map[string]any{"mine_function": "grains.get"}, "id"}}})
	}

	w.everyone = 300 + len(w.real)
	w.s.start(t)
	listening(t, c, w.everyone)
	complete(t, c.Members[0], append(w.s.ids(), w.real...))
	all := c.Members[:3]
	jid := w.s.refresh(t, all[0])
	allReturned(t, all[0], jid, w.s.ids())
	w.alike(t, "a refresh", jid, all...)
	w.answered(t, all...)
	w.mines(t)

	// Apart for a minute, in which the minions tell news to the others.
	apart := all[2]
	net.Cut(t, apart.Addr)
	began := time.Now()
	complete(t, all[0], append(w.s.ids(), w.real...))
	jid = w.s.refresh(t, all[1])
	allReturned(t, all[1], jid, w.s.ids())
	w.alike(t, "the loss of a link", jid, all[:2]...)
	lab.Eventually(t, 2*time.Minute, "a minute is over", func() error {
		if left := time.Minute - time.Since(began); left > 0 {
			return fmt.Errorf("%s left", left)
		}
		return nil
	})

	net.Mend(t, apart.Addr)
	w.alike(t, "a minute apart", jid, all...)
	c.WaitWhole(t)
	w.answered(t, all...)

	// The fourth.
	d := c.Prepare(t)
	d.Configure(t, map[string]any{"cluster_peers": []string{all[0].Addr}, "auto_accept": true, "log_level": "warning"})
	d.StartMaster(t)
	d.WaitReady(t)
	w.alike(t, "the join of a fourth", jid, append(all, d)...)
	d.StartLB(t)

	for _, m := range all {
		if err := lbproxy.NewClient(m.LBSocket()).Add(context.Background(),
			lbproxy.Backend{
				Name:        d.Addr,
				Address:     d.Addr,
				PublishPort: 14505,
				RequestPort: 14506,
				ProxyV2:     true,
			}); err != nil {
			t.Fatal(err)
		}
	}

	c.WaitWhole(t)
	w.answered(t, d)

	// One is killed while they tell news; it is back.
	net.Move(t, all[0].Addr)
	jid = w.s.refresh(t, all[0])
	all[1].Signal(syscall.SIGKILL)
	allReturned(t, all[0], jid, w.s.ids())
	complete(t, d, append(w.s.ids(), w.real...))
	w.answered(t, all[0], all[2], d)
	all[1].StartMaster(t)
	all[1].StartLB(t)
	c.WaitWhole(t)
	w.alike(t, "a node killed, and back", jid, append(all, d)...)
	w.answered(t, all[1])
	w.mines(t)
	w.s.stop()
	w.s.h.judgeCluster(t, c, c.Alive(), w.real)
}
