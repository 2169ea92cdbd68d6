package node

import (
	"cmp"
	"container/heap"
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
)

// The simulation runs a whole cluster on virtual time: masters that join,
// crash, come back, are removed; a stranger with the wrong secret; a Salt
// master; a network that loses, delays, repeats and reorders, and is cut in
// two; a shared folder that is slow, fails, fails after it has written, and is
// read stale. Everything follows from the seed:
//
//	SALTERN_SIM_SEED=123 go test ./master/cluster/node -run TestSimulation -v
//
// SALTERN_SIM_SEEDS=10000 runs more seeds.

type world struct {
	seed  uint64
	rng   *rand.Rand
	now   time.Time
	calm  bool
	queue events
	seq   uint64
	nodes []*host
	byID  map[string]*host
	cut   map[[2]string]bool

	rec     Record
	exists  bool
	history map[uint64]uint64 // version → hash
	// committed is when the record was changed last.
	committed time.Time
	past      []Record
	down      bool // the shared folder fails

	token      uint64 // highest lease token in use by an owner
	gone       map[string]bool
	keys       int
	trace      []string
	announces  map[string]int
	recorded   []any
	everMember map[string]bool
}

// host is a machine. It exists longer than its node.
type host struct {
	id, pub string
	n       *Node
	inc     int
	skew    float64
	born    time.Time
	secret  string
	found   bool
	peers   []Peer
	salt    bool // a Salt master
	chatty  bool
	late    bool // knows the secret that was good before a removal
	links   map[string]bool
	session crypt.Key
	checked uint64
}

type event struct {
	at  time.Time
	seq uint64
	run func()
}

type events []event

func (e events) Len() int { return len(e) }
func (e events) Less(i, j int) bool {
	return e[i].at.Before(e[j].at) || e[i].at.Equal(e[j].at) && e[i].seq < e[j].seq
}
func (e events) Swap(i, j int) { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)   { *e = append(*e, x.(event)) }
func (e *events) Pop() any     { o := *e; x := o[len(o)-1]; *e = o[:len(o)-1]; return x }

func (w *world) after(d time.Duration, f func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now.Add(d), w.seq, f})
}

