//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/test/lab"
)

// topology is a walkthrough of two masters that know nothing of each other.
type topology struct {
	python   [2]bool  // which of the two are Salt's
	versions []string // one minion of each
	signed   bool     // failover: each master has a pair of its own, signed by a third that minions know
	shared   bool     // hot: the second master's folders of minions' keys are the first's
}

// sites are the two masters. The first makes a pair, named pair.pem and
// pair.pub, of which the second gets a copy before its start.
func (p topology) sites(t *testing.T, pair string, options map[string]any) []*lab.Site {
	t.Helper()
	sites := lab.NewSites(t, 2)
	for i, s := range sites {
		s.Python = p.python[i]
		s.Options = map[string]any{}
		maps.Copy(s.Options, options)
	}

	sites[0].Launch(t)
	for _, file := range []string{pair + ".pem", pair + ".pub"} {
		b := whole(t, filepath.Join(sites[0].Dir, "pki", file))
		if err := os.WriteFile(filepath.Join(sites[1].Dir, "pki", file), b, 0o400); err != nil {
			t.Fatal(err)
		}
	}

	if p.shared {
		for _, d := range []string{"minions", "minions_pre", "minions_rejected", "minions_denied"} {
			lab.Eventually(t, time.Minute, d+" of the first master", func() error {
				_, err := os.Stat(filepath.Join(sites[0].Dir, "pki", d))
				return err
			})

			if err := os.Symlink(filepath.Join(sites[0].Dir, "pki", d),
				filepath.Join(sites[1].Dir, "pki", d)); err != nil {
				t.Fatal(err)
			}
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

// minions are prepared, one of each version, and know the masters.
func (p topology) minions(
	t *testing.T,
	prefix string,
	sites []*lab.Site,
	options map[string]any,
) (ms []*lab.Minion, ids []string) {
	t.Helper()
	for i, v := range p.versions {
		m := lab.PrepareSiteMinion(t, prefix+strconv.Itoa(i), v, sites, options)
		ms, ids = append(ms, m), append(ids, m.ID)
	}
	return ms, ids
}

// answeredAll sends a test.ping every few seconds until every minion has
// answered this master, and gives the time that the last one took. The tries
// do not wait for each other: one that comes too early says nothing. Before each,
// what is given beside is done.
func answeredAll(t *testing.T, what string, s *lab.Site, ids []string, beside ...func()) time.Duration {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), lab.Limit(4*time.Minute))
	lines, tries := make(chan string), sync.WaitGroup{}
	defer tries.Wait()

	defer cancel()
	try := func() {
		cmd := exec.CommandContext(ctx, lab.Bin(t, "salt"), "-c", filepath.Join(s.Dir, "etc"), "--out",
			"txt", "-t", "60", "-L", strings.Join(ids, ","), "test.ping")
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}

		if err != nil {
			t.Fatal(err)
		}

		tries.Go(func() {
			for sc := bufio.NewScanner(out); sc.Scan(); {
				select {
				case lines <- sc.Text():
				case <-ctx.Done():
				}
			}
			_ = cmd.Wait() // the minions' silence is not an error of this try
		})
	}

	began, missing, took, pause := time.Now(), slices.Clone(ids), []string(nil), 2*time.Second
	next := time.NewTimer(0)
	defer next.Stop()

	for len(missing) > 0 {
		select {
		case <-next.C:
			if !s.Running() {
				t.Fatalf("%s has ended:\n%s", s.Name, lab.Tail(s.Log, 5))
			}

			for _, do := range beside {
				do()
			}

			try()
			next.Reset(pause)
			pause = min(pause*5/4, 20*time.Second) // on a busy machine many would pile up
		case line := <-lines:
			id, answer, _ := strings.Cut(line, ": ")
			if i := slices.Index(missing, id); i >= 0 && answer == "True" {
				missing = slices.Delete(missing, i, i+1)
				took = append(took, fmt.Sprintf("%s %.1f s", id, time.Since(began).Seconds()))
			}
		case <-ctx.Done():
			t.Fatalf("%s: no answer of %v in 4 minutes, of the others: %v", what, missing, took)
		}
	}

	t.Logf("%s: %s", what, strings.Join(took, ", "))
	return time.Since(began)
}

// hotLab: two masters with one key pair. Minions are connected to both at
// once, and their keys accepted on both.
func (p topology) hotLab(t *testing.T) (sites []*lab.Site, ids []string) {
	t.Helper()
	sites = p.sites(t, "master", nil)
	ms, ids := p.minions(t, "hot", sites, map[string]any{"master_shuffle": true, "random_reauth_delay": 2})
	for _, m := range ms {
		m.Launch(t)
	}
	sites[0].Accept(t, ids...)
	answeredAll(t, "accepted on the first", sites[0], ids)
	if !p.shared {
		sites[1].Accept(t, ids...)
	}
	answeredAll(t, "accepted on the second", sites[1], ids)
	return sites, ids
}

