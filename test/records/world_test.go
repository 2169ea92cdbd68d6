package records

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
	"saltern/supervisor/nodes"
)

// undo takes back what the simulation must find missing.
type undo struct {
	order  bool // the table first, the record second
	rest   bool // nor the one that removes looks again at the end
	finish bool // nobody finishes what stopped half way
	admit  bool // a machine is let in at the address of one whose removal is not finished
}

// world is the storage, the network and the clock, and what was promised.
type world struct {
	rng   *rand.Rand
	now   time.Time
	calm  bool
	undo  undo
	queue events
	seq   uint64
	trace []string

	machines []*machine
	table    nodes.Table
	rec      node.Record
	past     []node.Record
	exists   bool
	down     bool // the storage fails
	made     int  // machines, keys

	wanted  map[string]bool // whose removal somebody has asked for, by the key in the table
	told    map[string]bool // of whom somebody was told that they are out
	buried  map[string]bool // keys of masters
	byHand  map[string]bool // addresses whose masters were taken out by salt-run
	secrets []string        // all there were
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

var began = time.Unix(1_800_000_000, 0)

const firstSecret = "the-secret-of-the-beginning"

var (
	errDown = errors.New("the storage fails")
	errLost = errors.New("no answer")
)

// clusterKeys are as many as a run needs.
var clusterKeys = sync.OnceValue(func() (out []string) {
	r := rand.NewChaCha8([32]byte{1})
	for range 64 {
		k, err := crypt.NewKey(r)
		if err != nil {
			panic(err)
		}
		out = append(out, k.String())
	}
	return out
})

type failure struct{ text string }

func (w *world) fail(format string, a ...any) { panic(failure{fmt.Sprintf(format, a...)}) }

func (w *world) tracef(format string, a ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%8.3f ", w.now.Sub(began).Seconds())+fmt.Sprintf(format, a...))
}

func (w *world) after(d time.Duration, f func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now.Add(d), w.seq, f})
}

func (w *world) ms(lo, hi int) time.Duration {
	return time.Duration(lo+w.rng.IntN(hi-lo+1)) * time.Millisecond
}

func (w *world) chance(percent int) bool { return w.rng.IntN(100) < percent }

// lost reports whether a message is.
func (w *world) lost() bool { return !w.calm && w.chance(8) }

func (w *world) runFor(d time.Duration) {
	end := w.now.Add(d)
	for len(w.queue) > 0 && !w.queue[0].at.After(end) {
		e := heap.Pop(&w.queue).(event)
		w.now = e.at
		e.run()
	}
	w.now = end
}

// at gives the machine that has an address now; nil: none is on.
func (w *world) at(addr string) *machine {
	for _, m := range slices.Backward(w.machines) {
		if m.addr == addr && m.up {
			return m
		}
	}
	return nil
}

func (w *world) byKey(cert string) *machine {
	i := slices.IndexFunc(w.machines, func(m *machine) bool { return m.cert == cert })
	if i < 0 {
		w.fail("nobody has the key %s", cert)
	}
	return w.machines[i]
}

func (w *world) byPub(pub string) *machine {
	return w.byKey(strings.TrimPrefix(pub, "pub "))
}

// commitTable puts a table on the storage.
func (w *world) commitTable(by *machine, t nodes.Table) {
	if err := t.Check(); err != nil {
		w.fail("%s stores a table: %v", by, err)
	}

	old := w.table
	w.table = t.Clone()
	for _, m := range w.machines {
		switch was, is := old.WasRemoved(m.cert), t.WasRemoved(m.cert); {
		case was && !is:
			w.fail("%s brings %s back", by, m)
		case is && !was && !w.wanted[m.cert] && !w.byHand[m.addr]:
			w.fail("%s removes %s, which nobody has asked for", by, m)
		}

		before, _ := old.ByCertificate(m.cert)
		if n, ok := t.ByCertificate(m.cert); ok && n.State != before.State {
			w.tracef("table %d of %s: %s is %s", t.Version, by, m, n.State)
		}
	}
}

