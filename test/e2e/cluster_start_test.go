//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/lbproxy"
	"saltern/master/crypt"
	"saltern/test/lab"
	"saltern/test/minion"
)

// newcomer is a scripted minion whose key waits for being accepted.
func newcomer(t *testing.T, c *lab.Cluster) *minion.Minion {
	t.Helper()
	master, err := crypt.LoadPrivate(filepath.Join(c.Shared, "pki", "cluster.pem"), "")
	if err != nil {
		t.Fatal(err)
	}

	key, err := crypt.GeneratePrivate(2048)
	if err != nil {
		t.Fatal(err)
	}

	n, err := minion.New(minion.Config{
		ID:      "newcomer",
		Key:     key,
		Master:  &master.PublicKey,
		Request: fmt.Sprintf("%s:14506", c.Members[0].Addr),
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(n.Close)
	ctx, cancel := context.WithTimeout(context.Background(), lab.Limit(60*time.Second))
	defer cancel()

	if err := n.SignIn(ctx); !errors.Is(err, minion.ErrWaiting) {
		t.Fatalf("sign-in with a new key: %v", err)
	}

	return n
}

// TestClusterOfThree: three nodes; a key accepted on one is good on all, jobs
// of each node reach minions of three releases.
func TestClusterOfThree(t *testing.T) {
	t.Parallel()
	c := lab.StartCluster(t, lab.ClusterConfig{Network: lab.NewNetwork(t, "scl", "10.50")})
	var ids []string
	for i, v := range lab.Versions() {
		id := "m" + strings.ReplaceAll(v, ".", "-")
		ids = append(ids, id)
		c.StartMinion(t, id, v, c.Members[i].Addr, nil)
	}

	lab.Eventually(t, 60*time.Second, "keys are asked for", func() error {
		r := c.Members[0].Key(t, "-l", "pre")
		for _, id := range ids {
			if !strings.Contains(r.Out, id) {
				return fmt.Errorf("%s", r.Out)
			}
		}
		return nil
	})

	news := newcomer(t, c)
	if r := c.Members[1].Key(t, "-y", "-A"); r.Code != 0 {
		t.Fatalf("salt-key -A: %+v", r)
	}

	began := time.Now()
	for _, m := range c.Members {
		news.Request = fmt.Sprintf("%s:14506", m.Addr) // the master itself
		lab.Eventually(t, 60*time.Second, "the accepted key is good on "+m.Addr, func() error {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			defer news.Close()
			return news.SignIn(ctx)
		})
	}

	took := time.Since(began)
	strictly(t, "a key accepted on one is good on all", took, 2*time.Second)
	t.Logf("a key accepted on one is good on all after %.2f s", took.Seconds())
	for _, m := range c.Members {
		lab.Eventually(t, 60*time.Second, "test.ping from "+m.Addr, func() error {
			got, err := m.JSON(t, "-t", "5", "m*", "test.ping")
			for _, id := range ids {
				if err == nil && got[id] != true {
					err = fmt.Errorf("%s gave %v", id, got[id])
				}
			}
			return err
		})
	}

	for _, m := range c.Members { // by the answers that these minions get, see lbproxy
		st, err := lbproxy.NewClient(m.LBSocket()).Status(t.Context())
		if err != nil || st.Known == 0 {
			t.Errorf("load balancer of %s knows %d sources of minions, %v", m.Addr, st.Known, err)
		}
	}
}
