package keys

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dirSeen describes a folder as of its last listing.
type dirSeen struct {
	sig      fileSig
	listedAt time.Time
	inodes   map[string]uint64 // inode numbers by file name; only on a volume
}

// racy is the least age at which an unchanged modification time proves that a folder has not
// changed. Another change within the same tick of the file system's clock, or by a node with a
// slightly wrong clock, leaves the time unchanged.
const racy = 2 * time.Second

// readers bounds the number of files that are read at once. On a network volume, reading one file
// after the other would take minutes at start.
const readers = 16

// changed reports whether a folder may have changed since the last listing.
func (s *Store) changed(st State) bool {
	info, err := os.Stat(s.stateDir(st))
	if err != nil {
		return true // the scan will report the error
	}
	seen := s.dirsSeen[st]
	return sigOf(info) != seen.sig || seen.listedAt.Sub(info.ModTime()) < racy
}

// scanFolders updates the index from the folders. Unless full is set, it skips unchanged folders.
// If a folder cannot be listed, the index keeps the keys of that folder: a volume that is not
// mounted or does not answer must not lock out all minions. The returned error joins the errors of
// all folders.
func (s *Store) scanFolders(full bool) error {
	s.scanMu.Lock()
	defer s.scanMu.Unlock()
	var errs []error
	for _, st := range []State{Rejected, Pending, Accepted, Denied} {
		if !full && !s.changed(st) {
			continue
		}

		now := time.Now()
		info, err := os.Stat(s.stateDir(st))
		if err != nil {
			errs = append(errs, err)
			continue
		}

		if err := s.scanDir(st, full); err != nil {
			errs = append(errs, err)
			continue
		}

		s.dirsSeen[st].sig, s.dirsSeen[st].listedAt = sigOf(info), now
	}

	if s.incoming != nil {
		errs = append(errs, s.scanIncoming(full))
	}

	return errors.Join(errs...)
}

// scanIncoming updates the index from the incoming files. The caller holds scanMu.
func (s *Store) scanIncoming(full bool) error {
	now := time.Now()
	info, err := os.Stat(s.dir)
	if err != nil {
		return err
	}
	if full || sigOf(info) != s.rootSeen.sig || s.rootSeen.listedAt.Sub(info.ModTime()) < racy {
		if err := s.incoming.listFresh(); err != nil {
			return err
		}
		s.rootSeen.sig, s.rootSeen.listedAt = sigOf(info), now
	}
	s.takeIncoming()
	return nil
}

// scanDir updates the index from one folder. On a volume, unless full is set, it reads only the
// files that are new in the listing: those with a new name, or with another inode than in the last
// listing.
func (s *Store) scanDir(st State, full bool) error {
	s.scans.Add(1)
	dir := s.stateDir(st)
	var entries []entry
	err := retryStale(func() (err error) {
		entries, err = listFolder(dir, false)
		return err
	})
	if err != nil {
		return fmt.Errorf("list %s keys: %w", st, err)
	}

	listed := make(map[string]uint64, len(entries))
	work := make(chan string)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			for id := range work {
				s.examine(id, st)
			}
		})
	}

	before := s.dirsSeen[st].inodes
	for _, e := range entries {
		if strings.HasPrefix(e.name, ".") {
			continue // .key_cache, or a temporary file of this or another master
		}

		if err := ValidID(e.name); err != nil {
			s.log.Warn("ignoring a key file", "path", filepath.Join(dir, e.name), "error", err)
			continue
		}

		listed[e.name] = e.inode
		if was, ok := before[e.name]; s.onVolume && !full && ok && was == e.inode && s.hasKey(st, e.name) {
			continue
		}

		work <- e.name
	}

	var gone []string
	s.mu.RLock()
	for id, f := range s.files[st] {
		if _, ok := listed[id]; !ok && f.claim == nil {
			gone = append(gone, id)
		}
	}
	s.mu.RUnlock()

	for _, id := range gone {
		work <- id
	}

	close(work)
	wg.Wait()
	if s.onVolume {
		s.dirsSeen[st].inodes = listed
	}

	return nil
}

// entry is an entry of a folder's listing.
type entry struct {
	name  string
	inode uint64
}

// listFolder lists the regular files of a folder with their inode numbers, which costs no extra
// call for each file. If sync is set, the listed entries are durable when it returns.
func listFolder(dir string, sync bool) ([]entry, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()

	var out []entry
	buf := make([]byte, 64<<10)
	for {
		n, err := unix.Getdents(int(f.Fd()), buf)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return nil, &os.PathError{Op: "readdir", Path: dir, Err: err}
		case n == 0 && sync:
			if err := f.Sync(); err != nil {
				return nil, fmt.Errorf("sync folder %s: %w", dir, err)
			}
			return out, nil
		case n == 0:
			return out, nil
		}

		for b := buf[:n]; len(b) > direntName; { // struct linux_dirent64, getdents(2)
			size := int(binary.NativeEndian.Uint16(b[16:]))
			if size <= direntName || size > len(b) {
				return nil, &os.PathError{Op: "readdir", Path: dir, Err: syscall.EIO}
			}

			name, _, _ := bytes.Cut(b[direntName:size], []byte{0})
			e := entry{string(name), binary.NativeEndian.Uint64(b)}
			if kind := b[18]; kind == unix.DT_REG || kind == unix.DT_UNKNOWN && e.name != "." && e.name != ".." {
				out = append(out, e)
			}

			b = b[size:]
		}
	}
}

