package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"saltern/control"
	"saltern/master/cluster"
	"saltern/master/gitpillar"
	"saltern/master/health"
	"saltern/master/keys"
	"saltern/master/pyrunner"
	"saltern/master/value"
)

// intervals of the master's own chores. Salt does all of them every
// loop_interval, so that a deleted key may be used for a minute.
const (
	rotateEvery = time.Second
	statusEvery = 2 * time.Second
	cleanEvery  = 5 * time.Minute
)

// work runs everything that goes on beside requests, until ctx ends.
func (m *Master) work(ctx context.Context) error {
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	defer wg.Wait()
	defer cancel()
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
	every(statusEvery, m.writeStatus)
	every(statusEvery, func(context.Context) { m.conditions.Read(m.now()) })
	every(cleanEvery, m.clean)
	if m.cfg.PresenceEvents {
		old := map[string]bool{}
		every(loop, func(context.Context) { m.presence.Events(old, m.fire) })
	}
	wg.Go(func() { m.reactor.Run(ctx) })
	wg.Go(func() { m.schedule.Run(ctx) })
	wg.Go(func() {
		defer m.batchEvents.Close()
		m.batches.Run(ctx, m.batchEvents.C)
	})
	if c := m.cfg; gitpillar.Configured(c.ExtPillar) {
		f := gitpillar.New(gitpillar.Config{Pythons: pyrunner.Pythons(c.RendererPython), ConfigFile: c.Path, Log: m.log})
		// A problem that does not occur again is forgotten after ProblemFor.
		wg.Go(func() {
			f.Run(ctx, gitpillar.Interval(c.GitPillarUpdateInterval, c.LoopInterval), health.ProblemFor/2, func(err error) { m.problems.Report(control.GitPillarFault, err) })
		})
	}
	if m.cluster != nil {
		wg.Go(func() { m.link.Forward(ctx, m.bus) })
		wg.Go(func() { m.missed.Run(ctx) })
		wg.Go(func() {
			select {
			case <-m.handler.WhenRemoved():
				failed <- cluster.ErrRemoved
			case <-ctx.Done():
			}
		})
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// rotate replaces the publish key when it is old or somebody asked for it
// (salt/master.py handle_key_rotate).
func (m *Master) rotate(ctx context.Context) {
	if m.cluster != nil {
		m.rotateCluster(ctx)
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
	if n, err := m.jobs.Clean(ctx, m.cfg.KeepJobs); err != nil && ctx.Err() == nil {
		m.log.Warn("cleaning the job cache", "error", err)
	} else if n > 0 {
		m.log.Debug("old jobs removed", "jobs", n)
	}
	if err := m.tokens.Clean(m.now()); err != nil {
		m.log.Warn("cleaning tokens", "error", err)
	}
	m.cleanOwners()
}

// cleanOwners forgets whose job was whose, for jobs that are gone.
func (m *Master) cleanOwners() {
	dir := filepath.Join(m.cfg.CacheDir, "publish_auth")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err == nil && m.now().Sub(info.ModTime()) > m.cfg.KeepJobs {
			_ = os.Remove(filepath.Join(dir, e.Name()))
		}
	}
}

// Status is what this master writes into its status file. Supervisors read the
// first part.
type Status struct {
	control.Status
	// NewKeys are keys on a shared volume that are not files of their own yet.
	NewKeys keys.IncomingStats `json:"new_keys"`
	// PendingKeys tells of sources that offer too many keys.
	PendingKeys keys.PendingStats `json:"pending_keys"`
	// Cluster is what this master sees of its peers; nil alone.
	Cluster *cluster.Status `json:"cluster,omitempty"`
}

func (m *Master) writeStatus(context.Context) {
	m.problems.RetryJobCache(filepath.Join(m.cfg.CacheDir, "jobs"))
	m.watchPending()
	oldest, _ := m.requests.Oldest()
	pillars := m.pillars.Stats()
	r := m.requests.Stats()
	if r.Untimely > m.untimely {
		m.untimely = r.Untimely
		m.problems.Set(control.MinionClockFault, errors.New(r.UntimelyWhy))
	}
	subscribers, connected := m.presence.Count(m.subscriptions)
	jobs, _ := m.launch.Stats()
	s := Status{Status: control.Status{
		Schema: control.Schema, PID: os.Getpid(), ID: m.cfg.ID, Started: m.started, Written: m.now(),
		Accepted: m.keys.Count(keys.Accepted), Pending: m.keys.Count(keys.Pending), Rejected: m.keys.Count(keys.Rejected), Denied: m.keys.Count(keys.Denied),
		Subscribers: subscribers, Connected: connected, Requests: r.Requests, Refused: r.Refused, Failed: r.Failed,
		Returns: m.minions.Stats().Returns, Jobs: jobs, Pillars: pillars.Pillars, PillarErrors: pillars.Errors, PillarError: pillars.Last, PillarFaulty: pillars.Faulty,
		EventsLost: m.bus.Stats().Lost, OldestMillis: oldest.Milliseconds(), OpenMode: m.cfg.OpenMode, AutoAccept: m.cfg.AutoAccept, Problems: m.problems.List(),
	}, NewKeys: m.keys.Incoming(), PendingKeys: m.keys.Pendings()}
	if m.cluster != nil {
		c := m.cluster.Status()
		s.Cluster = &c
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = health.WriteFile(filepath.Join(m.cfg.CacheDir, control.StatusFile), append(b, '\n'))
	}
	if err == nil {
		err = m.signs.Alive()
	}
	m.problems.Report(control.CacheDirFault, err)
}

// watchPending reports a problem while a source offers more new keys than it may.
func (m *Master) watchPending() {
	p := m.keys.Pendings()
	if n := p.Refused + p.Evicted; m.pendingLimited.Swap(n) == n {
		return
	}
	from := p.Worst
	if from == "" {
		from = "sources that are not known any more"
	}
	m.problems.Set(control.NewKeysFault, fmt.Errorf("too many from %s, of which %d wait (%d refused, %d evicted in all); salt-key -l un lists them, and a stranger belongs blocked in front of the master",
		from, p.Keys, p.Refused, p.Evicted))
}
