package batch

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"saltern/durable"
	"saltern/master/msgpack"
	"saltern/master/value"
)

// Names and forms of the files are Salt's (salt/utils/batch_state.py), so that
// its runners batch.status and batch.list_active read them.
const (
	stateFile = ".batch.p"
	indexFile = "batch_active.p"
	maxFile   = 32 << 20 // bytes
)

func (m *Manager) read(jid string) (*value.Map, error) {
	dir, err := m.cfg.JobDir(jid)
	if err != nil {
		return nil, err
	}
	v, err := unpack(filepath.Join(dir, stateFile))
	kept, ok := v.(*value.Map)
	if err == nil && !ok {
		err = fmt.Errorf("%s holds no map", stateFile)
	}
	return kept, err
}

func (m *Manager) write(jid string, kept *value.Map) error {
	dir, err := m.cfg.JobDir(jid)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return pack(filepath.Join(dir, stateFile), kept)
}

// index lists the batches that have not ended.
func (m *Manager) index() ([]string, error) {
	v, err := unpack(filepath.Join(m.cfg.Dir, indexFile))
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
	all := make([]any, len(jids))
	for i, s := range jids {
		all[i] = s
	}
	return pack(filepath.Join(m.cfg.Dir, indexFile), all)
}

func pack(path string, v any) error {
	b, err := msgpack.Marshal(v, msgpack.Modern)
	if err == nil && len(b) > maxFile {
		err = fmt.Errorf("%d bytes are too many for %s", len(b), path)
	}
	if err != nil {
		return err
	}
	return durable.Replace(path, b, 0o600)
}

func unpack(path string) (any, error) {
	b, err := durable.Read(path, maxFile)
	if err != nil {
		return nil, err
	}
	v, err := msgpack.Decode(b, msgpack.DefaultLimits)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return v, nil
}
