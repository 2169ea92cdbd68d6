package presence

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/internal/publish"
	"saltern/master/value"
)

// Bounds of resending.
const (
	// returnsWait is how long a resend waits for the job cache to report which minions have returned.
	returnsWait = 500 * time.Millisecond
	// maxPassed is how many jobs may have been published after a job that is sent again. After more
	// than that, the job is not sent again. A minion stores only its last hundred job ids
	// (minion_jid_queue_hwm) and would run an older job a second time.
	maxPassed   = 80
	maxLateJobs = 1024
	maxReported = 4096
	// lateFor is the greatest age of a job that a peer still publishes although the job reached it
	// late.
	lateFor = 10 * time.Minute
)

// Reasons why a job is not sent again.
const (
	whyStarted  = "they have been started anew since, and may have run it before"
	whyUnknown  = "it cannot be told by name which minions have been started anew since"
	whyPassed   = "so many other jobs have passed since that minions may not remember whether they have run it"
	whyTooLate  = "it came too late"
	whyNotTaken = "too many jobs came late at once"
)

// narrowings caches recent publications after their targets were narrowed for resending.
type narrowings struct {
	mu    sync.Mutex
	byJID map[string]narrowing // results of narrowed by job id
	// reported is the number of minions that were last passed to Undelivered, by job id.
	reported map[string]int
	// readingReturns is true while a goroutine reads the returns of a job.
	readingReturns atomic.Bool
}

// narrowing is a cached result of narrowed.
type narrowing struct {
	until time.Time
	// knownStarts is Started.Count when the entry was made. If the count has changed since, the
	// entry is out of date.
	knownStarts uint64
	narrowed    publish.Recent
	given       bool
}

func (a *narrowings) dropExpired(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for jid, x := range a.byJID {
		if !now.Before(x.until) {
			delete(a.byJID, jid)
		}
	}
}

// narrowed returns a publication with its target narrowed to the minions that may get it again now.
// again is false if the publication must not be sent again. narrowed passes the minions that may
// have missed the job and will not get it to Undelivered. It caches the result for a second.
func (k *Resender) narrowed(ctx context.Context, r publish.Recent) (narrowed publish.Recent, again bool) {
	a := &k.narrowings
	a.mu.Lock()
	defer a.mu.Unlock()
	now := k.cfg.Now()
	starts := k.cfg.Started.Count()
	if x, ok := a.byJID[r.JID]; ok && now.Before(x.until) && x.knownStarts == starts && x.narrowed.At.Equal(r.At) {
		return x.narrowed, x.given
	}
	narrowed, again = k.narrowNow(ctx, r)
	a.byJID[r.JID] = narrowing{until: now.Add(time.Second), knownStarts: starts, narrowed: narrowed, given: again}
	return narrowed, again
}

// narrowNow works like narrowed, but computes the result without the cache. The caller holds
// narrowings.mu.
func (k *Resender) narrowNow(ctx context.Context, r publish.Recent) (narrowed publish.Recent, again bool) {
	var returned, started map[string]bool
	sure := true
	if k.cfg.Started != nil {
		started, sure = k.cfg.Started.After(r.Born, k.cfg.Now())
		k.addManaged(started)
	}

	if k.cfg.Returned != nil {
		var err error
		if returned, err = k.readReturns(ctx, r.JID); err != nil {
			k.cfg.Log.Warn("job is sent again also to those that have returned", "jid", r.JID, "error", err)
		}
	}

	to := narrowTarget(r.Load, r.Matched, returned, started)
	missing := func(fits func(string) bool) (out []string) {
		for _, id := range r.Matched {
			if !returned[id] && fits(id) {
				out = append(out, id)
			}
		}
		return out
	}

	all := func(string) bool { return true }
	switch {
	case to.nobody:
		k.reportUndelivered(r, missing(func(id string) bool { return started[id] }), whyStarted)
		return r, false
	case to.unknown || !sure:
		k.reportUndelivered(r, missing(all), whyUnknown)
		return r, false
	case r.Passed+k.cfg.Port.Passed(r.At) > maxPassed:
		k.reportUndelivered(r, missing(all), whyPassed)
		return r, false
	}

	k.reportUndelivered(r, missing(func(id string) bool { return started[id] }), whyStarted)
	if to.unchanged {
		return r, true
	}

	narrowed, err := k.cfg.Port.Narrow(r, to.tgt, to.typ, to.ids)
	if err != nil {
		k.cfg.Log.Warn("job cannot be sent again", "jid", r.JID, "error", err)
		return r, false
	}

	narrowed.At = r.At
	return narrowed, true
}

