package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// passiveFall is the number of certain failures of sessions in a row (connection refused, no route)
// after which a port is down without a check.
const passiveFall = 3

// maxStarved is how many results in a row a checker may ignore because this machine was too busy.
const maxStarved = 5

// errStarved marks a check whose time limit fired much too late: this process got no processor
// time, so the check says nothing about the backend.
var errStarved = errors.New("check set aside: this machine is starved")

// verdict derives the state of a port from the results of its checks. It does no I/O and reads no
// clock.
type verdict struct {
	rise, fall int

	state         State
	goodInRow     int // good results in a row
	badInRow      int
	notReadyInRow int   // results in a row with an answer of a master that accepts no sessions
	lastBad       grade // grade of the last bad result
}

// applyGrade adds one result and reports whether the state changed.
func (v *verdict) applyGrade(g grade) bool {
	was := v.state
	switch g {
	case gradeUp:
		v.goodInRow++
		v.badInRow = 0
		v.notReadyInRow = 0
		// The very first result decides alone.
		if v.goodInRow >= v.rise || v.state == Unknown {
			v.state = Up
		}
	case gradeJoining, gradeUnwell:
		v.goodInRow = 0
		v.badInRow = 0
		v.notReadyInRow++
		if v.notReadyInRow >= v.fall || v.state != Up {
			v.state = Joining
			if g == gradeUnwell {
				v.state = Unwell
			}
		}
	default:
		v.goodInRow = 0
		v.notReadyInRow = 0
		v.lastBad = g
		v.badInRow++
		if v.badInRow >= v.fall || v.state == Unknown || v.state == Joining {
			v.state = Down
		}
	}

	return v.state != was
}

// changing reports whether the last results contradict the state. If they do, checks are more
// frequent.
func (v *verdict) changing() bool {
	switch v.state {
	case Up:
		return v.badInRow > 0 || v.notReadyInRow > 0
	case Down, Joining:
		return v.goodInRow > 0
	case Unwell:
		return v.goodInRow > 0 || v.badInRow > 0
	}
	return true
}

// checker checks one member.
type checker struct {
	member *member
	cfg    *Health
	log    *slog.Logger
	clock  func() int64
	probe  func(ctx context.Context) error
	// reused reports whether the last check used an existing connection. If so, its duration says
	// nothing about a check that must connect. reused may be nil: every check connects.
	reused func() bool
	// judged is called after each change of the state, and after each bad result while the port is
	// down. badSince is the clock at which the first of the present row of bad checks began.
	judged func(state State, changed bool, g grade, badSince int64)

	certainFailures int // number of certain failures of sessions since the last good check; only run uses it

	mu           sync.Mutex
	verdict      verdict
	smoothedTime time.Duration
	lastErr      string
	since        int64 // clock of the last change
	checks       uint64
	failed       uint64
	starvedInRow int // number of checks in a row that were ignored because this process got no processor time
}

// run checks until ctx ends.
func (c *checker) run(ctx context.Context) {
	var began, badSince int64
	for {
		if !c.member.backend.maintenance.Load() {
			began = c.clock()
			err := c.checkOnce(ctx)
			if ctx.Err() != nil {
				return
			}

			if badSince == 0 || err == nil {
				badSince = began
			}

			if errors.Is(err, errStarved) {
				c.log.Debug("check set aside", "backend", c.member.backend.name, "frontend",
					c.member.frontend.cfg.Name, "error", err)
			} else {
				c.applyResult(err, badSince, false)
			}

			if err == nil {
				badSince = 0
				c.certainFailures = 0
			}
		}

		if !c.awaitNext(ctx, began) {
			return
		}
	}
}

// awaitNext waits until the next check is due, and meanwhile handles failures that sessions report. It
// returns false when ctx has ended. began is the clock at which the last check began.
func (c *checker) awaitNext(ctx context.Context, began int64) bool {
	due := time.NewTimer(c.nextDelay())
	defer due.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-due.C:
			return true
		case seen := <-c.member.evidence:
			c.applyEvidence(seen)
		}

		if c.member.State() == Up {
			// Check soon, but a burst of failing sessions must not become a burst of checks.
			due.Reset(max(0, c.cfg.FastInter-time.Duration(c.clock()-began)))
		}
	}
}

// applyEvidence counts a failure that a session reports if it leaves no doubt (evidence.certain). After
// passiveFall of them it takes the port down.
func (c *checker) applyEvidence(seen evidence) {
	if seen.certain {
		c.certainFailures++
	}

	if c.certainFailures >= passiveFall && c.member.State() == Up {
		c.applyResult(seen.err, c.clock(), true)
		c.certainFailures = 0
	}
}

// checkOnce does one check within its limit.
func (c *checker) checkOnce(ctx context.Context) error {
	c.mu.Lock()
	limit := min(max(c.cfg.Timeout, 4*c.smoothedTime), 5*c.cfg.Timeout)
	c.mu.Unlock()

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := c.clock()
	err := c.probe(ctx)
	if errors.Is(err, errShut) && c.member.heardWithin(c.clock(), c.cfg.Silence) {
		// The backend still serves its sessions: it is full, not gone.
		err = fmt.Errorf("%w: %w", errFull, err)
	}

	took := time.Duration(c.clock() - began)
	c.mu.Lock()
	defer c.mu.Unlock()

	c.checks++
	if gradeOf(err) == gradeSilent && took > limit+max(limit/4, 100*time.Millisecond) && c.starvedInRow < maxStarved {
		c.starvedInRow++
		return fmt.Errorf("%w: %w", errStarved, err)
	}

	c.starvedInRow = 0
	if (err == nil || gradeOf(err) == gradeJoining || gradeOf(err) == gradeUnwell) && (c.reused == nil || !c.reused()) {
		if c.smoothedTime == 0 {
			c.smoothedTime = took
		}
		c.smoothedTime += (took - c.smoothedTime) / 8
	}

	return err
}

// applyResult adds one result to the verdict, logs a change and calls judged. If force is set, a
// single bad result takes the port down.
func (c *checker) applyResult(err error, badSince int64, force bool) {
	g := gradeOf(err)
	c.mu.Lock()
	was := c.verdict.state
	if force {
		c.verdict.badInRow = max(c.verdict.badInRow, c.verdict.fall-1)
	}

	changed := c.verdict.applyGrade(g)
	now := c.verdict.state
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
		c.member.lastUp.Store(at)
		if changed {
			if was != Unknown {
				c.member.upAt.Store(at)
			}
			c.member.racesLost.Store(0)
		}
	}

	c.member.state.Store(int32(now))
	if changed {
		level := slog.LevelInfo
		if now == Down {
			level = slog.LevelWarn
		}

		attrs := []any{"backend", c.member.backend.name, "frontend", c.member.frontend.cfg.Name, "from",
			was.String(), "to", now.String()}
		if err != nil {
			attrs = append(attrs, "error", err)
		}

		c.log.Log(context.Background(), level, "backend state", attrs...)
	}

	if changed || now == Down {
		c.judged(now, changed, g, badSince)
	}
}

func (c *checker) nextDelay() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.verdict.changing():
		return c.cfg.FastInter
	case c.verdict.state == Up:
		return c.cfg.Inter
	}
	return c.cfg.DownInter
}
