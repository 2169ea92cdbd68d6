// Package member is a node's part in its cluster: it serves the node API, keeps
// the table of nodes and asks the other nodes how they are, finds the cluster's
// key and secrets on the shared storage, and does what an administrator asks of
// the cluster ([Verbs]). What the rest of the node has to know is in [State],
// as plain data; what it needs of the node is in [Config].
package member

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"sync"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/control/toolrun"
	"saltern/internal/pause"
	"saltern/lbproxy"
	"saltern/supervisor/history"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/options"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
	"saltern/supervisor/upgrade/rollout"
)

// Config is what a [Member] needs of its node.
type Config struct {
	Settings *settings.Settings
	Version  string
	Account  layout.Account // of the master, which owns what only it reads
	Log      *slog.Logger
	Now      func() time.Time
	OnTrial  func() bool // the system's version is not known to be good yet; nil: never
	Balancer *lbproxy.Client
	// Volume is the manager of the shared volume; nil: there is none.
	Volume   func() *storage.Manager
	Document func() status.Document // the node's newest status
	Serving  func() bool            // minions are answered
	Removed  func() bool            // the node was told before that it was removed
	// TableChanged puts a new table of nodes into the load balancer's configuration.
	TableChanged func() error
	// OldKey reports whether this node's master was started with another key of the cluster
	// than the storage has; it may hang. RestartMaster restarts it.
	OldKey        func() bool
	RestartMaster func() error
	Master        Master // this node's
	Minions       func(ctx context.Context, finger bool) (status.MinionView, error)
	Git           func(ctx context.Context, fetch bool, remote string) (status.GitView, error)
	Options       options.Node                                                 // of this node's master
	Audit         func(ctx context.Context, q audit.Query) (audit.Page, error) // what this node has written down
	Events        func(q history.Query) ([]history.Event, error)               // what this node saw
	Points        func() []control.Point                                       // how it did
	Newest        func(ctx context.Context) control.Newest                     // its files, made as they are now
	// RestartService restarts a service of this node, soon after it has returned.
	RestartService func(name string) error
	Heads          func() []audit.Head // of what this node has written down; nil: it tells none
	Record         *audit.Log          // where it does
	System         rollout.Node        // this machine's
	// Tool prepares a run of one of Salt's tools by this node's master; see [nodeapi.Host].
	Tool func(ctx context.Context, r toolrun.Request) (run func(context.Context, io.Writer), err error)
}

// Master is what is asked of a node's master: [control.Client].
type Master interface {
	RemoveMember(ctx context.Context, r control.Removal) error
	StageSecret(ctx context.Context) error
	CommitSecret(ctx context.Context, finger string) error
}

// volume is the state of the shared volume; nil: there is none.
func (c Config) volume() *storage.State {
	v := c.Volume()
	if v == nil {
		return nil
	}
	st := v.State()
	return &st
}

// Member is a node as a member of its cluster. Its methods are safe for
// concurrent use.
type Member struct {
	cfg    Config
	id     *nodeapi.Identity
	keeper *nodes.Keeper
	peers  *peers
	shared *shared
	saying service.Worker // tells the cluster that this node serves
	turns  *turns
	drains *drains
	left   *leftover
	halves *halves
	marks  *witness
	uses   *keyWatch
	wall   *wall
	api    *listener
	keys   *keyFollower
	// applied is the version of the table that apply has seen; Run's alone.
	applied uint64

	mu      sync.Mutex
	removed string // who said that this node was removed
}

// New gives the member of a node whose settings enable peering; nothing runs
// before [Member.Run].
func New(cfg Config) (*Member, error) {
	if err := os.MkdirAll(cfg.Settings.NodeDir(), 0o700); err != nil {
		return nil, fmt.Errorf("node directory: %w", err)
	}

	id, err := nodeapi.LoadIdentity(cfg.Settings.NodeDir())
	if err != nil {
		return nil, err
	}

	k, err := nodes.OpenKeeper(cfg.Settings.DataDir, cfg.Settings.SharedNodesDir())
	if err != nil {
		return nil, err
	}

	life := rand.Text()
	uses := newKeyWatch(cfg, id, life, k)
	m := &Member{
		cfg:    cfg,
		id:     id,
		keeper: k,
		uses:   uses,
		api:    &listener{cfg: cfg},
		drains: &drains{cfg: cfg, drained: map[string]bool{}},
	}

	m.peers = &peers{
		cfg:    cfg,
		id:     uses.id,
		keeper: k,
		uses:   uses,
		told:   m.setRemoved,
		views:  map[string]*peerView{},
	}

	m.left = &leftover{cfg: cfg, peers: m.peers}
	m.halves = &halves{cfg: cfg, keeper: k, change: m.Change}
	m.wall = &wall{cfg: cfg, keeper: k}
	if m.marks, err = newWitness(cfg, id.Hash, life, k, m.peers); err != nil {
		return nil, err
	}

	m.turns = &turns{cfg: cfg, peers: m.peers, life: life}
	m.shared = &shared{cfg: cfg, id: id, keeper: k, waits: "the shared storage"}
	m.keys = &keyFollower{cfg: cfg, shared: m.shared, turns: m.turns}
	return m, nil
}

