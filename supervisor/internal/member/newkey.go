package member

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"saltern/internal/durable"
	"saltern/internal/pause"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
	"saltern/supervisor/setup"
)

// The cluster's key is replaced in three steps. Each step is one change on the shared storage, so
// that any node can continue after an interruption:
//
// 1. An import, or [Verbs.NewKey], writes the new key beside the old one, as cluster-next.
//    Nothing uses it yet.
// 2. [Verbs.TakeKey] enters the new key in the table of nodes. From then on it is the cluster's key.
// 3. Whichever node sees that first moves cluster-next to the place of the old key
//    ([shared.lookForKey]). A master that starts waits for that, and loads the new key.
//
// Running masters load the new key by a restart, one after the other. The import drives these
// restarts, as config apply does. A node that they did not reach restarts its own master when no
// other node has the turn any more ([keyFollower]).

const (
	maxKey = 64 << 10 // bytes of a key's file
	// keyLook is the interval at which a node checks whether its master still runs with an old key.
	keyLook = 2 * time.Second
)

// TakeKey replaces the cluster's key by the new key with that hash, which must be stored beside the
// old one. It acquires the turn to restart masters and keeps the turn for the restarts that follow.
// After an interruption it may be called again.
func (m Verbs) TakeKey(ctx context.Context, hash string) error {
	if m.env.Settings.Arbiter {
		return m.peers.noMaster("change the cluster's key")
	}

	text, err := durable.Read(m.shared.nextFile(".pem"), maxKey)
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: there is no new key beside the cluster's; the same import lays it there", api.ErrState)
	}
	if err != nil {
		return fmt.Errorf("read the cluster's new key: %w", err)
	}

	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		return err
	}
	if key.Hash != hash {
		return fmt.Errorf("%w: the key beside the cluster's is not the one that was imported", api.ErrState)
	}

	_, err = m.peers.change(ctx, func(t *nodes.Table) error {
		now := m.env.Now().UTC().Truncate(time.Second)
		to := nodes.Turn{
			Node:    m.env.Settings.Node,
			Life:    m.turns.life,
			Since:   now,
			Options: true,
			Key:     true,
			Until:   now.Add(options.Holds(options.UsualTime)),
		}

		if err := t.TakeTurn(to, false); err != nil {
			return err
		}

		return t.SetKey(key.Hash)
	})
	if errors.Is(err, nodes.ErrTurn) {
		return fmt.Errorf("%w: %w", api.ErrState, err)
	}
	if err != nil {
		return fmt.Errorf("name the new key in the table of nodes: %w", err)
	}

	m.env.Log.Info("the cluster's key becomes another", "key", key.Hash)
	for {
		m.shared.placeKey(ctx, m.cfg.Volume)
		if ok, waits := m.shared.holdsKey(); ok {
			return nil
		} else if pause.For(ctx, 100*time.Millisecond) != nil {
			return fmt.Errorf("the table of nodes names the new key, and this node still waits for %s", waits)
		}
	}
}

// Keys returns the cluster's key, and the new key beside it, if one is prepared.
func (m Verbs) Keys() (keys api.ClusterKeys, err error) {
	key, err := host{m.Member}.ClusterKey()
	if err != nil {
		return keys, fmt.Errorf("%w: %w", api.ErrState, err)
	}

	pki := m.env.Settings.SharedPKIDir()
	keys.Key = shownKey(key, filepath.Join(pki, "cluster.pub"))

	text, err := durable.Read(m.shared.nextFile(".pem"), maxKey)
	if errors.Is(err, fs.ErrNotExist) {
		return keys, nil
	}
	if err != nil {
		return keys, fmt.Errorf("read the cluster's new key: %w", err)
	}

	next, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		return keys, err
	}

	shown := shownKey(next, m.shared.nextFile(".pub"))
	keys.Next = &shown
	return keys, nil
}

func shownKey(key *nodeapi.ClusterKey, path string) api.ClusterKey {
	return api.ClusterKey{Hash: key.Hash, Finger: key.Finger(), Path: path}
}

