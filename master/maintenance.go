package master

import (
	"context"
	"fmt"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

// Intervals of the master's own chores. Salt does all of them every loop_interval, so that a
// deleted key may be used for a minute.
const (
	rotateEvery = time.Second
	statusEvery = 2 * time.Second
	cleanEvery  = 5 * time.Minute
	quotaEvery  = 10 * time.Second // usage of the job cache that a crash forgets
)

// work runs everything that goes on beside requests, until ctx ends. Then no event of
// another process is taken any more, before those end who act on events.
func (m *Master) work(until context.Context) error {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(context.WithoutCancel(until))
	defer wg.Wait()

	defer cancel()
	defer m.sockets.StopTaking()
	failed := make(chan error, 2)
	wg.Go(func() {
		if err := m.keys.Run(ctx); err != nil && ctx.Err() == nil {
			failed <- fmt.Errorf("follow the folders of keys: %w", err)
		}
	})

	loop := m.cfg.LoopInterval
	if loop <= 0 {
		loop = time.Minute
	}

	every := func(d time.Duration, f func(context.Context)) {
		wg.Go(func() {
			t := time.NewTicker(d)
			defer t.Stop()
			for {
				f(ctx)
				select {
				case <-t.C:
				case <-ctx.Done():
					return
				}
			}
		})
	}

	every(rotateEvery, m.rotate)
	every(statusEvery, func(context.Context) { m.reporter.Write() })
	every(statusEvery, func(context.Context) { m.conditions.Read(m.now()) })
	wg.Go(func() { m.writes.Run(ctx) })
	every(cleanInterval(m.cfg.KeepJobs, loop), m.clean)
	every(cleanEvery, m.presence.Record)
	every(quotaEvery, m.launch.SaveQuota)

	if m.cfg.PresenceEvents {
		old := map[string]bool{}
		every(loop, func(context.Context) { m.presence.Events(old, m.fire) })
	}

	wg.Go(func() { m.reactor.Run(ctx) })
	wg.Go(func() { m.schedule.Run(ctx) })
	wg.Go(func() { m.engines.Run(ctx) })
	if m.eventReturn != nil {
		wg.Go(func() { m.eventReturn.Run(ctx) })
	}

	wg.Go(func() {
		defer m.batchEvents.Close()
		m.batches.Run(ctx, m.batchEvents.C)
	})

	wg.Go(func() { m.repos.Run(ctx) })
	wg.Go(func() {
		if err := m.cluster.Run(ctx, m.bus); err != nil {
			failed <- err
		}
	})

	select {
	case <-until.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// cleanInterval is how often old jobs are removed. Salt does it every loop_interval (salt/master.py
// Maintenance). Where jobs are kept for hours, that many passes are not worth it.
func cleanInterval(keep, loop time.Duration) time.Duration {
	if keep <= 0 {
		return cleanEvery
	}
	return min(cleanEvery, max(loop, keep/4))
}

// rotate replaces the publish key when it is old or somebody asked for it (salt/master.py
// handle_key_rotate).
func (m *Master) rotate(ctx context.Context) {
	if !m.cluster.Alone() {
		m.cluster.Rotate(ctx, m.secrets)
		return
	}

	done, err := m.secrets.RotateIfDue()
	m.problems.Report(control.KeyRotationFault, err)
	if err != nil || !done {
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

// clean removes what is too old to keep.
func (m *Master) clean(ctx context.Context) {
	// first: until then those of an earlier life are not counted
	if err := m.callers.Tokens.Clean(m.now()); err != nil {
		m.log.Warn("cleaning tokens", "error", err)
	}
	if n, err := m.jobs.Clean(ctx, m.cfg.KeepJobs); err != nil && ctx.Err() == nil {
		m.log.Warn("cleaning the job cache", "error", err)
	} else if n > 0 {
		m.log.Debug("old jobs removed", "jobs", n)
	}
	m.minions.ForgetOwners(m.now().Add(-m.cfg.KeepJobs))
}
