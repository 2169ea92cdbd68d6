package storage

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/glusterctl"
	"saltern/glusterctl/cli"
	"saltern/glusterctl/disk"
	"saltern/glusterctl/mount"
	"saltern/supervisor/layout"
)

const (
	lookEvery   = 3 * time.Second
	calmEvery   = 10 * time.Second // when nothing is under way: each look starts several processes
	fullEvery   = 30 * time.Second // needs the lock of the pool
	changeEvery = 5 * time.Second
	afterFault  = 10 * time.Second
	stuckEvery  = 20 * time.Second
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
		if !pause(ctx, every) {
			return
		}
	}
}

// calm tells that nothing is to be done or expected.
func (m *Manager) calm() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.obs != nil && m.planned && m.plan.Done() && m.doing == "" && m.fault == "" && !unsettled(m.obs) &&
		m.obs.Mount != nil && m.obs.Mount.State == mount.OK
}

func (m *Manager) look(ctx context.Context) {
	d := m.Desired()
	quick, err := m.ctl.ObserveQuick(ctx, d)
	if err != nil {
		return
	}
	m.mu.Lock()
	old, age := m.obs, m.cfg.Now().Sub(m.full)
	m.mu.Unlock()
	soon := fullEvery / 2 // one node's looks are enough for all but what differs
	if held, _ := m.lease.held(); held || m.cfg.Form && !m.isFormed() {
		soon = 2 * lookEvery
	}
	if old == nil || age >= fullEvery || differ(old, quick) || age >= soon && unsettled(old) {
		if o, err := m.ctl.Observe(ctx, d); err == nil {
			m.take(o, true)
			m.trackHeal(ctx, o)
		}
		return
	}
	quick.Processes, quick.StatusError = old.Processes, old.StatusError
	quick.Heal, quick.HealError, quick.SameEntries = old.Heal, old.HealError, old.SameEntries
	m.take(quick, false)
}

// differ tells whether what is cheap to see has changed enough to ask for the
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

