package launch

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"saltern/master/jobs"
	"saltern/master/value"
)

// claims holds the ids of jobs that are being started and are not in the job cache yet. If two
// callers choose the same id at the same time, only one of them gets it. Each request in progress
// has at most one entry, so the bound on requests in progress also bounds the number of entries.
// claims is safe for concurrent use.
type claims struct {
	mu   sync.Mutex
	open map[string]*claim
}

type claim struct {
	load    *value.Map
	holders int
	ended   chan struct{}
}

func newClaims() *claims { return &claims{open: map[string]*claim{}} }

// waitForClaim claims a job id for a load until the caller calls leave. Parts of one job share a
// claim. If another job has claimed the id, waitForClaim waits until that job is in the job cache
// or was refused. It does not refuse the load at once, because the job that claimed the id may
// still be refused.
func (c *claims) waitForClaim(ctx context.Context, jid string, load *value.Map) (leave func(), err error) {
	for {
		leave, ended := c.tryClaim(jid, load)
		if ended == nil {
			return leave, nil
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another job with the id %s: %w", jid, ctx.Err())
		}
	}
}

// tryClaim claims an id for a load. On success ended is nil, and the caller must call leave.
// Otherwise another load has claimed the id; ended is closed when that claim ends.
func (c *claims) tryClaim(jid string, load *value.Map) (leave func(), ended <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()

	held := c.open[jid]
	switch {
	case held == nil:
		held = &claim{load: load, ended: make(chan struct{})}
		c.open[jid] = held
	case !jobs.Continues(load, held.load):
		return nil, held.ended
	}

	held.holders++
	return sync.OnceFunc(func() { c.releaseClaim(jid, held) }), nil
}

func (c *claims) releaseClaim(jid string, held *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	held.holders--
	if held.holders == 0 {
		delete(c.open, jid)
		close(held.ended)
	}
}

// errTaken returns the refusal for a caller who chose the id of another job. Salt would overwrite
// the other job (salt/returners/local_cache.py prep_jid, save_load).
func errTaken(jid string) error {
	return refuse("the job id %s is that of another job: choose another one, or leave it out and the master makes one",
		jid)
}

// claimJID claims the id that a caller has chosen, so that no other job gets that id until leave is
// called. The caller must call leave when the job is in the job cache. known reports whether the
// job is already known, so that load is a further part of it.
func (l *Launcher) claimJID(ctx context.Context, jid string, load *value.Map) (leave func(), known bool, err error) {
	// Check before the claim, so that a caller whose chosen id belongs to an existing job claims
	// nothing and nobody waits for him.
	if _, err := l.continuesKnownJob(ctx, jid, load); err != nil {
		return nil, false, err
	}
	if leave, err = l.claims.waitForClaim(ctx, jid, load); err != nil {
		return nil, false, err
	}
	if known, err = l.continuesKnownJob(ctx, jid, load); err != nil {
		leave()
		return nil, false, err
	}
	return leave, known, nil
}

// continuesKnownJob reports whether a job with the id jid is known and load is a further part of
// it. It returns false for an id without a job. It returns an error if the id belongs to another
// job.
func (l *Launcher) continuesKnownJob(ctx context.Context, jid string, load *value.Map) (known bool, err error) {
	kept, err := l.cfg.Jobs.Load(ctx, jid)
	if err != nil {
		return false, fmt.Errorf("look whether job %s is known: %w", jid, err)
	}
	another := l.cfg.Running(jid) || kept != nil && !jobs.Continues(load, kept)
	if another || !l.allUnknown(ctx, jobs.Beginnings(jid)) {
		l.refused.taken.Add(1)
		l.cfg.Quiet.Warn("job refused: its id is that of another job", "jid", jid, "user", load.Str("user"))
		return false, errTaken(jid)
	}
	return kept != nil, nil
}

// IsFreeJID reports whether a new job may have the id jid. It may not if a known job has the same
// id, or an id that is a prefix of jid, because tools could confuse the two jobs.
func (l *Launcher) IsFreeJID(ctx context.Context, jid string) bool {
	return l.allUnknown(ctx, append(jobs.Beginnings(jid), jid))
}

func (l *Launcher) allUnknown(ctx context.Context, jids []string) bool {
	return !slices.ContainsFunc(jids, func(jid string) bool {
		kept, err := l.cfg.Jobs.Load(ctx, jid)
		return err != nil || kept != nil || l.cfg.Running(jid)
	})
}

// Learn records the job of a peer: it records which minions may return for the job, and calls stage
// to store the job in the job cache. started is the event of the job's start. If the job of another
// caller has the same id, Learn records only the job of higher rank ([jobs.Outranks]), as all other
// masters do.
func (l *Launcher) Learn(ctx context.Context, jid string, started *value.Map, stage func() error) error {
	leave, err := l.claims.waitForClaim(ctx, jid, started)
	if err != nil {
		return err
	}
	defer leave()

	if started.Bool(jobs.ChosenField) {
		kept, err := l.cfg.Jobs.Load(ctx, jid)
		if err != nil {
			return fmt.Errorf("look whether job %s of a peer is known: %w", jid, err)
		}

		other := kept != nil && !jobs.Continues(started, kept)
		if l.cfg.Running(jid) || other && !jobs.Outranks(started, kept) {
			l.refused.taken.Add(1)
			l.cfg.Quiet.Warn("job of a peer is not kept: its id is that of another job", "jid", jid, "user",
				started.Str("user"))
			return nil
		}

		if other {
			l.expected.forgetJob(jid)
		}
	}

	cost := jobCost(started)
	if started.Map(jobs.BatchField) != nil && l.expected.knows(jid) { // a further slice of a batch
		cost -= jobFiles
	}
	l.quota.chargePeerJob(started.Str(jobs.AccountField), cost, l.cfg.Now())
	l.Expect(jid, started)
	return stage()
}
