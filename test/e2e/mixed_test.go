//go:build e2e

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// mixed prepares masters of one cluster on one shared folder; python tells
// which are Salt's.
func mixed(t *testing.T, python ...bool) []*lab.Site {
	t.Helper()
	shared := lab.Dir(t)
	sites := lab.NewSites(t, len(python))
	for i, s := range sites {
		var peers []string
		for _, o := range sites {
			if o != s {
				peers = append(peers, o.Addr)
			}
		}

		s.Python = python[i]
		s.Options = map[string]any{
			"cluster_id": "mixed", "cluster_peers": peers, "cluster_pki_dir": filepath.Join(shared, "pki"), "cluster_secret": lab.ClusterSecret,
			"saltern_cluster_plain_peers": true, "saltern_cluster_sessions": filepath.Join(shared, "cache", "sessions"),
		}

		if s.Python {
			s.Options["cachedir"] = filepath.Join(shared, "cache")
			// On a busy machine they would lose their leader all the time.
			s.Options["cluster_election_min"], s.Options["cluster_election_max"] = 3000, 6000
		}

		lab.WriteTree(t, shared, map[string]string{"pki/.keep": "", "cache/sessions/.keep": ""})
	}

	return sites
}

// stop ends a master as systemd does, however it takes it.
func stop(t *testing.T, s *lab.Site) {
	t.Helper()
	if err := s.Stop(60 * time.Second); err != nil {
		t.Logf("stopping %s: %v", s.Name, err)
	}
}

// TestMixedCluster: ours joins a cluster of Salt's; each has a minion.
func TestMixedCluster(t *testing.T) {
	t.Parallel()
	sites := mixed(t, true, false)
	salt, ours := sites[0], sites[1]
	salt.Launch(t)
	a := lab.SiteMinion(t, "a", lab.Versions()[0], sites[:1], nil)
	salt.WaitKey(t, 4*time.Minute, "minions_pre", a.ID)
	ours.Launch(t)
	b := lab.SiteMinion(t, "b", lab.Newest, sites[1:], nil)
	ours.WaitKey(t, 4*time.Minute, "minions_pre", b.ID)

	if r := salt.Key(t, "-y", "-a", b.ID); r.Code != 0 {
		t.Fatalf("salt-key of Salt: %+v", r)
	}

	if r := ours.Key(t, "-y", "-a", a.ID); r.Code != 0 {
		t.Fatalf("our salt-key: %+v", r)
	}

	ours.Ping(t, 4*time.Minute, a.ID, b.ID)
	salt.Ping(t, 4*time.Minute, a.ID, b.ID)

	// Salt's own tools wait for returns that ours takes.
	if r := salt.Salt(t, "-t", "30", "--out", "txt", "*", "test.echo", "crossed"); r.Code != 0 ||
		!strings.Contains(r.Out, "a: crossed") || !strings.Contains(r.Out, "b: crossed") {
		t.Errorf("salt of Salt: %+v", r)
	}

	stop(t, salt) // for good
	if r := ours.SaltRun(t, "cluster.remove", salt.Addr); r.Code != 0 {
		t.Fatalf("cluster.remove: %+v", r)
	}

	ours.Ping(t, 4*time.Minute, b.ID)
}

// TestMixedSaltJoins: one of Salt's joins a cluster of ours, which must lead
// it before it serves, whether its address comes first or last.
func TestMixedSaltJoins(t *testing.T) {
	t.Parallel()
	for name, python := range map[string][]bool{"last": {false, true}, "first": {true, false}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sites := mixed(t, python...)
			ours, salt := sites[0], sites[1]
			if python[0] {
				ours, salt = salt, ours
			}

			ours.Launch(t)
			a := lab.SiteMinion(t, "a", lab.Newest, []*lab.Site{ours}, nil)
			ours.WaitKey(t, 4*time.Minute, "minions_pre", a.ID)
			if r := ours.Key(t, "-y", "-a", a.ID); r.Code != 0 {
				t.Fatalf("our salt-key: %+v", r)
			}

			ours.Ping(t, 4*time.Minute, a.ID)
			salt.Launch(t)
			salt.Ping(t, 4*time.Minute, a.ID)
		})
	}
}
