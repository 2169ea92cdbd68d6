package fleet

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"saltern/internal/printable"
	"saltern/master/history"
	"saltern/master/history/summary"
)

// Bounds of the table.
const (
	maxMinions   = 100_000
	maxEntry     = 1024 // bytes of an entry
	maxBaselines = 4    // runs that are remembered for each minion, two of the same states at most
	maxTouched   = 20   // states that are remembered of each
)

// Table has the last run of each minion. It is safe for concurrent use.
type Table struct {
	mu       sync.RWMutex
	entries  map[string]*entry
	changed  bool   // since the last save
	evicted  uint64 // entries that other minions have displaced
	replaced uint64 // runs that were not newer than what the table had
	// daysFrom is the first day that the entries have in full, because the runs before it were not read.
	// 0: they have all.
	daysFrom int32
}

// entry holds the last runs of a minion. Its size is bounded by maxEntry, see fit.
type entry struct {
	// The last return of any function. Its states are left out.
	answer Answer
	// The last run of states; run.JID is "" if there is none.
	run       Answer
	packed    []byte // its summary
	drifted   bool   // it found drift
	baselines []baseline
	days      days
}

// Answer is a return without its states.
type Answer struct {
	JID, Function, User string
	Time                time.Time
	Result              summary.Result
}

// baseline is the last run of some states, with which the next run of the same states is compared.
type baseline struct {
	scope    uint64    // hash of the function and its arguments
	revision uint64    // hash of the revision of the files; 0: unknown
	order    string    // see orderOf
	touched  []touched // states that had drifted or failed, at most maxTouched
	partial  bool      // there were more failed states than touched has
}

// touched is a state that had drifted or failed in a run: a hash of the state, whose lowest bit
// is set if it failed.
type touched uint32

func touchedBy(s *summary.State, failed bool) touched {
	hash := touched(hashState(s)) &^ 1
	if failed {
		hash |= 1
	}
	return hash
}

func newTable() *Table { return &Table{entries: map[string]*entry{}} }

// Len returns the number of minions in the table.
func (t *Table) Len() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.entries)
}

// add enters a run, unless it has it already or has a newer one. scope tells which states the run had; 0:
// none that can be compared. add reports whether anything has changed.
func (t *Table) add(run *history.Run, scope uint64, now time.Time) (changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.entries[run.Minion]
	if e == nil {
		t.makeRoom()
		e = &entry{}
		t.entries[run.Minion] = e
	}

	answer := answerOf(run)
	if isNewer(answer.order(), e.answer.order(), now) {
		e.answer = answer
		changed = true
	} else {
		t.replaced++
	}

	var latest *summary.Summary
	if scope != 0 && isNewer(answer.order(), e.run.order(), now) {
		e.run = answer
		latest = &run.Summary
		e.drifted = len(latest.Drifted()) > 0
		changed = true
	}
	if scope != 0 && scope != unknownScope && e.setBaseline(run, scope, now) {
		changed = true
	}

	if e.days.enter(run, scope != 0, now) {
		changed = true
	}

	e.fit(latest)
	t.changed = t.changed || changed
	return changed
}

func answerOf(run *history.Run) Answer {
	return Answer{
		JID:      run.JID,
		Function: clip(run.Function, 64),
		User:     clip(run.User, 64),
		Time:     run.Time,
		Result:   run.Summary.Result,
	}
}

// makeRoom removes the minion that has not answered for the longest time if the table is full.
func (t *Table) makeRoom() {
	if len(t.entries) < maxMinions {
		return
	}
	oldest := slices.MinFunc(slices.Collect(maps.Keys(t.entries)), func(a, b string) int {
		return cmp.Compare(t.entries[a].answer.JID, t.entries[b].answer.JID)
	})
	delete(t.entries, oldest)
	t.evicted++
}

// isBaseline reports whether a run has brought the minion into its state, so that later runs are compared with it.
func isBaseline(s *summary.Summary) bool {
	return !s.Test && s.Result != summary.Error && s.States() > 0
}

