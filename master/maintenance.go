package master

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"saltern/master/cluster"
	"saltern/master/crypt"
	"saltern/master/event"
	"saltern/master/keys"
	"saltern/master/msgpack"
)

// intervals of the master's own chores. Salt does all of them every
// loop_interval, so that a deleted key may be used for a minute.
const (
	rotateEvery   = time.Second
	statusEvery   = 2 * time.Second
	cleanEvery    = 5 * time.Minute
	healthStartup = "startup"
	healthReady   = "ready"
	healthAlive   = "alive"
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
			failed <- fmt.Errorf("following the folders of keys: %w", err)
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
	every(statusEvery, m.readConditions)
	every(cleanEvery, m.clean)
	if m.cfg.PresenceEvents {
		old := map[string]bool{}
		every(loop, func(context.Context) { m.presenceEvents(old) })
	}
	wg.Go(func() { m.reactor.run(ctx) })
	wg.Go(func() { m.schedule.run(ctx) })
	wg.Go(func() { m.batches.run(ctx) })
	wg.Go(func() { m.fetchGitPillars(ctx) })
	if m.cluster != nil {
		wg.Go(func() { m.forward(ctx) })
		wg.Go(func() { m.missed.run(ctx) })
		wg.Go(func() {
			select {
			case <-m.clusterJob.removed:
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
	if err != nil {
		m.problems.set("key rotation", err)
		return
	}
	m.problems.clear("key rotation")
	if !done {
		return
	}
	m.log.Info("publish key was rotated")
	m.fire("key", msgpack.NewMap("rotate_aes_key", true))
	if m.cfg.PingOnRotate {
		j, err := m.newJob(ctx, msgpack.NewMap("fun", "test.ping", "arg", []any{}, "tgt", "*", "tgt_type", "glob", "ret", "", "user", m.cfg.User))
		if err == nil && len(j.minions) > 0 {
			err = m.start(ctx, j)
		}
		if err != nil {
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

// presenceEvents tells who came and went (salt/master.py handle_presence).
func (m *Master) presenceEvents(old map[string]bool) {
	present := m.connected()
	now := make(map[string]bool, len(present))
	fresh, lost := []string{}, []string{}
	for _, id := range present {
		now[id] = true
		if !old[id] {
			fresh = append(fresh, id)
		}
	}
	for id := range old {
		if !now[id] {
			lost = append(lost, id)
		}
	}
	if len(fresh)+len(lost) > 0 {
		m.fire(event.Tag("presence", "change"), msgpack.NewMap("new", fresh, "lost", lost))
	}
	if present == nil {
		present = []string{}
	}
	m.fire(event.Tag("presence", "present"), msgpack.NewMap("present", present))
	clear(old)
	for id := range now {
		old[id] = true
	}
}

// Status is what a master tells about itself, in <cachedir>/status.json.
type Status struct {
	Schema       int          `json:"schema"`
	PID          int          `json:"pid"`
	ID           string       `json:"id"`
	Started      time.Time    `json:"started"`
	Written      time.Time    `json:"written"`
	Accepted     int          `json:"accepted"`
	Pending      int          `json:"pending"`
	Rejected     int          `json:"rejected"`
	Denied       int          `json:"denied"`
	Subscribers  int          `json:"subscribers"`
	Connected    int          `json:"connected"`
	Requests     uint64       `json:"requests"`
	Refused      uint64       `json:"refused"`
	Failed       uint64       `json:"failed"`
	Returns      uint64       `json:"returns"`
	Jobs         uint64       `json:"jobs"`
	Pillars      uint64       `json:"pillars"`
	PillarErrors uint64       `json:"pillar_errors"`
	PillarError  *PillarError `json:"last_pillar_error,omitempty"` // nil: every pillar compiles
	PillarFaulty int          `json:"pillar_error_minions"`        // minions whose last pillar had errors
	EventsLost   uint64       `json:"events_lost"`
	OldestMillis int64        `json:"oldest_request_ms"`
	OpenMode     bool         `json:"open_mode"`
	AutoAccept   bool         `json:"auto_accept"`
	Problems     []Problem    `json:"problems"`
	// NewKeys are keys on a shared volume that are not files of their own yet.
	NewKeys keys.IncomingStats `json:"new_keys"`
	// PendingKeys tells of sources that offer too many keys.
	PendingKeys keys.PendingStats `json:"pending_keys"`
	// Cluster is what this master sees of its peers; nil alone.
	Cluster *cluster.Status `json:"cluster,omitempty"`
}

func (m *Master) writeStatus(context.Context) {
	m.retryJobCache()
	m.watchPending()
	oldest, _ := m.requests.Oldest()
	pillarError, faulty := m.pillarFaults.last(m.now())
	r := m.requests.Stats()
	if r.Untimely > m.untimely {
		m.untimely = r.Untimely
		m.problems.set("minion clocks", errors.New(r.UntimelyWhy))
	}
	subscribers, connected := m.presence.Count(m.subscriptions)
	s := Status{
		Schema: 1, PID: os.Getpid(), ID: m.cfg.ID, Started: m.started, Written: m.now(),
		Accepted: m.keys.Count(keys.Accepted), Pending: m.keys.Count(keys.Pending), Rejected: m.keys.Count(keys.Rejected), Denied: m.keys.Count(keys.Denied),
		Subscribers: subscribers, Connected: connected, Requests: r.Requests, Refused: r.Refused, Failed: r.Failed,
		Returns: m.count.returns.Load(), Jobs: m.count.jobs.Load(), Pillars: m.count.pillars.Load(), PillarErrors: m.count.pillarErrors.Load(), PillarError: pillarError, PillarFaulty: faulty,
		EventsLost: m.bus.Stats().Lost, OldestMillis: oldest.Milliseconds(), OpenMode: m.cfg.OpenMode, AutoAccept: m.cfg.AutoAccept, Problems: m.problems.list(),
	}
	s.NewKeys, s.PendingKeys = m.keys.Incoming(), m.keys.Pendings()
	if m.cluster != nil {
		c := m.cluster.Status()
		s.Cluster = &c
	}
	b, err := json.Marshal(s)
	if err == nil {
		err = writeStatusFile(filepath.Join(m.cfg.CacheDir, "status.json"), append(b, '\n'))
	}
	if err == nil {
		err = m.touch(healthAlive)
	}
	if err != nil {
		m.problems.set("cache directory", err)
		return
	}
	m.problems.clear("cache directory")
}

// watchPending reports a problem while a source offers more new keys than it may.
func (m *Master) watchPending() {
	p := m.keys.Pendings()
	if n := p.Refused + p.Evicted; m.count.pendingLimited.Swap(n) == n {
		return
	}
	from := p.Worst
	if from == "" {
		from = "sources that are not known any more"
	}
	m.problems.set("new keys", fmt.Errorf("too many from %s, of which %d wait (%d refused, %d evicted in all); salt-key -l un lists them, and a stranger belongs blocked in front of the master",
		from, p.Keys, p.Refused, p.Evicted))
}

// Health files of 3008 (<cachedir>/health): startup from the beginning,
// ready when the master serves, alive renewed while it does.
func (m *Master) healthFile(name string) string { return filepath.Join(m.cfg.CacheDir, "health", name) }

func (m *Master) clearHealth() error {
	if err := os.MkdirAll(filepath.Dir(m.healthFile("x")), 0o755); err != nil {
		return fmt.Errorf("creating the health folder: %w", err)
	}
	for _, n := range []string{healthStartup, healthReady, healthAlive} {
		if err := os.Remove(m.healthFile(n)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clearing the health folder: %w", err)
		}
	}
	return m.touch(healthStartup)
}

func (m *Master) touch(name string) error {
	return os.WriteFile(m.healthFile(name), []byte(strconv.FormatInt(m.now().Unix(), 10)), 0o644)
}

// ready says that this master serves.
func (m *Master) ready() error {
	if err := m.touch(healthReady); err != nil {
		return fmt.Errorf("writing the health folder: %w", err)
	}
	if m.cfg.PidFile == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(m.cfg.PidFile), 0o755); err != nil {
		return fmt.Errorf("writing the pid file: %w", err)
	}
	if err := crypt.WriteFile(m.cfg.PidFile, []byte(strconv.Itoa(os.Getpid())), 0o644); err != nil {
		return fmt.Errorf("writing the pid file: %w", err)
	}
	return nil
}