func (w *world) ms(lo, hi int) time.Duration {
	return time.Duration(lo+w.rng.IntN(hi-lo+1)) * time.Millisecond
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// local is a host's own clock.
func (h *host) local(w *world) time.Time {
	return w.now.Add(time.Duration(float64(w.now.Sub(h.born)) * h.skew))
}

func (w *world) tracef(format string, a ...any) {
	if len(w.trace) < 200000 {
		w.trace = append(w.trace, fmt.Sprintf("%8.3f ", w.now.Sub(simStart).Seconds())+fmt.Sprintf(format, a...))
	}
}

var simStart = time.Unix(1_800_000_000, 0)

type failure struct{ text string }

func (w *world) fail(format string, a ...any) { panic(failure{fmt.Sprintf(format, a...)}) }

var simKeys = sync.OnceValue(func() []string {
	var out []string
	r := rand.NewChaCha8([32]byte{1})
	for range 256 {
		k, err := crypt.NewKey(r)
		if err != nil {
			panic(err)
		}
		out = append(out, k.String())
	}
	return out
})

const rightSecret, wrongSecret = "right secret", "wrong secret"

func (w *world) newKey() string { w.keys++; return simKeys()[w.keys%256] }

// simRandom draws from the world's seeded source.
type simRandom struct{ w *world }

func (s simRandom) Token() string {
	return fmt.Sprintf("%016x%016x", s.w.rng.Uint64(), s.w.rng.Uint64())
}

func (s simRandom) NewKey() string  { return s.w.newKey() }
func (s simRandom) NewSeed() string { return fmt.Sprintf("seed%x", s.w.rng.Uint64()) }

func (s simRandom) Jitter(d time.Duration) time.Duration {
	return time.Duration(s.w.rng.Int64N(int64(d) + 1))
}

func (w *world) boot(h *host) {
	h.inc++
	h.born = w.now
	h.skew = (w.rng.Float64() - 0.5) * 0.04
	key, err := crypt.ParseKey(w.newKey())
	if err != nil {
		panic(err)
	}

	h.session = key
	h.links = map[string]bool{}
	h.n = New(Config{
		ID: h.id, Pub: h.pub, Inc: fmt.Sprintf("%s#%d", h.id, h.inc), Peers: h.peers, ClusterPub: "cluster", Found: h.found,
		Key: w.newKey(), Seed: "seed0", Secret: h.secret, SessionKey: h.session, PublishSession: 40 * time.Second,
		Random: simRandom{w},
	})

	w.tracef("%s boots", h.id)
	inc := h.inc
	var tick func()
	tick = func() {
		if h.n == nil || h.inc != inc {
			return
		}

		for _, m := range h.n.Record().Members {
			if o := w.byID[m.ID]; o != nil && o != h && w.linked(h.id, o.id) {
				w.link(h, o) // it is dialled
			}
		}

		w.do(h, h.n.Tick(h.local(w)))
		w.after(w.ms(400, 600), tick)
	}

	w.after(w.ms(0, 200), tick)
}

func (w *world) crash(h *host) {
	w.tracef("%s crashes", h.id)
	h.n = nil
	h.inc++
	for _, o := range w.nodes {
		if o.n != nil && o.links[h.id] {
			o.links[h.id] = false
			w.step(o, Unlinked{h.id})
		}
	}
}

func (w *world) step(h *host, in Input) {
	if h.n != nil {
		w.do(h, h.n.Step(h.local(w), in))
	}
}

func (w *world) linked(a, b string) bool { return !w.cut[[2]string{a, b}] && !w.cut[[2]string{b, a}] }

// do carries the outputs out.
func (w *world) do(h *host, out []Output) {
	inc := h.inc
	for _, o := range out {
		switch o := o.(type) {
		case Send:
			w.send(h, o)
		case Load:
			stale := w.chance(20) && len(w.past) > 0
			w.after(w.ms(1, 80), func() {
				if h.inc != inc {
					return
				}

				switch {
				case w.down:
					w.step(h, Loaded{Err: errors.New("folder is down")})
				case stale && !w.calm:
					w.step(h, Loaded{Record: w.past[max(0, len(w.past)-1-w.rng.IntN(3))].clone(), Exists: true})
				default:
					w.step(h, Loaded{Record: w.rec.clone(), Exists: w.exists})
				}
			})
		case Store:
			w.store(h, inc, o)
		case Note:
			w.tracef("%s: %s %s (%s)", h.id, o.Text, o.Peer, o.Reason)
		case Apply:
			w.tracef("%s: %v at version %d, key %d", h.id, o.Phase, o.Record.Version, o.Record.KeyGen)
		case Done:
			w.tracef("%s: command %d: %v", h.id, o.ID, o.Err)
		}
	}

	w.check(h)
}

// store simulates the shared folder. It compares and swaps at some moment between request and
// answer, and the answer may be lost.
func (w *world) store(h *host, inc int, o Store) {
	answer := func(s Stored) {
		s.ID = o.ID
		if h.inc == inc {
			w.step(h, s)
		}
	}

	if !w.calm && w.chance(3) { // a hanging folder: reported as failed, done later
		w.after(w.ms(2000, 20000), func() { w.commit(h, o) })
		w.after(w.ms(500, 1000), func() { answer(Stored{Err: errors.New("too slow")}) })
		return
	}

	w.after(w.ms(1, 150), func() {
		if w.down {
			answer(Stored{Err: errors.New("folder is down")})
			return
		}

		ok := w.commit(h, o)
		current := w.rec.clone()
		lost := !w.calm && w.chance(5)
		w.after(w.ms(1, 50), func() {
			switch {
			case lost:
				answer(Stored{Err: errors.New("answer lost")})
			case ok:
				answer(Stored{})
			default:
				answer(Stored{Conflict: true, Current: current})
			}
		})
	})
}

func hashOf(r Record) uint64 {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err)
	}
	f := fnv.New64a()
	f.Write(b)
	return f.Sum64()
}

