package notify

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/event"
	"saltern/master/internal/presence"
	"saltern/master/value"
)

// crowd is a world with minions that are idle: they send requests only when they start, and when they are
// pinged.
type crowd struct {
	*world
	random  *rand.Rand
	minions []*idleMinion
}

// idleMinion subscribes at a node from one address, and sends its requests, there too, from another one.
type idleMinion struct {
	id             string
	listens, sends netip.Addr
	node           *node // nil: it is gone
}

func newCrowd(t *testing.T, random *rand.Rand, n int) *crowd {
	c := &crowd{world: newWorld(t, 3), random: random}
	c.rules = "[{name: r, on: gone, gone_for: 120, dedupe: 0, limit: 10000, to: {syslog: 'file:///dev/log'}}]"
	var ids []string
	for i := range n {
		m := &idleMinion{id: fmt.Sprint("m", i), node: c.nodes[random.IntN(3)]}
		m.listens = c.address()
		m.sends = m.listens
		if i%4 == 0 { // behind a pool of NAT addresses
			m.sends = netip.MustParseAddr("192.0.2.1")
		}
		c.minions = append(c.minions, m)
		ids = append(ids, m.id)
	}
	for _, n := range c.nodes {
		n.accepted = ids
	}

	c.world.answers = c.answer
	c.startAll()
	c.subscribe()
	c.answer(ids)
	return c
}

func (c *crowd) address() netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(c.random.IntN(250)), byte(c.random.IntN(250)), byte(c.random.IntN(250))})
}

// answer makes minions that live answer a ping. A return is known at all nodes.
func (c *crowd) answer(ids []string) {
	type place struct {
		minion  string
		sends   netip.Addr
		tracker *presence.View
	}
	c.mu.Lock()
	alive := c.alive()
	var heard []place
	for _, m := range c.minions {
		if slices.Contains(ids, m.id) && m.node != nil && slices.Contains(alive, m.node) {
			heard = append(heard, place{m.id, m.sends, m.node.presence})
		}
	}
	var buses []*event.Bus
	for _, n := range alive {
		buses = append(buses, n.bus)
	}
	c.mu.Unlock()

	for _, m := range heard {
		m.tracker.SawRequest(m.minion, m.sends, time.Now())
		load := value.NewMap("id", m.minion, "jid", "20261129120000000000", "fun", "test.ping", "return", true, "success", true)
		for _, bus := range buses {
			_ = bus.Fire(event.Tag("job", "20261129120000000000", "ret", m.minion), load) // the node may end meanwhile
		}
	}
}

// leave makes a minion gone.
func (c *crowd) leave(m *idleMinion) {
	c.set(func() { m.node = nil })
	c.subscribe()
}

// subscribe sets the subscriptions of all nodes to those of the minions that live.
func (c *crowd) subscribe() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.nodes {
		n.subs = nil
		for _, m := range c.minions {
			if m.node == n {
				n.subs = append(n.subs, presence.Subscription{From: m.listens, Topics: []string{""}})
			}
		}
	}
}

// restart restarts a node. Its minions, which send nothing, subscribe to it again. If forgets is set, it
// has lost what it knew.
func (c *crowd) restart(n *node, forgets bool) {
	n.kill()
	n.set(func() { n.subs = nil })
	<-time.After(3 * time.Second)
	if forgets {
		n.set(func() { n.presence = nil })
	}
	n.start()
	<-time.After(2 * time.Second)
	c.subscribe()
}

// about returns the number of messages about each minion.
func (c *crowd) about() (counts []int) {
	for _, m := range c.minions {
		counts = append(counts, len(c.messages(m.id)))
	}
	return counts
}

// After all masters have been restarted one after the other, nobody is gone, even if they forgot from where
// minions sent requests. Who really goes is told.
func TestNobodyIsGoneAfterARoll(t *testing.T) {
	for _, forgets := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, rand.New(rand.NewPCG(1, 1)), 24)
			defer c.stopAll()
			for range 2 {
				time.Sleep(11 * time.Minute)
				for _, n := range c.nodes {
					c.restart(n, forgets)
					time.Sleep(4 * time.Second)
				}
			}
			time.Sleep(20 * time.Minute)
			if got := c.about(); slices.Max(got) > 0 {
				t.Fatal("messages about minions that are connected:", got)
			}

			c.leave(c.minions[3])
			time.Sleep(5 * time.Minute)
			if got := c.about(); got[3] != 1 || slices.Max(slices.Delete(got, 3, 4)) > 0 {
				t.Error("messages after one minion has gone:", got)
			}
		})
	}
}

// Whatever happens to masters and minions, there is a message about each minion that is gone, and none about
// another one.
func TestGoneOfGeneratedSequences(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrowd(t, rand.New(rand.NewPCG(seed, 2)), 12)
				defer c.stopAll()
				for range 12 {
					time.Sleep(time.Duration(c.random.IntN(400)) * time.Second)
					c.step()
				}
				time.Sleep(15 * time.Minute)

				for i, n := range c.about() {
					gone := c.minions[i].node == nil
					if gone && n != 1 || !gone && n > 0 {
						t.Errorf("minion %d: gone %t, %d messages", i, gone, n)
					}
				}
			})
		})
	}
}

// step does something to a master or a minion.
func (c *crowd) step() {
	m := c.minions[c.random.IntN(len(c.minions))]
	n := c.nodes[c.random.IntN(len(c.nodes))]
	switch c.random.IntN(5) {
	case 0, 1:
		c.restart(n, c.random.IntN(2) == 0)
	case 2: // another owner
		c.set(func() {
			c.term++
			c.owner = n.number
		})
	case 3:
		c.leave(m)
	case 4:
		if m.node != nil { // it moves, and sends nothing
			c.set(func() {
				m.node = n
				m.listens = c.address()
				m.sends = m.listens
			})
			c.subscribe()
		}
	}
}

