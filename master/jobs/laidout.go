package jobs

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/internal/room"
	"saltern/master/msgpack"
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
	if minions == nil {
		return errors.Join(c.layOut(ctx, jid, allRecords, nil))
	}

	returns := map[uint64]bool{}
	for _, id := range minions {
		returns[c.home.returnHash(jid, id)] = true
	}
	wanted := func(what uint64) bool { return what < isReturn || returns[what] }
	return errors.Join(c.layOut(ctx, jid, part{wanted: wanted}, nil))
}

// AllJobs has [Local.LayOutAll] write the files of all jobs.
const AllJobs = "all"

// LayOutAll writes all files of a job, or of [AllJobs], and returns their folder. It returns an error for an unknown job,
// and when the disk has so little room that the files would take that of segments.
func (c *Local) LayOutAll(ctx context.Context, jid string) (folder string, err error) {
	if jid != AllJobs {
		if err := checkJID(jid); err != nil {
			return "", err
		}
	}
	guard, err := room.Guard(c.cfg.Dir, room.Usual())
	if err != nil {
		return "", fmt.Errorf("write the files of jobs: %w", err)
	}
	if jid == AllJobs {
		return c.cfg.Dir, c.layOutAllJobs(ctx, guard)
	}

	if err := errors.Join(c.layOut(ctx, jid, allRecords, guard)); err != nil {
		return "", err
	}
	folder = c.files.jobDir(jid)
	if !exists(folder) {
		return "", fmt.Errorf("%w: job %s is not in the job cache; jobs.list_jobs shows those that are", fs.ErrNotExist, jid)
	}
	return folder, nil
}

// LayOutLoads writes the loads of all jobs that are in segments. It goes on after a record that cannot be read, and
// returns the error of the first one.
func (c *Local) LayOutLoads(ctx context.Context) error {
	return c.layOutEach(ctx, withoutReturns, nil, func(layOut func(jid string) bool) (unread error) {
		c.home.eachLoad(func(jid string) bool {
			return ctx.Err() == nil && (exists(c.files.jobDir(jid)+"/"+loadFile) || layOut(jid))
		})
		return nil
	})
}

// layOutAllJobs writes the files of each job: first of those with a load, the oldest first, since a full disk costs the
// oldest segments. The load of others may be a file since before this master had segments, or lost.
func (c *Local) layOutAllJobs(ctx context.Context, guard *room.Watch) error {
	return c.layOutEach(ctx, allRecords, guard, func(layOut func(jid string) bool) (unread error) {
		if !c.home.eachLoadUp(layOut) {
			return nil
		}
		return c.home.eachWithoutLoad(ctx, layOut)
	})
}

// layOutEach writes the files of a part of each job for which each calls layOut, which returns false when files cannot be
// written any more. It goes on after a record that cannot be read, and returns the error of the first one.
func (c *Local) layOutEach(
	ctx context.Context,
	p part,
	guard *room.Watch,
	each func(layOut func(jid string) bool) (unread error),
) error {
	var firstUnread, failed error
	unread := each(func(jid string) bool {
		var unread error
		unread, failed = c.layOut(ctx, jid, p, guard)
		firstUnread = cmp.Or(firstUnread, unread)
		return failed == nil && ctx.Err() == nil
	})
	return errors.Join(cmp.Or(firstUnread, unread), cmp.Or(failed, ctx.Err()))
}

// mostFiles is how many files and folders a record becomes at most: the two folders of a job and its jid, the folder of a
// return, and two files.
const mostFiles = 6

// withoutReturns has all records of a job but its returns.
var withoutReturns = part{wanted: func(what uint64) bool { return what < isReturn }}

