package member

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/setup"
	"saltern/supervisor/storage"
)

// shared maintains the data that all nodes share on the storage: the cluster's key and secrets, and
// the masters' record.
type shared struct {
	env    Env
	id     *nodeapi.Identity
	keeper *nodes.Keeper
	look   service.Worker // touches the storage, which may hang

	mu    sync.Mutex
	key   *nodeapi.ClusterKey // nil: not found yet
	waits string              // what is missing, while key is nil or the table names another key
	// replaced reports that the key was replaced in this life, so that the master may still run
	// with the old one.
	replaced bool
	founded  bool        // the masters' record exists
	secrets  secretNames // fingerprints of the secrets on this node's disk
	// looked is when the newest successful read of the storage began. A read is successful if it
	// stored the secrets of the record, or found that there is no record yet.
	looked time.Time
}

// placeKey looks for the cluster's key on the shared storage. On the node that formed the cluster,
// placeKey writes the key there. volume may be nil: the storage is then not a shared volume.
func (s *shared) placeKey(ctx context.Context, volume *storage.Manager) {
	if ok, _ := s.holdsKey(); ok {
		s.look.Start(func() {
			s.takeSecret(ctx)
			s.isFounded()
		})
		return
	}

	if st := volumeState(volume); st != nil && !st.Ready {
		s.setWaits(st.Waiting)
		return
	}

	s.look.Start(func() {
		key, err := s.lookForKey(ctx)
		if err == nil {
			s.takeSecret(ctx) // so that the master does not start with an old secret
		}

		if err == nil && !s.isFounded() && !s.isFounder() {
			err = errors.New("the master of the first node to begin")
		}

		s.mu.Lock()
		defer s.mu.Unlock()
		if err != nil {
			s.waits = err.Error()
			return
		}

		s.replaced = s.replaced || s.key != nil && s.key.Hash != key.Hash
		s.key, s.waits = key, ""
	})
}

// isFounded looks for the masters' record on the shared storage, and reports whether it exists.
func (s *shared) isFounded() bool {
	if s.hasRecord() {
		return true
	}
	_, err := os.Stat(s.env.Settings.ClusterRecord())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.founded = s.founded || err == nil
	return s.founded
}

// hasRecord reports whether the masters' record was found on the shared storage.
func (s *shared) hasRecord() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.founded
}

// isFounder reports whether this node's master is the one to create the record, because this node
// is the first serving node in the table. If every master waited for another one to create the
// record, none would start.
func (s *shared) isFounder() bool {
	t := s.keeper.Table()
	p := t.Serving()
	return len(p) > 0 && p[0].Certificate == s.id.Hash
}

// founds reports whether this node's master must create the record now.
func (s *shared) founds() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.founded && s.isFounder()
}

func (s *shared) setWaits(waits string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waits = waits
}

// lookForKey returns the cluster's key from the shared storage. If necessary, it first moves or
// writes the key to its place there. It must run in the worker of the shared storage.
func (s *shared) lookForKey(ctx context.Context) (*nodeapi.ClusterKey, error) {
	cfg := s.env.Settings
	pki := cfg.SharedPKIDir()
	path := filepath.Join(pki, "cluster.pem")
	staged := filepath.Join(cfg.NodeDir(), setup.StagedKey)
	t := s.keeper.Table()
	if t.Version > 0 { // the key may have been replaced while this node was away
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		_ = s.keeper.Look(ctx)
		t = s.keeper.Table()
	}

	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		own, serr := os.ReadFile(staged)
		if serr != nil {
			return nil, fmt.Errorf("the cluster's key %s (is the shared storage mounted?)", path)
		}

		if err := s.makeShared(); err != nil {
			return nil, fmt.Errorf("the shared storage: %w", err)
		}

		if err := s.putKey(pki, own, nil); err != nil {
			return nil, fmt.Errorf("the shared storage: %w", err)
		}

		text, err = own, nil
	}

	if err != nil {
		return nil, fmt.Errorf("the cluster's key: %w", err)
	}

	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		return nil, fmt.Errorf("the cluster's key: %w", err)
	}

	if t.KeyHash != "" && key.Hash != t.KeyHash {
		if key, err = s.takeNext(t.KeyHash); err != nil {
			return nil, fmt.Errorf("%s to hold the key of this cluster: it is that of another one (%w)", path, err)
		}
	}

	if _, err := os.Stat(staged); err == nil {
		// Write the table to the shared storage before the staged key is deleted.
		if _, err := s.keeper.Change(ctx, func(*nodes.Table) error { return nil }); err != nil {
			return nil, err
		}
		if err := os.Remove(staged); err != nil {
			return nil, err
		}
	}

	return key, nil
}

// makeShared creates the directories that the masters need on the shared storage. Only the node
// that forms the cluster calls it.
func (s *shared) makeShared() error {
	cfg := s.env.Settings
	for _, d := range []struct {
		path string
		mode os.FileMode
		own  bool
	}{{cfg.StorageDir(), 0o755, false}, {cfg.SharedPKIDir(), 0o700, true}, {cfg.SharedNodesDir(), 0o700, false}} {
		err := os.Mkdir(d.path, d.mode)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}

		if err == nil && d.own && s.env.Account.Credential != nil {
			if err := os.Chown(d.path, s.env.Account.UID, s.env.Account.GID); err != nil {
				return err
			}
		}
	}

	return nil
}

// putKey writes the cluster's key pair. It writes the public half first, so that a reader that
// finds the private half finds both halves. public holds exactly the bytes of the public half that
// minions know. It may be nil: putKey then encodes the public half in the usual form.
func (s *shared) putKey(pki string, text, public []byte) error {
	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		return err
	}

	if !key.IsPublic(public) {
		public = []byte(key.Public)
	}

	for _, f := range []struct {
		name string
		text []byte
	}{{"cluster.pub", public}, {"cluster.pem", text}} {
		if err := putOwned(filepath.Join(pki, f.name), f.text, s.env.Account); err != nil {
			return err
		}
	}

	return nil
}

// putOwned writes a file of mode 0400 for an account into a folder that belongs to that account. It
// sets the owner through the open file, because the name could have become a link.
func putOwned(path string, text []byte, owner layout.Account) error {
	return durable.ReplaceWith(path, func(f *os.File) error {
		err := durable.Fill(f, text, 0o400)
		if err == nil && owner.Credential != nil {
			err = f.Chown(owner.UID, owner.GID)
		}
		return err
	})
}

// foundKey returns the cluster's key. If key is nil, waits says what is missing.
func (s *shared) foundKey() (key *nodeapi.ClusterKey, waits string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.key, s.waits
}

// holdsKey reports whether the shared storage holds the key that the table of nodes names. If not,
// holdsKey also returns what is missing.
func (s *shared) holdsKey() (bool, string) {
	key, waits := s.foundKey()
	t := s.keeper.Table()
	switch {
	case key == nil:
		return false, waits
	case t.KeyHash != "" && t.KeyHash != key.Hash:
		return false, cmp.Or(waits, "the cluster's new key")
	}
	return true, ""
}
