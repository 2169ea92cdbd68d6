package fleet

import (
	"maps"
	"slices"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/master/history"
	"saltern/master/history/summary"
)

// Bounds of the functions whose returns are counted one by one. Those of further functions are counted as
// otherFunctions. minionFunctions bounds the functions that only minions have started, because a minion
// may call its functions as it likes.
const (
	maxFunctions    = 50
	minionFunctions = 10
	otherFunctions  = "other"
	maxFunctionName = 100 // bytes of a name
)

// counts are the returns of one function since the start.
type counts struct {
	runs   [summary.Error + 1]uint64
	states [summary.Failed + 1]uint64
}

// counter counts returns by function. It has a lock of its own, so that the master's status does not wait
// for the disk.
type counter struct {
	mu         sync.Mutex
	functions  map[string]*counts
	fromMinion int // functions that have a place because a minion started them
}

// count counts a run. byMinion means that the minion started the run by itself.
func (c *counter) count(run *history.Run, byMinion bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	function := c.placeOf(run.Function, byMinion)
	if c.functions[function] == nil {
		c.functions[function] = &counts{}
	}

	s := &run.Summary
	one := c.functions[function]
	one.runs[s.Result]++
	for result, n := range map[summary.Result]int{
		summary.OK:          s.OK,
		summary.Changed:     s.Changed,
		summary.WouldChange: s.WouldChange,
		summary.Failed:      s.Failed,
	} {
		one.states[result] += uint64(n)
	}
}

// placeOf returns the name under which a function is counted. The caller holds mu.
func (c *counter) placeOf(function string, byMinion bool) string {
	// Two names must not become the same text on their way to a reader.
	name := printable.Clip(printable.Line(function), maxFunctionName)
	_, hasPlace := c.functions[name]
	switch {
	case name == "":
		return otherFunctions
	case hasPlace:
		return name
	case byMinion && c.fromMinion >= minionFunctions, len(c.functions) >= maxFunctions:
		return otherFunctions
	}
	if byMinion {
		c.fromMinion++
	}
	return name
}

func (c *counter) figures() []control.FleetFunction {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := slices.Sorted(maps.Keys(c.functions))
	if i := slices.Index(names, otherFunctions); i >= 0 {
		names = append(slices.Delete(names, i, i+1), otherFunctions)
	}

	var out []control.FleetFunction
	for _, name := range names {
		one := c.functions[name]
		f := control.FleetFunction{Function: name, Runs: map[string]uint64{}, States: map[string]uint64{}}
		for result, n := range one.runs {
			if n > 0 {
				f.Runs[wordOf(summary.Result(result))] = n
			}
		}
		for result, n := range one.states {
			if n > 0 {
				f.States[wordOf(summary.Result(result))] = n
			}
		}
		out = append(out, f)
	}
	return out
}

// Figures returns the numbers for the master's status. f may be nil: the master keeps no history.
func (f *Fleet) Figures() *control.Fleet {
	if f == nil {
		return nil
	}
	accepted := f.accepted()

	out := &control.Fleet{
		LastRuns:  map[string]int{},
		Ages:      map[string]int{},
		Functions: f.recorder.counter.figures(),
	}
	now := f.now()
	out.FailedStates = f.failing.figures(f.recorder.table, accepted, now)
	t := f.recorder.table
	t.mu.RLock()
	defer t.mu.RUnlock()
	for _, minion := range accepted {
		e := t.entries[minion]
		if e == nil || e.run.JID == "" {
			out.LastRuns["never"]++
			continue
		}
		out.LastRuns[wordOf(e.run.Result)]++
		out.Ages[ageOf(now.Sub(e.run.Time))]++
		if e.drifted {
			out.Drifted++
		}
	}
	return out
}

// LeftOut returns how many returns are in no history because of their ids.
func (f *Fleet) LeftOut() uint64 { return f.recorder.refused.Load() }

// ageOf returns the word for the age of a run.
func ageOf(age time.Duration) string {
	switch {
	case age <= time.Hour:
		return "hour"
	case age <= day:
		return "day"
	case age <= 7*day:
		return "week"
	}
	return "older"
}

// Last returns the last run of a minion. f may be nil: the master keeps no history, and knows none.
func (f *Fleet) Last(minion string) (Last, bool) {
	if f == nil {
		return Last{}, false
	}
	return f.recorder.table.Last(minion)
}
