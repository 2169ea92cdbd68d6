package master

import (
	"context"
	"fmt"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/value"
)

// Intervals of the master's own maintenance. Salt does all maintenance every loop_interval, so a
// minion of a Salt master may use a deleted key for up to a minute.
const (
	statusEvery = 2 * time.Second
	cleanEvery  = 5 * time.Minute
)

// workers are goroutines that run until ctx ends.
type workers struct {
	sync.WaitGroup
	ctx context.Context
}

// every calls f at once, and again after each pause, until the workers are stopped.
func (w *workers) every(pause time.Duration, f func(context.Context)) {
	w.Go(func() {
		t := time.NewTicker(pause)
		defer t.Stop()
		for {
			f(w.ctx)
			select {
			case <-t.C:
			case <-w.ctx.Done():
				return
			}
		}
	})
}

// work runs the master's goroutines until parent ends. Then it first ends the schedule, whose runs need all
// other parts, and stops accepting events of other processes. The parts that act on events stop last.
func (m *Master) work(parent context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(parent))
	w := &workers{ctx: ctx}
	defer w.Wait()

	defer cancel()
	defer m.sockets.StopTaking()
	scheduling, endSchedule := context.WithCancel(ctx)
	var schedule sync.WaitGroup
	defer schedule.Wait()

	defer endSchedule()
	failed := make(chan error, 2)
	w.Go(func() {
		if err := m.keys.Run(ctx); err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("follow the folders of keys: %w", err)
		}
	})

	m.startChores(w)
	m.startParts(w)
	schedule.Go(func() { m.schedule.Run(scheduling) })
	w.Go(func() {
		if err := m.cluster.Run(ctx, m.bus); err != nil {
			failed <- err
		}
	})

	select {
	case <-parent.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// startChores starts the tasks that repeat.
func (m *Master) startChores(w *workers) {
	loop := m.cfg.LoopInterval
	if loop <= 0 {
		loop = time.Minute
	}

	w.every(time.Second, m.rotate)
	w.every(statusEvery, func(context.Context) { m.reporter.Write() })
	w.every(statusEvery, func(context.Context) { m.conditions.Read(m.now()) })
	w.every(cleanInterval(m.cfg.KeepJobs, loop), m.clean)
	w.every(cleanEvery, m.presence.Record)
	w.every(cleanEvery, func(ctx context.Context) {
		m.presence.ReadGrains(ctx, func(id string) (*value.Map, bool) { return m.cache.Get(cache.Grains, id) })
	})
	// A crash loses the changes of the job cache's usage counts since the last call of SaveQuota.
	w.every(10*time.Second, m.launch.SaveQuota)

	if m.cfg.PresenceEvents {
		old := map[string]bool{}
		w.every(loop, func(context.Context) { m.presence.Events(old, m.fire) })
	}
}

// startParts starts the parts that need a goroutine until the master stops.
func (m *Master) startParts(w *workers) {
	w.Go(func() { m.writes.Run(w.ctx) })
	w.Go(func() { m.reactor.Run(w.ctx) })
	if m.pauses != nil {
		w.Go(func() { m.pauses.Run(w.ctx) })
		w.Go(func() { m.batchAsks.Run(w.ctx) })
	}
	w.Go(func() { m.savedStore.Follow(w.ctx, func(err error) { m.problems.Report(control.SavedFault, err) }) })
	w.Go(func() { m.unanswered.Run(w.ctx) })
	w.Go(func() { m.syndics.Follow(w.ctx, m.bus) })
	w.Go(func() { m.engines.Run(w.ctx) })
	w.Go(func() { m.repos.Run(w.ctx) })
	w.Go(func() { m.pillars.RunChecks(w.ctx) })

	if m.revisions != nil {
		w.Go(func() { m.revisions.Run(w.ctx) })
	}

	if m.eventReturn != nil {
		w.Go(func() { m.eventReturn.Run(w.ctx) })
	}

	if m.jobReturners != nil {
		w.Go(func() { m.jobReturners.Run(w.ctx) })
	}

	if m.postgres != nil {
		w.Go(func() { m.postgres.Run(w.ctx) })
	}
	if m.postgresEvents != nil {
		w.Go(func() { m.postgresEvents.Run(w.ctx) })
	}
	if m.postgresLookups != nil {
		w.Go(func() { m.postgresLookups.Run(w.ctx) })
	}

	if m.notify != nil {
		w.Go(func() { m.notify.Run(w.ctx) })
	}

	if m.merge != nil {
		w.Go(func() { m.merge.Run(w.ctx) })
	}

	w.Go(func() {
		defer m.batchEvents.Close()
		m.batches.Run(w.ctx, m.batchEvents.C)
	})
}

// cleanInterval returns how often old jobs are removed. Salt removes them every loop_interval
// (salt/master.py Maintenance). If jobs are kept for hours, removing them that often is not worth
// the cost.
func cleanInterval(keep, loop time.Duration) time.Duration {
	if keep <= 0 {
		return cleanEvery
	}
	return min(cleanEvery, max(loop, keep/4))
}

// rotate replaces the publish key when the key has reached its maximum age, or when an
// administrator has asked for a new one (salt/master.py handle_key_rotate).
func (m *Master) rotate(ctx context.Context) {
	if !m.cluster.Alone() {
		m.cluster.Rotate(ctx, m.secrets)
		return
	}

	rotated, err := m.secrets.RotateIfDue()
	m.problems.Report(control.KeyRotationFault, err)
	if err != nil || !rotated {
		return
	}

	m.log.Info("publish key was rotated")
	m.fire("key", value.NewMap("rotate_aes_key", true))
	if m.cfg.PingOnRotate {
		if _, err := m.launch.StartOwn(ctx, m.launch.Own("test.ping", []any{}, "*", "glob", "")); err != nil {
			m.log.Warn("ping_on_rotate failed", "error", err)
		}
	}
}

// clean removes tokens, jobs and owners of jobs that are too old.
func (m *Master) clean(ctx context.Context) {
	// Clean the tokens first: this pass also counts the tokens of an earlier run.
	if err := m.callers.Tokens.Clean(m.now()); err != nil {
		m.log.Warn("cleaning tokens", "error", err)
	}
	if n, err := m.jobs.Clean(ctx, m.cfg.KeepJobs); err != nil && ctx.Err() == nil {
		m.log.Warn("cleaning the job cache", "error", err)
	} else if n > 0 {
		m.log.Debug("old jobs removed", "jobs", n)
	}
	m.minions.ForgetOwners(m.now().Add(-ownersKept(m.cfg.KeepJobs)))
}

// ownersKept returns how long a minion may ask for the returns of a job that it started. Salt's master forgets
// such minions each time where keep is 0 (salt/daemons/masterapi.py clean_pub_auth); this one knows them for a day.
func ownersKept(keep time.Duration) time.Duration {
	if keep <= 0 {
		return 24 * time.Hour
	}
	return keep
}
