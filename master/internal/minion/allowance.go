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

// Bounds of the work that minions may cause, in steps. A step is the comparison of one name or the
// look-up of one value, and takes a few tenths of a microsecond. For example, a minion that queries
// the mines of 5,000 other minions needs 10,000 steps. It may do so 500 times at once, and 20 times
// a second continuously.
const (
	allowanceBurst = 5_000_000
	// stepsPublish is the number of steps for a job, stepsPerMinion is the number of further steps
	// for each minion of the job.
	stepsPublish   = 1_000
	stepsPerMinion = 10
	stepsRunner    = 20_000
)

// allowance bounds the work that each minion causes by requests whose cost does not follow from
// their size. The work is charged when it is done, and a minion that exceeds its allowance must
// wait. There are entries for accepted minions only, because their ids are authenticated.
type allowance struct {
	mu      sync.Mutex
	buckets map[string]*ratelimit.Bucket
}

// stepRate is the rate of steps that each minion may cause.
var stepRate = ratelimit.Rate{Burst: allowanceBurst, PerSecond: 200_000}

func newAllowance() *allowance { return &allowance{buckets: map[string]*ratelimit.Bucket{}} }

// maxDebts is the number of entries at which the entries of minions without charged steps are
// dropped.
const maxDebts = 4096

// hasCredit reports whether a minion may cause more work now.
func (a *allowance) hasCredit(id string, now time.Time) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	d := a.buckets[id]
	return d == nil || d.Used(now, stepRate) < allowanceBurst
}

// charge charges a minion for n steps.
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

// metered wraps a method and charges its work to the minion. The Effort that it passes to the
// method ends when the minion disconnects. A minion that exceeds its allowance gets no answer, and
// asks again later. The minion would take an empty answer for the true result.
func (s *Service) metered(call func(context.Context, *target.Effort, *request.Call) (any, error)) request.Func {
	return func(ctx context.Context, c *request.Call) (any, error) {
		if !s.allowance.hasCredit(c.ID, s.cfg.Now()) {
			s.overdrawn.Add(1)
			return nil, fmt.Errorf("%w: the minion asks for too much work", request.ErrSilence)
		}

		work, stop := request.WhileAsked(ctx)
		defer stop()
		e := target.NewEffortFor(work, minionEffort)
		defer func() { s.allowance.charge(c.ID, e.Steps(), s.cfg.Now()) }()

		answer, err := call(ctx, e, c)
		if spent := e.Spent(); spent != nil {
			return nil, unanswered(spent)
		}

		return answer, err
	}
}

// onMineGet answers _mine_get, a query for values in the mines of other minions.
func (s *Service) onMineGet(ctx context.Context, e *target.Effort, c *request.Call) (any, error) {
	leave, err := s.turns.waitTurn(ctx, c)
	if err != nil {
		return nil, err
	}
	defer leave()

	e.Restart(minionEffort)

	v, err := s.cfg.Mine.Get(e, c.ID, c.Load)
	if errors.Is(err, mine.ErrTooLarge) || errors.Is(err, target.ErrTooLarge) {
		return nil, unanswered(err) // the minion would take an empty answer for an empty mine
	}
	if err != nil {
		s.cfg.Quiet.Info("mine cannot be asked", "minion", c.ID, "error", err)
		return value.NewMap(), nil
	}

	return v, nil
}
