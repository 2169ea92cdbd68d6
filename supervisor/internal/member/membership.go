package member

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

// Membership holds what a node needs as a member of its cluster before its services start: its
// identity, its copy of the table of nodes, the cluster's key and secrets, and what it knows about
// the other nodes and its own disk. Its methods are safe for concurrent use.
type Membership struct {
	env    Env
	life   string // identifies this start of the supervisor
	id     *nodeapi.Identity
	keeper *nodes.Keeper
	peers  *peers
	shared *shared
	marks  *witness
	uses   *keyWatch
	// removedBefore reports whether another node said in an earlier life of this node that this
	// node was removed.
	removedBefore func() bool

	mu      sync.Mutex
	removed string // name of the node that says that this one was removed; empty: none does
}

// Open returns the membership of a node whose settings enable peering. removedBefore reports
// whether another node said in an earlier life of this node that this node was removed.
func Open(env Env, removedBefore func() bool) (*Membership, error) {
	if err := os.MkdirAll(env.Settings.NodeDir(), 0o700); err != nil {
		return nil, fmt.Errorf("node directory: %w", err)
	}

	id, err := nodeapi.LoadIdentity(env.Settings.NodeDir())
	if err != nil {
		return nil, err
	}

	keeper, err := nodes.OpenKeeper(env.Settings.DataDir, env.Settings.SharedNodesDir())
	if err != nil {
		return nil, err
	}

	m := &Membership{
		env:           env,
		life:          rand.Text(),
		id:            id,
		keeper:        keeper,
		shared:        &shared{env: env, id: id, keeper: keeper, waits: "the shared storage"},
		removedBefore: removedBefore,
	}

	m.uses = newKeyWatch(env, id, m.life, keeper)
	m.peers = &peers{
		env:    env,
		id:     m.uses.id,
		keeper: keeper,
		uses:   m.uses,
		told:   m.setRemoved,
		views:  map[string]*peerView{},
	}

	m.marks, err = newWitness(env, id.Hash, m.life, keeper, m.peers)
	return m, err
}

// Self returns this node's entry in the table of nodes, even if the entry says that the node was
// removed. The second result reports whether there is an entry.
func (m *Membership) Self() (nodes.Node, bool) {
	t := m.keeper.Table()
	return t.ByCertificate(m.id.Hash)
}

// Heard returns the number of other nodes, and the time at which any of their machines last sent
// anything. The time is zero if none has sent anything in this life.
func (m *Membership) Heard() (others int, last time.Time) { return m.peers.lastHeard() }

// Removed returns the source that says that this node was removed, or "" if none does.
func (m *Membership) Removed() string {
	if t := m.keeper.Table(); t.WasRemoved(m.id.Hash) {
		return "the table of nodes says so"
	}
	if m.removedBefore() {
		return "it was told so before"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removed == "" {
		return ""
	}
	return m.removed + " says so"
}

// mayGiveKey reports whether this node may give the cluster's key to another one: it has an entry
// in the table of nodes, and neither the table nor another node says that this node was removed.
func (m *Membership) mayGiveKey() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	self, ok := m.Self()
	return ok && self.State != nodes.Removed && m.removed == ""
}

func (m *Membership) setRemoved(by string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed = by
}

// Changed returns a channel that is closed at the next change of the table of nodes.
func (m *Membership) Changed() <-chan struct{} { return m.keeper.Changed() }

// Belongs returns the condition that this node has not been removed from its cluster. All services
// of the node wait for this condition.
func (m *Membership) Belongs() service.Condition {
	return service.Poll("this node to belong to the cluster", time.Second, time.Second, func(context.Context) error {
		if why := m.Removed(); why != "" {
			return fmt.Errorf("it was removed: %s", why)
		}
		return nil
	})
}

// Ready returns the condition that the shared storage holds the cluster's key. The master waits for
// this condition.
func (m *Membership) Ready() service.Condition {
	return service.PollMissing("the shared storage", 200*time.Millisecond, time.Second, func(context.Context) error {
		if ok, waits := m.shared.holdsKey(); !ok {
			return errors.New(waits)
		}
		return nil
	})
}

// Settings returns the node's settings, with the members of the cluster filled in.
func (m *Membership) Settings() *settings.Settings {
	c := *m.env.Settings
	t := m.keeper.Table()
	for _, o := range t.Serving() {
		c.Members = append(c.Members,
			settings.Member{
				Name:     o.Name,
				Address:  o.Address,
				Draining: o.State == nodes.Draining || o.State == nodes.Leaving,
			})
	}
	c.Founds = m.shared.founds()
	return &c
}

// Peers returns the clients of the other nodes that serve minions, by name.
func (m *Membership) Peers() map[string]*nodeapi.Client { return m.peers.serving() }

// Key returns this node's key in the table of nodes: the hash of its certificate.
func (m *Membership) Key() string { return m.id.Hash }

// Heads returns, by the name of the node, the heads of the other nodes' audit records as each node
// last sent them, with the node's key in the table of nodes.
func (m *Membership) Heads() map[string]Heads { return m.peers.auditHeads() }

// Authority asks the other nodes for the authority of the storage's certificates.
func (m *Membership) Authority(ctx context.Context) (storage.Authority, error) {
	return m.peers.authority(ctx)
}

// Sign asks the other nodes to sign the request for this node's certificate for the shared volume.
// It implements [storage.Certifier].
func (m *Membership) Sign(ctx context.Context, request []byte) (storage.Signed, error) {
	return m.peers.signStorage(ctx, request)
}

// WriteSecret writes the part of the master's configuration that holds the cluster's secret. Only
// the master's account may read the file.
func (m *Membership) WriteSecret() error { return m.shared.writeSecret() }

// Copied returns why this machine may not act for the node whose key it has, or "" if it may.
func (m *Membership) Copied() string { return m.uses.standing().refusal }

// MayServe reports whether glusterd may serve this node's copy of the shared volume. If not, why is
// the reason for waiting.
func (m *Membership) MayServe() (may bool, why string) {
	if s := m.uses.standing(); s.copied {
		return false, "this machine to be the node's own: " + s.refusal
	}
	return m.marks.mayServe()
}

// Table returns the table of nodes.
func (m *Membership) Table() nodes.Table { return m.keeper.Table() }

// Answers reports whether another node answered this node's last request.
func (m *Membership) Answers(node string) bool { return m.peers.answers(node) }