// NewKey creates a new key beside the cluster's, unless there is one already. It writes the private
// half last, so that a node which finds the private half finds both halves.
func (m Verbs) NewKey(context.Context) (api.ClusterKeys, error) {
	if m.env.Settings.Arbiter {
		return api.ClusterKeys{}, m.peers.noMaster("make a key of the cluster")
	}

	keys, err := m.Keys()
	if err != nil || keys.Next != nil {
		return keys, err
	}

	text, err := nodeapi.NewClusterKey()
	if err != nil {
		return keys, err
	}

	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		return keys, err
	}

	for _, half := range []struct {
		name string
		text []byte
	}{{".pub", []byte(key.Public)}, {".pem", text}} {
		if err := putOwned(m.shared.nextFile(half.name), half.text, m.env.Account); err != nil {
			return keys, fmt.Errorf("lay a new key beside the cluster's: %w", err)
		}
	}

	m.env.Log.Info("a new key lies beside the cluster's; nobody uses it yet", "key", key.Hash)
	return m.Keys()
}

func (s *shared) nextFile(half string) string {
	return filepath.Join(s.env.Settings.SharedPKIDir(), setup.NextKey+half)
}

// takeNext moves the new key to the place of the cluster's key, if it has that hash. Several nodes
// may call takeNext at the same time.
func (s *shared) takeNext(hash string) (*nodeapi.ClusterKey, error) {
	pki := s.env.Settings.SharedPKIDir()
	text, err := durable.Read(s.nextFile(".pem"), maxKey)
	if errors.Is(err, fs.ErrNotExist) { // another node has already moved the new key
		if text, err = durable.Read(filepath.Join(pki, "cluster.pem"), maxKey); err == nil {
			return hasHash(text, hash)
		}
	}

	if err != nil {
		return nil, err
	}

	key, err := hasHash(text, hash)
	if err != nil {
		return nil, err
	}

	public, _ := durable.Read(s.nextFile(".pub"), maxKey)
	if err := s.putKey(pki, text, public); err != nil {
		return nil, err
	}

	for _, half := range []string{".pub", ".pem"} {
		if err := os.Remove(s.nextFile(half)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}

	return key, nil
}

// hasHash parses and returns a key. It returns an error if the key has another hash.
func hasHash(text []byte, hash string) (*nodeapi.ClusterKey, error) {
	key, err := nodeapi.ParseClusterKey(text)
	if err == nil && key.Hash != hash {
		err = errors.New("nor is the one beside it")
	}
	if err != nil {
		return nil, err
	}
	return key, nil
}

// keyFollower restarts this node's master when the master runs with an old key and no node drives
// such restarts any more: the node that drove them has died, or did not reach this one.
type keyFollower struct {
	env      Env
	shared   *shared
	turns    *turns
	master   MasterService
	observer Observer
	worker   service.Worker
}

// reconcile starts the restart of the master if one is due. Member.Run calls it about once a
// second.
func (k *keyFollower) reconcile(ctx context.Context) {
	if ok, _ := k.shared.holdsKey(); !ok || !k.shared.wasReplaced() {
		return
	}

	if t := k.shared.keeper.Table(); turnOf(&t, k.env.Now()) || t.WasRemoved(k.shared.id.Hash) {
		return
	}

	k.worker.Start(func() {
		defer func() { _ = pause.For(ctx, keyLook) }()
		if !k.master.OldKey() {
			k.shared.setReplaced(false)
			return
		}

		turn := optionsTurn{k.turns}
		if err := turn.Take(ctx, k.env.Now().Add(options.Holds(options.UsualTime))); err != nil {
			return // another node has taken the turn meanwhile
		}
		defer func() {
			if err := turn.Give(context.WithoutCancel(ctx)); err != nil {
				k.env.Log.Warn("the turn to restart the master is not given back, it ends by itself", "error", err)
			}
		}()

		k.env.Log.Info("salt-master is restarted to take the cluster's new key")
		if err := k.master.Restart(); err != nil {
			k.env.Log.Error("restart the master with the cluster's new key", "error", err)
			return
		}

		ctx, cancel := context.WithTimeout(ctx, options.UsualTime)
		defer cancel()
		for (k.master.OldKey() || !k.observer.Document().ServesItself()) && pause.For(ctx, keyLook/4) == nil {
		}
	})
}

func turnOf(t *nodes.Table, now time.Time) bool {
	_, ok := t.HasTurn(now)
	return ok
}

func (s *shared) wasReplaced() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.replaced
}

func (s *shared) setReplaced(to bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replaced = to
}