// layOut writes the files of a part of a job. unread says that records could not be read; the others have
// become files. failed says that files could not be written, that guard leaves no room, or that ctx has ended. guard may
// be nil.
func (c *Local) layOut(ctx context.Context, jid string, p part, guard *room.Watch) (unread, failed error) {
	write := func(r *record) {
		failed = cmp.Or(failed, ctx.Err(), guard.Bytes(len(r.a)+len(r.b)))
		for range mostFiles {
			failed = cmp.Or(failed, guard.File())
		}
		if failed == nil {
			failed = c.files.layOutRecord(r)
		}
	}

	var oldest int64
	unread = c.home.each(jid, p, func(r *record) {
		oldest = cmp.Or(min(oldest, r.time), r.time)
		// Of load and end time the latest comes below, which may be a file already.
		if r.kind != kindLoad && r.kind != kindEndtime && !c.files.holdsReturn(r) {
			write(r)
		}
	})
	if load := c.keptLoad(jid).load; load != nil && !c.files.holds(load, loadFile) {
		write(load)
	}
	if end := c.keptEnd(jid); end != nil && !c.files.holds(end, endtimeFile) {
		write(end)
	}
	if failed == nil && oldest != 0 { // all may have been files, in a folder that an earlier version has made
		failed = c.files.markFolder(jid, oldest)
	}

	return layOutError(jid, unread), layOutError(jid, failed)
}

func layOutError(jid string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("write the files of job %s: %w", jid, err)
}

// removeLaidOut removes the files of a job that segments have too, when they are older than shownFor. It removes
// nothing of a job with other files, such as the state of a batch or a load that is not in segments.
func (c *Local) removeLaidOut(dir string, now time.Time) error {
	if c.cfg.Files {
		return nil
	}
	st, err := os.Stat(dir)
	if err != nil || now.Sub(st.ModTime()) <= shownFor {
		return err
	}
	content, err := os.ReadFile(filepath.Join(dir, jidFile))
	jid := string(content)
	if err != nil || checkJID(jid) != nil || !c.home.holdsLoad(jid) || c.overlay.hasJob(jid) {
		return err
	}

	names, err := readNames(dir)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(names, func(e os.DirEntry) bool { return !c.mayBeLaidOut(jid, e) }) {
		return nil
	}
	copies := c.copiesOf(jid)
	if slices.ContainsFunc(names, func(e os.DirEntry) bool { return !copies[e.Name()] }) {
		return nil
	}

	c.files.removeCopies(dir, names)
	return nil
}

// mayBeLaidOut reports whether layOut writes files of this name. It reads nothing.
func (c *Local) mayBeLaidOut(jid string, e os.DirEntry) bool {
	if e.IsDir() {
		return c.home.holdsReturn(jid, e.Name())
	}
	switch name := e.Name(); name {
	case jidFile, loadFile, endtimeFile, nocacheFile:
		return true
	default:
		return strings.HasPrefix(name, ".minions.") && strings.HasSuffix(name, ".p")
	}
}

// copiesOf returns the names of the files and folders of a job whose content is in segments, too.
func (c *Local) copiesOf(jid string) map[string]bool {
	copies := map[string]bool{jidFile: true}
	lists := map[string][]any{}
	_ = c.home.each(jid, allRecords, func(r *record) { // it has logged the error
		switch r.kind {
		case kindPrep:
			copies[nocacheFile] = true
		case kindLoad:
			copies[loadFile] = copies[loadFile] || c.files.holds(r, loadFile)
		case kindMinions:
			if list, err := msgpack.Decode(r.a, msgpack.DefaultLimits); err == nil {
				lists[minionsName(r.id)] = append(lists[minionsName(r.id)], list)
			}
		case kindReturn:
			copies[r.id] = c.files.holdsReturn(r) || !exists(c.files.jobDir(jid)+"/"+r.id+"/"+returnFile)
		}
	})

	for name, kept := range lists {
		file, ok, err := readValue(c.files.jobDir(jid) + "/" + name)
		all := unionTexts(kept...)
		copies[name] = ok && err == nil && len(unionTexts(append(kept, file)...)) == len(all)
	}
	if end := c.endInSegments(jid); end != nil {
		later := c.laterFile(jid, endtimeFile, end.time)
		copies[endtimeFile] = later == nil || bytes.Equal(later.a, end.a)
	}
	return copies
}

// removeCopies removes the files of a job one by one, and folders that are empty then: what comes meanwhile stays. The jid
// file goes last, so that a folder that stays has it.
func (f *files) removeCopies(dir string, names []os.DirEntry) {
	for _, e := range names {
		path := filepath.Join(dir, e.Name())
		if e.IsDir() {
			_ = os.Remove(filepath.Join(path, outFile))
			_ = os.Remove(filepath.Join(path, returnFile))
		}
		if e.Name() != jidFile {
			_ = os.Remove(path)
		}
	}
	f.unmarkJob(dir)
}
