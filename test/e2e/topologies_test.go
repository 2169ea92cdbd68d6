//go:build e2e

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/test/lab"
)

// twoMasters are a first and a second master. The first makes a pair, named
// name.pem and name.pub, of which the second gets a copy before its start, as
// in the walkthroughs of several masters.
func twoMasters(t *testing.T, first, second bool, name string, options map[string]any) []*lab.Site {
	t.Helper()
	sites := lab.NewSites(t, 2)
	sites[0].Python, sites[1].Python = first, second
	for _, s := range sites {
		s.Options = options
	}
	sites[0].Launch(t)
	for _, file := range []string{name + ".pem", name + ".pub"} {
		b := whole(t, filepath.Join(sites[0].Dir, "pki", file))
		if err := os.WriteFile(filepath.Join(sites[1].Dir, "pki", file), b, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	sites[1].Launch(t)
	return sites
}

// whole reads a PEM file when it is there and complete.
func whole(t *testing.T, path string) (b []byte) {
	t.Helper()
	lab.Eventually(t, 2*time.Minute, path, func() (err error) {
		b, err = os.ReadFile(path)
		if err == nil && !bytes.Contains(b, []byte("-----END")) {
			err = errors.New("not complete")
		}
		return err
	})
	return b
}

// hot: two masters with one key pair. Minions are connected to both at once;
// each answers alone when the other is away.
func hot(t *testing.T, first, second bool, versions ...string) {
	t.Helper()
	sites := twoMasters(t, first, second, "master", nil)
	var ids []string
	for i, v := range versions {
		ids = append(ids, fmt.Sprintf("hot%d", i))
		lab.SiteMinion(t, ids[i], v, sites, nil)
	}
	for _, s := range sites {
		for _, id := range ids {
			s.WaitKey(t, 4*time.Minute, "minions_pre", id)
		}
		if r := s.Key(t, "-y", "-A"); r.Code != 0 {
			t.Fatalf("salt-key -A on %s: %+v", s.Name, r)
		}
	}
	for _, s := range sites {
		s.Ping(t, 4*time.Minute, ids...)
	}
	for i, s := range sites {
		s.Kill()
		sites[1-i].Ping(t, 4*time.Minute, ids...)
		s.Launch(t)
		s.Ping(t, 4*time.Minute, ids...)
	}
}

// alive is master_alive_interval. By failoverLimit a minion should answer to
// the second master; a busy machine needs longer.
const (
	alive         = 5 * time.Second
	failoverLimit = alive + 15*time.Second
)

// failover: a minion is connected to one master, goes to the second when the
// first is away, and back. It returns how long the first took. With signed
// the masters have key pairs of their own and a third signs them; the minion
// knows that one only (verify_master_pubkey_sign).
func failover(t *testing.T, first, second bool, version string, signed bool) time.Duration {
	t.Helper()
	options := map[string]any{
		"master_type": "failover", "master_alive_interval": int(alive.Seconds()), "master_failback": true, "master_failback_interval": 5,
		"random_reauth_delay": 2, "retry_dns": 0, "auth_timeout": 5, "auth_tries": 1, "master_tries": -1,
	}
	var sites []*lab.Site
	if signed {
		sites = twoMasters(t, first, second, "master_sign", map[string]any{"master_sign_pubkey": true})
		options["verify_master_pubkey_sign"] = true
	} else {
		sites = twoMasters(t, first, second, "master", nil)
	}
	m := lab.PrepareSiteMinion(t, "fo", version, sites, options)
	if signed {
		lab.WriteTree(t, m.Dir, map[string]string{"pki/master_sign.pub": string(whole(t, sites[0].Dir+"/pki/master_sign.pub"))})
	}
	m.Launch(t)
	sites[0].WaitKey(t, 4*time.Minute, "minions_pre", m.ID)
	// The key is accepted on both, before the second has seen the minion.
	pub, err := os.ReadFile(filepath.Join(sites[0].Dir, "pki", "minions_pre", m.ID))
	if err != nil {
		t.Fatal(err)
	}
	lab.WriteTree(t, sites[1].Dir, map[string]string{"pki/minions/" + m.ID: string(pub)})
	if r := sites[0].Key(t, "-y", "-a", m.ID); r.Code != 0 {
		t.Fatalf("salt-key -a: %+v", r)
	}
	sites[0].Ping(t, 4*time.Minute, m.ID)
	began := time.Now()
	sites[0].Kill()
	sites[1].Ping(t, 4*time.Minute, m.ID)
	took := time.Since(began)
	t.Logf("the second master has the minion %.1f s after the death of the first (master_alive_interval is %s)", took.Seconds(), alive)
	sites[0].Launch(t)
	began = time.Now()
	sites[0].Ping(t, 4*time.Minute, m.ID)
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
	failover(t, false, false, lab.Newest, true)
}
