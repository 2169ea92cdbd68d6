package marks

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// tokens are what the marks stand for: one for each count that a node ever made, with the
// generation of its copy.
type tokens map[int]uint64

// newer reports whether there is one of the newest generation that a copy of that
// generation lacks.
func (t tokens) newer(generation uint64, has tokens) bool {
	newest := uint64(0)
	for _, g := range t {
		newest = max(newest, g)
	}
	if len(t) == 0 || generation != newest {
		return len(t) > 0 && generation < newest
	}
	for token, g := range t {
		if _, there := has[token]; g == newest && !there {
			return true
		}
	}
	return false
}

// disk is what of a machine a snapshot of it holds.
type disk struct {
	history History
	memory  Memory
	has     tokens            // of its own copy, since it was filled
	told    map[string]tokens // of all copies, since they were filled, as far as this disk knows
}

func (d disk) clone() disk {
	c := disk{history: d.history, memory: d.memory.Clone(), has: maps.Clone(d.has), told: map[string]tokens{}}
	for id, t := range d.told {
		c.told[id] = maps.Clone(t)
	}
	return c
}

// machine is a node of a world.
type machine struct {
	disk
	id        string
	copy      bool
	up        bool
	start     string
	serving   bool
	verdict   Verdict
	rounds    int // seconds since its start
	snapshots []disk
	reports   map[string]*Report
}

// world is a cluster whose machines crash, are put back, and hear each other or not.
type world struct {
	random   *rand.Rand
	machines []*machine
	made     int // tokens and starts
	pace     int // seconds of a step
	log      []string
}

func newWorld(seed uint64, copies, nodes int) *world {
	w := &world{random: rand.New(rand.NewPCG(seed, 1)), pace: 1}
	for i := range nodes {
		id := fmt.Sprintf("%064x", i+1)
		w.machines = append(w.machines,
			&machine{id: id, copy: i < copies, disk: disk{memory: Memory{}, has: tokens{}, told: map[string]tokens{}}})
	}
	for _, m := range w.machines {
		w.boot(m)
	}
	return w
}

func (w *world) note(format string, args ...any) { w.log = append(w.log, fmt.Sprintf(format, args...)) }

func (w *world) boot(m *machine) {
	w.made++
	m.up = true
	m.start = fmt.Sprintf("s%d", w.made)
	m.rounds = 0
	m.serving = false
	m.verdict = Ask
	m.reports = map[string]*Report{}
	w.note("%s starts as %s", m.id[60:], m.start)
	w.raise(m)
}

func (w *world) raise(m *machine) {
	if !m.copy {
		return
	}
	w.made++
	m.history = m.history.Raise(m.start, time.Unix(int64(w.made), 0))
	m.has[w.made] = m.history.Generation
	m.remember(m.id, m.has)
	m.memory.Note(m.id, Bricks, m.history)
}

func (m *machine) remember(id string, t tokens) {
	if m.told[id] == nil {
		m.told[id] = tokens{}
	}
	maps.Copy(m.told[id], t)
}

func (m *machine) report() Report {
	r := Report{
		Start:   m.start,
		Marks:   map[Place]History{},
		Memory:  m.memory.Clone(),
		Copy:    m.copy,
		Serving: m.copy && m.serving,
	}
	if m.copy {
		r.Marks[Bricks] = m.history
	}
	return r
}

// hear has m ask o.
func (w *world) hear(m, o *machine) {
	r := o.report()
	m.reports[o.id] = &r
	m.memory.Note(o.id, Bricks, r.Marks[Bricks])
	m.memory.Merge(r.Memory)
	for id, t := range o.told {
		m.remember(id, t)
	}
}

func (w *world) look(m *machine) Situation {
	var peers []Peer
	for _, o := range w.machines {
		if o != m {
			peers = append(peers, Peer{Certificate: o.id, Copy: o.copy, Report: m.reports[o.id]})
		}
	}
	s := Look(m.id, m.report(), m.memory, peers)
	s.Waited = time.Duration(m.rounds) * time.Second
	if s.Majority() {
		s.WaitedForRest = s.Waited
	}
	return s
}

// step has m decide, and do what it decides, and tells what is wrong with that.
func (w *world) step(m *machine) error {
	m.rounds += w.pace
	s := w.look(m)
	old := m.told[m.id].newer(m.history.Generation, m.has) // somebody that m heard of remembers more than m has
	if s.Behind != old {
		return fmt.Errorf("%s: behind is %v, want %v: %+v of %+v", m.id[60:], s.Behind, old, m.history,
			m.memory.Of(m.id, Bricks))
	}

	before := m.verdict
	m.verdict = Decide(s)
	if m.verdict != before {
		w.note("%s: %s", m.id[60:], m.verdict)
	}

	switch m.verdict {
	case Serve:
		if old && m.copy {
			return fmt.Errorf("%s serves an old copy", m.id[60:])
		}
		m.serving = true
	case Aside, Only:
		if !old {
			return fmt.Errorf("%s gives up a copy that is not old", m.id[60:])
		}
		if m.verdict == Aside && !slices.ContainsFunc(w.machines, func(o *machine) bool { return o != m && o.copy }) {
			return fmt.Errorf("%s gives up the only copy", m.id[60:])
		}
		w.renew(m)
	}

	return nil
}

