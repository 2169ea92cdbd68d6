package jobs

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// shownFor is how long the files of a job stay if segments have their content too. Python's LocalClient looks
// for the load of a job right after it has published it.
const shownFor = time.Hour

// LayOut writes the files of a job that is in segments, in Salt's layout, for programs that read no segments: of
// its returns those of the given minions, or all if minions is nil. Files that are there stay as they are.
// Clean removes the files after an hour. LayOut does nothing for an unknown job.
func (c *Local) LayOut(ctx context.Context, jid string, minions []string) error {
	if err := checkJID(jid); err != nil {
		return err
	}
	return c.layOut(ctx, jid, func(r *record) bool { return minions == nil || slices.Contains(minions, r.id) })
}

// LayOutAll writes all files of a job and returns their folder. It returns an error for an unknown job.
func (c *Local) LayOutAll(ctx context.Context, jid string) (folder string, err error) {
	if err := c.LayOut(ctx, jid, nil); err != nil {
		return "", err
	}
	folder = c.files.jobDir(jid)
	if !exists(folder) {
		return "", fmt.Errorf("%w: job %s is not in the job cache; jobs.list_jobs shows those that are", fs.ErrNotExist, jid)
	}
	return folder, nil
}

// LayOutLoads writes the loads of all jobs that are in segments.
func (c *Local) LayOutLoads(ctx context.Context) (err error) {
	c.home.eachLoad(func(jid string) bool {
		if !exists(c.files.jobDir(jid) + "/" + loadFile) {
			err = c.layOut(ctx, jid, func(*record) bool { return false })
		}
		return err == nil && ctx.Err() == nil
	})
	return errors.Join(err, ctx.Err())
}

// layOut writes the files of a job, and of its returns those that wanted selects.
func (c *Local) layOut(ctx context.Context, jid string, wanted func(*record) bool) error {
	var err error
	readErr := c.home.each(jid, allRecords, func(r *record) {
		if err == nil {
			err = ctx.Err()
		}
		skip := r.kind == kindReturn && !wanted(r)
		if err == nil && !skip && !c.files.holdsReturn(r) {
			err = c.files.applyRecord(r)
		}
	})
	if err = errors.Join(err, readErr); err != nil {
		return fmt.Errorf("write the files of job %s: %w", jid, err)
	}
	return nil
}

// removeLaidOut removes the files of a job that segments have too, when they are older than shownFor. It removes
// nothing of a job with other files, such as the state of a batch.
func (c *Local) removeLaidOut(dir string, now time.Time) error {
	if !c.home.takes() {
		return nil
	}
	st, err := os.Stat(dir)
	if err != nil || now.Sub(st.ModTime()) <= shownFor {
		return err
	}
	jid, err := os.ReadFile(filepath.Join(dir, jidFile))
	if err != nil || !c.home.holdsLoad(string(jid)) || c.overlay.hasJob(string(jid)) {
		return err
	}

	names, err := readNames(dir)
	if err != nil {
		return err
	}
	for _, e := range names {
		isList := strings.HasPrefix(e.Name(), ".minions.") && strings.HasSuffix(e.Name(), ".p")
		isReturn := e.IsDir() && c.home.holdsReturn(string(jid), e.Name())
		if e.Name() != jidFile && e.Name() != loadFile && !isList && !isReturn {
			return nil
		}
	}

	removeNames(dir, names)
	return nil
}

// removeNames removes the files of a job one by one, and folders that are empty then: what comes meanwhile stays.
func removeNames(dir string, names []os.DirEntry) {
	for _, e := range names {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			_ = os.Remove(filepath.Join(path, outFile))
			_ = os.Remove(filepath.Join(path, returnFile))
		}
		_ = os.Remove(path)
	}
	_ = os.Remove(dir)
	_ = os.Remove(filepath.Dir(dir))
}
