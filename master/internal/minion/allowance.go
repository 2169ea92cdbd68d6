package minion

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"saltern/internal/ratelimit"
	"saltern/master/internal/mine"
	"saltern/master/internal/request"
	"saltern/master/target"
	"saltern/master/value"
)

// What minions may have done for them. A step is a name that is looked at or a
// value that is found, some tenths of a microsecond. A minion that asks for
// the mine of 5,000 others needs 10,000 steps: it may do so 500 times at once
// and 20 times a second for ever.
const (
	allowanceBurst = 5_000_000
	stepsPublish   = 1_000 // of a job, and for each minion of it
	stepsPerMinion = 10
	stepsRunner    = 20_000
)

// allowance bounds the work that each minion causes by requests whose cost is
// not in their size. Work is charged when it is done; who is in debt waits. It
// knows accepted minions only, since ids come proven.
type allowance struct {
	mu      sync.Mutex
	buckets map[string]*ratelimit.Bucket
}

// steps is what each minion may have done.
var stepRate = ratelimit.Rate{Burst: allowanceBurst, PerSecond: 200_000}

func newAllowance() *allowance { return &allowance{buckets: map[string]*ratelimit.Bucket{}} }

// maxDebts is from when on minions without a debt are forgotten.
const maxDebts = 4096

// hasCredit reports whether a minion may cause more work.
func (a *allowance) hasCredit(id string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.buckets[id]
	return d == nil || d.Used(now, stepRate) < allowanceBurst
}

// charge notes work.
func (a *allowance) charge(id string, n int64, now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.buckets[id]
	if d == nil {
		if len(a.buckets) >= maxDebts {
			maps.DeleteFunc(a.buckets, func(_ string, v *ratelimit.Bucket) bool { return v.Used(now, stepRate) == 0 })
		}
		d = &ratelimit.Bucket{}
		a.buckets[id] = d
	}
	d.Charge(now, stepRate, float64(n))
}

// metered makes a method whose work is charged to its minion. It gets an Effort that
// ends when the minion leaves. A minion in debt is not answered: it would take an empty
// answer for the truth, and asks again when its debt is paid.
func (s *Service) metered(do func(context.Context, *target.Effort, *request.Call) (any, error)) request.Func {
	return func(ctx context.Context, c *request.Call) (any, error) {
		if !s.allowance.hasCredit(c.ID, s.cfg.Now()) {
			s.overdrawn.Add(1)
			return nil, fmt.Errorf("%w: the minion asks for too much work", request.ErrSilence)
		}

		work, stop := request.WhileAsked(ctx)
		defer stop()
		e := target.NewEffortFor(work, minionEffort)
		defer func() { s.allowance.charge(c.ID, e.Steps(), s.cfg.Now()) }()

		answer, err := do(ctx, e, c)
		if spent := e.Spent(); spent != nil {
			return nil, unanswered(spent)
		}

		return answer, err
	}
}

// onMineGet answers from the mines of other minions.
func (s *Service) onMineGet(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	leave, err := s.turns.waitTurn(ctx, c)
	if err != nil {
		return nil, err
	}
	defer leave()

	e.Restart(minionEffort)

	v, err := s.cfg.Mine.Get(e, c.ID, c.Load)
	if errors.Is(err, mine.ErrTooLarge) || errors.Is(err, target.ErrTooLarge) {
		return nil, unanswered(err) // nothing at all would be taken for what the mine has
	}
	if err != nil {
		s.cfg.Quiet.Info("mine cannot be asked", "minion", c.ID, "error", err)
		return value.NewMap(), nil
	}

	return v, nil
}
