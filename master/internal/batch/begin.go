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
	Target      any   // as it was asked for; only batch.status shows it
	TargetType  string
	Return      string        // returners on the minions, separated by commas
	Timeout     time.Duration // how long a minion may take
}

// ownKey marks the state of an Own batch in Salt's map of a batch. Whoever starts it also records
// that.
const ownKey = "saltern_own"

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
		jobs.BatchField, value.NewMap("minions", int64(len(all)), "size", int64(b.state.Size)),
	)

	b.state.StopsLate = true
	b.state.Fill(kept, now)
	if err := m.writeState(own.JID, kept); err != nil {
		return fmt.Errorf("keep the state of a batch: %w", err)
	}
	if err := m.adoptBatch(ctx, own.JID, false); err != nil {
		return fmt.Errorf("begin a batch: %w", err)
	}
	return nil
}

// Progress returns how far a batch is that this master runs or has run: the number of its minions, how
// many get the job at a time (size), how many wait for it (pending), work on it (active) or count as
// failed, and why it was halted (""). It returns nil for other batches.
func (m *Manager) Progress(jid string) *value.Map {
	kept, err := m.readState(jid)
	if err != nil {
		return nil
	}
	state, err := parseState(kept)
	if err != nil {
		return nil
	}
	return value.NewMap(
		"minions", int64(len(kept.List("all_minions"))),
		"size", int64(state.Size),
		"pending", int64(len(state.Pending)),
		"active", int64(len(state.Active)),
		"failed", int64(len(state.Failed)),
		"halted", state.Halted,
	)
}
