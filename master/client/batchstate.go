package client

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"saltern/master/msgpack"
	"saltern/master/output"
)

// BatchSize reads the size of a batch, a number or a percentage of n minions;
// it is at least 1 (salt/utils/batch_state.py get_batch_size).
func BatchSize(spec string, n int) (int, error) {
	bad := &Error{Kind: Invocation, Message: fmt.Sprintf("Invalid batch specification %s: must be an integer or percentage string like '10' or '25%%'.", output.Repr(spec))}
	if strings.Contains(spec, "%") {
		p, err := strconv.ParseFloat(strings.TrimSpace(strings.Trim(spec, "%")), 64)
		if err != nil || math.IsNaN(p) || math.IsInf(p, 0) {
			return 0, bad
		}
		size := p / 100 * float64(n)
		if size < 1 {
			return 1, nil
		}
		return int(min(size, float64(math.MaxInt32))), nil
	}
	size, err := strconv.Atoi(strings.TrimSpace(spec))
	if err != nil {
		return 0, bad
	}
	return max(size, 1), nil
}

// batchState says who may run next. It has no clock and does no I/O
// (salt/utils/batch_state.py progress_batch).
type batchState struct {
	jid      string
	size     int
	wait     time.Duration // a slot stays closed that long after a return
	failhard bool

	all     []string
	pending []string
	active  map[string]time.Time
	done    map[string]bool
	failed  map[string]string // id → why
	closed  []time.Time       // slots that open at these times
	halted  string            // why the batch was stopped, "" if it was not
}

func newBatchState(jid string, minions []string, size int) *batchState {
	return &batchState{jid: jid, size: size, all: minions, pending: append([]string(nil), minions...),
		active: map[string]time.Time{}, done: map[string]bool{}, failed: map[string]string{}}
}

// returned takes a minion out of its slot; bad is its return code being above
// 0. With failhard that stops the batch.
func (b *batchState) returned(id string, bad bool, now time.Time) {
	if b.done[id] || b.failed[id] != "" {
		return
	}
	delete(b.active, id)
	b.done[id] = true
	b.close(now)
	if b.failhard && bad {
		b.halted = "failhard"
	}
}

// timedOut takes a minion out of its slot that did not answer.
func (b *batchState) timedOut(id string, now time.Time) {
	if b.done[id] || b.failed[id] != "" {
		return
	}
	delete(b.active, id)
	b.failed[id] = "timeout"
	b.close(now)
}

func (b *batchState) close(now time.Time) {
	if b.wait > 0 {
		b.closed = append(b.closed, now.Add(b.wait))
	}
}

// next are the minions that get the job now, none when all slots are taken.
// wake is when the next slot opens, zero when none is closed.
func (b *batchState) next(now time.Time) (ids []string, wake time.Time) {
	open := b.closed[:0]
	for _, t := range b.closed {
		if t.After(now) {
			open = append(open, t)
			if wake.IsZero() || t.Before(wake) {
				wake = t
			}
		}
	}
	b.closed = open
	if b.halted != "" {
		return nil, wake
	}
	n := min(b.size-len(b.active)-len(b.closed), len(b.pending))
	for range n {
		id := b.pending[0]
		b.pending = b.pending[1:]
		b.active[id] = now
		ids = append(ids, id)
	}
	return ids, wake
}

func (b *batchState) over() bool {
	return b.halted != "" || len(b.pending) == 0 && len(b.active) == 0
}

// payload is the state as the batch events carry it, for the master's
// batch.status (salt/utils/batch_output.py state_payload).
func (b *batchState) payload(q BatchRequest, user string, created, now time.Time) *msgpack.Map {
	active, done, failed := msgpack.NewMap(), msgpack.NewMap(), msgpack.NewMap()
	for id, t := range b.active {
		active.Set(id, seconds(t))
	}
	for id := range b.done {
		done.Set(id, msgpack.NewMap())
	}
	for id, why := range b.failed {
		failed.Set(id, why)
	}
	wait := []any{}
	for _, t := range b.closed {
		wait = append(wait, seconds(t))
	}
	var reason any
	if b.halted != "" {
		reason = b.halted
	}
	state := msgpack.NewMap("jid", b.jid, "all_minions", b.all, "pending", b.pending, "active", active,
		"done", done, "failed", failed, "wait", wait, "batch_size", b.size, "fun", q.Fun, "arg", q.Arg,
		"kwargs", msgpack.NewMap(), "tgt", q.Target, "tgt_type", q.TargetType, "failhard", b.failhard,
		"batch_wait", b.wait.Seconds(), "timeout", int64(q.Timeout/time.Second), "gather_job_timeout", int64(q.Gather/time.Second),
		"last_progress", seconds(now), "created", seconds(created), "halted", b.halted != "", "halted_reason", reason,
		"driver", "cli", "ret", q.Return, "user", user)
	return msgpack.NewMap("jid", b.jid, "fun", q.Fun, "tgt", q.Target, "tgt_type", q.TargetType, "user", user,
		"driver", "cli", "state", state)
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }
