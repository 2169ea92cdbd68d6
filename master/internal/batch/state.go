// Package batch runs jobs on a few minions at a time. State is the state of one batch. Manager runs
// the batches that tools leave to the master.
package batch

import (
	"fmt"
	"slices"
	"time"

	"saltern/master/value"
)

// State determines which minions get the job next. It has no clock and does no I/O
// (salt/utils/batch_state.py progress_batch).
type State struct {
	Size     int
	Wait     time.Duration // how long a slot remains closed after a return
	Failhard bool
	// StopsLate means that with Failhard a minion that does not return in time, or that does not get
	// the job, stops the batch, too. It is true for an [Own] batch; salt's tools only stop after a return.
	StopsLate bool

	Pending []string
	Active  map[string]time.Time // time when each minion was sent the job
	Done    map[string]bool
	Failed  map[string]string // reason of the failure, by minion id
	Closed  []time.Time       // times when closed slots open again
	Halted  string            // why the batch was stopped, or ""

	// Limited means that the batch is halted when more than MostFailures minions have failed: those
	// in Failed, and Bad ones, which have returned with a return code above 0. Salt has no such limit.
	Limited      bool
	MostFailures int
	Bad          int
}

// New returns the state of a batch that has not begun.
func New(minions []string, size int) *State {
	return &State{
		Size:    size,
		Pending: append([]string(nil), minions...),
		Active:  map[string]time.Time{},
		Done:    map[string]bool{},
		Failed:  map[string]string{},
	}
}

// Returned frees the slot of a minion that has returned. bad means that the return code is above 0;
// with failhard that stops the batch.
func (b *State) Returned(id string, bad bool, now time.Time) {
	if b.Done[id] || b.Failed[id] != "" {
		return
	}
	delete(b.Active, id)
	b.Done[id] = true
	b.closeSlot(now)
	if b.Failhard && bad {
		b.Halted = "failhard"
	}
	if bad {
		b.Bad++
	}
	b.checkFailures()
}

// checkFailures halts the batch if too many minions have failed.
func (b *State) checkFailures() {
	if failures := b.Bad + len(b.Failed); b.Limited && failures > b.MostFailures && b.Halted == "" {
		b.Halted = fmt.Sprintf("%d minions have failed, more than %d", failures, b.MostFailures)
	}
}

// TimedOut frees the slot of a minion that has not answered in time.
func (b *State) TimedOut(id string, now time.Time) {
	if b.Done[id] || b.Failed[id] != "" {
		return
	}
	delete(b.Active, id)
	b.Failed[id] = "timeout"
	b.closeSlot(now)
	b.stopLate()
	b.checkFailures()
}

// sendPause is how long the slots of minions stay closed that the job could not be sent to. So a fault that
// passes does not use up all pending minions.
const sendPause = time.Minute

// notSent notes that these minions, which were to get the job, did not get it. Their slots open after
// sendPause.
func (b *State) notSent(ids []string, now time.Time) {
	for _, id := range ids {
		delete(b.Active, id)
		b.Failed[id] = "the job could not be sent"
		b.Closed = append(b.Closed, now.Add(sendPause))
	}
	b.stopLate()
	b.checkFailures()
}

// putBack lets these minions, which were to get the job, get it before the others that wait.
func (b *State) putBack(ids []string) {
	for _, id := range ids {
		delete(b.Active, id)
	}
	b.Pending = slices.Concat(ids, b.Pending)
}

// stopLate halts the batch after a minion that failed without a return, if StopsLate asks for that.
func (b *State) stopLate() {
	if b.Failhard && b.StopsLate && b.Halted == "" {
		b.Halted = "failhard"
	}
}

func (b *State) closeSlot(now time.Time) {
	if b.Wait > 0 {
		b.Closed = append(b.Closed, now.Add(b.Wait))
	}
}

// Next returns the minions that must get the job now, or none if all slots are taken. wake is the
// time when the next closed slot opens, or zero if no slot is closed.
func (b *State) Next(now time.Time) (ids []string, wake time.Time) {
	open := b.Closed[:0]
	for _, t := range b.Closed {
		if t.After(now) {
			open = append(open, t)
			if wake.IsZero() || t.Before(wake) {
				wake = t
			}
		}
	}

	b.Closed = open
	if b.Halted != "" {
		return nil, wake
	}

	n := min(b.Size-len(b.Active)-len(b.Closed), len(b.Pending))
	for range n {
		id := b.Pending[0]
		b.Pending = b.Pending[1:]
		b.Active[id] = now
		ids = append(ids, id)
	}

	return ids, wake
}

// Over reports whether the batch has ended or was halted.
func (b *State) Over() bool { return b.Halted != "" || len(b.Pending) == 0 && len(b.Active) == 0 }

// Names of the limit on failures in Salt's map of a batch, which Salt ignores.
const (
	mostFailuresKey = "saltern_most_failures"
	badKey          = "saltern_bad"
)

// Fill writes the values that change during a batch into m, Salt's map of the batch, under Salt's
// names.
func (b *State) Fill(m *value.Map, now time.Time) {
	b.fillLimit(m)
	active := value.NewMap()
	done := value.NewMap()
	failed := value.NewMap()
	for id, t := range b.Active {
		active.Set(id, seconds(t))
	}

	for id := range b.Done {
		done.Set(id, value.NewMap())
	}

	for id, why := range b.Failed {
		failed.Set(id, why)
	}

	wait := []any{}
	for _, t := range b.Closed {
		wait = append(wait, seconds(t))
	}

	var reason any
	if b.Halted != "" {
		reason = b.Halted
	}

	pending := []any{}
	for _, id := range b.Pending {
		pending = append(pending, id)
	}

	for i, v := range []any{pending, active, done, failed, wait, b.Halted != "", reason, seconds(now)} {
		m.Set([]string{"pending", "active", "done", "failed", "wait", "halted", "halted_reason", "last_progress"}[i], v)
	}
}

// fillLimit writes the limit on failures into m.
func (b *State) fillLimit(m *value.Map) {
	if b.Limited {
		m.Set(mostFailuresKey, int64(b.MostFailures))
		m.Set(badKey, int64(b.Bad))
	}
}

// parseState returns the State in Salt's map of a batch.
func parseState(m *value.Map) (*State, error) {
	size, ok := m.Int("batch_size")
	if !ok || size < 1 {
		return nil, fmt.Errorf("it has no batch_size")
	}

	b := New(m.Texts("pending"), int(size))
	b.Wait = time.Duration(numberIn(m, "batch_wait", 0) * float64(time.Second))
	b.Failhard = m.Bool("failhard")
	b.StopsLate = m.Bool(ownKey) && !m.Bool(lateGoesOnKey)
	for k := range m.Map("active").All() {
		id, _ := k.(string)
		at := numberIn(m.Map("active"), id, 0)
		b.Active[id] = time.UnixMicro(int64(at * 1e6))
	}

	for _, v := range m.List("wait") {
		b.Closed = append(b.Closed, time.UnixMicro(int64(numberIn(value.NewMap("t", v), "t", 0)*1e6)))
	}

	for k := range m.Map("done").All() {
		id, _ := k.(string)
		b.Done[id] = true
	}

	for k, why := range m.Map("failed").All() {
		id, _ := k.(string)
		b.Failed[id] = fmt.Sprint(why)
	}

	if most, ok := m.Int(mostFailuresKey); ok {
		bad, _ := m.Int(badKey)
		b.Limited = true
		b.MostFailures = int(most)
		b.Bad = int(bad)
	}

	if m.Bool("halted") {
		b.Halted = fmt.Sprint(m.Str("halted_reason"))
	}

	return b, nil
}

// numberIn returns the number with this key in the map, or def if there is none.
func numberIn(m *value.Map, key string, def float64) float64 {
	v, _ := m.Get(key)
	switch v := v.(type) {
	case int64:
		return float64(v)
	case float64:
		return v
	}
	return def
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
