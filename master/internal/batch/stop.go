package batch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"saltern/master/value"
)

// stopping is a request to stop a batch.
type stopping struct {
	jid  string
	done chan stopResult
}

type stopResult struct {
	stopped bool
	err     error
}

// Stop stops a batch of this master: no further minion gets the job. It returns false for a batch that
// is unknown, has ended or was stopped before. Minions that have the job finish it. If ctx ends first,
// the batch may be stopped nevertheless. It implements runner.Batches.
func (m *Manager) Stop(ctx context.Context, jid string) (stopped bool, err error) {
	s := stopping{jid, make(chan stopResult, 1)}
	select {
	case m.stops <- s:
	case <-m.stopped:
		return false, errors.New("the master stops; the batch goes on after its next start")
	case <-ctx.Done():
		return false, fmt.Errorf("wait to stop a batch: %w", ctx.Err())
	}

	select {
	case r := <-s.done:
		return r.stopped, r.err
	case <-ctx.Done():
		return false, fmt.Errorf("wait until the batch is stopped, batch.status tells later whether it is: %w", ctx.Err())
	}
}

// stopNow stops a batch, and checks that it stays stopped after a restart of the master.
func (m *Manager) stopNow(ctx context.Context, jid string) stopResult {
	stopped, err := m.haltBatch(ctx, jid, "stop")
	if err != nil || !stopped {
		return stopResult{err: err}
	}

	kept, err := m.readState(jid)
	if err == nil && !kept.Bool("halted") {
		err = errors.New("its state cannot be written")
	}
	if err != nil {
		return stopResult{err: fmt.Errorf("the batch is stopped, but may go on after a restart of the master: %w", err)}
	}
	return stopResult{stopped: true}
}

// haltBatch stops a batch, and reports whether it was to go on. Minions that already have the job
// finish it. If a tool runs the batch, haltBatch fires an event, and the tool stops. The error says why
// it is not known whether the batch goes on.
func (m *Manager) haltBatch(ctx context.Context, jid, reason string) (bool, error) {
	reason = cmp.Or(reason, "stop")
	if b := m.batches[jid]; b != nil {
		b.Halted = reason
		m.advance(ctx, jid, b)
		return true, nil
	}

	kept, err := m.stateOf(jid)
	if err != nil {
		return false, fmt.Errorf("the batch is not stopped, and may go on: %w", err)
	}
	if kept == nil || kept.Bool("halted") {
		return false, nil
	}

	s, err := parseState(kept)
	if err != nil {
		return false, fmt.Errorf("the batch is not stopped, its state cannot be read: %w", err)
	}
	if s.Over() {
		return false, nil
	}

	s.Halted = reason
	m.advance(ctx, jid, &driven{State: s, kept: kept, begun: true})
	return true, nil
}

// stateOf returns the stored state of a batch, or nil if this master has none.
func (m *Manager) stateOf(jid string) (*value.Map, error) {
	kept, err := m.readState(jid)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return kept, err
}

// Active returns the batches of this master that have not ended, by job id, each as Status returns it. One whose
// state cannot be read has the fields jid, master and error alone. It may be called concurrently with Run. It
// implements runner.Batches.
func (m *Manager) Active(ctx context.Context) ([]*value.Map, error) {
	jids, err := m.activeJIDs()
	if err != nil {
		return nil, fmt.Errorf("read the list of batches: %w", err)
	}

	var active []*value.Map
	for _, jid := range jids {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("read the states of batches: %w", err)
		}
		switch status, err := m.Status(ctx, jid); {
		case err != nil:
			active = append(active, value.NewMap("jid", jid, "master", m.cfg.ID, "error", "its state cannot be read: "+err.Error()))
		case status != nil:
			active = append(active, status)
		}
	}
	return active, nil
}

// Status returns how far a batch is that this master runs or has run, in the form of the runner
// batch.status (salt/runners/batch.py), or nil for other batches. Of a halted batch it counts minions as
// completed that have returned since, and as failed those that were late; Salt's counts both as active for ever.
// It may be called concurrently with Run. It implements runner.Batches.
func (m *Manager) Status(ctx context.Context, jid string) (*value.Map, error) {
	kept, err := m.stateOf(jid)
	if kept == nil {
		return nil, err
	}

	out := value.NewMap("jid", jid, "master", m.cfg.ID)
	for _, key := range []string{"fun", "tgt", "tgt_type"} {
		out.Set(key, kept.Value(key))
	}
	for name, key := range map[string]string{"total": "all_minions", "pending": "pending"} {
		out.Set(name, int64(len(kept.List(key))))
	}
	returned, late := m.endedSinceHalt(ctx, jid, kept)
	out.Set("completed", int64(kept.Map("done").Len()+returned))
	out.Set("active", int64(kept.Map("active").Len()-returned-late))
	out.Set("failed", int64(kept.Map("failed").Len()+late))
	out.Set("halted", kept.Bool("halted"))
	for _, key := range []string{"batch_size", "halted_reason", "driver", "user", "created", "last_progress"} {
		out.Set(key, kept.Value(key))
	}

	if last := numberIn(kept, "last_progress", 0); last > 0 {
		out.Set("age_seconds", seconds(m.cfg.Now())-last)
	} else {
		out.Set("age_seconds", nil)
	}
	return out, nil
}

// endedSinceHalt returns how many minions that were at work when a batch was halted have returned since, and how
// many others are late. No state of the batch is written after that. kept is its last one.
func (m *Manager) endedSinceHalt(ctx context.Context, jid string, kept *value.Map) (returned, late int) {
	active := kept.Map("active")
	if !kept.Bool("halted") || active.Len() == 0 {
		return 0, 0
	}
	returns, err := m.cfg.Jobs.Returns(ctx, jid)
	if err != nil {
		m.cfg.Log.Warn("the returns of a halted batch cannot be read: its minions count as active", "jid", jid, "error", err)
		return 0, 0
	}

	lateSince := seconds(m.cfg.Now().Add(-minionWindow(kept)))
	for key := range active.All() {
		id := value.Str(key)
		switch {
		case returns.Map(id) != nil:
			returned++
		case numberIn(active, id, 0) <= lateSince:
			late++
		}
	}
	return returned, late
}

// minionWindow returns how long a minion of a batch may take. kept is the state of the batch.
func minionWindow(kept *value.Map) time.Duration {
	window := numberIn(kept, "timeout", 60) + numberIn(kept, "gather_job_timeout", 10)
	return time.Duration(window * float64(time.Second))
}
