package supervisor

import (
	"context"
	"errors"
	"time"

	"saltern/supervisor/internal/life"
	"saltern/supervisor/internal/sharedvolume"
	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

// If a node has local storage and its configuration now names the shared volume, the node serves
// from its local directory until nearly all files are copied to the volume. Then it stops while the
// last few files are copied, and starts again on the volume.

// runNode runs a configured node until ctx ends or somebody requests a reload. If a move to the
// shared volume is pending, the node runs with its former settings while the files are copied.
func (s *Supervisor) runNode(ctx context.Context, cfg *settings.Settings, differs error) error {
	s.recovery.Switch(ctx, cfg)
	m := storage.PendingMigration(cfg, s.opt.Executable, s.opt.Log)
	if m == nil {
		return s.runNodeAs(ctx, cfg, differs, nil)
	}

	s.opt.Log.Info("this node's directory is moved to the shared volume", "path", m.From(), "volume", cfg.StorageDir())
	one := &sharedvolume.Migration{Migration: m, Settings: cfg, First: time.Second}
	if s.moveFailed {
		one.First = sharedvolume.MoveAgain
	}

	err := s.runNodeAs(ctx, m.Before(cfg), differs, one)
	if ctx.Err() != nil || !errors.Is(err, life.ErrReload) || !one.Copied {
		return err
	}

	ferr := m.Finish(ctx)
	if s.moveFailed = ferr != nil; s.moveFailed {
		s.opt.Log.Error("the move to the shared volume failed; this node goes on with its directory", "path",
			m.From(), "error", ferr)
	}

	return err
}
