package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// passiveFall is how many certain failures of the data path in a row (refused,
// no route) take a port down without waiting for a check.
const passiveFall = 3

// maxStarved is how many checks in a row may be set aside because this machine
// was too busy to judge.
const maxStarved = 5

// errStarved marks a check whose limit struck much too late: it was we who did
// not get to run, and nothing is known of the backend.
var errStarved = errors.New("check set aside: this machine is starved")

// verdict is what the results so far say about a port. It does no I/O and
// asks no clock.
type verdict struct {
	rise, fall int

	state  State
	good   int // results in a row like the last one
	bad    int
	passed int   // in a row that answer, and want nobody now
	grade  grade // of the last bad result
}

// apply takes one result and says whether the state changed.
func (v *verdict) apply(g grade) bool {
	was := v.state
	switch g {
	case gradeUp:
		v.good++
		v.bad = 0
		v.passed = 0
		// The first result ever counts at once: nobody waits for a rise then.
		if v.good >= v.rise || v.state == Unknown {
			v.state = Up
		}
	case gradeJoining, gradeUnwell:
		v.good = 0
		v.bad = 0
		v.passed++
		if v.passed >= v.fall || v.state != Up {
			v.state = Joining
			if g == gradeUnwell {
				v.state = Unwell
			}
		}
	default:
		v.good = 0
		v.passed = 0
		v.grade = g
		v.bad++
		if v.bad >= v.fall || v.state == Unknown || v.state == Joining {
			v.state = Down
		}
	}

	return v.state != was
}

// changing says that the results disagree with the state: check fast.
func (v *verdict) changing() bool {
	switch v.state {
	case Up:
		return v.bad > 0 || v.passed > 0
	case Down, Joining:
		return v.good > 0
	case Unwell:
		return v.good > 0 || v.bad > 0
	}
	return true
}

// checker watches one member.
type checker struct {
	m     *member
	cfg   *Health
	log   *slog.Logger
	clock func() int64
	probe func(ctx context.Context) error
	// short tells that the last check used a connection that was there: how long
	// that took says nothing of one with a connection of its own. nil: none does.
	short func() bool
	// moved is told of each change, trouble of each bad result while down, with
	// the clock when the first of the bad checks began.
	moved   func(from, to State, g grade, since int64)
	trouble func(g grade, since int64)

	mu      sync.Mutex
	v       verdict
	srtt    time.Duration
	lastErr string
	since   int64 // clock of the last change
	checks  uint64
	failed  uint64
	starved int // checks set aside in a row
}

// run checks until ctx ends.
func (c *checker) run(ctx context.Context) {
	var badSince, began int64
	plain := 0
	for {
		if !c.m.be.maint.Load() {
			began = c.clock()
			err := c.one(ctx)
			if ctx.Err() != nil {
				return
			}

			if badSince == 0 || err == nil {
				badSince = began
			}

			switch {
			case errors.Is(err, errStarved):
				c.log.Debug("check set aside", "backend", c.m.be.name, "frontend", c.m.fe.cfg.Name, "error", err)
			case err == nil:
				c.apply(err, badSince, false)
				badSince, plain = 0, 0
			default:
				c.apply(err, badSince, false)
			}
		}

		wait := time.NewTimer(c.wait())
	sleep:
		for {
			select {
			case <-ctx.Done():
				wait.Stop()
				return
			case <-wait.C:
				break sleep
			case p := <-c.m.kick:
				if p.plain {
					plain++
				}

				if plain >= passiveFall && c.m.State() == Up {
					c.force(p.err)
					plain = 0
				}

				if c.m.State() == Up {
					// Look soon; a burst of evidence must not become a burst of checks.
					wait.Reset(max(0, c.cfg.FastInter-time.Duration(c.clock()-began)))
				}
			}
		}
	}
}

// one does a single check with its limit.
func (c *checker) one(ctx context.Context) error {
	c.mu.Lock()
	limit := min(max(c.cfg.Timeout, 4*c.srtt), 5*c.cfg.Timeout)
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := c.clock()
	err := c.probe(ctx)
	if errors.Is(err, errShut) && c.m.talks(c.clock(), c.cfg.Silence) {
		// It serves the sessions it has: it is at its bound, not gone.
		err = fmt.Errorf("%w: %w", errFull, err)
	}

	took := time.Duration(c.clock() - began)
	c.mu.Lock()
	defer c.mu.Unlock()

	c.checks++
	if gradeOf(err) == gradeSilent && took > limit+max(limit/4, 100*time.Millisecond) && c.starved < maxStarved {
		c.starved++
		return fmt.Errorf("%w: %w", errStarved, err)
	}

	c.starved = 0
	if (err == nil || gradeOf(err) == gradeJoining || gradeOf(err) == gradeUnwell) && (c.short == nil || !c.short()) {
		if c.srtt == 0 {
			c.srtt = took
		}
		c.srtt += (took - c.srtt) / 8
	}

	return err
}

// force takes the port down on the evidence of the data path.
func (c *checker) force(err error) { c.apply(err, c.clock(), true) }

// apply takes one outcome into the verdict and passes changes on.
func (c *checker) apply(err error, badSince int64, force bool) {
	g := gradeOf(err)
	c.mu.Lock()
	was := c.v.state
	if force {
		c.v.bad = max(c.v.bad, c.v.fall-1)
	}

	changed := c.v.apply(g)
	now := c.v.state
	if err != nil {
		c.failed++
		c.lastErr = err.Error()
	} else {
		c.lastErr = ""
	}

	at := c.clock()
	if changed {
		c.since = at
	}
	c.mu.Unlock()

	if now == Up {
		c.m.last.Store(at)
		if changed {
			if was != Unknown {
				c.m.upAt.Store(at)
			}
			c.m.lost.Store(0)
		}
	}

	c.m.state.Store(int32(now))
	if changed {
		level := slog.LevelInfo
		if now == Down {
			level = slog.LevelWarn
		}

		attrs := []any{"backend", c.m.be.name, "frontend", c.m.fe.cfg.Name, "from", was.String(), "to", now.String()}
		if err != nil {
			attrs = append(attrs, "error", err)
		}

		c.log.Log(context.Background(), level, "backend state", attrs...)
		c.moved(was, now, g, badSince)
	}

	if now == Down && !changed {
		c.trouble(g, badSince)
	}
}

func (c *checker) wait() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.v.changing():
		return c.cfg.FastInter
	case c.v.state == Up:
		return c.cfg.Inter
	}
	return c.cfg.DownInter
}
