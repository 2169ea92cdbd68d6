package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/control"
	"saltern/internal/pause"
	"saltern/master/event"
	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/presence"
	"saltern/master/value"
	"saltern/test/check"
)

// world is a cluster of services in one process, and a destination that counts.
type world struct {
	t     *testing.T
	dir   string
	rules string

	mu       sync.Mutex
	nodes    []*node
	owner    int
	term     uint64
	loss     float64             // of messages between masters
	resolve  func(n *node)       // happens while a target is resolved; nil: nothing
	full     bool                // no message between masters finds room
	answers  func(ids []string)  // what minions do that are pinged; nil: nothing
	deaf     *node               // gets no messages of others; may be nil
	accepted map[string][]string // ids of messages, by minion
	order    []string            // minions, in the order of their first message
	fail     func(n *node) error // what the destination says instead of accepting; nil: it accepts
	after    func(n *node) error // what happens after it has accepted
	answer   time.Duration       // how long its answer takes after it has accepted
}

// node is one master of a world. It is its service's cluster, surroundings and destination.
type node struct {
	w       *world
	number  int
	service *Service
	bus     *event.Bus
	dead    bool
	stop    func()

	pending  map[string]string
	problems []alert.Problem
	pinged   []string
	faults   map[control.Fault]error
	presence *presence.View
	accepted []string
	subs     []presence.Subscription
}

const failedRule = "[{name: r, on: [failed, gone, deaf, key, node], dedupe: 0, limit: 10000, to: {syslog: 'file:///dev/log'}}]"

func newWorld(t *testing.T, n int) *world {
	w := &world{t: t, dir: t.TempDir(), rules: failedRule, accepted: map[string][]string{}, term: 1}
	for i := range n {
		w.nodes = append(w.nodes, &node{w: w, number: i, faults: map[control.Fault]error{}})
	}
	return w
}

func (w *world) startAll() {
	for _, n := range w.nodes {
		n.start()
	}
}

func (w *world) stopAll() {
	for _, n := range w.nodes {
		if n.service != nil && !n.isDead() {
			n.kill()
		}
	}
}

func (n *node) start() {
	all, faults := rules.Parse(option(n.w.t, n.w.rules))
	if len(faults) > 0 {
		n.w.t.Fatal(faults)
	}

	n.bus = event.NewBus(time.Now, 0)
	if n.presence == nil {
		n.presence = &presence.View{Tracker: presence.New(), Now: time.Now}
	}
	n.presence.Subs = func(yield func(presence.Subscription) bool) {
		var subs []presence.Subscription
		n.set(func() { subs = n.subs })
		for _, s := range subs {
			if !yield(s) {
				return
			}
		}
	}
	service := New(Config{
		Rules:   all,
		Dir:     filepath.Join(n.w.dir, fmt.Sprint(n.number)),
		Node:    fmt.Sprint("n", n.number),
		Bus:     n.bus,
		Cluster: n,
		Near:    n,
		Problem: func(fault control.Fault, err error) { n.set(func() { n.faults[fault] = err }) },
		Now:     time.Now,
		Log:     slog.New(slog.DiscardHandler),
	})
	for _, s := range service.senders {
		s.by = n
	}

	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { service.Run(ctx); close(done) }()
	n.stop = func() { cancel(); <-done; n.bus.Close() }

	n.w.mu.Lock()
	n.service, n.dead = service, false
	peers := n.w.alive()
	n.w.mu.Unlock()
	for _, p := range peers {
		if p != n {
			p.service.PeerConnected(n.name())
			service.PeerConnected(p.name())
		}
	}
}

func (n *node) name() string { return fmt.Sprint("n", n.number) }

// alive returns the nodes that live. The caller holds mu.
func (w *world) alive() (all []*node) {
	for _, n := range w.nodes {
		if n.service != nil && !n.dead {
			all = append(all, n)
		}
	}
	return all
}

// die makes a node as good as dead: nothing that it does has an effect any more. Another node
// becomes the owner. The caller holds mu.
func (n *node) die() {
	n.dead = true
	if n.w.owner == n.number {
		n.w.term++
		for _, other := range n.w.alive() {
			n.w.owner = other.number
		}
	}
}

