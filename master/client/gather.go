package client

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/master/event"
	"saltern/master/internal/syndics"
	"saltern/master/keys"
	"saltern/master/value"
)

// Run publishes a job and calls started, which may be nil, with the job. It then calls yield with
// each return as it arrives, and at the end with a Return for each minion that did not answer
// (Missing set), sorted. Run ends when yield returns false.
func (c *Client) Run(ctx context.Context, r Request, started func(Job), yield func(Return) bool) error {
	if err := c.listen(ctx); err != nil {
		return err
	}

	job, err := c.Publish(ctx, r)
	if err != nil {
		return err
	}

	if started != nil {
		started(job)
	}

	w := newWatch(job.JID, job.Minions, c.timeout(r), c.gather(r), c.cfg.Now())
	if c.cfg.LowerMasters {
		w.awaitSyndics(c.cfg.SyndicWait, c.cfg.Now())
	}

	w.noteMissing(job.Missing) // an event also lists these minions, but the bus may drop that event
	c.events.setFilter(w.tagPrefixes()...)
	stopped := false
	err = c.gatherAll(ctx, []*watch{w}, r, func(_ *watch, ret Return) bool {
		stopped = !yield(ret)
		return !stopped
	})
	if err != nil || stopped {
		return err
	}

	lost := c.lostMinions(w)
	c.layOut(ctx, job.JID, lost)
	for _, id := range lost {
		// The bus may have lost the event of a return: look for the return in the job cache.
		ret, ok := c.cached(job.JID, id)
		if !ok {
			ret = MissingReturn(id, job.JID, true)
		}
		if !yield(ret) {
			break
		}
	}

	return nil
}

// lostMinions returns the minions that did not answer, without syndics: a syndic need not answer as
// a minion.
func (c *Client) lostMinions(w *watch) []string {
	return slices.DeleteFunc(w.lostMinions(), c.isSyndic)
}

// isSyndic reports whether the master has stored id as a syndic that passed on returns.
func (c *Client) isSyndic(id string) bool {
	if !c.cfg.LowerMasters || keys.ValidID(id) != nil {
		return false
	}
	_, err := os.Lstat(filepath.Join(c.cfg.CacheDir, syndics.Folder, id))
	return err == nil
}

func (c *Client) timeout(r Request) time.Duration {
	if r.Timeout > 0 {
		return r.Timeout
	}
	return c.cfg.Timeout
}

func (c *Client) gather(r Request) time.Duration {
	if n, ok := r.Kwargs.Int("gather_job_timeout"); ok && n > 0 {
		return time.Duration(n) * time.Second
	}
	return c.cfg.Gather
}

// gatherAll gathers returns until all watches have ended.
func (c *Client) gatherAll(ctx context.Context, ws []*watch, r Request, yield func(*watch, Return) bool) error {
	for len(ws) > 0 {
		var err error
		var wake time.Time
		if ws, wake, err = c.advance(ctx, ws, r); err != nil || len(ws) == 0 {
			return err
		}
		if !c.awaitEvents(ctx, ws, wake, yield) {
			return ctx.Err()
		}
	}
	return nil
}

// advance asks minions whose returns are late whether they still run the job. It returns the
// watches that must continue, and the time of the next check.
func (c *Client) advance(ctx context.Context, ws []*watch, r Request) ([]*watch, time.Time, error) {
	if down := c.events.down.Load(); down != 0 && len(ws) > 0 {
		// Without the bus no return arrives, so the silence of minions means nothing.
		now := c.cfg.Now()
		// Wait: the event bus may be unavailable for some time, for example while a master
		// restarts.
		if now.Sub(time.Unix(0, down)) < 30*time.Second {
			return ws, now.Add(50 * time.Millisecond), nil
		}
		return nil, time.Time{}, &Error{Kind: Unavailable, Message: "The connection to the master's events was lost. " +
			"Returns can be looked up by `salt-run jobs.lookup_jid " + ws[0].jid + "`."}
	}

	var wake time.Time
	left := ws[:0:0]
	for _, w := range ws {
		ask, finished, at := w.nextStep(c.cfg.Now())
		if finished {
			continue
		}

		if len(ask) > 0 {
			if err := c.askRunning(ctx, w, ask, r); err != nil {
				return nil, wake, err
			}
		}

		left = append(left, w)
		if wake.IsZero() || at.Before(wake) {
			wake = at
		}
	}

	return left, wake, nil
}