// commitRecord puts a record on the storage, if it follows what is there.
func (w *world) commitRecord(by *machine, expect uint64, r node.Record) bool {
	if expect == 0 && w.exists || expect > 0 && (!w.exists || w.rec.Version != expect) {
		return false
	}

	if err := r.Check(); err != nil {
		w.fail("%s stores a record: %v", by, err)
	}

	old := w.rec
	w.past = append(w.past, old)
	w.past = w.past[max(0, len(w.past)-4):]
	r.Members, r.Removed = slices.Clone(r.Members), slices.Clone(r.Removed)
	w.rec, w.exists = r, true

	for _, t := range r.Removed[min(len(old.Removed), len(r.Removed)):] {
		w.tracef("record %d of %s: %s (%s) is buried for %.8s", r.Version, by, t.ID, t.Pub, t.Node)
		if t.Pub != "" {
			w.buried[t.Pub] = true
			if m := w.byPub(t.Pub); !w.wanted[m.cert] && !w.byHand[m.addr] {
				w.fail("%s buries the master of %s, which nobody has asked for", by, m)
			}
		}

		if r.Secret == old.Secret || r.Seed == old.Seed {
			w.fail("%s buries %s and keeps the secrets", by, t.ID)
		}
	}

	for _, m := range r.Members {
		if w.buried[m.Pub] {
			w.fail("%s brings the master of %s back", by, w.byPub(m.Pub))
		}

		if _, had := old.Member(m.ID); had || old.Version == 0 {
			continue
		}

		w.tracef("record %d of %s: %s is in", r.Version, by, m.Pub)
		if shown := w.byPub(m.Pub).shown; shown != secretOf(old) && (old.NextSecret == "" || shown != old.NextSecret) {
			w.fail("%s lets %s in with a secret that is void", by, w.byPub(m.Pub))
		}
	}

	for _, m := range old.Members {
		if _, ok := r.Member(m.ID); !ok && !w.buried[m.Pub] {
			w.fail("%s loses %s", by, w.byPub(m.Pub))
		}
	}

	if s := secretOf(r); !slices.Contains(w.secrets, s) {
		w.secrets = append(w.secrets, s)
	}

	return true
}

func secretOf(r node.Record) string {
	if r.Secret != "" {
		return r.Secret
	}
	return firstSecret
}

// view is what supervisors read of a record.
func view(r node.Record) control.Record {
	out := control.Record{Version: r.Version, Secrets: r.Secrets}
	for _, m := range r.Members {
		out.Members = append(out.Members, control.RecordMaster{ID: m.ID, Pub: m.Pub, Own: m.Own})
	}
	for _, t := range r.Removed {
		out.Removed = append(out.Removed, control.RecordMaster{ID: t.ID, Pub: t.Pub, Node: t.Node})
	}
	return out
}

// promise notes that somebody was told that a machine is out.
func (w *world) promise(cert string) {
	m := w.byKey(cert)
	w.tracef("told that %s is out", m)
	w.told[cert] = true
	w.out(m)
}

// out checks that a machine is in neither.
func (w *world) out(m *machine) {
	if n, ok := w.table.ByCertificate(m.cert); ok && n.State != nodes.Removed {
		w.fail("%s is said to be out and is %s in the table", m, n.State)
	}
	if r, ok := w.rec.Member(m.addr); ok && r.Pub == m.pub {
		w.fail("%s is said to be out and its master is in the record", m)
	}
}

// do carries out what a master wants done.
func (w *world) do(m *machine, out []node.Output) {
	life := m.masterLife
	for _, o := range out {
		switch o := o.(type) {
		case node.Send:
			w.send(m, o)
		case node.Load:
			stale := !w.calm && len(w.past) > 0 && w.chance(10)
			w.after(w.ms(1, 60), func() {
				in := node.Loaded{Record: w.rec, Exists: w.exists}
				if stale {
					in.Record, in.Exists = w.past[w.rng.IntN(len(w.past))], true
				}

				if w.down || in.Exists && in.Record.Version == 0 {
					in = node.Loaded{Err: errDown}
				}

				m.step(w, life, in)
			})
		case node.Store:
			w.after(w.ms(1, 100), func() {
				if w.down {
					m.step(w, life, node.Stored{ID: o.ID, Err: errDown})
					return
				}

				ok, answer := w.commitRecord(m, o.Expect, o.Record), node.Stored{ID: o.ID}
				if !ok {
					answer.Conflict, answer.Current = true, w.rec
				}

				if w.lost() {
					answer = node.Stored{ID: o.ID, Err: errLost}
				}

				w.after(w.ms(1, 30), func() { m.step(w, life, answer) })
			})
		case node.Note:
			w.tracef("%s: %s %s (%s)", m, o.Text, o.Peer, o.Reason)
		case node.Done:
			if then := m.done[o.ID]; then != nil {
				delete(m.done, o.ID)
				then(o.Err)
			}
		}
	}
}

// send is the network between masters, with what TLS proves on it.
func (w *world) send(from *machine, s node.Send) {
	if w.lost() {
		return
	}

	w.after(w.ms(1, 40), func() {
		to := w.at(s.To)
		if to == nil || to.master == nil || s.Pub != "" && s.Pub != to.pub {
			return
		}

		if r, ok := s.Msg.(wire.Join); ok {
			from.shown = r.Secret
		}

		src := node.Source{Addr: from.addr}
		if k, ok := to.master.Record().Member(from.addr); ok && k.Pub == from.pub {
			src.ID = from.addr
		}

		to.step(w, to.masterLife, node.Message{From: src, Msg: s.Msg})
	})
}