// hot: each of two masters answers alone when the other is away.
func (p topology) hot(t *testing.T) {
	t.Helper()
	sites, ids := p.hotLab(t)
	for i, s := range sites {
		name := []string{"first", "second"}[i]
		if i == 0 {
			stop(t, s)
		} else {
			s.Kill()
		}

		answeredAll(t, "without the "+name, sites[1-i], ids)
		s.Launch(t)
		answeredAll(t, "the "+name+" is back", s, ids)
		answeredAll(t, "the other beside it", sites[1-i], ids)
	}
}

// alive is master_alive_interval. By failoverLimit a minion answers to the
// second master; a busy machine needs longer.
const (
	alive         = 5 * time.Second
	failoverLimit = alive + 15*time.Second
)

// failoverOptions are the minions' in the walkthroughs of failover.
func failoverOptions() map[string]any {
	return map[string]any{
		"master_type": "failover", "master_alive_interval": int(alive.Seconds()), "random_reauth_delay": 2, "retry_dns": 0,
		"master_tries":   -1,   // by default a minion of 3006.28 gives up when both are away at once
		"master_shuffle": true, // with master_failback the first stays first
	}
}

// inTime holds the time of a failover on a quiet machine.
func inTime(t *testing.T, took time.Duration) {
	t.Helper()
	if took > failoverLimit && strict() {
		t.Errorf("the second master had its minions after %s, more than %s", took, failoverLimit)
	}
}

func text(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// failoverLab: minions are connected to the first of two masters, which has
// accepted their keys.
func (p topology) failoverLab(t *testing.T) (sites []*lab.Site, ms []*lab.Minion, ids []string) {
	t.Helper()
	options := failoverOptions()
	options["master_failback"], options["master_failback_interval"] = true, 5
	pair, more := "master", map[string]any(nil)
	if p.signed {
		pair, more = "master_sign", map[string]any{"master_sign_pubkey": true}
		options["verify_master_pubkey_sign"] = true
	}

	sites = p.sites(t, pair, more)
	ms, ids = p.minions(t, "fo", sites, options)
	for _, m := range ms {
		if p.signed {
			lab.WriteTree(t, m.Dir,
				map[string]string{"pki/master_sign.pub": string(whole(t, sites[0].Dir+"/pki/master_sign.pub"))})
		}
		m.Launch(t)
	}

	sites[0].Accept(t, ids...)
	answeredAll(t, "accepted on the first", sites[0], ids)
	return sites, ms, ids
}

// copyKeys gives the second master the keys that the first has accepted.
func copyKeys(t *testing.T, sites []*lab.Site, ids []string) {
	t.Helper()
	for _, id := range ids {
		b := whole(t, filepath.Join(sites[0].Dir, "pki/minions", id))
		lab.WriteTree(t, sites[1].Dir, map[string]string{"pki/minions/" + id: string(b)})
	}
}

// failover: minions go to the second master when the first is away, and back.
func (p topology) failover(t *testing.T) {
	t.Helper()
	sites, ms, ids := p.failoverLab(t)

	// The second sees them when the first is away, and accepts them too. One
	// with a pair of its own cannot tell minions that they have to wait: what
	// it says is not signed by the master they know, so it has their keys before.
	if p.signed {
		copyKeys(t, sites, ids)
	}

	stop(t, sites[0])
	if !p.signed {
		sites[1].Accept(t, ids...)
	}

	answeredAll(t, "accepted on the second", sites[1], ids)
	sites[0].Launch(t)
	answeredAll(t, "the first is back", sites[0], ids)

	sites[0].Kill()
	inTime(t, answeredAll(t, "the first has died: the second", sites[1], ids))
	sites[0].Launch(t)
	answeredAll(t, "the first is back from death", sites[0], ids)

	// Both away, until every minion has tried both in vain. Those of 3007.15
	// are not asked: now and then one hangs.
	var left []*lab.Minion
	for _, m := range ms {
		if m.Version == lab.Versions()[1] {
			m.Kill()
			ids = slices.DeleteFunc(ids, func(id string) bool { return id == m.ID })
		} else {
			left = append(left, m)
		}
	}

	sites[1].Kill()
	sites[0].Kill()
	for _, m := range left {
		for _, s := range sites {
			vain := fmt.Sprintf("Master %s could not be reached", s.Addr)
			before := strings.Count(text(t, m.Log), vain)
			lab.Eventually(t, 2*time.Minute, m.ID+" has tried "+s.Name, func() error {
				if !m.Running() {
					t.Fatalf("minion %s has ended:\n%s", m.ID, lab.Tail(m.Log, 5))
				}
				if strings.Count(text(t, m.Log), vain) == before {
					return errors.New("it has not said so")
				}
				return nil
			})
		}
	}

	sites[1].Launch(t)
	answeredAll(t, "both were away: the second", sites[1], ids)
	sites[0].Launch(t)
	answeredAll(t, "both were away: the first", sites[0], ids)
}

// TestTopologyHot: two of ours that know nothing of each other.
func TestTopologyHot(t *testing.T) {
	t.Parallel()
	topology{versions: lab.Versions()}.hot(t)
}

// TestTopologyFailover: the same for minions with master_type failover.
func TestTopologyFailover(t *testing.T) {
	t.Parallel()
	topology{versions: []string{lab.Newest}, signed: true}.failover(t)
}
