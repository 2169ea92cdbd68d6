package member

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

// AsArbiter returns the settings of a node that is the arbiter in the table of nodes: it runs no
// load balancer, and no other service for minions. For any other node it returns s itself.
func AsArbiter(s *settings.Settings) (*settings.Settings, error) {
	if !s.Peering.Enabled || !s.OnVolume() {
		return s, nil
	}

	k, err := nodes.OpenKeeper(s.DataDir, "")
	if err != nil {
		return nil, err
	}

	t := k.Table()
	if n, ok := t.Find(s.Node); !ok || !n.IsArbiter() {
		return s, nil
	}

	arbiter := *s
	arbiter.Arbiter = true
	arbiter.LB.Enabled = false
	return &arbiter, nil
}

// NoMaster returns the error with which the cluster's arbiter refuses an action that needs a
// salt-master on its own machine. The error names the nodes that have one.
func NoMaster(action string, t nodes.Table) error {
	var names []string
	for _, n := range t.Serving() {
		names = append(names, n.Name)
	}
	return fmt.Errorf("%w: cannot %s here: this node is the cluster's arbiter and runs no salt-master; do it on %s",
		api.ErrState, action, strings.Join(names, " or "))
}

// noMaster returns the error of [NoMaster] for the present table of nodes.
func (p *peers) noMaster(action string) error { return NoMaster(action, p.keeper.Table()) }

// serving returns the clients of the other nodes that have a master, by name.
func (p *peers) serving() map[string]*nodeapi.Client {
	out := p.clients()
	t := p.keeper.Table()
	if a, ok := t.Arbiter(); ok {
		delete(out, a.Name)
	}
	return out
}

// oldBrick replaces an arbiter's brick directory once the volume no longer uses it, because
// glusterd accepts no directory twice. It then deletes the old directory, which holds only the
// names of files.
type oldBrick struct {
	env    Env
	peers  *peers
	volume *storage.Manager // may be nil: no shared volume
	since  time.Time        // since when the unused directory has been there; zero: there is none
	worker service.Worker
}

// reconcile starts the replacement when it is due. Member.Run calls it about once a second.
func (l *oldBrick) reconcile(ctx context.Context) {
	if !l.env.Settings.Arbiter {
		return
	}

	t, v := l.peers.keeper.Table(), volumeState(l.volume)
	self, ok := t.Find(l.env.Settings.Node)
	if !ok || self.State != nodes.Member || v == nil || len(v.Bricks) == 0 || v.Holds(self.Name) || !pathExists(self.Brick) {
		l.since = time.Time{}
		return
	}

	if l.since.IsZero() {
		l.since = l.env.Now()
	}

	// The directory may be new: it appears a moment before the volume lists it.
	if l.env.Now().Sub(l.since) < time.Minute {
		return
	}

	l.worker.Start(func() {
		ctx, cancel := context.WithTimeout(ctx, changeTakes)
		defer cancel()
		if err := l.replaceBrick(ctx, self); err != nil {
			l.env.Log.Warn("the arbiter's earlier brick directory is still there", "path", self.Brick, "error", err)
		}
	})
}

func pathExists(path string) bool {
	_, err := os.Lstat(path)
	return path != "" && err == nil
}

// replaceBrick writes a new directory into the table of nodes, then deletes the old one. If it is
// interrupted between the two, the old directory stays and does no harm.
func (l *oldBrick) replaceBrick(ctx context.Context, self nodes.Node) error {
	fresh, err := l.volume.FreshBrick()
	if err != nil {
		return err
	}

	_, err = l.peers.change(ctx, func(t *nodes.Table) error {
		now, ok := t.Find(self.Name)
		if !ok || now.Brick != self.Brick || now.Certificate != self.Certificate {
			return errors.New("the table of nodes names another one already")
		}
		now.Brick = fresh
		t.Put(now)
		return nil
	})
	if err != nil {
		return err
	}

	l.env.Log.Info("the volume needs the arbiter's brick no more", "path", self.Brick, "next", fresh)
	return os.RemoveAll(self.Brick)
}
