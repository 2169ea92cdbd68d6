package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"saltern/internal/pause"
)

// Health is the health check of a running service. Fall failures in a row set the state to
// [Failing], Rise successes in a row to [Running].
type Health struct {
	Check    func(context.Context) error
	Interval time.Duration // default 2 s
	Limit    time.Duration // time limit of one check, default 3 s
	Fall     int           // failures in a row that set the state to Failing; default 2
	Rise     int           // successes in a row that set the state to Running; default 1
	// Hang configures when a hung run is killed. It may be nil: hung runs are not killed.
	Hang *Hang
}

// Spec describes a service. Only Name and Runner are required.
type Spec struct {
	Name  string
	After []string // names of services that must be up before this one starts, and that stop after it
	// Wait is the condition for which every start waits. It may be nil: starts do not wait.
	Wait Condition
	// Prepare is called after Wait and before every start, for example to write configuration. Its
	// error is shown and does not count as a crash. Prepare is repeated every two seconds until it
	// succeeds, for example because an administrator has fixed the cause.
	Prepare func(context.Context) error
	Runner  Runner
	Backoff Backoff
	Health  *Health
	// Output holds the runner's output. After a crash, the state shows the last line of the output.
	// It may be nil: no line is shown.
	Output *Lines
	// Ended is called after each run that ended without a request. It may be nil.
	Ended func(ran time.Duration, err error)
	loop  bool // see [Loop]
}

// Service is one service under a [Manager].
type Service struct {
	spec Spec
	log  *slog.Logger
	now  func() time.Time

	mu        sync.Mutex
	info      Info
	up        chan struct{} // closed while the state is Running or Failing
	condition Condition     // what the service waits for now
	restart   context.CancelCauseFunc
	nudge     chan struct{}
}

var errRestart = errors.New("restart asked for")

func newService(spec Spec, log *slog.Logger, now func() time.Time) *Service {
	if spec.loop {
		log = slog.New(slog.DiscardHandler) // a loop logs its own work, and its starts and ends are not logged
	}
	s := &Service{
		spec:  spec,
		log:   log.With("service", spec.Name),
		now:   now,
		up:    make(chan struct{}),
		nudge: make(chan struct{}, 1),
	}
	s.info.Name = spec.Name
	s.setState(Waiting, "not started yet")
	return s
}

// Info returns a snapshot with the last n events.
func (s *Service) Info(n int) Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := s.info
	if s.condition != nil && i.State == Waiting {
		i.Message = "waiting for " + s.condition.String()
	}
	n = max(0, min(n, len(s.info.Events)))
	i.Events = append([]Event(nil), s.info.Events[len(s.info.Events)-n:]...)
	return i
}

// Restart ends the run, or the pause before the next run, and starts the service again. If the
// service stops at the same moment, the process of a [Lasting] is replaced at the next start of the
// service.
func (s *Service) Restart() {
	if r, ok := s.spec.Runner.(interface{ Renew() }); ok {
		r.Renew()
	}

	s.mu.Lock()
	stop := s.restart
	if stop == nil {
		select {
		case s.nudge <- struct{}{}:
		default:
		}
	}
	s.mu.Unlock()

	if stop != nil {
		stop(errRestart)
	}
}

func (s *Service) setState(st State, format string, args ...any) {
	msg := fmt.Sprintf(format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()

	wasUp := s.info.State == Running || s.info.State == Failing
	isUp := st == Running || st == Failing
	if st == s.info.State && msg == s.info.Message {
		return
	}

	if st != s.info.State {
		s.info.Since = s.now()
	}

	s.info.State, s.info.Message = st, msg
	s.info.Events = append(s.info.Events, Event{Time: s.now(), State: st, Message: msg})
	if len(s.info.Events) > historySize {
		s.info.Events = s.info.Events[len(s.info.Events)-historySize:]
	}

	switch {
	case isUp && !wasUp:
		close(s.up)
	case wasUp && !isUp:
		s.up = make(chan struct{})
	}

	s.log.Info("service state", "state", string(st), "message", msg)
}

// upNow returns a channel that is closed while the service is up.
func (s *Service) upNow() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up
}