func (n *node) isDead() bool {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.dead
}

// messages returns the ids of the messages about a minion.
func (w *world) messages(minion string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.accepted[minion])
}

// set changes what a node sees.
func (n *node) set(change func()) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	change()
}

// faultOf returns a fault that the node reports, or nil.
func (n *node) faultOf(fault control.Fault) (err error) {
	n.set(func() { err = n.faults[fault] })
	return err
}

func (n *node) kill() {
	n.w.mu.Lock()
	n.die()
	n.w.mu.Unlock()
	n.stop()
}

// Own implements Cluster.
func (n *node) Own() (uint64, bool) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	return n.w.term, !n.dead && n.w.owner == n.number
}

// AlivePeers implements Cluster.
func (n *node) AlivePeers() (ids []string) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	for _, other := range n.w.alive() {
		if other != n {
			ids = append(ids, other.name())
		}
	}
	return ids
}

// SendData implements Cluster.
func (n *node) SendData(peer string, b []byte) bool {
	n.w.mu.Lock()
	if n.w.full {
		n.w.mu.Unlock()
		return false
	}
	var to []*Service
	for _, other := range n.w.alive() {
		if !n.dead && other != n && other != n.w.deaf && (peer == "" || peer == other.name()) && rand.Float64() >= n.w.loss {
			to = append(to, other.service)
		}
	}
	n.w.mu.Unlock()
	for _, s := range to {
		if !s.PeerData(n.name(), b) {
			n.w.t.Error("a message is not recognised")
		}
	}
	return true
}

var errDead = errors.New("the node is dead")

// Send implements send.Sender.
func (n *node) Send(ctx context.Context, m *alert.Message) error {
	if err := pause.For(ctx, time.Duration(rand.IntN(20))*time.Millisecond); err != nil {
		return err
	}
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.dead {
		return errDead
	}
	if n.w.fail != nil {
		if err := n.w.fail(n); err != nil {
			return err
		}
	}
	for _, a := range m.Alerts {
		if len(n.w.accepted[a.Minion]) == 0 {
			n.w.order = append(n.w.order, a.Minion)
		}
		n.w.accepted[a.Minion] = append(n.w.accepted[a.Minion], m.ID)
	}
	if n.w.after != nil {
		return n.w.after(n)
	}
	if n.w.answer > 0 {
		return pause.For(ctx, n.w.answer) // nobody else uses the world meanwhile
	}
	return nil
}

func (n *node) Accepted() (ids []string) {
	n.set(func() { ids = n.accepted })
	return ids
}

func (n *node) Known(string) bool { return true }
func (n *node) Pending() (ids map[string]string) {
	n.set(func() { ids = n.pending })
	return ids
}

// IsSyndic implements Surroundings.
func (n *node) IsSyndic(id string) bool { return id == "syndic" }

func (n *node) Presence() *presence.View { return n.presence }
func (n *node) Problems(context.Context) (list []alert.Problem, err error) {
	n.set(func() { list = n.problems })
	return list, nil
}
func (n *node) Select(any, string) ([]string, error) {
	var resolve func(*node)
	n.set(func() { resolve = n.w.resolve })
	if resolve != nil {
		resolve(n)
	}
	return []string{"m1"}, nil
}
func (n *node) Ping(_ context.Context, ids []string) error {
	var answers func([]string)
	n.set(func() {
		n.pinged = append(n.pinged, ids...)
		answers = n.w.answers
	})
	if answers != nil {
		answers(ids)
	}
	return nil
}

// returned is a return of a failed run.
func returned(i int) *value.Map {
	return value.NewMap("id", fmt.Sprint("m", i), "jid", fmt.Sprintf("2026112900000000%04d", i), "fun", "test.false",
		"return", "no", "retcode", int64(1), "success", false)
}

