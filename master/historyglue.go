package master

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"saltern/master/conf"
	"saltern/master/history"
	"saltern/master/internal/fleet"
	"saltern/master/jobs"
)

// The options of the history when they are not set: 90 days, and a tenth of the disk, at most 40 GiB.
const (
	defaultHistoryDays = 90
	diskParts          = 10
	mostHistory        = 40 << 30
)

// openHistory opens the history of runs and what writes it, and returns that as the archive of the job
// cache. The archive is nil if the options ask for no history, or for no returns in the job cache. If the
// history cannot be opened, the master works without it and logs an error.
func (m *Master) openHistory(ctx context.Context) jobs.Archive {
	days := cmp.Or(m.cfg.HistoryDays, defaultHistoryDays)
	keepsReturns := m.cfg.JobCache && m.cfg.ExtJobCache == ""
	if days < 0 || !keepsReturns {
		return nil
	}

	dir := filepath.Join(m.cfg.CacheDir, "history")
	size, err := historyBytes(m.cfg)
	if err == nil {
		m.history, err = history.Open(history.Config{
			Dir:      dir,
			Keep:     time.Duration(days) * 24 * time.Hour,
			MaxBytes: size,
			Now:      m.now,
			Log:      m.quiet,
		})
	}
	if err == nil {
		m.recorder, err = fleet.New(ctx, fleet.Config{
			Store: m.history,
			Dir:   dir,
			Watch: m.notices,
			Late:  m.cfg.KeepJobs,
			Now:   m.now,
			Log:   m.log,
		})
	}
	if err != nil {
		m.log.Error("the master keeps no history of runs until it is started again", "path", dir, "error",
			errors.Join(err, m.closeHistory()))
		return nil
	}
	return m.recorder
}

// historyBytes returns the bound of the history on disk.
func historyBytes(c *conf.Master) (int64, error) {
	if c.HistoryBytes > 0 {
		return int64(c.HistoryBytes) << 20, nil
	}
	var st unix.Statfs_t
	if err := unix.Statfs(c.CacheDir, &st); err != nil {
		return 0, fmt.Errorf("look how large the disk of %s is: %w", c.CacheDir, err)
	}
	return min(int64(st.Blocks)*int64(st.Bsize)/diskParts, mostHistory), nil
}

// closeHistory makes the history durable and closes it. The job cache must be closed before.
func (m *Master) closeHistory() error {
	var err error
	if m.recorder != nil {
		err = m.recorder.Sync()
		m.recorder = nil
	}
	if m.history != nil {
		err = errors.Join(err, m.history.Close())
		m.history = nil
	}
	return err
}