// direntName is the offset of the name in a struct linux_dirent64.
const direntName = 19

// Refresh checks the files of some minions at once, for instance because another master has
// reported a change. It ignores invalid ids.
func (s *Store) Refresh(ids ...string) {
	for _, id := range ids {
		if ValidID(id) == nil {
			s.examine(id, Rejected, Pending, Accepted, Denied)
		}
	}
}

// Rescan compares all key files with the index now.
func (s *Store) Rescan() error { return s.scanFolders(true) }

// Recheck compares the files of one id with the index now. It returns an error if a file cannot be
// read. In that case the key in the index may have been changed or removed on the disk.
func (s *Store) Recheck(id string) error {
	if err := ValidID(id); err != nil {
		return err
	}
	defer s.lockID(id)()
	if err := s.examineLocked(id, lookupOrder[:]...); err != nil {
		return fmt.Errorf("read the key of %q again: %w", id, err)
	}
	return nil
}

// Look updates the index from the folders at once, without waiting for the next event or tick of
// Run. If nothing has changed, Look costs four calls of stat. It waits at most two seconds for a
// hanging volume.
func (s *Store) Look() error {
	return s.looks.do(2*time.Second, func() error { return s.scanFolders(false) })
}

// examine updates the index from the files of an id in some states. If a file cannot be read, Run
// tries again: until then a key that was deleted may remain in the index.
func (s *Store) examine(id string, states ...State) {
	defer s.lockID(id)()
	if s.examineLocked(id, states...) != nil { // examineLocked has logged the error
		s.failedLooks.add(id, states)
	}
}

// examineLocked works like examine, for a caller that holds the stripe lock of the id. The key of a
// claim remains in the index until the id has a file or the claim is invalid. examineLocked logs
// errors; if a state's file cannot be read, the index keeps the key known for that state.
func (s *Store) examineLocked(id string, states ...State) error {
	files, errs := make([]*keyFile, len(states)), make([]error, len(states))
	look := func(i int) { files[i], errs[i] = s.cfg.load(s, id, states[i], s.keyFileOf(states[i], id)) }
	var wg sync.WaitGroup
	for i := range states[1:] { // in parallel: on a volume each read takes milliseconds
		wg.Go(func() { look(i + 1) })
	}

	look(0)
	wg.Wait()
	found := map[State]*keyFile{}
	for i, st := range states {
		before := s.keyFileOf(st, id)
		f := files[i]
		err := errs[i]
		switch {
		case errors.Is(err, os.ErrNotExist):
			if before != nil && (before.claim == nil || !s.incoming.isWaiting(before.claim)) {
				found[st] = nil
			}
		case err != nil:
			if !s.failedLooks.has(id) {
				s.log.Warn("reading a minion key", "minion", id, "path", s.keyPath(st, id), "error", err)
			}
		case f != before:
			found[st] = f
		}
	}

	if s.incoming != nil {
		s.overrule(id, found)
	}

	if len(found) > 0 {
		s.applyFound(id, found)
	}

	return errors.Join(slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, os.ErrNotExist) })...)
}

// overrule removes the claims for an id from the index when found holds a file of the id.
func (s *Store) overrule(id string, found map[State]*keyFile) {
	var f *keyFile
	for _, st := range lookupOrder {
		if found[st] != nil {
			f = found[st]
		}
	}

	if f == nil {
		return
	}

	for _, st := range lookupOrder {
		if old := s.keyFileOf(st, id); old != nil && old.claim != nil && found[st] == nil {
			found[st] = nil
		}
	}

	for _, c := range s.incoming.claimsOf(id) {
		if c.pem == f.pem {
			s.incoming.finish(c, false)
		}
	}
}

// loadFile reads a key file. If the file has not changed since the last read, it returns last, the
// result of that read. It treats an empty file as missing, since its writer has not filled it yet.
func (s *Store) loadFile(id string, st State, last *keyFile) (*keyFile, error) {
	path := s.keyPath(st, id)
	sig, err := lstatRegular(path)
	if err != nil {
		return nil, err
	}
	if last != nil && last.sig == sig {
		return last, nil
	}

	data, info, err := readRegular(path, maxKeyFile, false)
	if err != nil {
		return nil, err
	}
	if len(strings.TrimSpace(string(data))) == 0 {
		return nil, &os.PathError{Op: "read", Path: path, Err: os.ErrNotExist}
	}

	return s.newFile(string(data), sigOf(info), last), nil
}