// askRunning asks minions whether they still run the job of a watch. It publishes a separate job
// with that question.
func (c *Client) askRunning(ctx context.Context, w *watch, ids []string, r Request) error {
	before := c.events.setFilter() // the answers may arrive before the master has returned the job id
	job, err := c.Publish(ctx, Request{
		Target:     value.List(ids),
		TargetType: "list",
		Fun:        "saltutil.find_job",
		Arg:        []any{w.jid},
		Kwargs:     askKwargs(r.Kwargs),
		Timeout:    w.gather,
	})

	switch err {
	case nil:
		w.noteQuestion(job.JID)
		if before != nil {
			before = w.tagPrefixes()
		}
	case ErrNoMinions, ErrNoJob: // somebody has removed the keys of the minions
	default:
		return err
	}

	c.events.setFilter(before...)
	return nil
}

// askKwargs returns the kwargs of a job without those that concern only the display of the job.
func askKwargs(m *value.Map) *value.Map {
	m = m.Clone()
	m.Delete("show_timeout")
	m.Delete("show_jid")
	return m
}

// awaitEvents handles the waiting events, and then those that arrive until deadline. It returns
// false when yield has returned false or ctx has ended.
func (c *Client) awaitEvents(ctx context.Context, ws []*watch, deadline time.Time, yield func(*watch, Return) bool) bool {
	timer := time.NewTimer(max(deadline.Sub(c.cfg.Now()), 0))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-c.events.gaps:
		return c.catchUp(ctx, ws, yield)
	case <-c.events.wake:
	}

	for { // handle all waiting events before the next wait
		e, ok := c.events.nextEvent(func(tag string) bool {
			return tag == event.TagOldFiles || slices.ContainsFunc(ws, func(w *watch) bool { return w.wantsTag(tag) })
		})
		if !ok {
			return true
		}
		if !c.takeEvent(ws, e, yield) {
			return false
		}
	}
}

func (c *Client) takeEvent(ws []*watch, e event.Event, yield func(*watch, Return) bool) bool {
	if e.Tag == event.TagOldFiles {
		if c.cfg.OldFiles != nil {
			c.oldFiles(ws, e)
		}
		return true
	}

	now := c.cfg.Now()
	for _, w := range ws {
		ret, ok := w.takeEvent(e.Tag, e.Data, now)
		if ok && !yield(w, ret) {
			return false
		}
	}

	return true
}

// Bounds of how long an event loop waits for files of jobs.
const (
	// catchUpWait is for all jobs that a loop watches, when it catches up: it looks again at the end of each. It is also
	// for each part of a batch that has ended.
	catchUpWait = 5 * time.Second
	// endedWait is for all parts that have ended at once.
	endedWait = time.Minute
)

// catchUp reads from the job cache the returns that arrived while the bus was not reachable. It
// returns false when yield has returned false.
func (c *Client) catchUp(ctx context.Context, ws []*watch, yield func(*watch, Return) bool) bool {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	for _, w := range ws {
		unanswered := w.unanswered()
		c.layOut(ctx, w.jid, unanswered)
		for _, id := range unanswered {
			ret, ok := c.cached(w.jid, id)
			if !ok {
				continue
			}

			w.found[id] = true
			if !yield(w, ret) {
				return false
			}
		}

		w.restartWait(c.cfg.Now())
	}

	return true
}
