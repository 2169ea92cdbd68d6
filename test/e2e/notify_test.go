//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/master/crypt"
	"saltern/test/lab"
	"saltern/test/minion"
)

// hook is a web hook that counts messages by the minion that they are about.
type hook struct {
	*httptest.Server

	mu       sync.Mutex
	refuse   bool                // it answers with 503
	refused  map[string]int      // tries that were answered so
	accepted map[string][]string // Idempotency-Key of each message
}

func startHook(t *testing.T) *hook {
	h := &hook{refused: map[string]int{}, accepted: map[string][]string{}}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Alerts []struct{ Minion string } }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, a := range body.Alerts {
			if h.refuse {
				h.refused[a.Minion]++
				w.WriteHeader(http.StatusServiceUnavailable)
				return
			}
			h.accepted[a.Minion] = append(h.accepted[a.Minion], r.Header.Get("Idempotency-Key"))
		}
	}))
	t.Cleanup(h.Close)
	return h
}

func (h *hook) setRefuse(refuse bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.refuse = refuse
}

func (h *hook) of(id string) (accepted []string, refused int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.accepted[id]), h.refused[id]
}

// notifyCluster is a cluster of three masters with a rule for failed runs, and a web hook.
func notifyCluster(t *testing.T) (*lab.Cluster, *hook) {
	h := startHook(t)
	return lab.StartCluster(t, lab.ClusterConfig{NoLB: true, Options: map[string]any{
		"auto_accept": true,
		"saltern_notify": []any{map[string]any{
			"name":   "all",
			"on":     []string{"failed"},
			"dedupe": 0,
			"limit":  10000,
			"to":     map[string]any{"url": h.URL},
		}},
	}}), h
}

// failAt makes a new minion return a failed run to a member. It returns when the master has taken
// it.
func failAt(t *testing.T, c *lab.Cluster, m *lab.Member, id string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.Limit(time.Minute))
	defer cancel()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	master, err := crypt.LoadPrivate(filepath.Join(c.Shared, "pki", "cluster.pem"), "")
	if err != nil {
		t.Fatal(err)
	}
	one, err := minion.New(minion.Config{
		ID:      id,
		Key:     key,
		Master:  &master.PublicKey,
		Request: m.Addr + ":" + strconv.Itoa(lab.FrontRequest),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()

	for one.SignIn(ctx) != nil {
		if ctx.Err() != nil {
			t.Fatal(id, "cannot sign in")
		}
		time.Sleep(200 * time.Millisecond)
	}
	if _, err := one.Ask(ctx, "_return", "jid", "req", "fun", "test.false", "fun_args", []any{}, "return", false,
		"retcode", 1, "success", false); err != nil {
		t.Fatal(id, err)
	}
}

// TestNotifiedOnce kills a node between a failed run and the message about it, four times: the
// owner, which sends, or the node that took the return. Each time there is one message. Two more
// times it kills the owner at any moment: there is one message, or the same one twice.
//
// SALTERN_KILLS=20 kills twenty nodes, and ten more owners.
func TestNotifiedOnce(t *testing.T) {
	t.Parallel()
	rounds := 4 // each kind of kill once
	if n, err := strconv.Atoi(os.Getenv("SALTERN_KILLS")); err == nil {
		rounds = n
	}

	c, h := notifyCluster(t)
	for round := range rounds + rounds/2 {
		between := round < rounds
		id := fmt.Sprintf("m%02d", round)
		owner := ownerOf(t, c)
		others := slices.DeleteFunc(slices.Clone(c.Members), func(m *lab.Member) bool { return m == owner })
		taker, victim := c.Members[round%3], owner
		if between && round%4 == 3 {
			taker, victim = others[0], others[0] // it took the return, and is killed
		}

		h.setRefuse(between)
		failAt(t, c, taker, id)
		if !between {
			time.Sleep(time.Duration(round*7%40) * time.Millisecond)
		}
		victim.Master.Kill()
		h.setRefuse(false)

		lab.Eventually(t, time.Minute, "there is a message about "+id, func() error {
			if got, refused := h.of(id); len(got) == 0 {
				return fmt.Errorf("none, %d refused", refused)
			}
			return nil
		})
		victim.StartMaster(t)
		victim.WaitReady(t)
		c.WaitWhole(t)
	}

	time.Sleep(10 * time.Second) // for messages that should not come
	once, twice := 0, 0
	for round := range rounds + rounds/2 {
		id := fmt.Sprintf("m%02d", round)
		got, refused := h.of(id)
		t.Logf("%s: %d refused, accepted %v", id, refused, got)
		switch {
		case len(got) == 1 && round < rounds:
			once++
		case len(got) == 2 && got[0] == got[1] && round >= rounds:
			twice++
		case len(got) != 1:
			t.Errorf("%s: %d messages: %v", id, len(got), got)
		}
	}
	t.Logf("killed between event and message: one message %d of %d; killed at any moment: twice %d of %d", once, rounds,
		twice, rounds/2)
}

// TestNotifyRunners: rules are listed and tried on each node, and a silence that is set on one node
// counts in the cluster.
func TestNotifyRunners(t *testing.T) {
	t.Parallel()
	c, h := notifyCluster(t)
	if r := c.Members[0].SaltRun(t, "notify.test", "all"); !strings.Contains(r.Out, "accepted") {
		t.Error(r)
	}
	if r := c.Members[1].SaltRun(t, "notify.silence", "works", "minutes=30", "minions=hushed*"); r.Code != 0 {
		t.Error(r)
	}

	owner := ownerOf(t, c)
	lab.Eventually(t, 30*time.Second, "the owner knows the silence", func() error {
		if r := owner.SaltRun(t, "notify.list"); !strings.Contains(r.Out, "works") || strings.Contains(r.Out, h.URL) {
			return fmt.Errorf("%v", r)
		}
		return nil
	})

	failAt(t, c, c.Members[2], "hushed1")
	failAt(t, c, c.Members[2], "loud1")
	lab.Eventually(t, 30*time.Second, "there is a message", func() error {
		if got, _ := h.of("loud1"); len(got) != 1 {
			return fmt.Errorf("%v", got)
		}
		return nil
	})
	if got, _ := h.of("hushed1"); len(got) > 0 {
		t.Error("a message about a minion that is silenced")
	}

	if r := c.Members[2].SaltRun(t, "notify.unsilence", "works"); r.Code != 0 {
		t.Error(r)
	}
	if r := c.Members[0].SaltRun(t, "notify.unsilence", "nobody"); r.Code == 0 {
		t.Error("a silence that is not there has been ended:", r)
	}
}