// addManaged adds the resources of the minions in a set. A minion runs a job of a resource without
// being a target itself.
func (k *Resender) addManaged(minions map[string]bool) {
	if k.cfg.Resources == nil {
		return
	}
	for id := range maps.Clone(minions) {
		for _, resource := range k.cfg.Resources.Managed(id) {
			minions[resource] = true
		}
	}
}

// reportUndelivered calls Undelivered with the minions that will not get a job. It calls
// Undelivered only if there are more such minions than at the last call for that job. The caller
// holds narrowings.mu.
func (k *Resender) reportUndelivered(r publish.Recent, minions []string, why string) {
	told := k.narrowings.reported
	if len(minions) <= told[r.JID] {
		return
	}
	if len(told) >= maxReported {
		clear(told)
	}
	told[r.JID] = len(minions)
	k.cfg.Undelivered(r.Load, minions, why)
}

var errSlow = errors.New("the job cache does not answer")

// readReturns returns the minions that have returned for a job. It returns an error if the disk
// hangs, or if an earlier reading has not ended yet.
func (k *Resender) readReturns(ctx context.Context, jid string) (returned map[string]bool, err error) {
	if !k.narrowings.readingReturns.CompareAndSwap(false, true) {
		return nil, errSlow
	}

	answer := make(chan struct{})
	var late map[string]bool
	var lateErr error
	go func() { // nobody waits for this goroutine, because the disk may hang
		late, lateErr = k.cfg.Returned(ctx, jid)
		// Reset the flag before sending the result, because the receiver may read the returns of
		// the next job at once.
		k.narrowings.readingReturns.Store(false)
		close(answer)
	}()

	select {
	case <-answer:
		return late, lateErr
	case <-time.After(returnsWait):
		return nil, errSlow
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// PublishLate publishes a job that another master started some time ago. PublishLate publishes the
// job to the minions of this master that have not run it. Before the call minions may have got the
// job from another master, or may have been restarted. laterJobs is how many jobs the other master
// has published after this job.
func (k *Resender) PublishLate(ctx context.Context, load *value.Map, matched []string, age time.Duration, laterJobs int) error {
	now := k.cfg.Now()
	r := publish.Recent{
		At:      now,
		Born:    now.Add(-age),
		JID:     load.Str("jid"),
		Load:    load,
		Matched: matched,
	}

	r.Passed = max(laterJobs, k.cfg.Port.Passed(r.Born))
	if age > lateFor {
		k.cfg.Undelivered(load, matched, whyTooLate)
		return nil
	}

	return k.publishNarrowed(ctx, r)
}

// Remembers reports whether a job of that age is still among this master's recent publications. A
// minion that missed such a job gets the job when it connects again.
func (k *Resender) Remembers(jid string, age time.Duration) bool {
	recent := k.cfg.Port.Recent(k.cfg.Now().Add(-age - time.Second))
	return slices.ContainsFunc(recent, func(r publish.Recent) bool { return r.JID == jid })
}

// Passed returns how many loads this master has published since a time.
func (k *Resender) Passed(since time.Time) int { return k.cfg.Port.Passed(since) }

// JobReachedLate publishes a job of this master again, because the job has only now reached a peer.
// A minion that moved from that peer to this master in the meantime got the job from neither
// master.
func (k *Resender) JobReachedLate(load *value.Map, matched []string, age time.Duration) {
	now := k.cfg.Now()
	r := publish.Recent{
		At:      now,
		Born:    now.Add(-age),
		JID:     load.Str("jid"),
		Load:    load,
		Matched: matched,
	}

	r.Passed = k.cfg.Port.Passed(r.Born)
	select {
	case k.late <- r:
	default:
		k.cfg.Undelivered(load, matched, whyNotTaken)
	}
}

func (k *Resender) publishNarrowed(ctx context.Context, r publish.Recent) error {
	narrowed, given := k.narrowed(ctx, r)
	if !given {
		return nil
	}
	k.cfg.Log.Info("job published late", "jid", r.JID, "age", r.At.Sub(r.Born).Round(time.Millisecond))
	return k.cfg.Port.Republish(ctx, r, narrowed)
}