// happen passes the return of a failed run to a node, as minion.onReturn does, and its event to the
// others, as the cluster does.
func (n *node) happen(i int) {
	load := returned(i)
	n.w.mu.Lock()
	peers := n.w.alive()
	n.w.mu.Unlock()
	for _, p := range peers { // one peer keeps the return before its minion gets an answer
		if p != n {
			p.relay(load)
			synctest.Wait()
			break
		}
	}
	n.service.Returned(load)
	check.Must(n.w.t, n.bus.Fire(event.Tag("job", load.Str("jid"), "ret", load.Str("id")), load))
}

// relay passes to a node the event of a return that another node took.
func (n *node) relay(load *value.Map) {
	check.Must(n.w.t, n.bus.Relay(event.Event{
		Tag:    event.Tag("job", load.Str("jid"), "ret", load.Str("id")),
		Data:   load,
		Origin: event.Peer,
		Maker:  event.Minion,
		Minion: load.Str("id"),
	}))
}

// Runs fail at random masters, while messages between masters are lost and owners die and come
// back. There is one message about each run. A second one has the same id, and only comes when an
// owner dies after the destination has accepted the first, or when its mark is lost on the network.
func TestEachAlertIsSentOnce(t *testing.T) {
	for seed := range 9 {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 3)
				loss := float64(seed%3) * 0.2
				w.loss = loss
				random := rand.New(rand.NewPCG(uint64(seed), 7))
				w.startAll()
				defer w.stopAll()
				time.Sleep(2 * takeOver)

				cut := 0 // owners that died between the answer of the destination and their mark
				w.after = func(n *node) error {
					if rand.IntN(20) > 0 || len(w.alive()) < 3 {
						return nil
					}
					cut++
					n.die()
					return errDead
				}

				const alerts = 30
				for i := range alerts {
					time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
					w.mu.Lock()
					alive := w.alive()
					w.mu.Unlock()
					n := alive[random.IntN(len(alive))]
					n.happen(i)
					if random.IntN(5) == 0 && len(alive) == 3 {
						n.kill()
					}

					for _, n := range w.nodes {
						if n.isDead() && random.IntN(4) == 0 {
							n.stop()
							n.start()
						}
					}
				}

				w.mu.Lock()
				w.after, w.loss = nil, 0
				w.mu.Unlock()
				for _, n := range w.nodes { // connect all again
					n.kill()
					n.start()
				}
				time.Sleep(2 * time.Minute)

				twice := 0
				for i := range alerts {
					ids := w.messages(fmt.Sprint("m", i))
					if len(ids) == 0 {
						t.Errorf("nobody was told of m%d", i)
					}
					for _, id := range ids[min(len(ids), 1):] {
						twice++
						if id != ids[0] {
							t.Errorf("m%d was told by different messages", i)
						}
					}
				}
				if loss == 0 && twice > cut {
					t.Errorf("%d were told twice, and %d owners died at the wrong moment", twice, cut)
				}
			})
		})
	}
}

// A node that is killed between the event and the message: one message, from whichever node is left.
func TestOwnerDiesBeforeItsMessage(t *testing.T) {
	for round := range 20 {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, 3)
			w.startAll()
			defer w.stopAll()
			time.Sleep(2 * takeOver)
			w.mu.Lock()
			w.fail = func(*node) error { return errors.New("503") }
			w.mu.Unlock()
			victim := w.nodes[w.owner]
			w.nodes[round%3].happen(round)
			time.Sleep(time.Duration(round*100) * time.Millisecond)
			victim.kill()
			w.mu.Lock()
			w.fail = nil
			w.mu.Unlock()
			time.Sleep(time.Minute)
			victim.start()
			time.Sleep(time.Minute)
			if n := len(w.messages(fmt.Sprint("m", round))); n != 1 {
				t.Errorf("round %d: %d messages", round, n)
			}
		})
	}
}

// A node takes the return and dies when only one other node has it, which is not the owner.
func TestAlertThatTheOwnerDidNotSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		time.Sleep(2 * takeOver)
		w.nodes[2].kill()
		w.nodes[1].relay(returned(1))
		time.Sleep(time.Minute)
		if n := len(w.messages("m1")); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

