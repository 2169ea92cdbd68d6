package supervisor

import (
	"context"
	"errors"
	"time"

	"saltern/supervisor/internal/life"
	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

// A node that kept everything in a directory of its own and is told to use the
// shared volume serves from the directory until all of it has been copied;
// then it stops for the last few files, and starts anew on the volume.

// runNode runs a configured node until ctx ends or a reload is asked for. A
// node with a move before it is run as it was while it is copied.
func (s *Supervisor) runNode(ctx context.Context, cfg *settings.Settings, differs error) error {
	s.recovery.Switch(ctx, cfg)
	m := storage.PendingMigration(cfg, s.opt.Executable, s.opt.Log)
	if m == nil {
		return s.runNodeAs(ctx, cfg, differs, nil)
	}

	s.opt.Log.Info("this node's directory is moved to the shared volume", "path", m.From(), "volume", cfg.StorageDir())
	one := &life.Move{Migration: m, Settings: cfg, First: time.Second}
	if s.moveFailed {
		one.First = life.MoveAgain
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