func (c *crowd) set(change func()) { c.nodes[0].set(change) }

// A subscription of a stranger, such as of a minion whose key was deleted, hides a minion that is gone for no
// longer than three questions.
func TestGoneBesideAStranger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, rand.New(rand.NewPCG(3, 3)), 8)
		defer c.stopAll()
		time.Sleep(10 * time.Minute)
		c.leave(c.minions[1])
		stranger := presence.Subscription{From: netip.MustParseAddr("203.0.113.9"), Topics: []string{""}}
		c.set(func() { c.nodes[2].subs = append(c.nodes[2].subs, stranger) })
		time.Sleep(30 * time.Minute)
		if got := c.about(); got[1] != 1 || slices.Max(slices.Delete(got, 1, 2)) > 0 {
			t.Error("messages:", got)
		}
	})
}

// Minions behind NAT are asked once an hour, also beside one that is gone, whether a rule is about it or not.
func TestQuestionsBesideAMinionThatIsGone(t *testing.T) {
	for _, watched := range []string{"*", "m[!1]*"} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, rand.New(rand.NewPCG(4, 4)), 4)
			defer c.stopAll()
			for _, n := range c.nodes {
				n.kill()
			}
			c.rules = strings.Replace(c.rules, "name: r", "name: r, minions: '"+watched+"'", 1)
			c.startAll()
			c.leave(c.minions[1])
			time.Sleep(20 * time.Hour)

			asked := 0
			c.set(func() {
				for _, n := range c.nodes {
					asked += len(n.pinged)
				}
			})
			want := 0
			if watched == "*" {
				want = 1
			}
			if got := c.about(); got[1] != want || got[0]+got[2]+got[3] > 0 || asked > 40 {
				t.Errorf("minions %s: messages %v, %d questions", watched, got, asked)
			}
		})
	}
}

// A clock that jumps ahead makes nobody gone.
func TestGoneOfAJumpOfTheClock(t *testing.T) {
	w := watch{absent: map[string]*absence{"m": {since: time.Unix(1000, 0)}}}
	w.skipJump(time.Unix(1010, 0))
	w.skipJump(time.Unix(1030, 0))
	for _, ahead := range []time.Duration{time.Hour, -2 * time.Hour, 24 * 365 * time.Hour} {
		before := w.lastLook.Sub(w.absent["m"].since)
		w.skipJump(w.lastLook.Add(ahead))
		if after := w.lastLook.Sub(w.absent["m"].since); after != before {
			t.Errorf("by %s: absent for %s, before for %s", ahead, after, before)
		}
	}
}

// The times of absences have no monotonic reading: with it they would not follow the jumps that skipJump leaves
// out.
func TestAbsencesAreByTheWallClock(t *testing.T) {
	c := newCrowd(t, rand.New(rand.NewPCG(5, 5)), 1)
	c.stopAll()
	w := c.nodes[0].service.watch
	w.returned["m0"] = time.Now().Add(time.Millisecond)
	for range 2 {
		w.gone(t.Context(), []string{"m0"}, view{heard: map[string]time.Time{"m0": time.Now()}, unknown: 1}, false, time.Now())
	}
	for _, at := range []time.Time{w.lastLook, w.absent["m0"].since, w.absent["m0"].maybeConnected} {
		if at.IsZero() || at != at.Round(0) {
			t.Error("a time with a monotonic reading:", at)
		}
	}
}

// Of two minions behind NAT that one is gone that leaves questions without an answer, not the one that was heard
// first.
func TestGoneOfTwoBehindNAT(t *testing.T) {
	for _, ends := range []int{1, 2} {
		synctest.Test(t, func(t *testing.T) {
			c := newCrowd(t, rand.New(rand.NewPCG(6, 6)), 6)
			defer c.stopAll()
			nat := netip.MustParseAddr("198.51.100.7")
			for i, m := range c.minions {
				c.set(func() {
					if i == 1 || i == 2 {
						m.listens = nat
					}
					m.sends = m.listens
				})
				c.answer([]string{m.id})
				time.Sleep(time.Second)
			}
			c.subscribe()
			time.Sleep(10 * time.Minute)

			c.leave(c.minions[ends])
			time.Sleep(30 * time.Minute)
			got := c.about()
			if got[ends] != 1 || slices.Max(slices.Delete(got, ends, ends+1)) > 0 {
				t.Errorf("minion %d is gone: messages %v", ends, got)
			}
		})
	}
}

// TestGoneOfManyBehindNAT: who is gone of many minions with one address is found without asking one after the other.
func TestGoneOfManyBehindNAT(t *testing.T) {
	const many = 30
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, rand.New(rand.NewPCG(7, 7)), many)
		defer c.stopAll()
		nat := netip.MustParseAddr("198.51.100.7")
		for _, m := range c.minions {
			c.set(func() { m.listens, m.sends = nat, nat })
			c.answer([]string{m.id})
			time.Sleep(time.Second)
		}
		c.subscribe()
		time.Sleep(10 * time.Minute)

		last := many - 1 // all others were heard before
		c.leave(c.minions[last])
		time.Sleep(30 * time.Minute)
		got := c.about()
		if got[last] != 1 || slices.Max(got[:last]) > 0 {
			t.Errorf("the last minion is gone: messages %v", got)
		}
	})
}
