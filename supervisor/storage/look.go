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

// keepLooking observes until ctx ends: often what is cheap, now and then, and
// when something changed, what takes the lock of the pool.
func (m *Manager) keepLooking(ctx context.Context) {
	for {
		if in, _ := m.member(); in {
			m.look(ctx)
		}
		every := lookEvery
		if m.calm() {
			every = calmEvery
		}
		if pause.About(ctx, every) != nil {
			return
		}
	}
}

// calm tells that nothing is to be done or expected.
func (m *Manager) calm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.obs != nil && m.plan.Done() && m.doing == "" && m.fault == "" && !unsettled(m.obs) &&
		m.obs.Mount != nil && m.obs.Mount.State == mount.OK
}

// fullAge is how old a full look may be while all is calm: half a minute on the
// node that makes the changes, since it sees there what to fix, and a minute
// elsewhere.
func (m *Manager) fullAge() time.Duration {
	if held, _ := m.lease.held(); held {
		return fullEvery
	}
	return 2 * fullEvery
}

// quickLook is what most looks are while nothing happens: it starts no command. It
// reports whether all was as before, and whether a full look is due.
func (m *Manager) quickLook(ctx context.Context, d glusterctl.Desired) (same, due bool) {
	h, at := m.keeper.Last()
	m.mu.Lock()
	old, age := m.obs, m.cfg.Now().Sub(m.full)
	m.mu.Unlock()

	switch {
	case old == nil || h.State != mount.OK || time.Since(at) > 2*calmEvery:
		return false, false
	case age >= m.fullAge():
		return false, true
	}

	now, same := m.ctl.Glance(ctx, d, old, h)
	if same {
		m.take(now, false)
	}

	return same, !same
}

func (m *Manager) look(ctx context.Context) {
	d := m.Desired()
	due := false
	if m.calm() {
		var same bool
		if same, due = m.quickLook(ctx, d); same {
			return
		}
	}

	_, leaving := m.member()
	m.mu.Lock()
	none := m.obs == nil
	m.mu.Unlock()

	if (none || due) && !leaving { // a quick look before it would learn nothing more
		m.lookAtAll(ctx, d)
		return
	}

	quick, err := m.ctl.ObserveQuick(ctx, d)
	if err != nil {
		return
	}

	m.mu.Lock()
	old, age := m.obs, m.cfg.Now().Sub(m.full)
	m.mu.Unlock()

	if leaving {
		m.take(known(quick, old), false)
		return
	}

	soon := fullEvery / 2 // one node's looks are enough for all but what differs
	if held, _ := m.lease.held(); held || m.cfg.Form && !m.isFormed() {
		soon = 2 * lookEvery
	}

	if age >= fullEvery || differ(old, quick) || age >= soon && unsettled(old) {
		m.lookAtAll(ctx, d)
		return
	}

	m.take(known(quick, old), false)
}

// known adds to a quick look what the one before knows of the bricks, unless
// they are others now.
func known(quick, old *glusterctl.Observation) *glusterctl.Observation {
	if old == nil || quick.Volume != nil && old.Volume != nil && !slices.Equal(quick.Volume.Bricks, old.Volume.Bricks) {
		return quick
	}
	quick.Processes, quick.StatusError = old.Processes, old.StatusError
	quick.Heal = old.Heal
	quick.HealError = old.HealError
	quick.SameEntries = old.SameEntries
	return quick
}

// lookAtAll takes the lock of the pool. A node that leaves does not: who is let
// go while its glusterd holds that lock leaves it behind with the others for
// three minutes.
func (m *Manager) lookAtAll(ctx context.Context, d glusterctl.Desired) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	m.stopLook = cancel
	m.mu.Unlock()
	if _, leaving := m.member(); leaving {
		return // since a moment ago
	}
	if o, err := m.ctl.Observe(ctx, d); err == nil {
		m.take(o, true)
		m.trackHeal(ctx, o)
	}
}

// differ reports whether what is cheap to see has changed enough to ask for the
// rest.
func differ(a, b *glusterctl.Observation) bool {
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

// unsettled: something is on its way that ends by itself.
func unsettled(o *glusterctl.Observation) bool {
	q, h := o.Quorum(), o.HealState()
	return o.StatusError != "" || q.Known && q.Up < q.Bricks || !h.Pending.Zero()
}

func (m *Manager) isFormed() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.formed
}

// replan makes the plan of what was seen and what the table wants; it comes after each
// change of either. mu is held.
func (m *Manager) replan() {
	if m.obs != nil {
		m.plan = m.ctl.Plan(m.obs, m.desired())
	}
}

func (m *Manager) take(o *glusterctl.Observation, full bool) {
	m.mu.Lock()
	first := m.obs == nil
	m.obs = o
	m.replan()

	switch {
	case !stopped(o):
		m.down = time.Time{}
	case m.down.IsZero():
		m.down = m.cfg.Now()
	}

	switch {
	case len(o.Elsewhere) == 0:
		m.lacking = time.Time{}
	case m.lacking.IsZero():
		m.lacking = m.cfg.Now()
	}

	switch {
	case !slices.ContainsFunc(m.desired().Members, func(x glusterctl.Member) bool {
		return x.Name == m.cfg.Self && x.Brick != "" && o.Hidden(x.BrickName())
	}):
		m.hidden = time.Time{}
	case m.hidden.IsZero():
		m.hidden = m.cfg.Now()
	}

	if full {
		m.full = m.cfg.Now()
	}

	made := !m.formed && o.Volume != nil && o.Mount != nil && o.Mount.State == mount.OK && o.Mount.Layout > 0
	if made {
		m.formed = true
	}
	m.mu.Unlock()

	if first {
		m.poke() // what is to be done waits for it
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

// trackHeal looks for entries that do not heal, when there are any.
func (m *Manager) trackHeal(ctx context.Context, o *glusterctl.Observation) {
	h := o.HealState()
	m.mu.Lock()
	due := m.cfg.Now().Sub(m.tracked) >= stuckEvery
	m.mu.Unlock()

	if h.Pending.Zero() {
		m.mu.Lock()
		m.stuck, m.tracked = nil, time.Time{}
		m.tracker = glusterctl.HealTracker{}
		m.mu.Unlock()
		return
	}

	if !due || o.Heal == nil {
		return
	}

	q := o.Quorum()
	if held, _ := m.lease.held(); held && q.Known && q.Up == q.Bricks {
		// The daemons look by themselves when a brick comes up, and every minute,
		// and sometimes miss what was written just then.
		_ = m.ctl.StartHeal(ctx, m.cfg.Volume) // refused while one of them is missing
	}

	list, err := m.ctl.HealEntries(ctx, m.cfg.Volume)
	if err != nil {
		return
	}

	m.mu.Lock()
	defer m.mu.Unlock()
	m.tracked = m.cfg.Now()
	m.stuck = m.tracker.Update(m.tracked, list)
}