// Each failed or drifted run that the history takes leads to one message, whichever nodes take it,
// also if it is from before the service is open. Old runs lead to none.
func TestRunsOfTheHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.rules = "[{name: r, on: [failed, drift], dedupe: 0, to: {syslog: 'file:///dev/log'}}]"
		var inlet Inlet
		ran := func(minion string, age time.Duration, s summary.Summary) {
			s.Function = "state.apply"
			run := &history.Run{Minion: minion, JID: "20261129000000000001", Time: time.Now().Add(-age), Summary: s}
			inlet.Ran(run)
			if w.nodes[1].service != nil {
				w.nodes[1].service.ran(run)
			}
		}
		drift := []summary.State{{ID: "a", Cause: summary.Drift}, {ID: "b", Cause: summary.NewFiles}}

		ran("early", 0, summary.Summary{Result: summary.Failed, Failed: 1})
		w.startAll()
		defer w.stopAll()
		inlet.Open(w.nodes[0].service)
		ran("failed", 0, summary.Summary{Result: summary.Error})
		ran("drifted", 0, summary.Summary{Result: summary.Changed, Changed: 2, ChangedStates: drift})
		ran("changed", 0, summary.Summary{Result: summary.Changed, Changed: 1, ChangedStates: drift[1:]})
		ran("old", 2*time.Hour, summary.Summary{Result: summary.Failed, Failed: 1})
		time.Sleep(time.Minute)

		for _, id := range []string{"early", "failed", "drifted"} {
			if n := len(w.messages(id)); n != 1 {
				t.Errorf("%s: %d messages", id, n)
			}
		}
		if len(w.accepted) != 3 {
			t.Error(w.accepted)
		}
	})
}

// A new owner that has missed a mark asks the others for it.
func TestNewOwnerAsksForMarks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		time.Sleep(2 * takeOver)
		w.mu.Lock()
		w.fail = func(*node) error { return errors.New("503") }
		w.mu.Unlock()
		w.nodes[0].happen(1)
		time.Sleep(time.Second)

		w.mu.Lock()
		w.deaf = w.nodes[2]
		w.fail = nil
		w.mu.Unlock()
		time.Sleep(time.Minute)

		w.mu.Lock()
		w.deaf = nil
		w.nodes[0].die()
		w.owner = 2
		w.mu.Unlock()
		time.Sleep(time.Minute)
		if n := len(w.messages("m1")); n != 1 {
			t.Errorf("%d messages", n)
		}
		w.nodes[0].stop()
	})
}

// A master that is stopped waits for the answer to what it has sent, and does not send it again
// after its next start.
func TestStopWaitsForTheAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.answer = time.Second
		w.startAll()
		defer w.stopAll()
		time.Sleep(2 * takeOver)
		w.nodes[0].happen(1)
		time.Sleep(100 * time.Millisecond)
		w.nodes[0].stop()
		w.nodes[0].start()
		time.Sleep(time.Minute)
		if n := len(w.messages("m1")); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

// A destination that is away for ten minutes gets all in order, and is not asked all the time.
func TestDestinationAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.startAll()
		defer w.stopAll()
		tries := 0
		w.mu.Lock()
		w.fail = func(*node) error { tries++; return errors.New("connection refused") }
		w.mu.Unlock()
		for i := range 100 {
			w.nodes[0].happen(i)
			time.Sleep(6 * time.Second)
		}
		w.mu.Lock()
		if tries > 30 {
			t.Errorf("it was asked %d times in 10 minutes", tries)
		}
		w.fail = nil
		w.mu.Unlock()
		time.Sleep(3 * time.Minute)
		w.mu.Lock()
		defer w.mu.Unlock()
		for i := range 100 {
			if len(w.order) <= i || w.order[i] != fmt.Sprint("m", i) {
				t.Fatalf("message %d of %d is not in order: %v", i, len(w.order), w.order)
			}
		}
	})
}

// A silence set on one node counts on the owner, also when it was set while the owner was away.
func TestSilenceReachesAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		time.Sleep(2 * takeOver)
		w.nodes[w.owner].kill()
		check.Must(t, w.nodes[1].service.putSilence(Silence{Name: "works", Minions: "m1", Until: time.Now().Add(time.Hour), Set: time.Now()}))
		w.nodes[0].start()
		w.mu.Lock()
		w.owner, w.term = 0, 9
		w.mu.Unlock()
		time.Sleep(2 * takeOver)
		w.nodes[2].happen(1)
		w.nodes[2].happen(2)
		time.Sleep(time.Minute)
		if len(w.messages("m1")) > 0 || len(w.messages("m2")) != 1 {
			t.Error(w.accepted)
		}
	})
}

