package batch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/value"
)

// Own is a batch that the master itself starts for a user.
type Own struct {
	JID         string // job id of all slices
	User, Eauth string
	Account     string // account whose quota the slices use; "": no quota
	Fun         string
	Arg         []any // the last one may be the map of named arguments
	Target      any   // as it was asked for
	TargetType  string
	Delimiter   string        // between the parts of the target; "": a colon
	Spec        Spec          // as it was asked for; its zero value if a saved job says how the batch proceeds
	Return      string        // returners on the minions, separated by commas
	Timeout     time.Duration // how long a minion may take
	Saved       *value.Map    // value of [jobs.SavedField]; nil: no saved job started it
	Fields      *value.Map    // the [JobFields] of each slice; nil: none
}

// ownKey marks the state of an Own batch in Salt's map of a batch. Whoever starts it also records
// that.
const ownKey = "saltern_own"

// lateGoesOnKey is [Spec.LateGoesOn] in the same map.
const lateGoesOnKey = "saltern_late_goes_on"

// beginning is a request to begin a batch.
type beginning struct {
	own   Own
	state *State
	done  chan error
}

// ErrStopped means that the Manager has stopped.
var ErrStopped = errors.New("the master stops; nothing was run")

// Begin starts a batch: it returns when the state is on the disk and the first minions have the job,
// or with an error when no minion has it. If maxActive batches run already, it returns when the batch
// waits for one of them to end; then no minion has the job yet. Once Run has ended, Begin returns
// [ErrStopped]. The batch goes on after a restart of the master, as all batches do.
func (m *Manager) Begin(ctx context.Context, own Own, state *State) error {
	b := beginning{own, state, make(chan error, 1)}
	select {
	case m.begins <- b:
	case <-m.stopped:
		return ErrStopped
	case <-ctx.Done():
		return fmt.Errorf("wait to begin a batch: %w", ctx.Err())
	}
	return <-b.done // Run has taken it, and always answers
}

func (m *Manager) begin(ctx context.Context, b beginning) error {
	own := b.own
	now := m.cfg.Now()
	all := []string{}
	all = append(all, b.state.Pending...)
	for id := range b.state.Failed {
		all = append(all, id)
	}

	kept := value.NewMap(
		"jid", own.JID,
		"all_minions", value.List(all),
		"batch_size", int64(b.state.Size),
		"fun", own.Fun,
		"arg", own.Arg,
		"kwargs", value.NewMap(),
		"tgt", own.Target,
		"tgt_type", own.TargetType,
		"failhard", b.state.Failhard,
		"batch_wait", b.state.Wait.Seconds(),
		"timeout", own.Timeout.Seconds(),
		"gather_job_timeout", int64(0),
		"created", seconds(now),
		"driver", "master",
		"ret", own.Return,
		"user", own.User,
		event.EauthField, own.Eauth,
		jobs.AccountField, own.Account,
		ownKey, true,
		jobs.BatchField, m.batchField(own, b.state),
	)

	if own.Saved != nil {
		kept.Set(jobs.SavedField, own.Saved)
	}
	if own.Spec.LateGoesOn {
		kept.Set(lateGoesOnKey, true)
	}
	b.state.StopsLate = !own.Spec.LateGoesOn
	b.state.Fill(kept, now)
	kept = withFields(kept, own.Fields)
	if err := m.writeState(own.JID, kept); err != nil {
		return fmt.Errorf("keep the state of a batch: %w", err)
	}
	if err := m.adoptBatch(ctx, own.JID, false); err != nil {
		return fmt.Errorf("begin a batch: %w", err)
	}
	return nil
}

// maxKeptTarget bounds the target of a batch in the load of each slice, in bytes.
const maxKeptTarget = 2048

// batchField returns the value of [jobs.BatchField] in the load of each slice of a batch.
func (m *Manager) batchField(own Own, state *State) *value.Map {
	of := value.NewMap(
		"minions", int64(len(state.Pending)+len(state.Failed)),
		"absent", int64(len(state.Failed)),
		"size", int64(state.Size),
		"master", m.cfg.ID,
	)
	if m.cfg.Orders != nil {
		of.Set("orders", true)
	}
	if event.Weight(value.NewMap("tgt", own.Target)) <= maxKeptTarget {
		of.Set("tgt", own.Target)
		of.Set("tgt_type", own.TargetType)
		if own.Delimiter != "" && own.Delimiter != ":" {
			of.Set("delimiter", own.Delimiter)
		}
	}
	if own.Spec != (Spec{}) {
		of.Set("asked", own.Spec.Map())
	}
	return of
}
