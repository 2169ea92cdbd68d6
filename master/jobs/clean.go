package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"saltern/internal/durable"
)

// Clean implements Cache (local_cache.clean_old_jobs). The age of a job is the age of its jid file.
// After each removal Clean pauses for as long as the removal took, so that it uses at most half of
// the disk's time.
func (c *Local) Clean(ctx context.Context, keep time.Duration) (int, error) {
	if keep <= 0 { // keep_jobs_seconds: 0
		return 0, nil
	}

	now := c.cfg.Now()
	removed := 0
	var errs []error
	goesOn := map[string]bool{} // folders: that of a batch may have no jid file
	if c.cfg.Unfinished != nil {
		unfinished, err := c.cfg.Unfinished()
		if err != nil {
			errs = append(errs, fmt.Errorf("read which batches go on: %w", err))
		}
		for jid := range unfinished {
			goesOn[c.files.jobDir(jid)] = true
		}
	}

	err := c.eachDir(ctx, func(dir string) error {
		if goesOn[dir] {
			return nil
		}
		old, err := c.isExpired(dir, now, keep)
		if err == nil && !old {
			err = c.removeLaidOut(dir, now)
		}
		if err != nil || !old {
			return nil
		}

		begin := time.Now()
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, err)
			return nil
		}

		os.Remove(filepath.Dir(dir)) // the parent folder; this fails unless it is empty
		removed++
		select {
		case <-time.After(min(time.Since(begin), time.Second)):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})

	removed += c.cleanHome(now.Add(-keep))
	c.known.forget() // forget loads that are too old now

	if err = errors.Join(append(errs, err)...); err != nil {
		return removed, fmt.Errorf("clean job cache: %w", err)
	}

	return removed, nil
}

// cleanHome hides jobs and returns of segments that were made before oldest, and removes segments that have no
// others. It returns the number of jobs that it has removed.
func (c *Local) cleanHome(oldest time.Time) (removed int) {
	c.home.setCutoff(oldest.UnixNano())
	c.journal.sealAged()
	for _, g := range c.home.expired() {
		path := c.home.pathOf(g)
		if !strings.HasSuffix(path, keptSuffix) { // the archive may lack some of its returns
			continue
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.home.noteStuck(g, err)
			continue
		}
		removed += c.home.remove(g)
	}
	c.home.bad.removeOld(oldest)
	return removed
}

// isExpired reports whether Clean may remove a job directory. It returns false for a job with
// records that are not yet files.
func (c *Local) isExpired(dir string, now time.Time, keep time.Duration) (bool, error) {
	c.markByLoad(dir)
	path := filepath.Join(dir, jidFile)
	st, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		if st, err = os.Stat(dir); err != nil {
			return false, err
		}
		// The directory has no jid file yet, but a writer, such as a tool of Salt, may be about to
		// create that file.
		return now.Sub(st.ModTime()) > max(10*time.Minute, keep), nil
	}

	if err != nil || now.Sub(st.ModTime()) <= keep {
		return false, err
	}

	jid, err := durable.Read(path, maxFile)
	if err != nil {
		return false, err
	}

	return !c.overlay.hasJob(string(jid)), nil
}

// markByLoad adds the jid file to the folder of a job that has a load: earlier versions, and crashes, have left folders
// without. The job gets the age of its load.
func (c *Local) markByLoad(dir string) {
	if isMarked(dir) {
		return
	}
	st, err := os.Stat(filepath.Join(dir, loadFile))
	if err != nil {
		return
	}
	job, ok := c.readLoad(dir)
	if !ok || c.files.jobDir(job.JID) != dir {
		return
	}
	if err := c.files.markFolder(job.JID, st.ModTime().UnixNano()); err != nil {
		c.log.Warn("job cache: a job has no jid file; Salt's clean_old_jobs would remove it", "jid", job.JID, "error", err)
	}
}
