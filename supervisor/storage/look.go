package storage

import (
	"context"
	"os"
	"slices"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/mount"
	"saltern/internal/pause"
	"saltern/supervisor/layout"
)

// keepObserving observes the pool until ctx ends. Quick observations are frequent. Full
// observations, which take the lock of the pool, are rare unless something has changed.
func (m *Manager) keepObserving(ctx context.Context) {
	for {
		if in, _ := m.membership(); in {
			m.observe(ctx)
		}
		every := lookEvery
		if m.isCalm() {
			every = calmEvery
		}
		if pause.About(ctx, every) != nil {
			return
		}
	}
}

// isCalm reports whether no change is planned, under way or expected.
func (m *Manager) isCalm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.obs != nil && m.plan.Done() && m.doing == "" && m.fault == "" && !unsettled(m.obs) &&
		m.obs.Mount != nil && m.obs.Mount.State == mount.OK
}

// maxFullAge returns how old a full observation may be while the storage is calm. It is half a
// minute on the node that makes the changes, because these depend on the observation, and a minute
// elsewhere.
func (m *Manager) maxFullAge() time.Duration {
	if held, _ := m.lease.isHeld(); held {
		return fullEvery
	}
	return 2 * fullEvery
}

// glance observes the pool without starting a command, which is enough while nothing changes. same
// reports whether nothing has changed since the last observation, due whether a full observation is
// needed.
func (m *Manager) glance(ctx context.Context, d glusterctl.Desired) (same, due bool) {
	h, at := m.keeper.Last()
	m.mu.Lock()
	old, age := m.obs, m.cfg.Now().Sub(m.fullAt)
	m.mu.Unlock()

	switch {
	case old == nil || h.State != mount.OK || time.Since(at) > 2*calmEvery:
		return false, false
	case age >= m.maxFullAge():
		return false, true
	}

	now, same := m.ctl.Glance(ctx, d, old, h)
	if same {
		m.setObservation(now, false)
	}

	return same, !same
}

func (m *Manager) observe(ctx context.Context) {
	d := m.Desired()
	due := false
	if m.isCalm() {
		var same bool
		if same, due = m.glance(ctx, d); same {
			return
		}
	}

	_, leaving := m.membership()
	m.mu.Lock()
	none := m.obs == nil
	m.mu.Unlock()

	if (none || due) && !leaving { // a quick observation first would add nothing
		m.observeAll(ctx, d)
		return
	}

	quick, err := m.ctl.ObserveQuick(ctx, d)
	if err != nil {
		return
	}

	m.mu.Lock()
	old, age := m.obs, m.cfg.Now().Sub(m.fullAt)
	m.mu.Unlock()

	if leaving {
		m.setObservation(addKnown(quick, old), false)
		return
	}

	soon := fullEvery / 2 // the node that makes the changes observes more often, on behalf of all
	if held, _ := m.lease.isHeld(); held || m.cfg.Form && !m.isFormed() {
		soon = 2 * lookEvery
	}

	if age >= fullEvery || hasChanged(old, quick) || age >= soon && unsettled(old) {
		m.observeAll(ctx, d)
		return
	}

	m.setObservation(addKnown(quick, old), false)
}

// addKnown returns the quick observation quick, with the state of the bricks from the observation
// previous. If the volume has other bricks now, it adds nothing.
func addKnown(quick, previous *glusterctl.Observation) *glusterctl.Observation {
	if previous == nil || quick.Volume != nil && previous.Volume != nil && !slices.Equal(quick.Volume.Bricks, previous.Volume.Bricks) {
		return quick
	}
	quick.Processes, quick.StatusError = previous.Processes, previous.StatusError
	quick.Heal = previous.Heal
	quick.HealError = previous.HealError
	quick.SameEntries = previous.SameEntries
	return quick
}

// observeAll makes a full observation, which takes the lock of the pool. A node that leaves makes
// none: if the other nodes removed it while its glusterd held the lock, the lock would block the
// pool for three minutes.
func (m *Manager) observeAll(ctx context.Context, d glusterctl.Desired) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	m.stopObserving = cancel
	m.mu.Unlock()
	if _, leaving := m.membership(); leaving {
		return // the table has changed since the caller looked
	}
	if o, err := m.ctl.Observe(ctx, d); err == nil {
		m.setObservation(o, true)
		m.trackHeal(ctx, o)
	}
}

