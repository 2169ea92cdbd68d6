package jobs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"saltern/internal/durable"
	"saltern/master/msgpack"
)

// files writes records as Salt's files. It may be used concurrently.
type files struct {
	layout
	turn              sync.Mutex // held while the files of a record are written
	dirMode, fileMode fs.FileMode
	endtimes          bool // each return sets the end time of the job (job_cache_store_endtime)
	// test hook: an error that it returns is the result of the operation op; nil outside of tests
	fault func(op string) error
}

// applyRecord writes the files of a record. A repeated call writes the same files.
func (f *files) applyRecord(r *record) error { return f.apply(r, f.endtimes) }

// layOutRecord works like applyRecord, but a return sets no end time.
func (f *files) layOutRecord(r *record) error { return f.apply(r, false) }

func (f *files) apply(r *record, endtimes bool) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	dir := f.jobDir(r.jid)

	var err error
	for range 2 { // Clean may remove the folder meanwhile
		if err = f.markJob(dir, r.jid, cmp.Or(r.made, r.time)); err == nil {
			err = f.applyIn(dir, r, endtimes)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("job cache: %w", err)
	}
	return nil
}

// markFolder makes sure that the folder of a job has a jid file, if there is a folder.
func (f *files) markFolder(jid string, at int64) error {
	f.turn.Lock()
	defer f.turn.Unlock()
	dir := f.jobDir(jid)
	if !exists(dir) {
		return nil
	}
	return f.markJob(dir, jid, at)
}

// markJob makes sure that the folder of a job exists, and that it has a jid file, whoever has made the folder. Salt reads
// the age of the job from that file, and removes a job without one at once. A new file gets a time of modification in
// Unix nanoseconds: the journal may be replayed long after a record was made.
func (f *files) markJob(dir, jid string, at int64) error {
	if isMarked(dir) {
		return nil
	}
	if err := os.MkdirAll(dir, f.dirMode); err != nil {
		return err
	}
	return f.writeTimed(dir, jidFile, []byte(jid), at)
}

// unmarkJob removes the folder of a job if it holds nothing but the jid file.
func (f *files) unmarkJob(dir string) {
	f.turn.Lock()
	defer f.turn.Unlock()
	names, err := readNames(dir)
	if err != nil || slices.ContainsFunc(names, func(e os.DirEntry) bool { return e.Name() != jidFile }) {
		return
	}
	_ = os.Remove(filepath.Join(dir, jidFile))
	_ = os.Remove(dir)
	_ = os.Remove(filepath.Dir(dir))
}

// applyIn writes the files of a record into the folder of its job. Load and end time get the time of the record, so
// that it can be told whether a segment has a later one.
func (f *files) applyIn(dir string, r *record, endtimes bool) error {
	switch r.kind {
	case kindPrep:
		if len(r.a) == 0 {
			return nil
		}
		return f.writeFile(dir, nocacheFile, nil)
	case kindLoad:
		return f.writeTimed(dir, loadFile, r.a, r.time)
	case kindMinions:
		return f.mergeMinions(dir, r)
	case kindEndtime:
		return f.writeTimed(dir, endtimeFile, r.a, r.time)
	case kindReturn:
		if endtimes {
			if err := f.writeTimed(dir, endtimeFile, []byte(endtimeOf(r)), r.time); err != nil {
				return err
			}
		}
		return f.putReturn(dir+"/"+r.id, r)
	}

	return fmt.Errorf("record of unknown kind %d", r.kind)
}

// endtimeOf returns the time of a return as text; Salt stores it as the end of the return's job
// (salt/utils/job.py store_job).
func endtimeOf(r *record) string { return TimeText(time.Unix(0, r.time)) }

func (f *files) putReturn(dir string, r *record) error {
	if err := os.Mkdir(dir, f.dirMode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	// Write out.p first, so that a reader that sees return.p sees out.p as well.
	if r.b != nil {
		if err := f.writeFile(dir, outFile, r.b); err != nil {
			return err
		}
	}
	return f.writeFile(dir, returnFile, r.a)
}

// writeFile writes a file under a temporary name and renames it. It does not sync the file.
func (f *files) writeFile(dir, name string, content []byte) error {
	return f.writeTimed(dir, name, content, 0)
}

// writeTimed works like writeFile. The file gets a time of modification in Unix nanoseconds, unless that is 0.
func (f *files) writeTimed(dir, name string, content []byte, at int64) error {
	if f.fault != nil {
		if err := f.fault("put"); err != nil {
			return err
		}
	}

	tmp := dir + "/" + tempFile
	fd, err := syscall.Open(tmp,
		syscall.O_WRONLY|syscall.O_CREAT|syscall.O_TRUNC|syscall.O_CLOEXEC|syscall.O_NOFOLLOW,
		uint32(f.fileMode))
	if err != nil {
		return &fs.PathError{Op: "create", Path: tmp, Err: err}
	}

	err = writeAll(fd, content)
	closeErr := syscall.Close(fd)
	if err == nil {
		err = closeErr
	}

	if err == nil && at != 0 {
		when := syscall.NsecToTimespec(at)
		err = syscall.UtimesNano(tmp, []syscall.Timespec{when, when})
	}
	if err == nil {
		err = syscall.Rename(tmp, dir+"/"+name)
	}

	if err != nil {
		syscall.Unlink(tmp)
		return &fs.PathError{Op: "write", Path: dir + "/" + name, Err: err}
	}

	return nil
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := syscall.Write(fd, b)
		if err == syscall.EINTR {
			continue
		}
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// mergeMinions adds minions to the stored list, as Salt does for batches and syndics that share a
// job id (local_cache.save_minions).
func (f *files) mergeMinions(dir string, r *record) error {
	path := dir + "/" + minionsName(r.id)
	old, _, err := readValue(path)
	if err != nil {
		old = nil // the file is damaged: the new list alone is better than none
	}

	var add any
	if add, err = msgpack.Decode(r.a, msgpack.DefaultLimits); err != nil {
		return fmt.Errorf("minion list in the journal: %w", err)
	}

	packed, err := msgpack.Marshal(unionTexts(old, add), msgpack.Modern)
	if err != nil {
		return err
	}

	return f.writeFile(dir, minionsName(r.id), packed)
}

// unionTexts returns the sorted union of the texts in lists. It ignores values of other types.
func unionTexts(lists ...any) (out []string) {
	for _, l := range lists {
		switch l := l.(type) {
		case []string:
			out = append(out, l...)
		case []any:
			for _, v := range l {
				if s, ok := v.(string); ok {
					out = append(out, s)
				}
			}
		}
	}

	slices.Sort(out)
	return slices.Compact(out)
}

// holds reports whether a file of a job has the content of a record.
func (f *files) holds(r *record, name string) bool {
	b, err := durable.Read(f.jobDir(r.jid)+"/"+name, maxFile)
	return err == nil && bytes.Equal(b, r.a)
}

// holdsReturn reports whether the files of a return match the record. It compares their contents,
// since a crash may leave a file empty.
func (f *files) holdsReturn(r *record) bool {
	if r.kind != kindReturn {
		return false
	}
	dir := f.jobDir(r.jid) + "/" + r.id + "/"
	if r.b != nil {
		if b, err := durable.Read(dir+outFile, maxFile); err != nil || !bytes.Equal(b, r.b) {
			return false
		}
	}
	b, err := durable.Read(dir+returnFile, maxFile)
	return err == nil && bytes.Equal(b, r.a)
}
