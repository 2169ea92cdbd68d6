package notify

import (
	"context"
	"errors"
	"sync"
	"time"

	"saltern/internal/pause"
	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/notify/send"
)

const (
	// takeOver is how long a new owner waits before it sends, so that it learns from the others what
	// the last owner has sent.
	takeOver = 3 * time.Second
	// checkEvery is how often a sender looks whether it may send now, because the hours or the owner
	// have changed.
	checkEvery = time.Second
	// firstPause and lastPause bound the pauses between tries.
	firstPause = time.Second
	lastPause  = time.Minute
	// endWithin is how long the end of the master waits for the answer of a destination.
	endWithin = 3 * time.Second
	// reportAfter is how long a destination fails before that is a problem of the node.
	reportAfter = 5 * time.Minute
)

// ownership notes since when this master owns the cluster.
type ownership struct {
	mu    sync.Mutex
	term  uint64
	since time.Time
}

// ready reports whether this master is the owner, and has been for takeOver. began is set once for
// each term, when the term has just begun.
func (o *ownership) ready(c Cluster, now time.Time) (owns, ready, began bool) {
	term, owns := c.Own()
	o.mu.Lock()
	defer o.mu.Unlock()
	if !owns {
		o.since = time.Time{}
		return false, false, false
	}
	if o.since.IsZero() || o.term != term {
		began = true
		o.since = now
		o.term = term
	}
	return true, now.Sub(o.since) >= takeOver, began
}

// maySend reports whether this master owns the cluster, and whether it may send. A new owner first
// asks the others what has become of the alerts that it would send: a mark of the last owner may not
// have arrived here.
func (s *Service) maySend() (owns, ready bool) {
	owns, ready, began := s.owner.ready(s.cfg.Cluster, s.cfg.Now())
	if began {
		s.enqueue(incoming{})
	}
	return owns, ready
}

// sender sends the messages of one destination, one after the other.
type sender struct {
	service *Service
	rule    *rules.Rule
	to      *rules.Destination
	by      send.Sender
	woken   chan struct{}

	mu      sync.Mutex
	failing time.Time // since when each try has failed; zero: the last one succeeded
	lastErr string    // why the last try failed; "": it succeeded
	tries   uint64
}

func newSender(s *Service, rule *rules.Rule, to *rules.Destination, by send.Sender) *sender {
	return &sender{
		service: s,
		rule:    rule,
		to:      to,
		by:      by,
		woken:   make(chan struct{}, 1),
	}
}

func (d *sender) wake() {
	select {
	case d.woken <- struct{}{}:
	default:
	}
}

// run sends until ctx ends.
func (d *sender) run(ctx context.Context) {
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		for d.sendNext(ctx) {
		}
		select {
		case <-d.woken:
		case <-check.C:
		case <-ctx.Done():
			return
		}
	}
}

// sendNext sends one message, if this master may. It reports whether there may be more to send now.
func (d *sender) sendNext(ctx context.Context) (more bool) {
	s := d.service
	if ctx.Err() != nil {
		return false
	}
	if _, ready := s.maySend(); !ready {
		d.forgetFailure()
		return false
	}

	s.targets.refresh(d.rule, s.cfg.Now())
	if _, ready := s.maySend(); !ready { // that may have taken long
		return false
	}

	m, marks := s.outbox.next(d.to.ID, d.rule, s, s.cfg.Now())
	s.settle(marks...)
	if m == nil {
		return len(marks) > 0
	}

	outcome := d.deliver(ctx, m)
	if outcome == "" {
		return false
	}
	s.settle(marksOf(m, outcome, s.cfg.Now())...)
	return true
}

// marksOf returns the marks for the alerts of a message.
func marksOf(m *alert.Message, outcome Outcome, now time.Time) (marks []Mark) {
	for _, a := range m.Alerts {
		marks = append(marks, Mark{
			Alert:   a.ID,
			To:      m.To,
			Key:     a.Key,
			At:      now,
			Outcome: outcome,
			Message: m.ID,
		})
	}
	return marks
}

// deliver tries to send a message until the destination accepts or refuses it. It returns "" if this
// master may not send any more, or if there is nothing to send any more because another master has
// done so.
func (d *sender) deliver(ctx context.Context, m *alert.Message) Outcome {
	s := d.service
	for retry := firstPause; ; retry = min(2*retry, lastPause) {
		err := d.try(ctx, m)
		if err != nil && ctx.Err() != nil {
			return ""
		}
		d.noteResult(err)

		var partly *send.PartlyError
		var later *send.LaterError
		switch {
		case err == nil || errors.As(err, &partly):
			return Sent
		case errors.Is(err, send.ErrRefused):
			s.cfg.Log.Error("a notification was refused and is dropped", "destination", d.to.Name, "id", m.ID, "error", err)
			return Refused
		}

		pause := retry
		if errors.As(err, &later) {
			pause = max(pause, later.After)
		}
		if !d.mayRetry(ctx, m, pause) {
			return ""
		}
	}
}

// try sends a message once. When ctx ends, it waits for the answer for endWithin, because a message
// that was accepted without a mark is sent again after the next start.
func (d *sender) try(ctx context.Context, m *alert.Message) error {
	lasting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		_ = pause.For(lasting, endWithin)
		cancel()
	})
	defer stop()
	return d.by.Send(lasting, m)
}

// mayRetry waits, and reports whether the message is to be sent again.
func (d *sender) mayRetry(ctx context.Context, m *alert.Message, pause time.Duration) bool {
	s := d.service
	until := time.NewTimer(pause)
	defer until.Stop()
	check := time.NewTicker(checkEvery)
	defer check.Stop()
	for {
		wait := true
		select {
		case <-until.C:
			wait = false
		case <-check.C:
		case <-ctx.Done():
			return false
		}

		now := s.cfg.Now()
		_, ready := s.maySend()
		first := &m.Alerts[0]
		left := !s.outbox.waits(d.to.ID, first.ID) || now.Sub(first.Time) > sendFor || s.silenced(d.rule.Name, first, now)
		if !ready || left || d.rule.Quiet.Contains(now) {
			return false // decide again
		}
		if !wait {
			return true
		}
	}
}

// noteResult records the result of a try. A destination that fails for long is a problem of the node.
func (d *sender) noteResult(err error) {
	s := d.service
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tries++
	now := s.cfg.Now()
	if err == nil {
		if !d.failing.IsZero() {
			s.cfg.Log.Info("notifications are accepted again", "destination", d.to.Name)
		}
		d.failing = time.Time{}
		d.lastErr = ""
		s.failures.set(d.to.Name, nil)
		return
	}

	if d.failing.IsZero() {
		d.failing = now
		s.cfg.Log.Warn("notifications do not arrive as they should", "destination", d.to.Name, "error", err)
	}
	d.lastErr = err.Error()
	if now.Sub(d.failing) >= reportAfter {
		s.failures.set(d.to.Name, err)
	}
}

// forgetFailure forgets that the destination has failed: another master sends now, and will know.
func (d *sender) forgetFailure() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failing = time.Time{}
	d.lastErr = ""
	d.service.failures.set(d.to.Name, nil)
}
