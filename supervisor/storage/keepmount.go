package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"saltern/glusterctl/cli"
	"saltern/glusterctl/mount"
	"saltern/internal/command"
	"saltern/internal/pause"
)

// probeMount returns a function that checks the mount with p. It also reports the mount as hung if
// the mount answers new calls while an older call does not return, so that the keeper mounts the
// volume again.
func (m *Manager) probeMount(p *mount.Prober) func(context.Context) mount.Health {
	return func(ctx context.Context) mount.Health {
		h := p.Probe(ctx)
		for _, w := range []*worker{&m.lease.child, &m.mirror.child, &m.clocks, &m.probes} {
			if d := w.hangsFor(); h.State == mount.OK && d > hangLimit {
				h.State, h.Text = mount.Hung, fmt.Sprintf("it answers new calls, and one of %s ago has not come back",
					d.Round(time.Second))
			}
		}
		return h
	}
}

// askProbe asks the long-running child "probes" to check the mount.
func (m *Manager) askProbe(ctx context.Context, limit time.Duration) (h mount.Health, err error) {
	err = m.probes.ask(ctx, limit, struct{}{}, &h)
	if errors.Is(err, errHangs) && !errors.Is(err, errStuck) {
		err = fmt.Errorf("%w: %w", command.ErrTimeout, err)
	}
	return h, err
}

// wholeProbe is the interval of complete checks of a working mount: every third check also writes.
const wholeProbe = 3

// probesChild checks the mount at args[0] at each request of its parent. Only every third check
// also writes, to the directory args[1] of the volume. A write costs some twenty requests to each
// brick, and if bricks lack a quorum, a read fails as well.
func probesChild(args []string, in io.Reader, out io.Writer) int {
	if len(args) != 2 {
		return 2
	}

	var whole mount.Health // the newest check with a write
	n := 0
	return serveLines(in, out, func([]byte) (any, error) {
		n++
		if n%wholeProbe != 1 && whole.State == mount.OK && whole.Writable {
			h := mount.Check(args[0], "")
			if h.State == mount.OK {
				h.Writable, h.Latency = true, whole.Latency
			}
			return h, nil
		}

		whole = mount.Check(args[0], args[1])
		return whole, nil
	})
}

// keepMount waits until the volume runs, then runs the keeper of the mount until ctx ends.
func (m *Manager) keepMount(ctx context.Context) {
	for !m.volumeRuns() {
		if pause.For(ctx, time.Second) != nil {
			return
		}
	}
	m.keeper.Run(ctx)
}

func (m *Manager) volumeRuns() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.obs != nil && m.obs.Volume != nil && m.obs.Volume.State == cli.Started
}

// healthy reports whether bricks would serve a new mount: the volume is started and has its quorum.
func (m *Manager) healthy() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.obs == nil || m.obs.Volume == nil || m.obs.Volume.State != cli.Started {
		return false
	}
	q := m.obs.Quorum()
	return !q.Known || q.Spare >= 0
}

// mountWorks reports whether the newest check of the mount was good.
func (m *Manager) mountWorks() bool { return m.health().State == mount.OK && m.health().Layout > 0 }

// health returns the result of the newest check of the mount. The keeper checks every few seconds.
// Before the keeper runs, the observations check the mount.
func (m *Manager) health() mount.Health {
	h, at := m.keeper.Last()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.obs != nil && m.obs.Mount != nil && m.obs.At.After(at) {
		return *m.obs.Mount
	}
	return h
}
