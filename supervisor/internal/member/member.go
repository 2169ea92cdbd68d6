// Package member is a node's part in its cluster: it serves the node API, keeps
// the table of nodes and asks the other nodes how they are, finds the cluster's
// key and secrets on the shared storage, and does what an administrator asks of
// the cluster ([Verbs]). What the rest of the node has to know is in [State],
// as plain data; what it needs of the node is in [Config].
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

// Env is the surroundings of a member and of its parts.
type Env struct {
	Settings *settings.Settings
	Account  layout.Account // of the master, which owns what only it reads
	Log      *slog.Logger
	Now      func() time.Time
}

// Config holds what a [Member] uses of its node.
type Config struct {
	Version  string
	OnTrial  func() bool      // may be nil: the version of the system is known to be good
	Volume   *storage.Manager // may be nil: there is none
	Balancer *lbproxy.Client
	// TableChanged puts a new table of nodes into the load balancer's configuration.
	TableChanged func() error

	Observer Observer
	Records  Records // may be nil: the node tells no heads
	Record   *audit.Log
	Newest   func(ctx context.Context) control.Newest // brings the node's files up to date
	Restarts Restarts
	Options  options.Node // of this node's master
	System   rollout.Node // this machine's

	Master        Master
	MasterService MasterService
	Tools         Tools
	// Guest prepares a run of one of Salt's tools by this node's master; see [nodeapi.Host].
	Guest func(ctx context.Context, r toolrun.Request) (run func(context.Context, io.Writer), err error)
}

// Observer observes this node: its status, its events and its metrics.
type Observer interface {
	Document() status.Document // the newest one
	Serving() bool             // minions are answered
	Events(q history.Query) ([]history.Event, error)
	Points() []control.Point
}

// Records are the audit records of this node.
type Records interface {
	Own(ctx context.Context, q audit.Query) (audit.Page, error)
	Heads() []audit.Head
}

// Restarts restarts services of this node.
type Restarts interface {
	// RestartSoon restarts a service a moment after it has returned.
	RestartSoon(service string) error
}

// Tools are Salt's tools of this node's master.
type Tools interface {
	Minions(ctx context.Context, finger bool) (status.MinionView, error)
	Git(ctx context.Context, fetch bool, remote string) (status.GitView, error)
}

// MasterService is the service that runs this node's master.
type MasterService interface {
	// OldKey reports whether the master was started with another key of the cluster than the
	// storage has. It may hang.
	OldKey() bool
	Restart() error
}

// Master changes the masters' record: [control.Client].
type Master interface {
	RemoveMember(ctx context.Context, r control.Removal) error
	StageSecret(ctx context.Context) error
	CommitSecret(ctx context.Context, finger string) error
}

// volumeState returns the state of the shared volume, nil without one.
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
	saying   service.Worker // tells the cluster that this node serves
	turns    *turns
	drains   *drains
	oldBrick *oldBrick
	removals *removals
	firewall *firewallSync
	api      *listener
	keys     *keyFollower
	// applied is the version of the table that apply has seen; Run's alone.
	applied uint64
}

// New returns the member that does the work of a membership; nothing runs
// before [Member.Run].
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
	// sharedEvery is between looks at the shared storage once the cluster's key was
	// found there. Nodes give each other new tables at once: a look is for who missed
	// one, and each is a question to all bricks of a volume.
	sharedEvery = 4 * time.Second
)

// Run keeps the node a member until ctx ends.
func (m *Member) Run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { m.api.run(ctx, nodeapi.NewServer(host{m}, m.id, m.cfg.Version, m.env.Log, m.env.Now)) })
	tick := time.NewTicker(time.Second)
	defer tick.Stop()

	var looked time.Time
	for {
		if ok, _ := m.shared.ready(); !ok || time.Since(looked) >= sharedEvery {
			looked = time.Now()
			m.shared.place(ctx, m.cfg.Volume)
		}

		if m.Removed() == "" { // they would only say so again
			m.uses.reconcile(ctx)
			if others, heard := m.peers.heard(); others > 0 {
				m.uses.announce(m.env.Now(), heard)
			}
			m.peers.follow(ctx, &all)
			m.marks.reconcile(ctx, &all, m.cfg.Volume)
			m.removals.reconcile(ctx)
		}

		m.announce(ctx)
		m.turns.reconcile(ctx)
		m.keys.reconcile(ctx)
		m.oldBrick.reconcile(ctx)
		m.drains.worker.Start(func() { m.drains.reconcile(ctx, m.Settings().Members) })
		changed := m.keeper.Changed()
		m.apply()
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
	err error // why it does not listen
}

// run serves until ctx ends, again and again when that fails.
func (l *listener) run(ctx context.Context, srv *nodeapi.Server) {
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

// apply brings the masters of the load balancer in line with the table. Our master
// learns of its peers by itself; what its configuration says about them counts at its
// next start.
func (m *Member) apply() {
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