func (w *world) commit(h *host, o Store) bool {
	if o.Expect == 0 && w.exists || o.Expect > 0 && (!w.exists || w.rec.Version != o.Expect) {
		return false
	}

	old := w.rec
	w.past = append(w.past, w.rec)
	w.rec, w.exists = o.Record.clone(), true
	if !w.past[0].hasVersion() {
		w.past = w.past[1:]
	}

	if err := o.Record.Check(); err != nil {
		w.fail("%s stores %v", h.id, err)
	}

	if o.Record.Version <= old.Version {
		w.fail("version went from %d to %d", old.Version, o.Record.Version)
	}

	if o.Record.Owner.Token < old.Owner.Token {
		w.fail("the token went from %d to %d", old.Owner.Token, o.Record.Owner.Token)
	}

	for _, m := range o.Record.Members {
		w.everMember[m.Pub] = true
		if w.gone[m.Pub] {
			w.fail("%s came back after its removal", m.ID)
		}

		if late := w.byID[m.ID]; late != nil && late.late {
			w.fail("%s was let in with the old secret by %s", m.ID, h.id)
		}

		if m.Pub == "pub-intruder" {
			w.fail("the stranger was let in by %s", h.id)
		}
	}

	for _, t := range o.Record.Removed {
		if name := cmp.Or(t.Pub, t.Node); !w.gone[name] {
			w.gone[name] = true
			if o.Record.Secret == old.Secret || o.Record.Seed == old.Seed || o.Record.Key == old.Key ||
				o.Record.PrevKey != "" {
				w.fail("removal of %s left secrets as they were", t.ID)
			}
		}
	}

	if o.Record.KeyGen != old.KeyGen && old.KeyGen != 0 && o.Record.KeyGen != old.KeyGen+1 {
		w.fail("key generation went from %d to %d", old.KeyGen, o.Record.KeyGen)
	}

	w.history[o.Record.Version], w.committed = hashOf(o.Record), w.now
	w.tracef("%s commits version %d: members %v owner %v key %d", h.id, o.Record.Version, ids(o.Record),
		o.Record.Owner, o.Record.KeyGen)
	return true
}

func (r Record) hasVersion() bool { return r.Version > 0 }

func ids(r Record) string {
	var out []string
	for _, m := range r.Members {
		out = append(out, m.ID)
	}
	return strings.Join(out, ",")
}

// send is the network, with what TLS proves on it.
func (w *world) send(from *host, s Send) {
	to := w.byID[s.To]
	if to == nil {
		return
	}

	memberOnly := true
	switch s.Msg.(type) {
	case wire.Discover, wire.DiscoverReply, wire.Join, wire.JoinReply, Refused:
		memberOnly = false
	}

	if memberOnly && s.Pub != to.pub {
		w.fail("%s would show a stranger %T", from.id, s.Msg)
	}

	if s.Pub != "" && s.Pub != to.pub {
		return // the other end has another key
	}

	if _, ok := s.Msg.(SessionKey); ok {
		w.announces[from.id+">"+to.id]++
	}

	if _, ok := s.Msg.(wire.Join); ok && len(w.recorded) < 64 {
		w.recorded = append(w.recorded, s.Msg)
	}

	copies := 1
	if !w.calm {
		if w.chance(10) {
			copies = 0
		} else if w.chance(10) {
			copies = 2
		}
	}

	for range copies {
		d := w.ms(1, 40)
		if !w.calm && w.chance(5) {
			d = w.ms(100, 6000)
		}
		w.after(d, func() { w.deliver(from, to, s.Msg) })
	}
}

func (w *world) deliver(from, to *host, msg any) {
	if to.n == nil || !w.linked(from.id, to.id) {
		return
	}

	w.link(to, from)
	if to.salt {
		w.saltReceives(from, to, msg)
		return
	}

	src := Source{Addr: from.id}
	if to.n.KeyOf(from.id) == from.pub {
		if _, ok := to.n.Record().Member(from.id); ok {
			src.ID = from.id
		}
	}

	w.step(to, Message{From: src, Msg: msg})
}

