// Package sharedvolume keeps the volume that the nodes of a cluster share, for one life of a node:
// it passes the table of nodes to the volume's manager, and moves a node's directory to the volume.
package sharedvolume

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/internal/pause"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

// Volume runs the manager of the shared volume.
type Volume struct {
	*storage.Manager
	table string // path of this node's copy of the table of nodes
	log   *slog.Logger
}

// New returns the volume of a node with these settings, or nil if the settings have no volume. The
// volume asks cluster for certificates, and whether this node's copy may be served. cluster may be
// nil: the node has no cluster.
func New(
	cfg *settings.Settings,
	env child.Env,
	account layout.Account,
	cluster *member.Membership,
) *Volume {
	if !cfg.OnVolume() {
		return nil
	}

	sc := storage.FromSettings(cfg, env.Executable, account, env.Log)
	if cluster != nil {
		sc.Others = cluster
		sc.MayServe = cluster.MayServe
	} else {
		sc.Others = noCluster{}
	}

	return &Volume{storage.New(sc), filepath.Join(env.Settings.DataDir, nodes.File), env.Log}
}

// noCluster is used in place of the cluster on a node that has none. It implements
// [storage.Certifier].
type noCluster struct{}

var errNoCluster = errors.New("this node belongs to no cluster")

// Sign implements storage.Certifier.
func (noCluster) Sign(context.Context, []byte) (storage.Signed, error) {
	return storage.Signed{}, errNoCluster
}

// Authority implements storage.Certifier.
func (noCluster) Authority(context.Context) (storage.Authority, error) {
	return storage.Authority{}, errNoCluster
}

// Keep runs the manager until ctx ends.
func (v *Volume) Keep(ctx context.Context) {
	var fed sync.WaitGroup
	fed.Go(func() { v.feed(ctx) })
	_ = v.Run(ctx) // Run returns when ctx ends; its error says only that
	fed.Wait()
}

// feed passes each new version of the table of nodes to the manager.
func (v *Volume) feed(ctx context.Context) {
	seen := ""
	for {
		if now := layout.Signature(v.table); now != seen {
			b, err := os.ReadFile(v.table)
			var t nodes.Table
			if err == nil {
				t, err = nodes.Parse(b)
			}

			if err != nil && !errors.Is(err, os.ErrNotExist) {
				v.log.Error("the table of nodes cannot be used", "path", v.table, "error", err)
			} else if err == nil {
				v.SetTable(t)
			}

			seen = now
		}

		if pause.About(ctx, time.Second) != nil {
			return
		}
	}
}

// Ready returns the condition for which the master waits before its start. A running master
// continues when the volume hangs, because it serves files from this node's copy.
func (v *Volume) Ready() service.Condition {
	return service.PollMissing("the shared volume", 500*time.Millisecond, time.Second, func(context.Context) error {
		if w := v.State().Waiting; w != "" {
			return errors.New(w)
		}
		return nil
	})
}

// Facts returns the state of the volume. v may be nil: Facts then returns nil.
func (v *Volume) Facts() *storage.State {
	if v == nil {
		return nil
	}
	s := v.State()
	return &s
}

// StorageManager returns the manager of the volume. v may be nil: StorageManager then returns nil.
func (v *Volume) StorageManager() *storage.Manager {
	if v == nil {
		return nil
	}
	return v.Manager
}

// NewestFiles updates the files from which the master of a node with these settings serves.
func (v *Volume) NewestFiles(ctx context.Context, s *settings.Settings) control.Newest {
	asOf, err := v.Newest(ctx)
	newest := control.Newest{AsOf: asOf, Copy: s.MirrorDir(), Source: s.Storage.Path}
	if unsteady, ok := errors.AsType[*storage.Unsteady](err); ok {
		newest.Except = unsteady.Error()
	} else if err != nil {
		newest.Why = err.Error()
	}
	return newest
}

// MoveAgain is the pause after a failed move. The node serves during the pause.
const MoveAgain = time.Minute

// Migration is one try to move a node's directory to the shared volume.
type Migration struct {
	*storage.Migration
	Settings *settings.Settings // settings that name the volume
	First    time.Duration      // pause before the first look at the volume
	Copied   bool               // set when everything is copied, before this life of the node ends
}

// Move waits for the volume, copies the directory, and calls leave when little remains to be
// copied.
func (v *Volume) Move(ctx context.Context, m *Migration, leave func()) {
	wait := m.First
	for {
		if pause.For(ctx, wait) != nil {
			return
		}
		if !v.State().Ready {
			wait = time.Second
			continue
		}

		err := m.Copy(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			m.Copied = true
			leave()
			return
		}

		v.log.Warn("this node's directory cannot be copied to the shared volume yet", "error", err)
		wait = MoveAgain
	}
}