// renew fills the copy of m anew.
func (w *world) renew(m *machine) {
	m.history = m.history.Renew(m.memory.Of(m.id, Bricks))
	m.has = tokens{}
	w.raise(m)
}

func (w *world) pick() *machine { return w.machines[w.random.IntN(len(w.machines))] }

// turn lets something happen.
func (w *world) turn() error {
	m := w.pick()
	switch n := w.random.IntN(40); {
	case n < 8:
		if m.up {
			w.raise(m)
		}
	case n < 26:
		if o := w.pick(); m.up && o.up && m != o {
			w.hear(m, o)
		}
	case n < 34:
		if m.up {
			return w.step(m)
		}
	case n < 36:
		m.up = false
		w.note("%s crashes", m.id[60:])
	case n < 38:
		if !m.up {
			w.boot(m)
		}
	case n == 38:
		m.snapshots = append(m.snapshots, m.disk.clone())
		w.note("%s: snapshot", m.id[60:])
	default:
		if len(m.snapshots) > 0 && len(m.snapshots) < 4 {
			m.up = false
			m.disk = m.snapshots[w.random.IntN(len(m.snapshots))].clone()
			w.note("%s is put back", m.id[60:])
		}
	}

	return nil
}

// settle starts all, and lets them speak with each other.
func (w *world) settle() error {
	for _, m := range w.machines {
		if !m.up {
			w.boot(m)
		}
	}

	w.pace = int(lonelyFor/time.Second) / 8
	for range 12 {
		for _, m := range w.machines {
			for _, o := range w.machines {
				if m != o {
					w.hear(m, o)
				}
			}
		}

		for _, m := range w.machines {
			if err := w.step(m); err != nil {
				return err
			}
		}
	}

	return nil
}

// TestNoOldCopyServes lets machines crash, hear each other now and then, and be put back
// to snapshots of any age: no copy of which somebody who was heard remembers more is ever
// served, none is given up that is not old, and in the end each is served, or a person is
// asked.
func TestNoOldCopyServes(t *testing.T) {
	for _, form := range []struct{ copies, nodes int }{{3, 3}, {2, 2}, {1, 2}, {3, 5}} {
		t.Run(fmt.Sprintf("%d copies of %d", form.copies, form.nodes), func(t *testing.T) {
			ends := map[string]int{}
			for seed := range uint64(120) {
				w := newWorld(seed, form.copies, form.nodes)
				var err error
				for range 200 {
					if err = w.turn(); err != nil {
						break
					}
				}

				if err == nil {
					err = w.settle()
				}

				if err != nil {
					t.Fatalf("seed %d: %v\n%s", seed, err, strings.Join(w.log[max(0, len(w.log)-40):], "\n"))
				}

				ends[w.end()]++
			}

			t.Log(ends)
			if ends["mixed"] > 0 || ends["served"] == 0 {
				t.Errorf("ends: %v", ends)
			}
		})
	}
}

// end is how a world ended.
func (w *world) end() string {
	var old, held int
	for _, m := range w.machines {
		s := w.look(m)
		if s.Behind && s.Copy {
			old++
		}
		if m.verdict == Hold || m.verdict == Ask {
			held++
		}
	}

	switch {
	case old == 0 && held == 0:
		return "served"
	case held > 0:
		return "asked"
	}

	return "mixed"
}

// TestOnePutBack: of three machines that knew each other well, any one may be put back, and
// is filled from the others; a machine that was away only is not.
func TestOnePutBack(t *testing.T) {
	for _, putBack := range []bool{false, true} {
		for seed := range uint64(100) {
			w := newWorld(seed, 3, 3)
			if err := w.settle(); err != nil {
				t.Fatal(err)
			}

			m := w.pick()
			m.up = false
			snapshot := m.disk.clone()
			if putBack {
				w.boot(m)
				if err := w.settle(); err != nil {
					t.Fatal(err)
				}
				m.up = false
				m.disk = snapshot
			}

			generation := m.history.Generation
			if err := w.settle(); err != nil {
				t.Fatal(err)
			}

			for _, o := range w.machines {
				if o.verdict != Serve {
					t.Errorf("seed %d: %s is %s", seed, o.id[60:], o.verdict)
				}
			}

			if filled := m.history.Generation > generation; filled != putBack {
				t.Errorf("seed %d: put back: %v, filled anew: %v", seed, putBack, filled)
			}
		}
	}
}