func (w *world) link(a, b *host) {
	if a.n != nil && b.n != nil && !a.links[b.id] {
		a.links[b.id] = true
		w.step(a, Linked{b.id})
	}
}

// saltReceives simulates a Salt master: it answers each new session key, or every one, with its
// own.
func (w *world) saltReceives(from, to *host, msg any) {
	if k, ok := msg.(SessionKey); ok && (to.chatty || !to.links["key:"+k.Key.String()]) {
		to.links["key:"+k.Key.String()] = true
		w.send(to, Send{To: from.id, Pub: from.pub, Msg: SessionKey{to.session}})
	}
}

// check are the promises that hold at every moment.
func (w *world) check(h *host) {
	n := h.n
	if n == nil || h.salt {
		return
	}

	if v := n.rec.Version; v > 0 && v != h.checked {
		h.checked = v
		if want, ok := w.history[v]; !ok || want != hashOf(n.rec) {
			w.fail("%s has a version %d that was never stored", h.id, v)
		}
	}

	if n.phase == Active && w.gone[h.pub] && n.rec.removed(h.pub) {
		w.fail("%s serves though it knows of its removal", h.id)
	}

	if h.secret == wrongSecret && n.phase == Active {
		w.fail("the stranger is active")
	}

	if token, ok := n.Own(h.local(w)); ok {
		if token < w.token {
			w.fail("%s owns with token %d after %d", h.id, token, w.token)
		}

		w.token = token
		for _, o := range w.nodes {
			if o != h && o.n != nil && !o.salt {
				if t, also := o.n.Own(o.local(w)); also {
					w.fail("%s and %s own at once, tokens %d and %d", h.id, o.id, token, t)
				}
			}
		}
	}

	if len(n.queue) > maxIntents || len(n.candidates) > maxCandidates || len(n.attempts) > 256 {
		w.fail("%s: %d changes, %d candidates, %d attempts", h.id, len(n.queue), len(n.candidates), len(n.attempts))
	}
}

func newWorld(seed uint64) *world {
	w := &world{
		seed:       seed,
		rng:        rand.New(rand.NewPCG(seed, 7)),
		now:        simStart,
		byID:       map[string]*host{},
		cut:        map[[2]string]bool{},
		history:    map[uint64]uint64{},
		gone:       map[string]bool{},
		announces:  map[string]int{},
		everMember: map[string]bool{},
	}

	add := func(h *host) {
		h.pub = "pub-" + h.id
		w.nodes = append(w.nodes, h)
		w.byID[h.id] = h
	}

	members := 3 + w.rng.IntN(3)
	for i := range members {
		h := &host{id: fmt.Sprintf("10.0.0.%d", i+1), secret: rightSecret}
		if i > 0 { // knows one peer
			h.peers = []Peer{{ID: fmt.Sprintf("10.0.0.%d", 1+w.rng.IntN(i))}}
		}
		h.found = i == 0
		add(h)
	}

	if w.chance(40) {
		salt := &host{id: "10.0.0.200", salt: true, chatty: w.chance(50), links: map[string]bool{}}
		add(salt)
		salt.n = New(Config{ID: salt.id})
		salt.session, _ = crypt.ParseKey(w.newKey())
		w.nodes[0].peers = []Peer{{ID: salt.id, Pub: salt.pub}}
	}

	add(&host{id: "intruder", secret: wrongSecret, peers: []Peer{{ID: "10.0.0.1"}}})
	add(&host{id: "10.0.0.99", secret: rightSecret, late: true, peers: []Peer{{ID: "10.0.0.1"}}})
	w.byID["intruder"].peers = append(w.byID["intruder"].peers, Peer{ID: "10.0.0.2"})
	for _, h := range w.nodes {
		if h.id == "intruder" {
			// It may be dialled, so that the secret alone keeps it out.
			for _, o := range w.nodes {
				o.peers = append(o.peers, Peer{ID: "intruder"})
			}
		}
	}

	return w
}

