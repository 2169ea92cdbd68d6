// Package member carries out a node's part in its cluster: it serves the node API, keeps the table
// of nodes, asks the other nodes for their state, finds the cluster's key and secrets on the shared
// storage, and carries out what an administrator requests of the cluster ([Verbs]). [State] is the
// plain data that the rest of the node reads; [Config] lists the parts of the node that a member
// uses.
package member

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
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

// Env holds what all parts of a member use.
type Env struct {
	Settings *settings.Settings
	Account  layout.Account // account of the master; it owns the files that only the master reads
	Log      *slog.Logger
	Now      func() time.Time
}

// Config holds what a [Member] uses of its node.
type Config struct {
	Version  string
	OnTrial  func() bool      // reports whether the version of the system is on trial; nil: never on trial
	Volume   *storage.Manager // may be nil: no shared volume
	Balancer *lbproxy.Client
	// TableChanged puts a new table of nodes into the load balancer's configuration.
	TableChanged func() error

	Observer Observer
	Records  Records // may be nil: the node sends no heads of its audit record to the others
	Record   *audit.Log
	Newest   func(ctx context.Context) control.Newest // updates the node's files from the shared volume
	Restarts Restarts
	Options  options.Node // the options of this node's master
	System   rollout.Node // the system of this machine, for upgrades

	Master        Master
	MasterService MasterService
	Tools         Tools
	// Guest prepares a run of one of Salt's tools by this node's master; see [nodeapi.Host].
	Guest func(ctx context.Context, r toolrun.Request) (run func(context.Context, io.Writer), err error)
}

// Observer observes this node: its status, its events and its metrics.
type Observer interface {
	Document() status.Document // the newest status
	Serving() bool             // reports whether the node answers minions
	Events(q history.Query) ([]history.Event, error)
	Points() []control.Point
}

// Records holds the audit records of this node for the other nodes.
type Records interface {
	Own(ctx context.Context, q audit.Query) (audit.Page, error)
	Heads() []audit.Head
}

// Restarts restarts services of this node.
type Restarts interface {
	// RestartSoon starts the restart of a service and returns before it is done.
	RestartSoon(service string) error
}

// Tools runs Salt's tools of this node's master.
type Tools interface {
	Minions(ctx context.Context, finger bool) (status.MinionView, error)
	Git(ctx context.Context, fetch bool, remote string) (status.GitView, error)
}

// MasterService is the service that runs this node's master.
type MasterService interface {
	// OldKey reports whether the master was started with a cluster key other than the one that the
	// storage has now. It reads the storage, so it may hang.
	OldKey() bool
	Restart() error
}

// Master changes the masters' record: [control.Client].
type Master interface {
	RemoveMember(ctx context.Context, r control.Removal) error
	StageSecret(ctx context.Context) error
	CommitSecret(ctx context.Context, finger string) error
}

// volumeState returns the state of the shared volume, or nil if volume is nil.
func volumeState(volume *storage.Manager) *storage.State {
	if volume == nil {
		return nil
	}
	st := volume.State()
	return &st
}

// Member is a node as a member of its cluster. Its methods are safe for
// concurrent use.
type Member struct {
	*Membership
	cfg      Config
	saying   service.Worker // tells the other nodes that this node serves
	turns    *turns
	drains   *drains
	oldBrick *oldBrick
	removals *removals
	firewall *firewallSync
	api      *listener
	keys     *keyFollower
	// applied is the version of the table that apply used last. Only Run accesses it.
	applied uint64
}

// New returns a member that does the work of a membership. It starts nothing before [Member.Run].
func New(own *Membership, cfg Config) *Member {
	env := own.env
	turns := &turns{
		env:      env,
		peers:    own.peers,
		life:     own.life,
		volume:   cfg.Volume,
		observer: cfg.Observer,
		onTrial:  cfg.OnTrial,
	}

	return &Member{
		Membership: own,
		cfg:        cfg,
		turns:      turns,
		drains:     &drains{env: env, balancer: cfg.Balancer, drained: map[string]bool{}},
		oldBrick:   &oldBrick{env: env, peers: own.peers, volume: cfg.Volume},
		removals:   &removals{env: env, master: cfg.Master, keeper: own.keeper, change: own.Change},
		firewall:   &firewallSync{env: env, keeper: own.keeper},
		api:        &listener{env: env},
		keys: &keyFollower{
			env:      env,
			shared:   own.shared,
			turns:    turns,
			master:   cfg.MasterService,
			observer: cfg.Observer,
		},
	}
}

