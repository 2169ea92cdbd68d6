package batch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"saltern/master/internal/datafile"
	"saltern/master/value"
)

// Names and forms of the files are Salt's (salt/utils/batch_state.py), so that
// its runners batch.status and batch.list_active read them.
const (
	stateFile = ".batch.p"
	indexFile = "batch_active.p"
	maxFile   = 32 << 20 // bytes
)

// file is what a file of a batch may hold.
var file = datafile.Bound{Bytes: maxFile}

func (m *Manager) read(jid string) (*value.Map, error) {
	dir, err := m.cfg.JobDir(jid)
	if err != nil {
		return nil, err
	}
	return file.ReadMap(filepath.Join(dir, stateFile))
}

func (m *Manager) write(jid string, kept *value.Map) error {
	dir, err := m.cfg.JobDir(jid)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return file.Write(filepath.Join(dir, stateFile), kept, false)
}

// index lists the batches that have not ended.
func (m *Manager) index() ([]string, error) {
	v, err := file.Read(filepath.Join(m.cfg.Dir, indexFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	list, _ := v.([]any)
	return value.NewMap("l", list).Texts("l"), err
}

// list puts a batch into the index or takes it out.
func (m *Manager) list(jid string, in bool) error {
	jids, err := m.index()
	if err != nil || slices.Contains(jids, jid) == in {
		return err
	}
	if in {
		jids = append(jids, jid)
		slices.Sort(jids)
	} else {
		jids = slices.DeleteFunc(jids, func(s string) bool { return s == jid })
	}
	return file.Write(filepath.Join(m.cfg.Dir, indexFile), value.List(jids), false)
}