// disturb does something bad.
func (w *world) disturb() {
	if w.calm {
		return
	}

	h := w.nodes[w.rng.IntN(len(w.nodes))]
	o := w.nodes[w.rng.IntN(len(w.nodes))]
	switch w.rng.IntN(12) {
	case 0, 1:
		if h.late && h.n == nil && len(w.gone) > 0 {
			w.boot(h)
		} else if !h.salt && h.n != nil {
			w.crash(h)
			w.after(w.ms(100, 20000), func() {
				if h.n == nil {
					w.boot(h)
				}
			})
		}
	case 2, 3:
		w.cut[[2]string{h.id, o.id}] = true
		w.tracef("cut %s %s", h.id, o.id)
		for _, x := range [][2]*host{{h, o}, {o, h}} {
			if x[0].n != nil && x[0].links[x[1].id] {
				x[0].links[x[1].id] = false
				if !x[0].salt {
					w.step(x[0], Unlinked{x[1].id})
				}
			}
		}

		w.after(w.ms(500, 25000), func() { delete(w.cut, [2]string{h.id, o.id}) })
	case 4:
		w.tracef("folder down")
		w.down = true
		w.after(w.ms(100, 20000), func() { w.down = false })
	case 5:
		if h.n != nil && !h.salt {
			w.step(h, Command{ID: w.rng.Uint64(), Rotate: true})
		}
	case 10: // a good end, of which the wait for the others may be too short
		if h.n != nil && !h.salt {
			w.tracef("%s leaves", h.id)
			w.step(h, Command{ID: w.rng.Uint64(), Leave: true})
			inc := h.inc
			w.after(w.ms(0, 3000), func() {
				if h.inc == inc {
					w.crash(h)
				}
			})
			w.after(w.ms(3000, 10000), func() {
				if h.n == nil {
					w.boot(h)
				}
			})
		}
	case 6:
		if h.n != nil && !h.salt && len(w.gone) < 2 && o.id != "10.0.0.1" && w.everMember[o.pub] &&
			len(w.rec.Members) > 2 {
			w.tracef("%s is to remove %s", h.id, o.id)
			w.step(h, Command{ID: w.rng.Uint64(), Remove: control.Removal{ID: o.id}})
		}
	case 9:
		if h.n != nil && !h.salt && w.rng.IntN(8) == 0 {
			w.step(h,
				Command{
					ID: w.rng.Uint64(),
					Remove: control.Removal{
						ID:   "10.0.0.98",
						Key:  control.NoMaster,
						Node: fmt.Sprintf("arbiter %x", w.rng.Uint64()),
					},
				})
		} else if h.n != nil && !h.salt {
			c := Command{ID: w.rng.Uint64(), Stage: true}
			if w.rec.NextSecret != "" && w.rng.IntN(2) == 0 {
				c = Command{ID: c.ID, Commit: w.rec.SecretFinger(w.rec.NextSecret)}
			}
			w.step(h, c)
		}
	case 7: // an attacker repeats what he has heard
		if len(w.recorded) > 0 && h.n != nil && !h.salt {
			w.step(h, Message{From: Source{Addr: "10.9.9.9"}, Msg: w.recorded[w.rng.IntN(len(w.recorded))]})
		}
	case 8: // and makes things up
		if h.n != nil && !h.salt {
			for _, m := range []any{State{Record{Version: 1 << 40, Key: simKeys()[0]}}, Gone{},
				Beat{Version: 1 << 50}, Want{},
				wire.JoinNotify{PeerID: "10.0.0.1", JoinPeerID: "intruder", Pub: "pub-intruder"},
				wire.DiscoverReply{
					PeerID:      "intruder",
					Pub:         "pub-intruder",
					ClusterPub:  "cluster",
					Token:       "t",
					ReturnToken: "guess",
				},
				wire.JoinReply{PeerID: "10.0.0.1", ClusterPub: "cluster"}} {
				w.step(h, Message{From: Source{Addr: "intruder"}, Msg: m})
			}
		}
	}

	w.after(w.ms(200, 4000), w.disturb)
}

func (w *world) runUntil(end time.Time) {
	for len(w.queue) > 0 && !w.queue[0].at.After(end) {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.run()
	}
	w.now = end
}