func (m *Manager) take(o *glusterctl.Observation, full bool) {
	m.mu.Lock()
	m.obs = o
	if full {
		m.full = m.cfg.Now()
	}
	made := !m.formed && o.Volume != nil && o.Mount != nil && o.Mount.State == mount.OK && o.Mount.Layout > 0
	if made {
		m.formed = true
	}
	m.mu.Unlock()
	if made {
		if err := os.MkdirAll(m.cfg.Dir, 0o700); err == nil {
			_, err = layout.WriteFile(m.formedMark(), []byte("The volume was made: this node never makes another.\n"), 0o600)
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

// keepChanging keeps what is this node's own, and the pool while this node
// leads.
func (m *Manager) keepChanging(ctx context.Context) {
	for {
		wait := changeEvery
		if in, leaving := m.member(); in {
			err := m.change(ctx, leaving)
			if ctx.Err() != nil {
				return
			}
			text := ""
			if err != nil && !errors.Is(err, errNotNow) && !errors.Is(err, context.Canceled) {
				text, wait = err.Error(), afterFault
				m.cfg.Log.Warn("storage cannot be brought to what the table of nodes wants", "error", err)
			}
			m.mu.Lock()
			m.fault, m.doing = text, ""
			m.mu.Unlock()
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-m.wake:
			t.Stop()
		case <-t.C:
		}
	}
}

func (m *Manager) change(ctx context.Context, leaving bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	d := m.desired()
	m.stop = cancel
	m.mu.Unlock()
	if err := d.Validate(); err != nil {
		return fmt.Errorf("the table of nodes cannot be carried out: %w", err)
	}
	if err := m.ownParts(ctx, d); err != nil {
		return err
	}
	m.mu.Lock()
	obs := m.obs
	m.mu.Unlock()
	if obs == nil {
		return nil // it is looked at just now
	}
	plan := m.ctl.Plan(obs, d)
	m.mu.Lock()
	m.plan, m.planned = plan, true
	m.mu.Unlock()
	if leaving || plan.Done() {
		return nil
	}
	ok, fenced, _ := m.leads()
	if !ok {
		return nil
	}
	if !fenced { // others may think that they lead, too
		plan.Steps = slices.DeleteFunc(slices.Clone(plan.Steps), func(s glusterctl.Step) bool { return s.Destructive })
		if len(plan.Steps) == 0 {
			return nil
		}
	}
	err := m.ctl.Apply(ctx, plan, func(e glusterctl.Event) {
		text := e.Step.What
		if e.Text != "" {
			text += ": " + e.Text
		}
		m.mu.Lock()
		m.doing = text
		m.mu.Unlock()
		if e.State == "done" {
			m.cfg.Log.Info("storage step done", "step", e.Step.ID)
		}
	})
	var refused *glusterctl.RefusedError
	if errors.As(err, &refused) {
		err = nil // the plan says it
	}
	if !fenced && errors.Is(err, glusterctl.ErrNotApproved) {
		err = nil
	}
	if o, oerr := m.ctl.Observe(ctx, d); oerr == nil {
		m.take(o, true)
		m.mu.Lock()
		m.plan = m.ctl.Plan(o, d)
		m.mu.Unlock()
	}
	return err
}

// ownParts are what each node does for itself: names, daemon, brick directory.
func (m *Manager) ownParts(ctx context.Context, d glusterctl.Desired) error {
	var others []string
	for _, x := range d.Members {
		if x.Name == m.cfg.Self && x.Brick != "" {
			if err := os.MkdirAll(filepath.Dir(x.Brick), 0o700); err != nil {
				return fmt.Errorf("directory for the copy of this node: %w", err)
			}
		}
		if x.Name != m.cfg.Self {
			others = append(others, x.Name)
		}
	}
	m.mounter.SetOthers(others)
	if err := setHosts(hostsPath, glusterctl.HostsBlock(d.Members)); err != nil {
		return err
	}
	m.mu.Lock()
	down := m.obs == nil || m.obs.Daemon != ""
	m.mu.Unlock()
	if !down {
		return nil
	}
	m.mu.Lock()
	m.doing = "start glusterd on this node"
	m.mu.Unlock()
	return m.startDaemon(ctx)
}

// leads tells whether this node makes the changes of the pool now, and whether
// nobody else can think the same at the same time (fenced). why says who else.
func (m *Manager) leads() (ok, fenced bool, why string) {
	held, holder := m.lease.held()
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case held:
		return true, true, ""
	case m.cfg.Form && !m.formed:
		return true, true, "" // nobody else is there
	case holder != "":
		return false, false, holder + " does"
	case m.obs == nil:
		return false, false, "not looked yet"
	case m.obs.Volume == nil:
		return false, false, "this node has not been taken in yet"
	}
	// Without the volume there is no lease. What brings the volume back loses
	// nothing, so the first node that has a majority of the pool does it.
	q := m.obs.Quorum()
	if m.obs.Volume.State == cli.Started && (!q.Known || q.Spare >= 0) {
		return false, false, "nobody known holds the lease"
	}
	up := 0
	for _, p := range m.obs.Pool {
		if p.Self || p.Connected {
			up++
		}
	}
	if 2*up < len(m.obs.Pool) {
		return false, false, "most nodes are away"
	}
	for _, x := range m.desired().Members {
		if x.Name == m.cfg.Self {
			return true, false, ""
		}
		if m.obs.Reachable[x.Address] {
			return false, false, x.Name + " is there and comes first"
		}
	}
	return false, false, "this node is no member"
}

// mayLead tells whether this node may take the lease: it is a member that
// stays, and its mount works.
func (m *Manager) mayLead() bool {
	in, leaving := m.member()
	return in && !leaving && m.mountWorks()
}

// FreshBrick names a directory under bricks that has never been a copy of
// volume. bricks must exist and not be on the root file system.
func FreshBrick(bricks, volume string) (string, error) { return disk.FreshBrick(bricks, volume) }

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

func remove(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func planText(p glusterctl.Plan) string {
	var b strings.Builder
	_ = p.Text(&b)
	return b.String()
}
