//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/test/lab"
)

// samePair gives the masters one key pair, as the walkthroughs of several
// masters do: the first makes it, the others get a copy before their start.
func samePair(t *testing.T, sites []*lab.Site) {
	t.Helper()
	first := sites[0]
	first.Launch(t)
	for _, name := range []string{"master.pem", "master.pub"} {
		var b []byte
		lab.Eventually(t, 60*time.Second, name+" of the first master", func() (err error) {
			b, err = os.ReadFile(filepath.Join(first.Dir, "pki", name))
			if err == nil && len(b) == 0 {
				err = fmt.Errorf("empty")
			}
			return err
		})
		for _, s := range sites[1:] {
			if err := os.WriteFile(filepath.Join(s.Dir, "pki", name), b, 0o400); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range sites[1:] {
		s.Launch(t)
	}
}

// twoMasters are a first and a second master.
func twoMasters(t *testing.T, first, second bool) []*lab.Site {
	t.Helper()
	sites := lab.NewSites(t, 2)
	sites[0].Python, sites[1].Python = first, second
	samePair(t, sites)
	return sites
}

// hot: minions are connected to both masters at once; each answers alone when
// the other is away.
func hot(t *testing.T, first, second bool, versions ...string) {
	t.Helper()
	sites := twoMasters(t, first, second)
	var ids []string
	for i, v := range versions {
		ids = append(ids, fmt.Sprintf("hot%d", i))
		lab.SiteMinion(t, ids[i], v, sites, nil)
	}
	for _, s := range sites {
		for _, id := range ids {
			s.WaitKey(t, 120*time.Second, "minions_pre", id)
		}
		if r := s.Key(t, "-y", "-A"); r.Code != 0 {
			t.Fatalf("salt-key -A on %s: %+v", s.Name, r)
		}
	}
	for _, s := range sites {
		s.Ping(t, 120*time.Second, ids...)
	}
	for i, s := range sites {
		s.Kill()
		sites[1-i].Ping(t, 120*time.Second, ids...)
		s.Launch(t)
		s.Ping(t, 120*time.Second, ids...)
	}
}

// alive is master_alive_interval. By failoverLimit a minion should answer to
// the second master; a busy machine needs longer.
const (
	alive         = 5 * time.Second
	failoverLimit = alive + 15*time.Second
)

// failover: a minion is connected to one master, goes to the second when the
// first is away, and back. It returns how long the first took.
func failover(t *testing.T, first, second bool, version string) time.Duration {
	t.Helper()
	sites := twoMasters(t, first, second)
	m := lab.SiteMinion(t, "fo", version, sites, map[string]any{
		"master_type": "failover", "master_alive_interval": int(alive.Seconds()), "master_failback": true, "master_failback_interval": 5,
		"random_reauth_delay": 2, "master_shuffle": false, "retry_dns": 0, "auth_timeout": 5, "auth_tries": 1, "master_tries": -1,
	})
	sites[0].WaitKey(t, 120*time.Second, "minions_pre", m.ID)
	// The key is accepted on both, before the second has seen the minion.
	pub, err := os.ReadFile(filepath.Join(sites[0].Dir, "pki", "minions_pre", m.ID))
	if err != nil {
		t.Fatal(err)
	}
	lab.WriteTree(t, sites[1].Dir, map[string]string{"pki/minions/" + m.ID: string(pub)})
	if r := sites[0].Key(t, "-y", "-a", m.ID); r.Code != 0 {
		t.Fatalf("salt-key -a: %+v", r)
	}
	sites[0].Ping(t, 120*time.Second, m.ID)
	began := time.Now()
	sites[0].Kill()
	sites[1].Ping(t, 120*time.Second, m.ID)
	took := time.Since(began)
	t.Logf("the second master has the minion %.1f s after the death of the first (master_alive_interval is %s)", took.Seconds(), alive)
	sites[0].Launch(t)
	began = time.Now()
	sites[0].Ping(t, 120*time.Second, m.ID)
	t.Logf("the first has it back %.1f s after its start", time.Since(began).Seconds())
	return took
}

// TestTopologyHot: two of ours that know nothing of each other.
func TestTopologyHot(t *testing.T) {
	t.Parallel()
	hot(t, false, false, lab.Versions()...)
}

// TestTopologyFailover: the same for minions with master_type failover.
func TestTopologyFailover(t *testing.T) {
	t.Parallel()
	failover(t, false, false, lab.Newest)
}
