//go:build e2e && mixed

package e2e

import (
	"net"
	"strconv"
	"testing"
	"time"

	"saltern/test/lab"
)

func (p topology) name() string {
	kind := map[bool]string{false: "ours", true: "Salt's"}
	return "first " + kind[p.python[0]] + ", second " + kind[p.python[1]]
}

// shuffled: minions take any of the masters, go to the other when theirs has
// died, and stay there.
func (p topology) shuffled(t *testing.T) {
	t.Helper()
	sites := p.sites(t, "master", map[string]any{"auto_accept": true})
	ms, ids := p.minions(t, "sh", sites, failoverOptions())
	for _, m := range ms {
		m.Launch(t)
	}

	for i, s := range sites {
		other := sites[1-i]
		hung := takeForGood(t, ms, s)
		s.Kill()

		// No limit of time: minions mix their masters again and may try the
		// dead one first.
		answeredAll(t, "only "+other.Name+" is there", other, ids, hung)
		s.Launch(t)
		serves(t, s) // a minion may hang on one that does not yet
		answeredAll(t, s.Name+" is back, nobody leaves", other, ids)
	}
}

// takeForGood gives what restarts the minions that take a dead master for a good one, as
// those of all releases may when they mix their masters and meet the dead one first, of
// Salt's as well as of ours. They believe to be signed in there, fire their start event,
// and never look for another (salt/minion.py, Minion.eval_master and handle_event).
func takeForGood(t *testing.T, ms []*lab.Minion, dead *lab.Site) func() {
	t.Helper()
	took := "Re-initialising subsystems for new master " + dead.Addr
	for _, m := range ms {
		_ = m.SaidAgain(t, took) // while it lived
	}
	return func() {
		for _, m := range ms {
			if m.SaidAgain(t, took) {
				t.Logf("NOTE: minion %s (%s) takes a dead master for a good one and is restarted", m.ID, m.Version)
				m.Restart(t)
			}
		}
	}
}

// serves waits until the master takes connections.
func serves(t *testing.T, s *lab.Site) {
	t.Helper()
	lab.Eventually(t, time.Minute, s.Name+" serves", func() error {
		c, err := net.Dial("tcp", net.JoinHostPort(s.Addr, strconv.Itoa(lab.FrontRequest)))
		if err == nil {
			_ = c.Close()
		}
		return err
	})
}

// TestTopologiesMixed: the walkthroughs of several masters with two of ours,
// one of ours and one of Salt's in either order, and two of Salt's to compare
// with; minions of all releases. For a quiet machine: it measures.
func TestTopologiesMixed(t *testing.T) {
	t.Parallel()
	for _, python := range [][2]bool{{false, false}, {false, true}, {true, false}, {true, true}} {
		p := topology{python: python, versions: lab.Versions()}
		shared, signed := p, p
		shared.shared, signed.signed = true, true
		type walk struct {
			name string
			run  func(*testing.T)
		}

		walks := []walk{
			{"hot", p.hot}, {"failover", p.failover}, {"failover, signed", signed.failover}, {"failover, shuffled", p.shuffled},
		}
		if !python[1] { // Salt's takes no folder of keys that is a link
			walks = append(walks, walk{"hot, keys shared", shared.hot})
		}

		for _, w := range walks {
			t.Run(w.name+", "+p.name(), func(t *testing.T) {
				t.Parallel()
				w.run(t)
			})
		}
	}
}

// TestMigrationTwoMasters: two of Salt's masters are replaced as
// docs/migration.md says, and put back.
func TestMigrationTwoMasters(t *testing.T) {
	t.Parallel()
	salts := topology{python: [2]bool{true, true}, versions: lab.Versions()}
	retire := func(s *lab.Site, python bool) {
		stop(t, s)
		s.Python = python
	}

	t.Run("hot", func(t *testing.T) {
		t.Parallel()
		sites, ids := salts.hotLab(t)
		for _, python := range []bool{false, true} {
			for i, s := range sites {
				retire(s, python)
				answeredAll(t, "meanwhile, from "+sites[1-i].Name, sites[1-i], ids)
				s.Launch(t)
				for _, s := range sites {
					answeredAll(t, "from "+s.Name, s, ids)
				}
			}
		}
	})

	for name, signed := range map[string]bool{"failover": false, "failover, signed": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := salts
			p.signed = signed
			sites, _, ids := p.failoverLab(t)
			copyKeys(t, sites, ids)

			for _, python := range []bool{false, true} {
				retire(sites[1], python)
				sites[1].Launch(t)
				serves(t, sites[1])
				answeredAll(t, "still from "+sites[0].Name, sites[0], ids)
				retire(sites[0], python)
				inTime(t, answeredAll(t, "from "+sites[1].Name, sites[1], ids))
				sites[0].Launch(t)
				answeredAll(t, "back at "+sites[0].Name, sites[0], ids)
			}
		})
	}
}
