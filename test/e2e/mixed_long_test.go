//go:build e2e && mixed

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"saltern/test/lab"
)

// crossing: a job from every master reaches every minion, and the returns
// come back to it.
func crossing(t *testing.T, step string, sites []*lab.Site, ids ...string) {
	t.Helper()
	var each []string
	for _, s := range sites {
		began := time.Now()
		s.Ping(t, 4*time.Minute, ids...)
		kind := "ours"
		if s.Python {
			kind = "Salt's"
		}
		each = append(each, fmt.Sprintf("%s %.1f s", kind, time.Since(began).Seconds()))
	}
	t.Logf("%s: jobs from %d masters to %d minions: %s", step, len(sites), len(ids), strings.Join(each, ", "))
}

func aes(t *testing.T, s *lab.Site) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(s.Options["cluster_pki_dir"].(string), ".aes"))
	if err != nil {
		return "" // between two keys
	}
	return string(b)
}

// lookups: whichever master is asked knows the returns of a job of any.
func lookups(t *testing.T, sites []*lab.Site, ids ...string) {
	t.Helper()
	for _, s := range sites {
		for tries := 1; !lookup(t, s, sites, ids); tries++ {
			if tries == 3 {
				t.Errorf("no job of %s was kept by all", s.Name)
				break
			}
		}
	}
}

// lookup is false when one of Salt's masters has thrown away what it knew of
// the job: every loop_interval it removes what has no file named jid, which
// jobs of other masters have from their first return on (clean_old_jobs of
// salt/returners/local_cache.py).
func lookup(t *testing.T, s *lab.Site, sites []*lab.Site, ids []string) (kept bool) {
	t.Helper()
	r := s.Salt(t, "--async", "*", "test.echo", "found")
	jid := regexp.MustCompile(`\d{20}`).FindString(r.Out)
	if jid == "" {
		t.Fatalf("salt --async on %s: %+v", s.Name, r)
	}

	kept = true
	for _, o := range sites {
		lab.Eventually(t, 2*time.Minute, "job "+jid+" of "+s.Name+" on "+o.Name, func() error {
			r := o.SaltRun(t, "jobs.lookup_jid", jid, "--out", "json")
			if o.Python && strings.Contains(r.Out+r.Err, ".minions.p does not exist") {
				t.Logf("%s has tidied job %s of %s away", o.Name, jid, s.Name)
				kept = false
				return nil
			}

			for _, id := range ids {
				if r.Code != 0 || !strings.Contains(r.Out, `"`+id+`": "found"`) {
					return fmt.Errorf("%s%s", r.Out, r.Err)
				}
			}

			return nil
		})
	}

	return kept
}

// replace stops a master and starts one of the other kind in its place. Only
// Salt's masters share their cachedir.
func replace(t *testing.T, s *lab.Site, python bool) {
	t.Helper()
	stop(t, s)
	s.Python = python
	delete(s.Options, "cachedir")
	if python {
		s.Options["cachedir"] = sharedCache(s)
	}
	s.Launch(t)
}

func sharedCache(s *lab.Site) string {
	return filepath.Join(filepath.Dir(s.Options["cluster_pki_dir"].(string)), "cache")
}

