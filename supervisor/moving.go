package supervisor

import (
	"context"
	"errors"
	"time"

	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

// A node that kept everything in a directory of its own and is told to use the
// shared volume serves from the directory until all of it has been copied;
// then it stops for the last few files, and starts anew on the volume.

// moveAgain is the pause after a move that failed; the node serves meanwhile.
const moveAgain = time.Minute

// move is one try to move a node's directory.
type move struct {
	*storage.Migration
	cfg    *settings.Settings // with the volume
	first  time.Duration      // pause before the first look
	copied bool               // written before the node is left
}

// runNode runs a configured node until ctx ends or a reload is asked for. A
// node with a move before it is run as it was while it is copied.
func (s *Supervisor) runNode(ctx context.Context, cfg *settings.Settings) error {
	s.switchOver(ctx, cfg)
	m := storage.PendingMigration(cfg, s.opt.Executable, s.opt.Log)
	if m == nil {
		return s.runNodeAs(ctx, cfg, nil)
	}
	s.opt.Log.Info("this node's directory is moved to the shared volume", "path", m.From(), "volume", cfg.StorageDir())
	one := &move{Migration: m, cfg: cfg, first: time.Second}
	if s.moveFailed {
		one.first = moveAgain
	}
	err := s.runNodeAs(ctx, m.Before(cfg), one)
	if ctx.Err() != nil || !errors.Is(err, errReload) || !one.copied {
		return err
	}
	ferr := m.Finish(ctx)
	if s.moveFailed = ferr != nil; s.moveFailed {
		s.opt.Log.Error("the move to the shared volume failed; this node goes on with its directory", "path", m.From(), "error", ferr)
	}
	return err
}

// copyToVolume waits for the volume, copies, and has the node left when little
// is missing.
func (n *node) copyToVolume(ctx context.Context, m *move, leave func()) {
	pause := m.first
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if !n.volume.State().Ready {
			pause = time.Second
			continue
		}
		err := m.Copy(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			m.copied = true
			leave()
			return
		}
		n.opt.Log.Warn("this node's directory cannot be copied to the shared volume yet", "error", err)
		pause = moveAgain
	}
}