// setBaseline makes a run the one with which the next run of the same states is compared. It reports
// whether it did.
func (e *entry) setBaseline(run *history.Run, scope uint64, now time.Time) bool {
	return isBaseline(&run.Summary) && e.keepBaseline(baselineOf(run, scope), now)
}

// baselineOf returns a run as one with which others are compared.
func baselineOf(run *history.Run, scope uint64) baseline {
	s := &run.Summary
	b := baseline{
		scope:    scope,
		revision: hashRevision(s.Revision),
		order:    orderOf(run.JID, run.Time),
		partial:  s.Failed > len(s.FailedStates) || len(s.FailedStates) > maxTouched,
	}
	for i := range s.FailedStates {
		b.touch(&s.FailedStates[i], true)
	}
	for i := range s.ChangedStates {
		if s.ChangedStates[i].Cause.Drifted() { // a deployment is no drift that may return
			b.touch(&s.ChangedStates[i], false)
		}
	}
	return b
}

// keepBaseline keeps a baseline if it is one of the two newest ones of its states. It reports whether it did.
// The second is for a run that comes late: a master that was away gets new runs before those that it missed.
func (e *entry) keepBaseline(next baseline, now time.Time) bool {
	var same []string // orders of the other ones of these states, the newest first
	for i := range e.baselines {
		if b := &e.baselines[i]; b.scope == next.scope {
			same = append(same, b.order)
		}
	}
	if slices.Contains(same, next.order) || len(same) > 1 && !isNewer(next.order, same[1], now) {
		return false
	}
	if len(same) > 1 {
		e.baselines = slices.DeleteFunc(e.baselines,
			func(b baseline) bool { return b.scope == next.scope && b.order == same[1] })
	}

	e.baselines = slices.Insert(e.baselines, 0, next)
	slices.SortStableFunc(e.baselines, func(a, b baseline) int {
		switch {
		case isNewer(a.order, b.order, now):
			return -1
		case isNewer(b.order, a.order, now):
			return 1
		}
		return 0
	})
	for len(e.baselines) > maxBaselines {
		e.baselines = dropBaseline(e.baselines)
	}
	return true
}

// dropBaseline drops the oldest baseline of whose states there is a newer one, or else the oldest one.
func dropBaseline(list []baseline) []baseline {
	at := len(list) - 1
	for i := at; i > 0; i-- {
		scope := list[i].scope
		if slices.ContainsFunc(list[:i], func(b baseline) bool { return b.scope == scope }) {
			at = i
			break
		}
	}
	return slices.Delete(list, at, at+1)
}

func (b *baseline) touch(s *summary.State, failed bool) {
	if len(b.touched) < maxTouched {
		b.touched = append(b.touched, touchedBy(s, failed))
	}
}

// size returns the bytes of memory that an entry takes, without the id of its minion.
func (e *entry) size() int {
	const (
		fixed        = 264 // the struct
		fixedOfBase  = 72
		bytesOfTouch = 4
	)
	n := fixed + len(e.packed)
	for _, a := range []*Answer{&e.answer, &e.run} {
		n += len(a.JID) + len(a.Function) + len(a.User)
	}
	for i := range e.baselines {
		b := &e.baselines[i]
		n += fixedOfBase + len(b.order) + bytesOfTouch*len(b.touched)
	}
	return n
}

// sizeBeside returns the bytes that an entry takes beside the summary of its last run. It does not depend on what the
// minion did after that run, or on how the master came to know of it.
func (e *entry) sizeBeside() int {
	beside := entry{answer: e.run, run: e.run}
	for i := range e.baselines {
		scope := e.baselines[i].scope
		isSecond := slices.ContainsFunc(beside.baselines, func(b baseline) bool { return b.scope == scope })
		if !isSecond {
			beside.baselines = append(beside.baselines, e.baselines[i])
		}
	}
	return beside.size()
}

// fit keeps the entry within maxEntry: it packs the summary of the last run, see packWithin, and
// then forgets baselines, see dropBaseline. latest may be nil: the last run is packed already.
func (e *entry) fit(latest *summary.Summary) {
	if latest != nil {
		e.packed = packWithin(*latest, max(maxEntry/4, maxEntry-e.sizeBeside()))
	}
	for e.size() > maxEntry && len(e.baselines) > 1 {
		e.baselines = dropBaseline(e.baselines)
	}
}

