//go:build e2e

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// TestMinionData: grains, pillars and mines of minions, and tokens, are the same on all
// nodes, whichever took them; also after a node was killed, and none is left of a
// minion whose key was deleted.
func TestMinionData(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(lab.Dir(t), "token")
	c := lab.StartCluster(t, lab.ClusterConfig{Network: lab.NewNetwork(t, "smd", "10.57"), Options: map[string]any{
		"external_auth": map[string]any{"sharedsecret": map[string]any{"alice": []any{".*"}}}, "sharedsecret": "right", "token_file": tokens,
	}})
	var ids []string
	for i, v := range lab.Versions() {
		id := "m" + strings.ReplaceAll(v, ".", "-")
		ids = append(ids, id)
		c.StartMinion(t, id, v, c.Members[i].Addr, map[string]any{
			"grains": map[string]any{"role": "web"}, "mine_functions": map[string]any{
				"test.ping":  []any{},
				"grains.get": []any{"id"},
			},
		})
	}

	lab.Eventually(t, 90*time.Second, "all minions answer", func() error {
		if r := c.Members[0].Key(t, "-y", "-A"); r.Code != 0 {
			return errors.New(r.Err)
		}

		got, err := c.Members[0].JSON(t, "-t", "5", "-L", strings.Join(ids, ","), "test.ping")
		if err == nil && len(got) != len(ids) {
			err = fmt.Errorf("%v", got)
		}

		return err
	})

	if _, err := c.Members[0].JSON(t, "-t", "30", "-L", strings.Join(ids, ","), "mine.update"); err != nil {
		t.Fatal(err)
	}

	// everywhere asks all nodes that run.
	everywhere := func(want []string) {
		t.Helper()
		nodes := c.Alive()
		lab.Eventually(t, 30*time.Second, "all nodes know the same", func() error {
			first := ""
			for _, m := range nodes {
				got, err := m.JSON(t, "-t", "5", "-G", "role:web", "test.ping")
				if err != nil || len(got) != len(want) {
					return fmt.Errorf("%s: -G gives %v, %v", m.Addr, got, err)
				}

				all := ""
				for _, fun := range []string{"cache.grains", "cache.pillar", "cache.mine"} {
					r := m.SaltRun(t, fun, "*", "--out", "json")
					var v map[string]any
					if err := json.Unmarshal([]byte(r.Out), &v); err != nil || len(v) != len(want) {
						return fmt.Errorf("%s: %s gives %d minions, %v", m.Addr, fun, len(v), err)
					}

					b, err := json.Marshal(v) // sorted
					if err != nil {
						return err
					}

					all += string(b)
				}

				if first == "" {
					first = all
				}

				if all != first {
					return fmt.Errorf("%s has other data than %s", m.Addr, nodes[0].Addr)
				}

				mine, err := m.JSON(t, "-t", "10", "-L", strings.Join(want, ","), "mine.get", "*", "grains.get")
				for _, id := range want {
					if got, ok := mine[id].(map[string]any); err == nil &&
						(!ok || len(got) != len(want) || got[id] != id) {
						err = fmt.Errorf("%s: mine.get of %s gives %v", m.Addr, id, mine[id])
					}
				}

				if err != nil {
					return err
				}
			}

			return nil
		})
	}

	everywhere(ids)

	t.Run("token", func(t *testing.T) {
		if r := c.Members[0].Salt(t, "-T", "-a", "sharedsecret", "--username", "alice", "--password",
			"right", ids[0], "test.ping"); r.Code != 0 {
			t.Fatalf("log in: %+v", r)
		}

		for _, m := range c.Members { // which makes the token needless
			key := filepath.Join(m.Dir, "cache", ".root_key")
			if err := os.Rename(key, key+".away"); err != nil {
				t.Fatal(err)
			}
			defer os.Rename(key+".away", key)
		}

		began := time.Now()
		lab.Eventually(t, 10*time.Second, "the token is good on all nodes", func() error {
			for _, m := range c.Members {
				if r := m.Salt(t, ids[0], "test.ping"); r.Code != 0 || !strings.Contains(r.Out, "True") {
					return fmt.Errorf("%s: %+v", m.Addr, r)
				}
			}
			return nil
		})

		t.Logf("a token is good on all nodes %.2f s after it was made, asking them included",
			time.Since(began).Seconds())

		// What auth.del_token of Python's salt-run does.
		text, err := os.ReadFile(tokens)
		if err != nil {
			t.Fatal(err)
		}

		if err := os.Remove(filepath.Join(c.Members[2].Dir, "cache", "tokens",
			strings.TrimSpace(string(text))+".p")); err != nil {
			t.Fatal(err)
		}

		began = time.Now()
		lab.Eventually(t, 10*time.Second, "the token is refused by all nodes", func() error {
			for _, m := range c.Members {
				if r := m.Salt(t, ids[0], "test.ping"); r.Code == 0 {
					return fmt.Errorf("%s: %+v", m.Addr, r)
				}
			}
			return nil
		})

		t.Logf("it is refused by all %.2f s after it was deleted on one, asking them included",
			time.Since(began).Seconds())
	})

	// A node is killed, and meanwhile the key of its minion is deleted.
	c.Members[1].Signal(syscall.SIGKILL)
	if r := c.Members[0].Key(t, "-y", "-d", ids[1]); r.Code != 0 {
		t.Fatalf("salt-key -d: %+v", r)
	}

	left := slices.Delete(slices.Clone(ids), 1, 2)
	everywhere(left)
	c.Members[1].StartMaster(t)
	c.WaitWhole(t)
	everywhere(left)
}
