package storage

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"saltern/supervisor/nodes"
)

// Config is what a [Manager] works with.
type Config struct {
	Log *slog.Logger
	// Self is this node's name in the table.
	Self string
	// Volume is the name of the volume, Mount where it is mounted.
	Volume string
	Mount  string
	// Dir is on this node's own disk: the copy of the files for minions and what
	// has to be remembered without the volume.
	Dir string
	// Helper starts a child of this program that ends in [HelperMain].
	Helper []string
	// UID and GID of the master process, which owns what it writes.
	UID, GID int
	// Form tells that this node formed the cluster: it may create the volume
	// once. All others only ever join one.
	Form bool
	// TwoCopies allows two nodes to hold two copies without a third that decides.
	TwoCopies bool
	// TLS encrypts the data connections; decided when the volume is formed.
	TLS bool
	// Lead is asked before each change, beside the lease; nil: nobody is asked.
	Lead func(ctx context.Context) error
	// Now is the clock; nil: time.Now.
	Now func() time.Time
}

// Manager keeps the storage of one node. Its methods are safe for concurrent
// use and never wait for the volume.
type Manager struct {
	cfg Config

	mu    sync.Mutex
	table nodes.Table
	state State
}

// New makes a manager; nothing happens before Run.
func New(cfg Config) *Manager {
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Manager{cfg: cfg, state: State{Waiting: "the table of nodes", Spare: -1}}
}

// SetTable gives the members that the pool should have. A change under way
// that the new table does not want is stopped between two steps.
func (m *Manager) SetTable(t nodes.Table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.table = t
}

// State gives the newest state. It never waits.
func (m *Manager) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.state
}

// ProbePeer takes a machine into the pool on behalf of a node that joins: it
// must be done by a member, and only while glusterd of n answers. It is no
// fault when n is a member already.
func (m *Manager) ProbePeer(ctx context.Context, n nodes.Node) error {
	return nil
}

// Run keeps the storage until ctx ends; the volume stays mounted then.
func (m *Manager) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}
