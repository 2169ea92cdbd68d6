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
	lookEvery = 3 * time.Second
	// calmEvery is the interval between rounds while no change of the pool is running. It is long,
	// because a round starts several processes.
	calmEvery = 10 * time.Second
	fullEvery = 30 * time.Second // maximum age of a full observation, which takes the lock of the pool
)

// keepChanging maintains the local parts of this node, and the pool while this node
// leads.
func (m *Manager) keepChanging(ctx context.Context) {
	for {
		wait := 5 * time.Second
		if in, leaving := m.membership(); in {
			err := m.changeOnce(ctx, leaving)
			if ctx.Err() != nil {
				return
			}

			text := ""
			if err != nil && !errors.Is(err, errNotNow) && !errors.Is(err, errHeld) &&
				!errors.Is(err, context.Canceled) {
				text, wait = err.Error(), 10*time.Second
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

func (m *Manager) changeOnce(ctx context.Context, leaving bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	m.mu.Lock()
	d := m.desired()
	m.stopChange = cancel
	m.mu.Unlock()

	if err := d.Validate(); err != nil {
		return fmt.Errorf("the table of nodes cannot be carried out: %w", err)
	}

	if err := m.ensureOwnParts(ctx, d); err != nil {
		return err
	}

	m.mu.Lock()
	plan, looked := m.plan, m.obs != nil
	m.mu.Unlock()

	if !looked || leaving || plan.Done() {
		return nil
	}

	ok, fenced, _ := m.leadership()
	if !ok {
		return nil
	}

	if !fenced { // another node may make changes at the same time
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

		m.setDoing(text)
		if e.State == "done" {
			m.cfg.Log.Info("storage step done", "step", e.Step.ID)
		}
	})

	if _, ok := errors.AsType[*glusterctl.RefusedError](err); ok {
		err = nil // no failure: m.plan names the refused step and its reason
	}

	if !fenced && errors.Is(err, glusterctl.ErrNotApproved) {
		err = nil
	}

	if o, oerr := m.ctl.Observe(ctx, d); oerr == nil {
		m.setObservation(o, true)
	}

	return err
}

// errHeld means that glusterd must not start, because this node does not know yet whether its copy
// may be served.
var errHeld = errors.New("the copy of this node may not be served yet")

// mayServe reports whether this node's copy may be served, and the reason if not.
func (m *Manager) mayServe() (bool, string) {
	if m.cfg.MayServe == nil {
		return true, ""
	}
	return m.cfg.MayServe()
}

// ensureOwnParts configures the parts that each node has for itself: the hosts file, glusterd, the
// brick directory.
func (m *Manager) ensureOwnParts(ctx context.Context, d glusterctl.Desired) error {
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
		m.setDoing("start glusterd on this node")
		return m.startDaemon(ctx)
	}

	if err := m.remindDaemon(ctx); err != nil {
		return err
	}

	return m.renewCertificate(ctx, d)
}

const (
	// hiddenLimit is how long clients may fail to find this node's running brick before glusterd is
	// restarted. Normally clients find the brick within seconds of its start.
	hiddenLimit = time.Minute
	// startedFor is how long remindDaemon waits after it has restarted glusterd before it measures
	// hiddenLimit again.
	startedFor = 5 * time.Minute
)

// remindDaemon restarts glusterd when it lacks one of two facts that it learns only at a start. One
// is the volume: without it every change of the volume fails on this node. The other is the port of
// this node's brick: without it no other node heals the brick.
func (m *Manager) remindDaemon(ctx context.Context) error {
	m.mu.Lock()
	why := m.takeForgotten()
	m.mu.Unlock()
	if why == "" {
		return nil
	}
	if may, _ := m.mayServe(); !may {
		return errHeld
	}
	m.cfg.Log.Warn("glusterd is restarted: "+why, "volume", m.cfg.Volume)
	m.setDoing("restart glusterd: " + why)
	return m.daemon.start(ctx, true)
}

// takeForgotten returns which of the two facts glusterd has lacked for too long, or "". It resets
// the measured time, because its caller restarts glusterd. The caller holds mu.
func (m *Manager) takeForgotten() string {
	now := m.cfg.Now()
	switch {
	// glusterd normally gets the volume within seconds of meeting the other glusterds of its pool.
	case !m.lackingSince.IsZero() && now.Sub(m.lackingSince) >= 20*time.Second:
		m.lackingSince = now // the restarted glusterd does not get the volume at once
		return "it lacks the volume that the others have"
	case !m.hiddenSince.IsZero() && now.Sub(m.hiddenSince) >= hiddenLimit:
		m.hiddenSince = now.Add(startedFor)
		return "the copy of this node runs, and it does not tell clients where"
	}
	return ""
}

// setDoing sets the step that State reports.
func (m *Manager) setDoing(doing string) {
	m.mu.Lock()
	m.doing = doing
	m.mu.Unlock()
}

// FreshBrick returns a directory under bricks that has never been a copy of volume. bricks must
// pass disk.CheckRoot.
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
