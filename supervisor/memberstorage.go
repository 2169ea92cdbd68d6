package supervisor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/setup"
)

// place looks for the cluster's key on the shared storage and, on the node that
// formed the cluster, puts it there.
func (m *member) place(ctx context.Context) {
	m.mu.Lock()
	have := m.key != nil
	m.mu.Unlock()
	if have {
		m.shared.start(func() {
			_ = m.keeper.Look(ctx)
			m.isFounded()
			m.takeSecret()
		})
		return
	}
	if m.n.volume != nil {
		if st := m.n.volume.State(); !st.Ready {
			m.setWaits(st.Waiting)
			return
		}
	}
	m.shared.start(func() {
		key, err := m.lookForKey(ctx)
		if err == nil {
			m.takeSecret() // before the master starts with an old one
		}
		if err == nil && !m.isFounded() && !m.first() {
			err = errors.New("the master of the first node to begin")
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.waits = err.Error()
			return
		}
		m.key, m.waits = key, ""
	})
}

// isFounded looks for the masters' record on the shared storage.
func (m *member) isFounded() bool {
	_, err := os.Stat(m.n.cfg.ClusterRecord())
	m.mu.Lock()
	defer m.mu.Unlock()
	m.founded = m.founded || err == nil
	return m.founded
}

// first tells whether this node's master is the one that makes the record: of
// several that wait for each other nobody would.
func (m *member) first() bool {
	t := m.keeper.Table()
	p := t.Present()
	return len(p) > 0 && p[0].Certificate == m.id.Hash
}

func (m *member) setWaits(s string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits = s
}

// lookForKey runs in the worker of the shared storage.
func (m *member) lookForKey(ctx context.Context) (*nodeapi.ClusterKey, error) {
	cfg := m.n.cfg
	pki := cfg.SharedPKIDir()
	path := filepath.Join(pki, "cluster.pem")
	staged := filepath.Join(cfg.NodeDir(), setup.StagedKey)
	t := m.keeper.Table()
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		own, serr := os.ReadFile(staged)
		if serr != nil {
			return nil, fmt.Errorf("the cluster's key %s (is the shared storage mounted?)", path)
		}
		if err := m.makeShared(); err != nil {
			return nil, fmt.Errorf("the shared storage: %w", err)
		}
		if err := m.putKey(pki, own); err != nil {
			return nil, fmt.Errorf("the shared storage: %w", err)
		}
		text, err = own, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the cluster's key: %w", err)
	}
	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		return nil, err
	}
	if t.KeyHash != "" && key.Hash != t.KeyHash {
		return nil, fmt.Errorf("%s to hold the key of this cluster: it is that of another one", path)
	}
	if _, err := os.Stat(staged); err == nil {
		// The table goes to the shared storage before the staged key is given up.
		if _, err := m.keeper.Change(ctx, func(*nodes.Table) error { return nil }); err != nil {
			return nil, err
		}
		if err := os.Remove(staged); err != nil {
			return nil, err
		}
	}
	return key, nil
}

// makeShared makes what the shared storage needs before masters use it. Only
// the node that forms the cluster does so.
func (m *member) makeShared() error {
	cfg := m.n.cfg
	for _, d := range []struct {
		path string
		mode os.FileMode
		own  bool
	}{{cfg.StorageDir(), 0o755, false}, {cfg.SharedPKIDir(), 0o700, true}, {cfg.SharedNodesDir(), 0o700, false}} {
		err := os.Mkdir(d.path, d.mode)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err == nil && d.own && m.n.master.Credential != nil {
			if err := os.Chown(d.path, m.n.master.UID, m.n.master.GID); err != nil {
				return err
			}
		}
	}
	return nil
}

// putKey writes the cluster's key pair, the public half first: who finds the
// private one finds both.
func (m *member) putKey(pki string, text []byte) error {
	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{"cluster.pub", []byte(key.Public)}, {"cluster.pem", text}} {
		if err := putOwned(filepath.Join(pki, f.name), f.text, m.n.master); err != nil {
			return err
		}
	}
	return nil
}

// putOwned writes a file of mode 0400 for an account into a folder of its own.
// The owner is given by the open file: its name could be a link by then.
func putOwned(path string, text []byte, owner layout.Account) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // nothing is there after the rename
	_, err = f.Write(text)
	if err == nil {
		err = f.Chmod(0o400)
	}
	if err == nil && owner.Credential != nil {
		err = f.Chown(owner.UID, owner.GID)
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// ready tells whether the shared storage is there, and what is missing.
func (m *member) ready() (bool, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key != nil, m.waits
}
