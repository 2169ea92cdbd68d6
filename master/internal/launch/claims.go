package launch

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"saltern/master/jobs"
	"saltern/master/value"
)

// claims holds the job ids of jobs that are being started and are not in the job cache yet. Of two
// callers that choose the same id at the same time one gets it. There is one entry for each request
// at work, so the bound on requests bounds it. It is safe for concurrent use.
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

// waitForClaim claims an id for a load until leave is called. Parts of one job share a claim.
// Another job waits until the first is in the job cache or was refused: it cannot be known what a
// claim will come to, and a batch must not fail because of a caller who may not have its id.
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

// tryClaim claims an id for a load. ended is nil on success; otherwise it is closed when the other
// load gives the id up.
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

// errTaken is the answer to a caller whose job id belongs to another job. Salt overwrites the other
// job (salt/returners/local_cache.py prep_jid, save_load).
func errTaken(jid string) error {
	return refuse("the job id %s is that of another job: choose another one, or leave it out and the master makes one",
		jid)
}

// claimJID makes sure that no other job has the id that a caller has chosen, until leave is called.
// Call leave when the job is in the job cache. again: the job is known already, and load is one
// more part of it.
func (l *Launcher) claimJID(ctx context.Context, jid string, load *value.Map) (leave func(), again bool, err error) {
	// The first check makes no claim, so that nobody must wait for callers that ask for an id of
	// others.
	if _, err := l.continuesKnownJob(ctx, jid, load); err != nil {
		return nil, false, err
	}
	if leave, err = l.claims.waitForClaim(ctx, jid, load); err != nil {
		return nil, false, err
	}
	if again, err = l.continuesKnownJob(ctx, jid, load); err != nil {
		leave()
		return nil, false, err
	}
	return leave, again, nil
}

// continuesKnownJob reports whether load is one more part of a known job. It is an error when the
// id belongs to another job.
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

// IsFreeJID reports whether no job known here could be taken for the job with this id by its tools:
// none has the id, and none has an id that this one begins with.
func (l *Launcher) IsFreeJID(ctx context.Context, jid string) bool {
	return l.allUnknown(ctx, append(jobs.Beginnings(jid), jid))
}

func (l *Launcher) allUnknown(ctx context.Context, jids []string) bool {
	return !slices.ContainsFunc(jids, func(jid string) bool {
		kept, err := l.cfg.Jobs.Load(ctx, jid)
		return err != nil || kept != nil || l.cfg.Running(jid)
	})
}

// Learn makes the job of a peer known: who may return for it, and by stage what is kept of it.
// started is the event of its start. When a job of another caller has the same id, the one with the
// higher rank stays ([jobs.Outranks]), as at all other masters.
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

	l.quota.chargePeerJob(started.Str(jobs.AccountField), jobCost(started), l.cfg.Now())
	l.Expect(jid, started)
	return stage()
}