const (
	// showWait is how long a service waits for a condition before its state shows the wait.
	showWait = 50 * time.Millisecond
	// showWaitAgain replaces showWait after a failed preparation. With the shorter showWait the
	// message would change every two seconds, between the reason for the failure and a condition
	// that holds soon.
	showWaitAgain = 5 * time.Second
)

// awaitCondition waits for c, which may be nil. If that takes longer than show, the state shows the
// wait.
func (s *Service) awaitCondition(ctx context.Context, c Condition, show time.Duration) error {
	if c == nil {
		return nil
	}

	defer s.setCondition(nil)
	defer ifLate(show, func() {
		s.setCondition(c)
		s.setState(Waiting, "waiting for %s", c.String())
	})()
	return c.Wait(ctx)
}

// prepare prepares a start. If that takes longer than [showWait], the state shows the preparation.
func (s *Service) prepare(ctx context.Context) error {
	defer ifLate(showWait, func() {
		if s.Info(0).State != Waiting { // in the state Waiting the message says why an earlier try failed
			s.setState(Waiting, "preparing the start")
		}
	})()
	return s.spec.Prepare(ctx)
}

// ifLate calls tell after limit, unless the caller calls stop first. If tell is running, stop waits
// for its return.
func ifLate(limit time.Duration, tell func()) (stop func()) {
	told := make(chan struct{})
	timer := time.AfterFunc(limit, func() {
		defer close(told)
		tell()
	})
	return func() {
		if !timer.Stop() {
			<-told
		}
	}
}

// setCondition sets what the service waits for now. nil: the service waits for nothing.
func (s *Service) setCondition(c Condition) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.condition = c
}

// loop runs the service repeatedly. It returns when ctx has ended and the runner has stopped.
func (s *Service) loop(ctx context.Context, dependencies Condition) {
	pause := newPauser(s.spec.Backoff)
	defer s.setState(Stopped, "stopped")
	for first := true; ctx.Err() == nil; first = false {
		if !s.awaitReady(ctx, dependencies) {
			return
		}

		if !first {
			s.mu.Lock()
			s.info.Restarts++
			s.mu.Unlock()
		}

		began := s.now()
		asked, err := s.runOnce(ctx)
		ran := s.now().Sub(began)
		if ctx.Err() != nil {
			return
		}
		if asked {
			pause.reset()
			continue
		}

		d := pause.pauseAfter(ran)
		s.crashed(pause.fails, err)
		if s.spec.Ended != nil {
			s.spec.Ended(ran, err)
		}

		s.setState(Pausing, "ended after %s: %v; next start in %s", roundTime(ran), err, roundTime(d))
		select {
		case <-ctx.Done():
		case <-time.After(d):
		case <-s.nudge:
			pause.reset()
		}
	}
}

// awaitReady waits for everything that a start needs. It returns false if ctx ends.
func (s *Service) awaitReady(ctx context.Context, dependencies Condition) bool {
	for show := showWait; ; show = showWaitAgain {
		if s.awaitCondition(ctx, dependencies, show) != nil || s.awaitCondition(ctx, s.spec.Wait, show) != nil {
			return false
		}
		if s.spec.Prepare == nil {
			return true
		}

		err := s.prepare(ctx)
		if err == nil {
			return true
		}

		s.setState(Waiting, "not started: %v", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(2 * time.Second):
		case <-s.nudge:
		}
	}
}