const (
	// sharedEvery is the interval between two reads of the shared storage once the storage holds
	// the cluster's key. The reads help only a node that missed a table, because nodes send each
	// other new tables at once, and each read asks all bricks of a volume.
	sharedEvery = 4 * time.Second
)

// Run runs the member's loops until ctx ends.
func (m *Member) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { m.api.serveNodeAPI(ctx, nodeapi.NewServer(host{m}, m.id, m.cfg.Version, m.env.Log, m.env.Now)) })
	tick := time.NewTicker(time.Second)
	defer tick.Stop()

	var looked time.Time
	for {
		if ok, _ := m.shared.holdsKey(); !ok || time.Since(looked) >= sharedEvery {
			looked = time.Now()
			m.shared.placeKey(ctx, m.cfg.Volume)
		}

		if m.Removed() == "" { // a removed node asks the others nothing: they would only repeat that it was removed
			m.uses.reconcile(ctx)
			if others, heard := m.peers.lastHeard(); others > 0 {
				m.uses.announce(m.env.Now(), heard)
			}
			m.peers.follow(ctx, &all)
			if m.cfg.Volume != nil {
				m.cfg.Volume.NoteClocks(m.peers.clockLeads())
			}
			m.marks.reconcile(ctx, &all, m.cfg.Volume)
			m.removals.reconcile(ctx)
		}

		m.announce(ctx)
		m.turns.reconcile(ctx)
		m.keys.reconcile(ctx)
		m.oldBrick.reconcile(ctx)
		m.drains.worker.Start(func() { m.drains.reconcile(ctx, m.Settings().Members) })
		changed := m.keeper.Changed()
		m.applyTable()
		m.firewall.reconcile(ctx)

		select {
		case <-ctx.Done():
			all.Wait()
			m.shared.look.Wait(2 * time.Second)
			m.saying.Wait(2 * time.Second)
			m.drains.worker.Wait(2 * time.Second)
			m.turns.returning.Wait(2 * time.Second)
			m.oldBrick.worker.Wait(2 * time.Second)
			m.keys.worker.Wait(2 * time.Second)
			m.removals.worker.Wait(2 * time.Second)
			m.firewall.worker.Wait(2 * time.Second)
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
	env Env
	mu  sync.Mutex
	err error // why the node API does not listen; nil: it does
}

// serveNodeAPI serves the node API until ctx ends, and starts over when it fails.
func (l *listener) serveNodeAPI(ctx context.Context, srv *nodeapi.Server) {
	for ctx.Err() == nil {
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", l.env.Settings.NodeAddress())
		l.mu.Lock()
		l.err = err
		l.mu.Unlock()

		if err == nil {
			err = srv.Serve(ctx, ln)
		}

		if err != nil && ctx.Err() == nil {
			l.env.Log.Error("node API", "error", err)
			_ = pause.For(ctx, time.Second)
		}
	}
}

// listenFault returns why the node API does not listen, or nil.
func (l *listener) listenFault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

var errNotJoining = errors.New("this node is not joining any more")

// announce changes this node's state from joining to member, once the node serves and its master is
// in the masters' record: a member that is not in the record counts as removed.
func (m *Member) announce(ctx context.Context) {
	self, ok := m.Self()
	if !ok || self.State != nodes.Joining || !m.cfg.Observer.Serving() || m.uses.mayAct() != nil {
		return
	}

	m.saying.Start(func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if !self.IsArbiter() {
			r, err := control.ReadRecord(m.env.Settings.ClusterRecord())
			if err != nil {
				return
			}
			if _, ok := r.Member(self.Address); !ok {
				return
			}
		}

		_, err := m.keeper.Change(ctx, func(t *nodes.Table) error {
			if n, _ := t.ByCertificate(m.id.Hash); n.State != nodes.Joining {
				return errNotJoining // for example, the node was removed meanwhile
			}
			return t.Set(self.Name, nodes.Member)
		})
		if err != nil && !errors.Is(err, errNotJoining) {
			m.env.Log.Warn("cannot tell the cluster that this node serves", "error", err)
		}
	})
}

// applyTable writes the masters of a new table into the load balancer's configuration. Our master
// learns about new peers in another way: it reads the list of peers in its own configuration only
// when it starts.
func (m *Member) applyTable() {
	t := m.keeper.Table()
	if t.Version == m.applied {
		return
	}
	m.applied = t.Version
	if m.env.Settings.LB.Enabled {
		if err := m.cfg.TableChanged(); err != nil {
			m.env.Log.Error("load balancer configuration", "error", err)
		}
	}
}