// simulate runs one seed and returns what was wrong.
func simulate(seed uint64) (w *world, err error) {
	w = newWorld(seed)
	defer func() {
		if r := recover(); r != nil {
			f, ok := r.(failure)
			if !ok {
				panic(r)
			}
			err = errors.New(f.text)
		}
	}()

	for i, h := range w.nodes {
		if !h.salt && !h.late {
			w.after(time.Duration(i)*w.ms(0, 3000), func() { w.boot(h) })
		}
	}

	w.after(w.ms(2000, 8000), w.disturb)
	w.runUntil(w.now.Add(time.Duration(20+w.rng.IntN(60)) * time.Second))
	w.calm = true
	w.runUntil(w.now.Add(26 * time.Second)) // until what was under way has ended
	clear(w.cut)
	w.down = false

	for _, h := range w.nodes {
		if h.n == nil && (!h.late || len(w.gone) > 0) {
			w.boot(h)
		}
	}

	clear(w.announces)
	w.runUntil(w.now.Add(50 * time.Second))
	for range 10 { // a lease and a rotation may just have changed the record
		if w.now.Sub(w.committed) >= 2*time.Second {
			break
		}
		w.runUntil(w.now.Add(time.Second))
	}

	w.settled()
	return w, nil
}

// settled are the promises for a cluster that was left alone for a while.
func (w *world) settled() {
	owners := 0
	var first *host
	for _, h := range w.nodes {
		switch {
		case h.salt || h.n == nil:
		case h.id == "intruder":
			if h.n.Phase() == Active {
				w.fail("the stranger is active")
			}
			if h.n.refusal == "" {
				w.fail("the stranger was not told why")
			}
		case w.gone[h.pub]:
			if h.n.Phase() != Removed {
				w.fail("%s was removed and is %v", h.id, h.n.Phase())
			}
		case w.rec.Secret != "" && !w.everMember[h.pub]:
			// The master was not admitted before the secret was replaced, and does not know the new
			// one.
			if h.n.Phase() == Active {
				w.fail("%s got in with the old secret", h.id)
			}
		default:
			if h.n.Phase() != Active {
				w.fail("%s is %v (%s)", h.id, h.n.Phase(), h.n.refusal)
			}

			if first == nil {
				first = h
			}

			if v := w.rec.Version; h.n.rec.Version+1 < v {
				w.fail("%s has version %d of %d", h.id, h.n.rec.Version, v)
			}

			if h.n.rec.Version == first.n.rec.Version && h.n.rec.Key != first.n.rec.Key ||
				h.n.rec.KeyGen+1 < first.n.rec.KeyGen || h.n.rec.Seed != first.n.rec.Seed {
				w.fail("%s and %s have different keys", h.id, first.id)
			}

			if _, ok := h.n.Own(h.local(w)); ok {
				owners++
			}

			if !h.n.rec.hasOwn(h.id) {
				w.fail("%s is not known as one of us", h.id)
			}
		}
	}

	if owners != 1 {
		w.fail("%d owners", owners)
	}

	for who, n := range w.announces {
		if n > 12 {
			w.fail("%s: %d announcements in a calm minute", who, n)
		}
	}
}

func (r Record) hasOwn(id string) bool { m, ok := r.Member(id); return ok && m.Own }

func TestSimulation(t *testing.T) {
	first, seeds := uint64(1), uint64(200) // make sim: ten thousand
	if s := os.Getenv("SALTERN_SIM_SEEDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		seeds = n
	}

	if s := os.Getenv("SALTERN_SIM_SEED"); s != "" { // one again, with all that happened
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatal(err)
		}

		w, err := simulate(n)
		t.Log("\n" + strings.Join(w.trace, "\n"))
		if err != nil {
			t.Fatalf("seed %d: %v", n, err)
		}

		return
	}

	simKeys()
	var wg sync.WaitGroup
	next := make(chan uint64)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for s := range next {
				if _, err := simulate(s); err != nil {
					t.Errorf("seed %d: %v (SALTERN_SIM_SEED=%d shows what happened)", s, err, s)
				}
			}
		})
	}

	for s := first; s < first+seeds && !t.Failed(); s++ {
		next <- s
	}

	close(next)
	wg.Wait()
}
