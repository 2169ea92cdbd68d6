package minion

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/conf"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/runner"
	"saltern/master/value"
)

// runnerCrowd is a Service whose one runner takes a second and returns its argument.
type runnerCrowd struct {
	*Service
	begun, running, most atomic.Int64
}

func newRunnerCrowd() *runnerCrowd {
	c := &runnerCrowd{}
	table := runner.New()
	table.Add("own.slow", func(ctx context.Context, _ *runner.Env, args []any, _ *value.Map) (any, error) {
		c.begun.Add(1)
		now := c.running.Add(1)
		defer c.running.Add(-1)

		for most := c.most.Load(); now > most && !c.most.CompareAndSwap(most, now); most = c.most.Load() {
		}
		select {
		case <-time.After(time.Second):
			return value.NewMap("got", args[0]), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	})

	log := slog.New(slog.DiscardHandler)
	options := &conf.Master{}
	options.PeerRun = value.NewMap("m.*", []any{"own.slow"})
	c.Service = New(Config{
		Options: options,
		Runs: runner.NewRuns(runner.RunsConfig{
			Table: table,
			Env:   &runner.Env{},
			Fire:  func(string, *value.Map) {},
			IDs:   jobs.NewIDs(time.Now),
			Now:   time.Now,
			Log:   log,
		}),
		Now:   time.Now,
		Log:   log,
		Quiet: log,
	})

	return c
}

// call is what a minion gets that calls the runner.
func (c *runnerCrowd) call(ctx context.Context, id string) (any, error) {
	load := value.NewMap("cmd", "minion_runner", "fun", "own.slow", "arg", []any{id})
	return c.Methods()["minion_runner"].Do(ctx, &request.Call{ID: id, Load: load})
}

// Finding F11: many minions call a runner at once. Each gets its answer, however long it
// has to wait; an empty one is for who may not call it.
func TestRunnersOfManyMinions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const minions = 300
		c := newRunnerCrowd()
		var group sync.WaitGroup
		for i := range minions {
			id := fmt.Sprint("m", i)
			group.Go(func() {
				answer, err := c.call(t.Context(), id)
				if got, _ := answer.(*value.Map); err != nil || got.Str("got") != id {
					t.Errorf("%s: %v, %v", id, answer, err)
				}
			})
		}

		if answer, err := c.call(t.Context(), "other"); err != nil || answer.(*value.Map).Len() != 0 {
			t.Errorf("who may not call it: %v, %v", answer, err)
		}

		group.Wait()
		s := c.Stats().Runners
		if turns := int64(max(minRunners, 2)); c.begun.Load() != minions || c.most.Load() < turns ||
			s.Turns != minions || s.Full != 0 || s.Waiting != 0 {
			t.Errorf("begun %d, %d at once, %+v", c.begun.Load(), c.most.Load(), s)
		}
	})
}

// Nothing is run for a minion that has hung up while it waited; what was begun is
// finished.
func TestRunnerOfWhoHasHungUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRunnerCrowd()
		var group sync.WaitGroup
		for i := range 100 {
			asked, hangUp := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer hangUp()
			group.Go(func() {
				answer, err := c.call(request.Asked(asked), fmt.Sprint("m", i))
				if err == nil && answer.(*value.Map).Len() == 1 { // it was begun before
					return
				}
				if !errors.Is(err, request.ErrLeft) {
					t.Errorf("%v, %v", answer, err)
				}
			})
		}

		group.Wait()
		if n := c.begun.Load(); n != c.most.Load() || n == 0 || n == 100 {
			t.Errorf("%d were begun", n)
		}
	})
}

// The end of the master ends runners that minions have called, without an answer.
func TestRunnersEndWithTheMaster(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newRunnerCrowd()
		var end context.CancelFunc
		c.cfg.Ending, end = context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, end)
		if answer, err := c.call(t.Context(), "m1"); !errors.Is(err, request.ErrSilence) {
			t.Errorf("%v, %v", answer, err)
		}
	})
}

// A request of a minion in debt is not answered: nothing at all would be the truth for it.
func TestDebtIsSilence(t *testing.T) {
	c := newRunnerCrowd()
	c.allowance.charge("m1", 2*allowanceBurst, time.Now())
	for _, cmd := range []string{"minion_runner", "minion_pub", "minion_publish", "_mine_get"} {
		answer, err := c.Methods()[cmd].Do(t.Context(),
			&request.Call{ID: "m1", Load: value.NewMap("cmd", cmd, "fun", "own.slow")})
		if !errors.Is(err, request.ErrSilence) {
			t.Errorf("%s: %v, %v", cmd, answer, err)
		}
	}
}
