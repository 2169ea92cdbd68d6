package diff

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"saltern/master/internal/pillar"
)

// comparison is one comparison in progress.
type comparison struct {
	service   *Service
	request   Request
	from, to  *side
	decrypted [][]any
	report    *Report
}

// all compares all minions.
func (c *comparison) all(ctx context.Context, ids []string) error {
	keep := func(ctx context.Context) error { return errors.Join(c.from.keep(ctx), c.to.keep(ctx)) }
	return eachMinion(ctx, ids, workers(), keep, c.minion)
}

// eachMinion calls do for all minions, for atOnce at the same time, and what do returns one after the
// other in the order of the minions' names: what a report has no room for does not depend on chance. The
// first error ends it: a report without a minion would be incomplete. It calls keep each minute.
func eachMinion(
	ctx context.Context,
	ids []string,
	atOnce int,
	keep func(context.Context) error,
	do func(context.Context, string) (note func(), err error),
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	type task struct {
		id   string
		note chan func()
	}
	const ahead = 16 // minions for each of atOnce that are done while the first of them is not
	next := make(chan task)
	order := make(chan task, ahead*atOnce)
	var done sync.WaitGroup
	for range atOnce {
		done.Go(func() {
			for t := range next {
				note, err := do(ctx, t.id)
				if err != nil {
					cancel(err)
				}
				t.note <- note
			}
		})
	}
	done.Go(func() {
		for t := range order {
			if note := <-t.note; note != nil {
				note()
			}
		}
	})

	ended := make(chan struct{})
	var keeping sync.WaitGroup
	keeping.Go(func() {
		tick := time.NewTicker(keepEvery)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				if err := keep(ctx); err != nil {
					cancel(err)
				}
			case <-ended:
				return
			}
		}
	})
	defer func() {
		close(ended)
		cancel(nil)
		keeping.Wait()
	}()

	for _, id := range slices.Sorted(slices.Values(ids)) {
		if ctx.Err() != nil {
			break
		}
		t := task{id: id, note: make(chan func(), 1)}
		order <- t
		next <- t
	}
	close(next)
	close(order)
	done.Wait()
	return context.Cause(ctx)
}

// minion compares one minion. note adds the result to the report.
func (c *comparison) minion(ctx context.Context, id string) (note func(), err error) {
	if ctx.Err() != nil {
		return nil, nil
	}

	grains, ok := c.service.cfg.Fleet.Grains(id)
	if !ok || grains.Len() == 0 {
		return func() { c.report.noteUnknown(id) }, nil
	}

	req := pillar.Request{ID: id, Grains: grains, Saltenv: c.request.Saltenv, Pillarenv: c.request.Pillarenv}
	compare := c.pillars
	if c.request.States {
		compare = c.states
	}
	found, refused, err := compare(ctx, req)
	if err != nil {
		return nil, err
	}
	return func() { c.report.noteMinion(id, found, refused) }, nil
}

// pillars compares the pillars of one minion.
func (c *comparison) pillars(ctx context.Context, req pillar.Request) (*findings, []refusal, error) {
	from, to, refused, err := c.pillarOutcomes(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	return c.findChanges(from, to, refused), refused, nil
}

// pillarOutcomes compiles the pillar of one minion on both sides, as outcomes does.
func (c *comparison) pillarOutcomes(ctx context.Context, req pillar.Request) (from, to *pillar.Outcome, refused []refusal, err error) {
	return c.outcomes(func(s *side, skip map[pillar.FileKey]bool) (*pillar.Outcome, error) {
		return s.pillars.Outcome(ctx, req, nil, skip)
	})
}

// maxTries bounds how often a minion is compiled again because a file is refused on one side only.
const maxTries = 20

// refusal is a file that is left out on both sides.
type refusal struct {
	pillar.FileKey
	reason string
	same   bool // the file's text is the same on both sides
	// ofPillar means that it is a file of the pillar that states see.
	ofPillar bool
}

// outcomes compiles both sides for one minion. A file that is refused on one side is left out on
// the other side too: its values would seem to come or go.
func (c *comparison) outcomes(
	compile func(*side, map[pillar.FileKey]bool) (*pillar.Outcome, error),
) (from, to *pillar.Outcome, refused []refusal, err error) {
	skip := map[pillar.FileKey]bool{}
	reasons := map[pillar.FileKey]string{}
	for range maxTries {
		if from, err = compile(c.from, skip); err == nil {
			to, err = compile(c.to, skip)
		}
		if err != nil {
			return nil, nil, nil, err
		}

		for _, r := range slices.Concat(from.Refused, to.Refused) {
			if r.Reason != "" {
				reasons[r.FileKey] = r.Reason
			}
		}

		again := false
		for key := range reasons {
			if !skip[key] && (from.Rendered(key) || to.Rendered(key)) {
				skip[key] = true
				again = true
			}
		}
		if !again {
			return from, to, refusals(reasons, from, to), nil
		}
	}
	return nil, nil, nil, fmt.Errorf("more than %d files cannot be told one after the other", maxTries)
}

func refusals(reasons map[pillar.FileKey]string, from, to *pillar.Outcome) (out []refusal) {
	keys := slices.SortedFunc(maps.Keys(reasons), func(a, b pillar.FileKey) int {
		return slices.Compare([]string{a.Env, a.SLS}, []string{b.Env, b.SLS})
	})
	for _, key := range keys {
		before, had := from.Sum(key)
		after, has := to.Sum(key)
		out = append(out, refusal{FileKey: key, reason: reasons[key], same: had == has && before == after})
	}
	return out
}

// findings are the differences of one minion.
type findings struct {
	gone, new []string // SLS that the top files select no more, or now
	changes   []change
	more      int
	broken    bool // the minion gets errors that it had not before
}

func (f *findings) none() bool {
	return len(f.gone) == 0 && len(f.new) == 0 && len(f.changes) == 0 && f.more == 0
}

// findChanges returns the differences between two outcomes. The secrets of others are hidden, too. It
// hides secrets in the reasons of refused, which may hold what a template has computed.
func (c *comparison) findChanges(from, to *pillar.Outcome, refused []refusal, others ...*pillar.Outcome) *findings {
	f := &findings{}
	f.gone, f.new = topChanges(from, to)
	f.more = max(0, len(f.gone)-maxChanges) + max(0, len(f.new)-maxChanges)
	f.gone = f.gone[:min(len(f.gone), maxChanges)]
	f.new = f.new[:min(len(f.new), maxChanges)]
	same := equal(from.Pillar, to.Pillar)
	if same && len(refused) == 0 {
		return f
	}

	m := newMask(&c.service.names, c.decrypted, []*pillar.Outcome{from, to}, others)
	for i := range refused {
		refused[i].reason = m.reason(refused[i].reason)
	}
	if same {
		return f
	}

	errs, broken := to.Pillar.Get(errorsPath)
	f.broken = broken && !equal(errs, from.Pillar.Value(errorsPath))
	w := &walker{mask: m}
	w.maps("", from.Pillar, to.Pillar, w.mask.places)
	f.changes = w.changes
	f.more += w.more
	return f
}