// There is one message about a condition while it lasts, whoever owns the cluster, and another one
// when it comes back.
func TestConditionsAreToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 3)
		w.startAll()
		defer w.stopAll()
		for _, n := range w.nodes {
			n.set(func() {
				n.pending = map[string]string{"fresh": "aa:bb"}
				n.accepted = []string{"gone"}
			})
		}
		problem := alert.Problem{Node: "n2", Scope: "n2", Code: "SCA-401", Title: "the disk is full", Since: time.Now()}
		w.nodes[2].set(func() { w.nodes[2].problems = []alert.Problem{problem} })

		time.Sleep(30 * time.Minute)
		w.nodes[w.owner].kill()
		time.Sleep(30 * time.Minute)
		w.nodes[0].start()
		time.Sleep(30 * time.Minute)
		for _, id := range []string{"fresh", "gone", ""} {
			if n := len(w.messages(id)); n != 1 {
				t.Errorf("%q: %d messages", id, n)
			}
		}

		w.nodes[2].set(func() { w.nodes[2].problems = nil })
		time.Sleep(10 * time.Minute)
		problem.Since = time.Now()
		w.nodes[2].set(func() { w.nodes[2].problems = []alert.Problem{problem} })
		time.Sleep(10 * time.Minute)
		if n := len(w.messages("")); n != 2 {
			t.Errorf("a problem that came back: %d messages", n)
		}
	})
}

// A rule that gets another name, or another destination, does not tell again of what was told before.
func TestChangedRulesTellOnlyOfWhatFollows(t *testing.T) {
	const other = "[{name: r, on: failed, dedupe: 0, to: [{syslog: 'udp://127.0.0.1:1'}, {syslog: 'file:///dev/log'}]}]"
	const renamed = "[{name: other, on: failed, dedupe: 0, to: {syslog: 'file:///dev/log'}}]"
	for _, tt := range []struct {
		name, rule string
		messages   int // about what follows
	}{
		{"none", failedRule, 1},
		{"another destination", other, 2},
		{"another name", renamed, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, 2)
				w.startAll()
				defer w.stopAll()
				time.Sleep(2 * takeOver)
				w.nodes[0].happen(1)
				time.Sleep(time.Minute)

				w.rules = tt.rule
				for _, n := range w.nodes {
					n.kill()
					n.start()
					time.Sleep(time.Minute)
				}
				w.nodes[0].happen(2)
				time.Sleep(time.Minute)
				if old, fresh := len(w.messages("m1")), len(w.messages("m2")); old != 1 || fresh != tt.messages {
					t.Errorf("%d messages of before, %d of after", old, fresh)
				}
			})
		})
	}
}

// A master that joins the cluster, or reads a new rule last, sends what waited from before.
func TestNewMasterSendsWhatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.fail = func(*node) error { return errors.New("503") }
		w.nodes[0].start()
		time.Sleep(2 * takeOver)
		w.nodes[0].happen(1)
		time.Sleep(time.Minute)
		w.nodes[1].start()
		time.Sleep(time.Minute)
		w.nodes[0].kill()
		w.nodes[1].set(func() { w.fail = nil })
		defer w.stopAll()

		time.Sleep(time.Minute)
		if n := len(w.messages("m1")); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}

// A key that is deleted and comes back is told again.
func TestKeyComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		w.startAll()
		defer w.stopAll()
		n := w.nodes[0]
		for range 2 {
			n.set(func() { n.pending = map[string]string{"fresh": "aa:bb"} })
			time.Sleep(10 * time.Minute)
			n.set(func() { n.pending = nil })
			time.Sleep(10 * time.Minute)
		}
		if got := len(w.messages("fresh")); got != 2 {
			t.Errorf("%d messages", got)
		}
	})
}