// hasChanged reports whether a quick observation b differs so much from a that a full observation
// is due.
func hasChanged(a, b *glusterctl.Observation) bool {
	if a.Daemon != b.Daemon || (a.Volume == nil) != (b.Volume == nil) || len(a.Pool) != len(b.Pool) {
		return true
	}
	if a.Volume != nil && (a.Volume.State != b.Volume.State || !slices.Equal(a.Volume.Bricks, b.Volume.Bricks)) {
		return true
	}
	if a.Mount != nil && b.Mount != nil && a.Mount.State != b.Mount.State {
		return true
	}

	for i := range a.Pool {
		if a.Pool[i].Connected != b.Pool[i].Connected || a.Pool[i].UUID != b.Pool[i].UUID {
			return true
		}
	}

	return false
}

// unsettled reports whether the volume is in a state that normally ends without an administrator: a
// brick is unreachable, copies heal, or the status is unknown.
func unsettled(o *glusterctl.Observation) bool {
	q, h := o.Quorum(), o.HealState()
	return o.StatusError != "" || q.Known && q.Up < q.Bricks || !h.Pending.Zero()
}

func (m *Manager) isFormed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.formed
}

// replan computes the plan from the observation and the table. The caller must call replan after
// each change of the observation or the table, and holds mu.
func (m *Manager) replan() {
	if m.obs != nil {
		m.plan = m.ctl.Plan(m.obs, m.desired())
	}
}

func (m *Manager) setObservation(o *glusterctl.Observation, full bool) {
	m.mu.Lock()
	first := m.obs == nil
	m.obs = o
	m.replan()

	switch {
	case !stopped(o):
		m.stoppedSince = time.Time{}
	case m.stoppedSince.IsZero():
		m.stoppedSince = m.cfg.Now()
	}

	switch {
	case len(o.Elsewhere) == 0:
		m.lackingSince = time.Time{}
	case m.lackingSince.IsZero():
		m.lackingSince = m.cfg.Now()
	}

	switch {
	case !slices.ContainsFunc(m.desired().Members, func(x glusterctl.Member) bool {
		return x.Name == m.cfg.Self && x.Brick != "" && o.Hidden(x.BrickName())
	}):
		m.hiddenSince = time.Time{}
	case m.hiddenSince.IsZero():
		m.hiddenSince = m.cfg.Now()
	}

	if full {
		m.fullAt = m.cfg.Now()
	}

	made := !m.formed && o.Volume != nil && o.Mount != nil && o.Mount.State == mount.OK && o.Mount.Layout > 0
	if made {
		m.formed = true
	}
	m.mu.Unlock()

	if first {
		m.wakeChanging() // keepChanging waits for the first observation
	}

	if made {
		if err := os.MkdirAll(m.cfg.Dir, 0o700); err == nil {
			_, err = layout.WriteFile(m.formedMark(),
				[]byte("The volume was made: this node never makes another.\n"), 0o600)
			if err != nil {
				m.cfg.Log.Error("cannot remember that the volume was made", "path", m.formedMark(), "error", err)
			}
		}
	}
}

// trackHeal records which entries stay unhealed, as long as any entries wait to be healed.
func (m *Manager) trackHeal(ctx context.Context, o *glusterctl.Observation) {
	h := o.HealState()
	m.mu.Lock()
	due := m.cfg.Now().Sub(m.trackedAt) >= 20*time.Second
	m.mu.Unlock()

	if h.Pending.Zero() {
		m.mu.Lock()
		m.stuck, m.trackedAt = nil, time.Time{}
		m.tracker = glusterctl.HealTracker{}
		m.mu.Unlock()
		return
	}

	if !due || o.Heal == nil {
		return
	}

	q := o.Quorum()
	if held, _ := m.lease.isHeld(); held && q.Known && q.Up == q.Bricks {
		// GlusterFS's heal daemons start healing when a brick comes up, and every minute, but
		// sometimes miss data that was written at that moment.
		_ = m.ctl.StartHeal(ctx, m.cfg.Volume) // GlusterFS refuses while a heal daemon does not run
	}

	list, err := m.ctl.HealEntries(ctx, m.cfg.Volume)
	if err != nil {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.trackedAt = m.cfg.Now()
	m.stuck = m.tracker.Update(m.trackedAt, list)
}
