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
	"saltern/glusterctl/disk"
)

const (
	lookEvery   = 3 * time.Second
	calmEvery   = 10 * time.Second // when nothing is under way: each look starts several processes
	fullEvery   = 30 * time.Second // needs the lock of the pool
	changeEvery = 5 * time.Second
	afterFault  = 10 * time.Second
	stuckEvery  = 20 * time.Second
)

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
			if err != nil && !errors.Is(err, errNotNow) && !errors.Is(err, errHeld) &&
				!errors.Is(err, context.Canceled) {
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
	plan, looked := m.plan, m.obs != nil
	m.mu.Unlock()

	if !looked || leaving || plan.Done() {
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

		m.say(text)
		if e.State == "done" {
			m.cfg.Log.Info("storage step done", "step", e.Step.ID)
		}
	})

	if _, ok := errors.AsType[*glusterctl.RefusedError](err); ok {
		err = nil // the plan says it
	}

	if !fenced && errors.Is(err, glusterctl.ErrNotApproved) {
		err = nil
	}

	if o, oerr := m.ctl.Observe(ctx, d); oerr == nil {
		m.take(o, true)
	}

	return err
}

// errHeld: glusterd would serve a copy of which it is not known yet whether it may be.
var errHeld = errors.New("the copy of this node may not be served yet")

// mayServe reports whether this node's copy may be served, and why it may not.
func (m *Manager) mayServe() (bool, string) {
	if m.cfg.MayServe == nil {
		return true, ""
	}
	return m.cfg.MayServe()
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

	if down {
		if may, _ := m.mayServe(); !may {
			return errHeld
		}
		m.say("start glusterd on this node")
		return m.startDaemon(ctx)
	}

	if err := m.remindDaemon(ctx); err != nil {
		return err
	}

	return m.renew(ctx, d)
}

const (
	// lackLimit is for how long glusterd may lack the volume that the others of its
	// pool have. It gets it within seconds of meeting them.
	lackLimit = 20 * time.Second
	// hiddenLimit is for how long the brick of this node may run and not be found. After
	// a start clients find it within seconds.
	hiddenLimit = time.Minute
	// startedFor is how long glusterd is left alone after a start for such a reason.
	startedFor = 5 * time.Minute
)

// remindDaemon starts glusterd anew when it has forgotten for long what nothing else
// reminds it of: the volume, which it gets from the others when it meets them, and without
// which every change of the volume fails on this node; or where the brick of this node
// listens, without which nothing heals to it.
func (m *Manager) remindDaemon(ctx context.Context) error {
	m.mu.Lock()
	why := m.forgotten()
	m.mu.Unlock()
	if why == "" {
		return nil
	}
	if may, _ := m.mayServe(); !may {
		return errHeld
	}
	m.cfg.Log.Warn("glusterd is started anew: "+why, "volume", m.cfg.Volume)
	m.say("start glusterd anew: " + why)
	return m.daemon.start(ctx, true)
}

// forgotten is what glusterd has forgotten for too long; "": nothing. It counts on a start
// for that. mu is held.
func (m *Manager) forgotten() string {
	now := m.cfg.Now()
	switch {
	case !m.lacking.IsZero() && now.Sub(m.lacking) >= lackLimit:
		m.lacking = now // what a start brings takes a while, too
		return "it lacks the volume that the others have"
	case !m.hidden.IsZero() && now.Sub(m.hidden) >= hiddenLimit:
		m.hidden = now.Add(startedFor)
		return "the copy of this node runs, and it does not tell clients where"
	}
	return ""
}

// say has the report tell what is being done.
func (m *Manager) say(doing string) {
	m.mu.Lock()
	m.doing = doing
	m.mu.Unlock()
}

// FreshBrick names a directory under bricks that has never been a copy of
// volume. bricks must suit disk.CheckRoot.
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