// runOnce runs the runner and its health check until the runner ends. asked reports whether the end
// was requested, by Restart or a stop.
func (s *Service) runOnce(ctx context.Context) (asked bool, err error) {
	run, cancel := context.WithCancelCause(ctx) // its cause is errRestart, a hangError, or the cause of ctx
	defer cancel(nil)
	s.mu.Lock()
	s.restart = cancel
	select {
	case <-s.nudge: // this run carries out a restart requested before the run began
	default:
	}
	s.mu.Unlock()

	var checks sync.WaitGroup
	s.setState(Starting, "starting")
	noted := make(chan struct{})
	unnote := context.AfterFunc(run, func() {
		if hung, ok := errors.AsType[*hangError](context.Cause(run)); ok {
			s.setState(Stopping, "stopping it: it %v", hung)
		} else {
			s.setState(Stopping, "asked to stop")
		}
		close(noted)
	})

	err = s.spec.Runner.Run(run, func(pid int) {
		s.mu.Lock()
		s.info.PID = pid
		s.mu.Unlock()

		if s.spec.Health == nil {
			s.setState(Running, "running")
			return
		}

		checks.Go(func() { s.watchHealth(run, cancel) })
	})

	cause := context.Cause(run)
	asked = cause == errRestart
	if hung, ok := errors.AsType[*hangError](cause); ok {
		err = hung
	}

	if !unnote() {
		<-noted
	}

	cancel(nil)
	checks.Wait()
	if s.spec.Output != nil {
		s.spec.Output.Flush()
	}

	s.mu.Lock()
	s.restart, s.info.PID = nil, 0
	if !asked && ctx.Err() == nil {
		s.info.LastExit = "ended by itself"
		if err != nil {
			s.info.LastExit = err.Error()
		}
	}
	s.mu.Unlock()

	if err == nil {
		err = errors.New("ended by itself")
	}

	return asked, err
}

func (s *Service) crashed(fails int, err error) {
	line := ""
	if s.spec.Output != nil {
		if t := s.spec.Output.Tail(1); len(t) == 1 {
			line = t[0]
		}
	}
	s.mu.Lock()
	s.info.Failures, s.info.LastLine = fails, line
	s.mu.Unlock()
	s.log.Error("service ended", "error", err, "failures", fails, "line", line)
}

// watchHealth runs the health check until ctx ends. It calls end if the run hangs.
func (s *Service) watchHealth(ctx context.Context, end context.CancelCauseFunc) {
	h := *s.spec.Health
	if h.Interval <= 0 {
		h.Interval = 2 * time.Second
	}

	if h.Limit <= 0 {
		h.Limit = 3 * time.Second
	}

	h.Fall, h.Rise = max(h.Fall, 1), max(h.Rise, 1)
	pass, fail := 0, 0
	began := s.now()
	hang := hangWatch{hang: h.Hang, limit: h.Limit}
	for ctx.Err() == nil {
		asked := s.now()
		cctx, cancel := context.WithTimeout(ctx, h.Limit)
		err := h.Check(cctx)
		cancel()

		if ctx.Err() != nil {
			return
		}

		interval := h.Interval
		switch {
		case err == nil:
			pass, fail = pass+1, 0
			hang.reset()
			if pass >= h.Rise {
				s.healthy(began)
			}
		case s.isStarting():
			pass = 0
			s.setState(Starting, "waiting for it to answer (%v)", err)
			interval = min(interval, 250*time.Millisecond)
		default:
			pass, fail = 0, fail+1
			if fail >= h.Fall {
				s.setState(Failing, "health check: %v", err)
			}

			interval = min(interval, time.Second)
			if hung := hang.failed(asked, s.now(), err); hung != nil {
				end(hung)
				return
			}
		}

		_ = pause.About(ctx, interval)
	}
}

func (s *Service) healthy(began time.Time) {
	s.mu.Lock()
	if s.now().Sub(began) >= s.spec.Backoff.withDefaults().Stable {
		s.info.Failures = 0
	}
	s.mu.Unlock()
	s.setState(Running, "running")
}

func (s *Service) isStarting() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.info.State == Starting
}

func roundTime(d time.Duration) time.Duration {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond)
	case d < time.Minute:
		return d.Round(100 * time.Millisecond)
	}
	return d.Round(time.Second)
}
