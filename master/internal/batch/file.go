package batch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"saltern/internal/durable"
	"saltern/master/internal/datafile"
	"saltern/master/jobs"
	"saltern/master/value"
)

// The files have Salt's names and formats (salt/utils/batch_state.py), so that Salt's runners
// batch.status and batch.list_active read them.
const (
	stateFile = ".batch.p"
	indexFile = "batch_active.p"
	maxFile   = 32 << 20 // in bytes
)

// stateBound bounds the size of a batch file.
var stateBound = datafile.Bound{Bytes: maxFile}

// errNotOurs means that an account other than the master's account and root may have written the
// state of a batch.
var errNotOurs = errors.New("it is not the master's or root's, or others can write it")

// jobDir returns the directory of a job.
func (m *Manager) jobDir(jid string) (string, error) {
	return jobs.Folder(filepath.Join(m.cfg.Dir, "jobs"), m.cfg.HashType, jid)
}

// readState returns the stored state of a batch. It returns an error unless the file belongs to the
// master's account or root, which proves that the state is genuine.
func (m *Manager) readState(jid string) (*value.Map, error) {
	dir, err := m.jobDir(jid)
	if err != nil {
		return nil, err
	}

	path := filepath.Join(dir, stateFile)
	packed, info, err := durable.ReadFile(path, maxFile, durable.Refuse)
	if err != nil {
		return nil, err
	}
	if !onlyOursWrite(info) {
		return nil, fmt.Errorf("read %s: %w", path, errNotOurs)
	}

	kept, ok := stateBound.Unpack(packed)
	if !ok {
		return nil, fmt.Errorf("read %s: it holds no state of a batch", path)
	}

	return kept, nil
}

// onlyOursWrite reports whether only root and the account of this process can have written a file.
func onlyOursWrite(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return false
	}
	owned := st.Uid == 0 || st.Uid == uint32(os.Geteuid())
	ownGroup := st.Gid == 0 || st.Gid == uint32(os.Getegid())
	groupWrites := info.Mode().Perm()&0o020 != 0
	othersWrite := info.Mode().Perm()&0o002 != 0
	return owned && !othersWrite && (ownGroup || !groupWrites)
}

func (m *Manager) writeState(jid string, kept *value.Map) error {
	dir, err := jobs.MakeFolder(filepath.Join(m.cfg.Dir, "jobs"), m.cfg.HashType, jid, 0o755, 0o640)
	if err != nil {
		return err
	}
	return stateBound.Write(filepath.Join(dir, stateFile), kept, false)
}

// activeJIDs returns the job ids of the batches in the index, which contains the batches that have
// not ended.
func (m *Manager) activeJIDs() ([]string, error) { return activeIn(m.cfg.Dir) }

func activeIn(cacheDir string) ([]string, error) {
	v, err := stateBound.Read(filepath.Join(cacheDir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	list, _ := v.([]any)
	return value.NewMap("l", list).Texts("l"), err
}

// stalledFor is how long nothing happens in a batch until its files may be removed: its tool may have been
// killed. It is longer than a minion may take.
const stalledFor = 7 * 24 * time.Hour

// Unfinished returns the job ids of the batches that go on: those in the index below cacheDir whose states
// are not older than stalledFor. hashType is the option hash_type.
func Unfinished(cacheDir, hashType string, now time.Time) (map[string]bool, error) {
	jids, err := activeIn(cacheDir)
	unfinished := map[string]bool{}
	for _, jid := range jids {
		dir, err := jobs.Folder(filepath.Join(cacheDir, "jobs"), hashType, jid)
		if err != nil {
			continue
		}
		info, err := os.Stat(filepath.Join(dir, stateFile))
		if err == nil && now.Sub(info.ModTime()) < stalledFor {
			unfinished[jid] = true
		}
	}
	return unfinished, err
}

// setActive adds a batch to the index, or removes it from the index.
func (m *Manager) setActive(jid string, active bool) error {
	jids, err := m.activeJIDs()
	if err != nil || slices.Contains(jids, jid) == active {
		return err
	}
	if active {
		jids = append(jids, jid)
		slices.Sort(jids)
	} else {
		jids = slices.DeleteFunc(jids, func(s string) bool { return s == jid })
	}
	return stateBound.Write(filepath.Join(m.cfg.Dir, indexFile), value.List(jids), false)
}