// TestMixedMigration: in a cluster of three of Salt's two masters are replaced,
// each in the place of the one before, while its minions stay. See
// docs/migration.md; TestMixedLastLeaves goes on.
func TestMixedMigration(t *testing.T) {
	t.Parallel()
	sites := mixed(t, true, true, true)
	for _, s := range sites {
		s.Options["loop_interval"] = 2
	}

	ids := []string{"a", "b", "c"}
	for i, s := range sites {
		// One after the other: of masters that start at once each may make a key of the
		// cluster (salt/crypt.py, MasterKeys), and a minion that has seen the one that is
		// replaced believes no master any more.
		s.Launch(t)
		lab.SiteMinion(t, ids[i], lab.Versions()[i], sites[i:i+1], nil)
		s.WaitKey(t, 4*time.Minute, "minions_pre", ids[i])
	}

	if r := sites[0].Key(t, "-y", "-A"); r.Code != 0 {
		t.Fatalf("salt-key -A: %+v", r)
	}

	// Asked is the founder only. One of the others may be stuck: its question
	// to join is sent once, and came too early.
	crossing(t, "three of Salt's", sites[:1], ids...)

	// The first of ours, in the place of the third.
	replace(t, sites[2], false)
	crossing(t, "one of ours", sites, ids...)

	lookups(t, sites, ids...)

	// Keys: rejected and deleted on either side.
	for _, s := range []*lab.Site{sites[2], sites[0]} {
		if r := s.Key(t, "-y", "-d", "b"); r.Code != 0 {
			t.Fatalf("salt-key -d: %+v", r)
		}

		// The minion notices at the next job, sealed with a new key.
		lab.Eventually(t, 120*time.Second, "the deleted minion signs in anew", func() error {
			_ = s.Salt(t, "--async", "-L", "a,c", "test.ping")
			_, err := os.Stat(filepath.Join(s.Options["cluster_pki_dir"].(string), "minions_pre", "b"))
			return err
		})

		if r := s.Key(t, "-y", "-a", "b"); r.Code != 0 {
			t.Fatalf("salt-key -a: %+v", r)
		}

		crossing(t, "after a key was deleted on "+s.Name, sites, ids...)
	}

	// Rotation by ours, then by Salt's.
	key := aes(t, sites[0])
	lab.Eventually(t, 2*time.Minute, "a rotation by ours", func() error {
		// The deletion above makes Salt's masters rotate as well; when that
		// comes between, it is what was asked for.
		if r := sites[2].SaltRun(t, "cluster.rotate"); r.Code != 0 {
			t.Fatalf("cluster.rotate: %+v", r)
		}
		if k := aes(t, sites[0]); k == key {
			return fmt.Errorf("the file of the AES key was not replaced")
		}
		return nil
	})

	crossing(t, "after a rotation by ours", sites, ids...)
	key = aes(t, sites[0])
	old := time.Now().Add(-48 * time.Hour)
	if err := os.Chtimes(filepath.Join(sites[0].Options["cluster_pki_dir"].(string), ".aes"), old, old); err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, 2*time.Minute, "a rotation by Salt's", func() error {
		if k := aes(t, sites[0]); k == key || k == "" {
			return fmt.Errorf("the key is the same")
		}
		return nil
	})

	crossing(t, "after a rotation by Salt's", sites, ids...)
	if aes(t, sites[0]) == key {
		t.Error("the old AES key is back")
	}

	// A master of Salt's dies and comes back: it serves again.
	sites[0].Kill()
	crossing(t, "one of Salt's is dead", sites[1:], "b", "c")
	sites[0].Launch(t)
	crossing(t, "it is back", sites, ids...)

	// The second follows.
	replace(t, sites[1], false)
	crossing(t, "two of ours", sites, ids...)
}

// TestMixedLastLeaves: the last of Salt's masters is replaced, and the door for
// them is shut.
func TestMixedLastLeaves(t *testing.T) {
	t.Parallel()
	sites := mixed(t, true, false, false)
	ids := []string{"a", "b", "c"}
	for i, s := range sites {
		s.Launch(t)
		lab.SiteMinion(t, ids[i], lab.Versions()[i], sites[i:i+1], nil)
		s.WaitKey(t, 4*time.Minute, "minions_pre", ids[i])
	}

	if r := sites[1].Key(t, "-y", "-A"); r.Code != 0 {
		t.Fatalf("salt-key -A: %+v", r)
	}

	crossing(t, "one of Salt's", sites, ids...)
	replace(t, sites[0], false)
	crossing(t, "none of Salt's", sites, ids...)
	lab.Eventually(t, 30*time.Second, "no master of Salt's among the members", func() error {
		r := sites[2].SaltRun(t, "cluster.members", "--out", "json")
		if r.Code != 0 || strings.Contains(strings.ReplaceAll(r.Out, " ", ""), `"salt":true`) {
			return fmt.Errorf("%s%s", r.Out, r.Err)
		}
		return nil
	})

	// The door for Salt's masters is shut, one by one.
	for _, s := range sites {
		stop(t, s)
		delete(s.Options, "saltern_cluster_plain_peers")
		delete(s.Options, "saltern_cluster_sessions")
		s.Launch(t)
		crossing(t, "without plain peers on "+s.Addr, sites, ids...)
	}
}

// TestMixedThereAndBack: ours takes the place of one of Salt's, and Salt's
// takes it back, with what it remembers of its first life.
func TestMixedThereAndBack(t *testing.T) {
	t.Parallel()
	for name, python := range map[string][]bool{"first": {true, false}, "last": {false, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sites := mixed(t, python...)
			one := sites[0]
			if !one.Python {
				one = sites[1]
			}

			ids := []string{"a", "b"}
			for i, s := range sites {
				s.Launch(t)
				lab.SiteMinion(t, ids[i], lab.Versions()[2*i], sites[i:i+1], nil)
				s.WaitKey(t, 4*time.Minute, "minions_pre", ids[i])
			}

			if r := sites[1].Key(t, "-y", "-A"); r.Code != 0 {
				t.Fatalf("salt-key -A: %+v", r)
			}

			crossing(t, "one of Salt's", sites, ids...)
			replace(t, one, false)
			crossing(t, "none of Salt's", sites, ids...)
			replace(t, one, true)
			crossing(t, "back", sites, ids...)
		})
	}
}