// packWithin packs a summary in most bytes at most. It keeps the counts, and drops the slowest
// states, then all but the first states, then the ends of texts, and then further states.
func packWithin(s summary.Summary, most int) []byte {
	const few, brief = 4, 48
	for step := 0; ; step++ {
		packed := summary.Append(nil, s)
		if len(packed) <= most {
			return slices.Clip(packed)
		}

		switch step {
		case 0:
			s.Slowest = nil
		case 1:
			s.FailedStates = s.FailedStates[:min(len(s.FailedStates), few)]
			s.ChangedStates = s.ChangedStates[:min(len(s.ChangedStates), few)]
		case 2:
			s.FailedStates = clipStates(s.FailedStates, brief)
			s.ChangedStates = clipStates(s.ChangedStates, brief)
		default:
			if len(s.FailedStates)+len(s.ChangedStates) == 0 {
				return slices.Clip(packed)
			}
			if len(s.ChangedStates) > len(s.FailedStates) {
				s.ChangedStates = s.ChangedStates[:len(s.ChangedStates)-1]
			} else {
				s.FailedStates = s.FailedStates[:len(s.FailedStates)-1]
			}
		}
	}
}

func clipStates(list []summary.State, most int) []summary.State {
	list = slices.Clone(list)
	for i := range list {
		s := &list[i]
		for _, text := range []*string{&s.ID, &s.SLS, &s.Name, &s.Function, &s.Comment, &s.Changes} {
			*text = printable.Clip(*text, most)
		}
	}
	return list
}

// clip returns the first most bytes of an id.
func clip(s string, most int) string { return s[:min(len(s), most)] }

// Last is the last run of a minion.
type Last struct {
	Minion  string
	Answer  Answer // the last return of any function
	Run     Answer // the last run of states; its JID is "" if there is none
	Summary summary.Summary
	days    days
}

// snapshot is a copy of a minion's entry at one moment. Its summary is still packed, so that making it
// is quick.
type snapshot struct {
	minion      string
	answer, run Answer
	packed      []byte // nobody changes it: the table replaces it
	days        days
}

// snapshot returns what the table has of some minions, sorted by id, and the first day of which it has all
// results. Minions that never answered have their ids only.
func (t *Table) snapshot(minions []string) (out []snapshot, daysFrom int32) {
	out = make([]snapshot, 0, len(minions))
	minions = slices.Sorted(slices.Values(minions))
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, minion := range minions {
		one := snapshot{minion: minion}
		if e := t.entries[minion]; e != nil {
			one.answer = e.answer
			one.run = e.run
			one.packed = e.packed
			one.days = e.days
		}
		out = append(out, one)
	}
	return out, t.daysFrom
}

// summary returns the summary of the last run of states.
func (s *snapshot) summary() (out summary.Summary) {
	if s.run.JID != "" {
		out, _ = summary.Parse(s.packed) // what Append has written
	}
	return out
}

func (s *snapshot) last() Last {
	return Last{
		Minion:  s.minion,
		Answer:  s.answer,
		Run:     s.run,
		Summary: s.summary(),
		days:    s.days,
	}
}

// Last returns the last run of a minion.
func (t *Table) Last(minion string) (Last, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	e := t.entries[minion]
	if e == nil {
		return Last{}, false
	}
	return e.last(minion), true
}

// All returns what the table has of all minions, by id.
func (t *Table) All() []Last {
	t.mu.RLock()
	defer t.mu.RUnlock()
	out := make([]Last, 0, len(t.entries))
	for _, minion := range slices.Sorted(maps.Keys(t.entries)) {
		out = append(out, t.entries[minion].last(minion))
	}
	return out
}

func (e *entry) last(minion string) Last {
	last := Last{Minion: minion, Answer: e.answer, Run: e.run, days: e.days}
	if e.run.JID != "" {
		last.Summary, _ = summary.Parse(e.packed) // what Append has written
	}
	return last
}