// A destination that recovers does not end the fault of another one, and a master that is not the
// owner any more has none.
func TestFaultsOfDestinations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.rules = "[{name: r, on: failed, to: [{syslog: 'udp://h'}, {syslog: 'file:///dev/log'}]}]"
		w.fail = func(*node) error { return errors.New("503") }
		w.startAll()
		defer w.stopAll()
		time.Sleep(2 * takeOver)
		owner := w.nodes[0]
		owner.happen(1)
		time.Sleep(2 * reportAfter)
		if owner.faultOf(control.NotifyFault) == nil {
			t.Error("nobody is told that the destinations fail")
		}

		one := owner.service.senders[0]
		one.noteResult(nil)
		if err := owner.faultOf(control.NotifyFault); err == nil || !strings.HasPrefix(err.Error(), "r/2") {
			t.Error("one destination still fails, and the fault is", err)
		}

		owner.set(func() { w.owner, w.term = 1, 9 })
		time.Sleep(time.Minute)
		if err := owner.faultOf(control.NotifyFault); err != nil {
			t.Error("a former owner says", err)
		}
		if text := fmt.Sprint(owner.service.senders[1].describe()); strings.Contains(text, "503") {
			t.Error("a former owner lists", text)
		}
	})
}

// What found no room on its way to the others is told again, and so are silences.
func TestWhatFoundNoRoomIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.startAll()
		defer w.stopAll()
		time.Sleep(2 * takeOver)
		w.nodes[0].set(func() { w.full = true })
		w.nodes[1].service.Returned(returned(1))
		check.Must(t, w.nodes[1].service.putSilence(Silence{Name: "works", Minions: "m2", Until: time.Now().Add(time.Hour), Set: time.Now()}))
		time.Sleep(time.Minute)
		w.nodes[0].set(func() { w.full = false })

		time.Sleep(2 * offerAfter)
		if n := len(w.messages("m1")); n != 1 {
			t.Errorf("%d messages", n)
		}
		time.Sleep(offerEvery)
		if n := len(w.nodes[0].service.silences.known()); n != 1 {
			t.Errorf("the owner knows %d silences", n)
		}
	})
}

// A message that a destination has not accepted waits when the quiet hours begin.
func TestQuietHoursBeginWhileAMessageIsTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 1)
		now := time.Now().Local()
		w.rules = fmt.Sprintf("[{name: r, on: failed, quiet: '%s-%s', to: {syslog: 'file:///dev/log'}}]",
			now.Add(10*time.Minute).Format("15:04"), now.Add(2*time.Hour).Format("15:04"))
		w.fail = func(*node) error { return errors.New("503") }
		w.startAll()
		defer w.stopAll()
		time.Sleep(2 * takeOver)
		w.nodes[0].happen(1)
		time.Sleep(12 * time.Minute)
		w.nodes[0].set(func() { w.fail = nil })
		time.Sleep(time.Hour)
		if n := len(w.messages("m1")); n != 0 {
			t.Errorf("%d messages in the quiet hours", n)
		}
		time.Sleep(time.Hour)
		if n := len(w.messages("m1")); n != 1 {
			t.Errorf("%d messages after the quiet hours", n)
		}
	})
}

// A master that loses the cluster while it resolves a target sends nothing.
func TestOwnerChangesWhileATargetIsResolved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, 2)
		w.rules = "[{name: r, on: failed, target: '*', to: {syslog: 'file:///dev/log'}}]"
		w.startAll()
		defer w.stopAll()
		time.Sleep(2 * takeOver)
		w.nodes[0].set(func() {
			w.resolve = func(n *node) {
				if n.number == 1 {
					return
				}
				n.set(func() {
					w.owner, w.term = 1, 9
					w.deaf = n
				})
				time.Sleep(time.Minute)
			}
		})
		targets := w.nodes[0].service.targets
		targets.mu.Lock()
		targets.known = map[string]selection{}
		targets.mu.Unlock()
		w.nodes[0].happen(1)
		time.Sleep(5 * time.Minute)
		if n := len(w.messages("m1")); n != 1 {
			t.Errorf("%d messages", n)
		}
	})
}
