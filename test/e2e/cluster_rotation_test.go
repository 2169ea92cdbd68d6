//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"saltern/test/lab"
	"saltern/test/minion"
)

// generation asks a master for the generation of its cluster AES key.
func generation(t *testing.T, m *lab.Member) float64 {
	t.Helper()
	r := m.SaltRun(t, "cluster.members", "--out", "json")
	var v struct {
		KeyGeneration float64 `json:"key_generation"`
	}
	if err := json.Unmarshal([]byte(r.Out), &v); err != nil || v.KeyGeneration == 0 {
		t.Fatalf("cluster.members: %v: %+v", err, r)
	}
	return v.KeyGeneration
}

// agree waits until all masters have a key of at least this generation.
func agree(t *testing.T, c *lab.Cluster, gen float64) {
	t.Helper()
	lab.Eventually(t, 60*time.Second, "the same key everywhere", func() error {
		for _, m := range c.Members {
			if g := generation(t, m); g < gen {
				return fmt.Errorf("%s has generation %v, not %v", m.Addr, g, gen)
			}
		}
		return nil
	})
}

// TestClusterRotation: the cluster key is rotated, by command and because a
// minion's key is deleted, while 300 minions answer jobs of all three nodes.
// Nobody misses one, each minion signs in about once for each rotation, and the
// deleted one is refused everywhere at once.
func TestClusterRotation(t *testing.T) {
	t.Parallel()
	c := lab.StartCluster(t, lab.ClusterConfig{Options: map[string]any{"log_level": "warning"}})
	const n = 300
	s := enroll(t, c, n)
	s.start(t)
	listening(t, c, n)
	all := s.ids()
	allReturned(t, c.Members[0], start(t, c.Members[0], "s*", "test.ping"), all)
	before := s.signIns.Load()

	const rotations = 3
	for i := range rotations {
		m := c.Members[i]
		gen := generation(t, m)
		jobs := []string{start(t, c.Members[(i+1)%3], "s*", "test.ping")}
		began := time.Now()

		if r := m.SaltRun(t, "cluster.rotate"); r.Code != 0 {
			t.Fatalf("cluster.rotate: %+v", r)
		}

		agree(t, c, gen+1)
		t.Logf("rotation %d: all masters have the key %.2f s after the command began, asking them included",
			i+1, time.Since(began).Seconds())
		for _, o := range c.Members {
			jobs = append(jobs, start(t, o, "s*", "test.ping"))
		}

		for k, jid := range jobs {
			allReturned(t, c.Members[k%3], jid, all)
		}
	}

	if got := s.signIns.Load() - before; got > 2*rotations*n {
		t.Errorf("%d sign-ins of %d minions for %d rotations", got, n, rotations)
	} else {
		t.Logf("%d sign-ins of %d minions for %d rotations", got, n, rotations)
	}

	// The key of one minion is deleted on one node.
	gone := s.minions[0]
	lone, err := minion.New(gone.Config)
	if err != nil {
		t.Fatal(err)
	}
	defer lone.Close()

	ctx, cancel := context.WithTimeout(context.Background(), lab.Limit(2*time.Minute))
	defer cancel()
	if err := lone.SignIn(ctx); err != nil {
		t.Fatal(err)
	}

	gen := generation(t, c.Members[1])
	if r := c.Members[1].Key(t, "-y", "-d", gone.ID); r.Code != 0 {
		t.Fatalf("salt-key -d: %+v", r)
	}

	began := time.Now()
	for _, m := range c.Members {
		at, err := minion.New(gone.Config)
		if err != nil {
			t.Fatal(err)
		}

		at.Session = lone.Session
		at.Request = fmt.Sprintf("%s:14506", m.Addr) // the master itself
		lab.Eventually(t, 30*time.Second, "the deleted minion is refused by "+m.Addr, func() error {
			if _, err := at.Ask(ctx, "_mine", "data", map[string]any{}); !errors.Is(err, minion.ErrRefused) {
				return fmt.Errorf("answered: %v", err)
			}
			return nil
		})

		at.Close()
	}

	t.Logf("a deleted key is refused by all masters after %.2f s", time.Since(began).Seconds())
	agree(t, c, gen+1) // what it knows is worth nothing
	rest := all[1:]
	for _, m := range c.Members {
		allReturned(t, m, start(t, m, "s*", "test.ping"), rest)
	}

	s.stop()
	s.h.judgeCluster(t, c, c.Members, nil)
}