// TestHistoryIsBounded: a machine that started a thousand times is not taken for old, and
// neither its own history nor what others remember grows.
func TestHistoryIsBounded(t *testing.T) {
	var h History
	memory := Memory{}
	var early History
	for i := range 1000 {
		for range 1 + i%3 {
			h = h.Raise(fmt.Sprintf("s%d", i), time.Unix(int64(i), 0))
			memory.Note("a", Bricks, h)
		}

		if i == 900 {
			early = h
		}

		if h.Behind(memory.Of("a", Bricks)) {
			t.Fatalf("start %d: it is behind itself", i)
		}
	}

	if len(h.Starts) > maxStarts || len(memory.Of("a", Bricks).Starts) > rememberedStarts || h.Check() != nil {
		t.Errorf("%d and %d starts", len(h.Starts), len(memory.Of("a", Bricks).Starts))
	}

	if !early.Behind(memory.Of("a", Bricks)) {
		t.Error("an early one counts as an equal")
	}

	if !(History{}).Behind(memory.Of("a", Bricks)) {
		t.Error("a lost one counts as an equal")
	}
}

// TestHostileReports are refused before they are used.
func TestHostileReports(t *testing.T) {
	many := Memory{}
	for i := range maxNodes + 1 {
		many[fmt.Sprintf("%064x", i)] = nil
	}

	long := History{}
	for i := range maxStarts + 1 {
		long.Starts = append(long.Starts, Start{ID: fmt.Sprint(i)})
	}

	id := strings.Repeat("a", 64)
	for name, r := range map[string]Report{
		"start":         {Start: "../x"},
		"many nodes":    {Memory: many},
		"no hash":       {Memory: Memory{"n1": nil}},
		"place":         {Memory: Memory{id: {"elsewhere": {}}}},
		"many starts":   {Marks: map[Place]History{Bricks: long}},
		"start twice":   {Marks: map[Place]History{Data: {Starts: []Start{{ID: "a"}, {ID: "a"}}}}},
		"generation":    {Memory: Memory{id: {Bricks: {Generation: 1 << 63}}}},
		"count":         {Memory: Memory{id: {Bricks: {Starts: []Start{{ID: "a", Last: 1<<64 - 1}}}}}},
		"forgotten":     {Marks: map[Place]History{Bricks: {Forgotten: 1 << 50}}},
		"start no id":   {Memory: Memory{id: {Data: {Starts: []Start{{ID: "a b"}}}}}},
		"start is long": {Memory: Memory{id: {Data: {Starts: []Start{{ID: strings.Repeat("a", 41)}}}}}},
	} {
		if r.Check() == nil {
			t.Errorf("%s: accepted", name)
		}
	}

	if err := (Report{
		Start:  "A1",
		Marks:  map[Place]History{Bricks: {}},
		Memory: Memory{id: {Data: {Starts: []Start{{ID: "B2", Last: 3}}}}},
	}).Check(); err != nil {
		t.Error(err)
	}
}

// TestTwin: a copy of a machine at another address decides nothing while the machine
// itself answers.
func TestTwin(t *testing.T) {
	for _, c := range []struct {
		name  string
		heard *Heard
		want  bool
	}{
		{"nobody was heard", nil, false},
		{"this one", &Heard{Start: "mine"}, false},
		{"another one", &Heard{Start: "other", Ago: time.Second}, true},
		{"another one, long ago", &Heard{Start: "other", Ago: time.Minute}, false},
		{"a version before", &Heard{}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := (Report{Heard: c.heard}).Twin("mine"); got != c.want {
				t.Error(got)
			}
		})
	}

	s := Situation{
		Copy:   true,
		Behind: true,
		Twin:   true,
		Others: []Other{{Copy: true, Answered: true}, {Copy: true, Answered: true}},
	}

	if got := Decide(s); got != Ask {
		t.Error(got)
	}

	s.Twin = false
	if got := Decide(s); got != Aside {
		t.Error(got)
	}
}

// FuzzReport: a report that passes is of a size, is remembered the same way whoever is
// heard first, and nothing is behind itself.
func FuzzReport(f *testing.F) {
	id := strings.Repeat("a", 64)
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"memory":{"x":{}}}`,
		`{"start":"A","marks":{"bricks":{"starts":[{"id":"A","last":3},{"id":"B","last":9}]}}}`,
		`{"memory":{"` + id + `":{"bricks":{"generation":18446744073709551615,"starts":[{"id":"A","last":18446744073709551615}]},"data":{}}}}`,
	} {
		f.Add([]byte(seed), []byte(`{"memory":{"`+id+`":{"bricks":{"starts":[{"id":"A","last":4}]}}}}`))
	}

	f.Fuzz(func(t *testing.T, first, second []byte) {
		var a, b Report
		if json.Unmarshal(first, &a) != nil || json.Unmarshal(second, &b) != nil || a.Check() != nil ||
			b.Check() != nil {
			return
		}

		one, other := Memory{}, Memory{}
		one.Merge(a.Memory)
		one.Merge(b.Memory)
		other.Merge(b.Memory)
		other.Merge(a.Memory)

		if err := one.Check(); err != nil {
			t.Fatal(err)
		}

		for certificate, places := range one {
			for place, h := range places {
				if !isSame(h, other.Of(certificate, place)) {
					t.Errorf("%+v, and the other way round %+v", h, other.Of(certificate, place))
				}
				if h.Behind(h) {
					t.Errorf("%+v is behind itself", h)
				}
			}
		}
	})
}
