package service

import (
	"context"
	"sync"
	"time"

	"saltern/internal/pause"
)

// A Condition is a requirement for which a service waits before it starts.
//
// Wait blocks until the condition holds and then returns nil, or returns the error of ctx. String
// describes the condition, without "waiting for": "master to answer ping on 127.0.0.1:14506".
// String may be called at any time, also during Wait.
type Condition interface {
	Wait(ctx context.Context) error
	String() string
}

// Poll returns a Condition that calls check every interval until check returns nil. The description
// includes the error of the last call. Each call of check gets a context that ends after limit. A
// check that ignores its context blocks only the service that waits.
func Poll(description string, interval, limit time.Duration, check func(context.Context) error) Condition {
	return &poll{what: description, interval: interval, limit: limit, check: check}
}

// PollMissing returns a Condition like that of [Poll], for a check whose errors name what is missing
// in words that can follow "waiting for", such as "the shared volume to take writes". The last error
// is the description; before the first error the description is subject.
func PollMissing(subject string, interval, limit time.Duration, check func(context.Context) error) Condition {
	return &poll{
		what:     subject,
		named:    true,
		interval: interval,
		limit:    limit,
		check:    check,
	}
}

type poll struct {
	what     string
	named    bool // the errors of check name what is missing
	interval time.Duration
	limit    time.Duration
	check    func(context.Context) error

	mu   sync.Mutex
	last string
}

func (p *poll) Wait(ctx context.Context) error {
	for {
		err := p.pollOnce(ctx)
		if err != nil && ctx.Err() != nil { // the error comes from the end of ctx, and names nothing that is missing
			return context.Cause(ctx)
		}

		p.mu.Lock()
		p.last = ""
		if err != nil {
			p.last = err.Error()
		}
		p.mu.Unlock()

		if err == nil {
			return nil
		}
		if pause.About(ctx, p.interval) != nil {
			return context.Cause(ctx)
		}
	}
}

func (p *poll) pollOnce(ctx context.Context) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	return p.check(ctx)
}

func (p *poll) String() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.last == "":
		return p.what
	case p.named:
		return p.last
	}
	return p.what + " (" + p.last + ")"
}

// All returns a Condition that waits for the conditions one after the other. It describes itself as
// the first condition that does not hold yet; whether later conditions hold is not known then.
func All(conditions ...Condition) Condition { return &all{list: conditions} }

type all struct {
	list []Condition

	mu   sync.Mutex
	done int
}

func (a *all) Wait(ctx context.Context) error {
	a.setDone(0)
	for i, c := range a.list {
		if err := c.Wait(ctx); err != nil {
			return err
		}
		a.setDone(i + 1)
	}
	return nil
}

func (a *all) setDone(n int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.done = n
}

func (a *all) String() string {
	a.mu.Lock()
	rest := a.list[a.done:]
	a.mu.Unlock()
	if len(rest) == 0 {
		return ""
	}
	return rest[0].String()
}