const (
	memberTick = time.Second
	// sharedEvery is between looks at the shared storage once the cluster's key was
	// found there. Nodes give each other new tables at once: a look is for who missed
	// one, and each is a question to all bricks of a volume.
	sharedEvery = 4 * time.Second
	listenWait  = time.Second
)

// Run keeps the node a member until ctx ends.
func (m *Member) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { m.api.run(ctx, nodeapi.NewServer(host{m}, m.id, m.cfg.Version, m.cfg.Log, m.cfg.Now)) })
	tick := time.NewTicker(memberTick)
	defer tick.Stop()

	var looked time.Time
	for {
		if ok, _ := m.shared.ready(); !ok || time.Since(looked) >= sharedEvery {
			looked = time.Now()
			m.shared.place(ctx)
		}

		if m.Removed() == "" { // they would only say so again
			m.uses.reconcile(ctx)
			if others, heard := m.peers.heard(); others > 0 {
				m.uses.announce(m.cfg.Now(), heard)
			}
			m.peers.follow(ctx, &all)
			m.marks.reconcile(ctx, &all)
			m.halves.reconcile(ctx)
		}

		m.announce(ctx)
		m.turns.reconcile(ctx)
		m.keys.reconcile(ctx)
		m.left.reconcile(ctx)
		m.drains.worker.Start(func() { m.drains.reconcile(ctx, m.Settings().Members) })
		changed := m.keeper.Changed()
		m.apply()
		m.wall.reconcile(ctx)

		select {
		case <-ctx.Done():
			all.Wait()
			m.shared.look.Wait(2 * time.Second)
			m.saying.Wait(2 * time.Second)
			m.drains.worker.Wait(2 * time.Second)
			m.turns.returning.Wait(2 * time.Second)
			m.left.worker.Wait(2 * time.Second)
			m.keys.worker.Wait(2 * time.Second)
			m.halves.worker.Wait(2 * time.Second)
			m.wall.worker.Wait(2 * time.Second)
			m.marks.close()
			m.uses.close()
			m.peers.close()

			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// listener serves the node API.
type listener struct {
	cfg Config
	mu  sync.Mutex
	err error // why it does not listen
}

// run serves until ctx ends, again and again when that fails.
func (l *listener) run(ctx context.Context, srv *nodeapi.Server) {
	for ctx.Err() == nil {
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", l.cfg.Settings.NodeAddress())
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()

		if err == nil {
			err = srv.Serve(ctx, ln)
		}

		if err != nil && ctx.Err() == nil {
			l.cfg.Log.Error("node API", "error", err)
			_ = pause.For(ctx, listenWait)
		}
	}
}

// fault is why the node API does not listen; nil: it does.
func (l *listener) fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

var errNotJoining = errors.New("this node is not joining any more")

// announce says that this node serves, once it does and its master is in the
// masters' record: of a member that is not there it is known that it was removed.
func (m *Member) announce(ctx context.Context) {
	self, ok := m.Self()
	if !ok || self.State != nodes.Joining || !m.cfg.Serving() || m.uses.mayAct() != nil {
		return
	}

	m.saying.Start(func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if r, err := control.ReadRecord(m.cfg.Settings.ClusterRecord()); !self.IsArbiter() {
			if _, ok := r.Member(self.Address); err != nil || !ok {
				return
			}
		}

		_, err := m.keeper.Change(ctx, func(t *nodes.Table) error {
			if n, _ := t.ByCertificate(m.id.Hash); n.State != nodes.Joining {
				return errNotJoining // it was removed meanwhile, say
			}
			return t.Set(self.Name, nodes.Member)
		})
		if err != nil && !errors.Is(err, errNotJoining) {
			m.cfg.Log.Warn("cannot tell the cluster that this node serves", "error", err)
		}
	})
}

// Self returns this node's line in the table of nodes, a removed one's as well, and
// reports whether there is one.
func (m *Member) Self() (nodes.Node, bool) {
	t := m.keeper.Table()
	return t.ByCertificate(m.id.Hash)
}

// Heard tells of how many other nodes there are, and when the machine of one of them last sent
// anything; zero: never in this life.
func (m *Member) Heard() (others int, last time.Time) { return m.peers.heard() }

// Removed tells who says that this node was removed; empty: it belongs to its
// cluster.
func (m *Member) Removed() string {
	if t := m.keeper.Table(); t.WasRemoved(m.id.Hash) {
		return "the table of nodes says so"
	}
	if m.cfg.Removed() {
		return "it was told so before"
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.removed == "" {
		return ""
	}
	return m.removed + " says so"
}

func (m *Member) setRemoved(by string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed = by
}

// apply brings the masters of the load balancer in line with the table. Our master
// learns of its peers by itself; what its configuration says about them counts at its
// next start.
func (m *Member) apply() {
	t := m.keeper.Table()
	if t.Version == m.applied {
		return
	}
	m.applied = t.Version
	if m.cfg.Settings.LB.Enabled {
		if err := m.cfg.TableChanged(); err != nil {
			m.cfg.Log.Error("load balancer configuration", "error", err)
		}
	}
}
