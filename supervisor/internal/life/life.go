// Package life is one life of a configured node, from a start or a reload to the next: it creates
// the services of the node and connects them. Everything that runs is a [service.Spec], programs
// and loops alike, so that one manager starts and stops all of it.
package life

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/supervisor/backupplan"
	"saltern/supervisor/guards"
	"saltern/supervisor/internal/adminsocket"
	"saltern/supervisor/internal/balancer"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/mastersvc"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/internal/records"
	"saltern/supervisor/internal/recovery"
	"saltern/supervisor/internal/saltapi"
	"saltern/supervisor/internal/salttools"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/internal/setupview"
	"saltern/supervisor/internal/sharedvolume"
	"saltern/supervisor/internal/upgrading"
	"saltern/supervisor/internal/virtualaddress"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/systemd"
	"saltern/supervisor/upgrade/rollout"
)

// ErrReload is the cause with which a life ends if another one follows.
var ErrReload = errors.New("reload")

// Config holds what a life uses.
type Config struct {
	Settings   *settings.Settings
	Version    string
	ConfigPath string // path of appliance.yaml
	Executable string // path of this program, which is also the load balancer; salt-master is beside it
	Socket     string // path of the local API's socket
	Started    time.Time
	Board      *status.Board
	Log        *slog.Logger
	Now        func() time.Time
	Notify     systemd.Notifier
	OnTrial    func() bool // reports whether the system's version is on trial; nil: no version ever is
	// InImage reports whether the system is the image, which has an account for each child. On the
	// image a child without its account is not started, because it would run as root.
	InImage  bool
	Setup    *setup.Machine
	Recovery *recovery.Recovery
	Record   *audit.Log              // audit log of what is done through this node
	Differs  error                   // where appliance.yaml contradicts the table of nodes; nil: nowhere
	Move     *sharedvolume.Migration // the move to the shared volume that is under way; nil: no move
	Leave    func()                  // ends this life, so that the next one begins
}

// Life is a running node. Its methods are safe for concurrent use.
type Life struct {
	cfg       Config
	env       child.Env
	programs  *child.Programs
	manager   *service.Manager
	observer  *observe.Observer
	cluster   *member.Membership // nil: this node has no cluster
	role      role
	member    *member.Member // nil: this node has no cluster
	tools     salttools.Tools
	master    *mastersvc.Master
	trial     *mastersvc.Trial
	options   *mastersvc.OptionsNode
	rolls     *mastersvc.Rolls
	system    *upgrading.System
	upgrades  *upgrading.Upgrades
	channel   *upgrading.Channel // nil: the settings have no address to ask
	window    *upgrading.Window  // nil: the settings have no upgrade window
	packages  *mastersvc.Packages
	nodeLog   *records.Node
	records   *records.Cluster
	heads     *records.Heads
	balancer  *balancer.Balancer
	restarts  *adminsocket.Restarts
	socket    *adminsocket.Socket
	api       *saltapi.API
	backups   *backupplan.Keeper     // nil: this node makes no scheduled backups
	volume    *sharedvolume.Volume   // nil: this node uses no shared volume
	virtual   *virtualaddress.Keeper // nil: this node has no cluster
	recoverer recovery.Worker
	setup     setupview.View
	ending    atomic.Bool
}

// New creates a life. Nothing runs before [Life.Run]. New creates the parts in an order in which
// each finds the parts it needs: first those that know the cluster, then this node's programs, then
// the member, which offers these to the other nodes, then the parts that ask the other nodes.
func New(cfg Config) (*Life, error) {
	var err error
	cfg.Settings, err = member.AsArbiter(cfg.Settings)
	if err != nil {
		return nil, err
	}

	n := &Life{
		cfg: cfg,
		env: child.Env{
			Settings:   cfg.Settings,
			Log:        cfg.Log,
			Now:        cfg.Now,
			Executable: cfg.Executable,
			ConfigPath: cfg.ConfigPath,
		},
		manager: service.NewManager(cfg.Log, cfg.Now),
		role:    roleOf(cfg.Settings),
	}

	n.programs, err = child.NewPrograms(n.env, cfg.InImage)
	if err != nil {
		return nil, err
	}

	err = n.openCluster()
	if err != nil {
		return nil, err
	}

	n.makePrograms()
	n.makeSystem()
	if n.cluster != nil {
		n.makeMember()
	}

	err = n.makeRest()
	if err != nil {
		return nil, err
	}

	return n, n.manager.Add(n.serviceSpecs()...)
}

// openCluster opens the node's membership of its cluster, and the shared volume.
func (n *Life) openCluster() (err error) {
	s := n.cfg.Settings
	if s.Peering.Enabled {
		n.cluster, err = member.Open(member.Env{
			Settings: s,
			Account:  n.programs.Master,
			Log:      n.cfg.Log,
			Now:      n.cfg.Now,
		}, n.removedBefore)
		if err != nil {
			return err
		}
	}

	onVolume := s
	if n.cfg.Move != nil {
		onVolume = n.cfg.Move.Settings
	}

	n.volume = sharedvolume.New(onVolume, n.env, n.programs.Master, n.cluster)
	return nil
}

// removedBefore reports whether the set-up has recorded that this node was removed from its
// cluster.
func (n *Life) removedBefore() bool {
	return n.cfg.Setup != nil && n.cfg.Setup.Where().State == status.SetupRemoved
}

// makePrograms creates the load balancer, salt-master and salt-api of this node, and their
// observer.
func (n *Life) makePrograms() {
	s := n.cfg.Settings
	n.balancer = balancer.New(n.env, n.programs, n.settings, ErrReload)
	n.observer = observe.New(observe.Config{
		Settings: s,
		Version:  n.cfg.Version,
		Started:  n.cfg.Started,
		Board:    n.cfg.Board,
		Log:      n.cfg.Log,
		Now:      n.cfg.Now,
		Notify:   n.cfg.Notify,
		Balancer: n.balancer.Admin(),
		Services: n.manager.Services,
	})

	n.tools = mastersvc.NewTools(n.env, n.programs.Master)
	masterService := n.namedService(status.MasterService)
	n.trial = mastersvc.NewTrial(n.env, n.programs.Master, masterService, n.balancer.CountsMaster)
	n.master = mastersvc.New(n.env, n.programs, n.settings, n.trial)
	n.api = saltapi.New(saltapi.Config{
		Env:      n.env,
		Programs: n.programs,
		Setup:    n.cfg.Setup,
		Table:    n.tableReader(),
		Settings: n.settings,
		Options:  n.trial.Mark,
		Service:  n.namedService(status.APIService),
	})

	n.options = mastersvc.NewOptionsNode(mastersvc.OptionsConfig{
		Master:  n.master,
		API:     n.api,
		Refresh: n.refresh(),
		Moving:  n.cfg.Move != nil,
	})
	n.packages = mastersvc.NewPackages(n.env)
	n.restarts = adminsocket.NewRestarts(n.cfg.Log, n.manager)
}

// makeSystem creates the parts for this machine's system and for audit records.
func (n *Life) makeSystem() {
	n.nodeLog = records.NewNode(n.cfg.Settings)
	n.records = records.NewCluster(n.nodeLog, n.masterPeers())
	n.heads = records.NewHeads(n.env, n.cfg.Record)
	n.system = upgrading.NewSystem(n.env, n.cfg.Socket, n.cfg.Setup, n.observer.Document, n.tableReader())
	n.channel = upgrading.NewChannel(n.env, n.system)
}

// makeMember creates the member, this node's part in its cluster.
func (n *Life) makeMember() {
	s := n.cfg.Settings
	n.member = member.New(n.cluster, member.Config{
		Version:       n.cfg.Version,
		OnTrial:       n.cfg.OnTrial,
		Volume:        n.volume.StorageManager(),
		Balancer:      n.balancer.Admin(),
		TableChanged:  n.balancer.TableChanged,
		Observer:      n.observer,
		Records:       records.Told{Node: n.nodeLog, Newest: n.heads},
		Record:        n.cfg.Record,
		Newest:        n.newest,
		Restarts:      n.restarts,
		Options:       n.options,
		System:        n.system,
		Master:        n.tools.Control,
		MasterService: n.trial,
		Tools:         n.tools,
		Guest:         salttools.NewGuest(n.tools, n.programs.Master.Credential, s.MasterRequest()).Prepare,
	})
}

// makeRest creates the parts that serve users and administrators, on this node and on the others.
func (n *Life) makeRest() (err error) {
	var others func() []rollout.Target
	if n.member != nil {
		verbs := member.Verbs{Member: n.member}
		others = verbs.Systems
		n.rolls = mastersvc.NewRolls(n.env, n.options, verbs)
		n.virtual = virtualaddress.New(virtualaddress.Config{
			Env:      n.env,
			Programs: n.programs,
			Socket:   n.cfg.Socket,
			Member:   n.member,
			Document: n.observer.Document,
			Balancer: n.balancer.Admin(),
			Service:  n.namedService(status.VirtualService),
		})
	} else {
		n.rolls = mastersvc.NewRolls(n.env, n.options, nil)
	}

	n.upgrades = upgrading.NewUpgrades(n.env, n.system, others)
	n.window, err = upgrading.NewWindow(n.env, n.cfg.Record, n.channel, n.upgrades, n.observer.Document)
	if err != nil {
		return err
	}

	n.socket = adminsocket.New(adminsocket.Config{
		Node:     n.cfg.Settings.Node,
		Path:     n.cfg.Settings.DoorSocket(),
		Account:  n.programs.Master,
		Log:      n.cfg.Log,
		Now:      n.cfg.Now,
		Record:   n.cfg.Record,
		Observer: n.observer,
		Restarts: n.restarts,
		Records:  n.records,
		Newest:   n.newest,
		Member:   n.member,
		Masters:  n.masters(),
	})

	n.backups, err = backupplan.New(backupplan.Config{
		Settings:   n.cfg.Settings,
		ConfigPath: n.cfg.ConfigPath,
		Version:    n.cfg.Version,
		Executable: n.cfg.Executable,
		Log:        n.cfg.Log,
		Now:        n.cfg.Now,
		Rank:       func() (rank, total int, ready bool) { return n.observer.Document().ServingRank() },
	})
	if err != nil {
		return err
	}

	n.recoverer = recovery.Worker{
		Recovery: n.cfg.Recovery,
		Settings: n.cfg.Settings,
		Serving:  n.observer.Serving,
		Ready:    func() bool { return n.volume.State().Ready },
	}
	n.setup = setupview.View{
		Settings: n.cfg.Settings,
		Setup:    n.cfg.Setup,
		Document: n.observer.Document,
		Volume:   n.volume.Facts,
	}
	if n.member != nil {
		n.recoverer.Member = n.member
		n.setup.Member = n.member
	}
	return nil
}

// namedService returns a handle on a service of this life.
func (n *Life) namedService(name string) service.Named {
	return service.Named{Manager: n.manager, Name: name}
}

// refresh returns the function that updates the node's copy of the shared volume. It returns nil if
// there is no volume, or while a move is still filling the volume.
func (n *Life) refresh() func(context.Context) error {
	if n.volume == nil || n.cfg.Move != nil {
		return nil
	}
	return n.volume.Refresh
}

// tableReader returns the function that returns the table of nodes, or nil if this node has no cluster.
func (n *Life) tableReader() func() nodes.Table {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.Table
}

// masterPeers returns the function that returns the clients of the other nodes with a master, or nil if
// this node has no cluster.
func (n *Life) masterPeers() func() map[string]*nodeapi.Client {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.Peers
}

// newest updates the files from which this node's master serves.
func (n *Life) newest(ctx context.Context) control.Newest { return n.role.newest(ctx, n) }

// conditions returns the conditions that services wait for. The master waits for the condition
// master, and all services wait for belongs: that this node belongs to its cluster. Without a
// cluster belongs is nil, and master requires only that the shared volume is ready.
func (n *Life) conditions() (master, belongs service.Condition) {
	var ready []service.Condition
	if n.volume != nil && n.cfg.Move == nil { // otherwise the move is still filling the volume
		ready = append(ready, n.volume.Ready())
	}
	if n.cluster == nil {
		return service.All(ready...), nil
	}

	belongs = n.cluster.Belongs()
	return service.All(append(ready, n.cluster.Ready(), belongs)...), belongs
}

// balancerSpecs returns the service of the load balancer. If the load balancer is not enabled,
// balancerSpecs stops one that an earlier life has left running.
func (n *Life) balancerSpecs(belongs service.Condition) []service.Spec {
	if n.cfg.Settings.LB.Enabled {
		return []service.Spec{n.balancer.Spec(belongs)}
	}
	n.balancer.Stop()
	return nil
}

// noAPI returns a loop that closes the firewall port of salt-api, which an earlier life may have
// opened.
func (n *Life) noAPI() service.Spec {
	return service.Loop("no API", func(ctx context.Context) { n.api.OpenPort(ctx, 0) })
}

// serviceSpecs returns the services of this life: first the programs, then the loops in this process,
// which run until all programs have stopped.
func (n *Life) serviceSpecs() []service.Spec {
	specs := append(n.role.services(n),
		service.Loop("options", n.trial.Run),
		service.Loop("roll", n.rolls.Run),
		service.Loop("system", n.system.Run),
		service.Loop("age", n.system.WatchAge),
		service.Loop("upgrades", n.upgrades.Run),
		service.Loop("heads", n.watchHeads),
		service.Loop("observe", func(ctx context.Context) { n.observer.Run(ctx, n.statusFacts) }),
		service.Loop("restarts", n.restarts.Run),
		service.Loop("recovery", func(ctx context.Context) { n.recoverer.Run(ctx, n.cfg.Leave) }),
	)

	add := func(name string, run func(context.Context)) { specs = append(specs, service.Loop(name, run)) }
	if n.cfg.Settings.Webhook.Listen != "" {
		add("webhook", n.serveWebhook)
	}
	if n.channel != nil {
		add("channel", n.channel.Run)
	}
	if n.window != nil {
		add("window", n.window.Run)
	}
	if n.backups != nil {
		add("backups", n.backups.Run)
	}
	if n.volume != nil {
		add("volume", n.volume.Keep)
	}
	if n.cfg.Move != nil {
		add("move", func(ctx context.Context) { n.volume.Move(ctx, n.cfg.Move, n.cfg.Leave) })
	}
	if n.member != nil {
		add("member", n.member.Run)
		add("removed", n.retirement().Run)
	}
	return specs
}

// retirement returns the part that stops this node's services if the node is removed from its
// cluster.
func (n *Life) retirement() member.Retirement {
	r := member.Retirement{
		Membership: n.cluster,
		Services:   n.manager,
		Setup:      n.cfg.Setup,
		Balancer:   n.namedService(status.BalancerService),
		Log:        n.cfg.Log,
	}
	if n.cfg.Settings.LB.Enabled {
		r.Process = n.balancer
	}
	return r
}

// watchHeads publishes the heads of this node's audit record, and records those of the other nodes.
func (n *Life) watchHeads(ctx context.Context) {
	if n.cluster == nil {
		n.heads.Run(ctx, "", nil)
		return
	}
	n.heads.Run(ctx, n.cluster.Key(), n.cluster.Heads)
}

// Run runs the node until ctx ends. The cause of ctx says whether another life follows. The error
// lists the parts that did not stop.
func (n *Life) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { n.ending.Store(true) })()
	return n.manager.Run(ctx, n.cfg.Settings.Limits.StopTimeout+5*time.Second)
}

// Close closes the log files of a life that has ended.
func (n *Life) Close() { n.programs.Close() }

// Document returns the newest status.
func (n *Life) Document() status.Document { return n.observer.Document() }

// SetupView returns the view of this node for its set-up.
func (n *Life) SetupView() setupview.View { return n.setup }

// Copied returns why this machine may not act for the node whose key it has, or "" if it may.
func (n *Life) Copied() string {
	if n.cluster == nil {
		return ""
	}
	return n.cluster.Copied()
}

// settings returns the node's settings, with the members of its cluster filled in.
func (n *Life) settings() *settings.Settings {
	if n.cluster == nil {
		return n.cfg.Settings
	}
	return n.cluster.Settings()
}

// statusFacts returns what the node knows of itself, for the status.
func (n *Life) statusFacts() observe.Node {
	k := observe.Node{
		Role:     status.RoleSingle,
		Address:  n.cfg.Settings.Peering.Address,
		Volume:   n.volume.Facts(),
		Virtual:  n.virtual.Facts(),
		AsRoot:   n.programs.AsRoot(),
		Stopping: n.ending.Load(),
		Console:  n.api.Console(),
	}

	if n.member != nil {
		st := n.member.State()
		k.Others = st.Others
		k.Cluster = st.Findings
		k.Role = st.Role
	}

	n.setup.Report(&k)
	k.Packages = n.packages.Fault()
	if err := n.cfg.Record.Fault(); err != nil {
		k.Audit = err.Error()
	}

	k.Backup, k.Own = n.backups.Facts()
	upgrade, found := n.window.Facts()
	k.Upgrade = upgrade
	if n.cfg.Differs != nil {
		k.Own = append(k.Own,
			status.Finding{Code: status.ConfigDiffers, Subject: n.cfg.ConfigPath, Cause: settings.OneLine(n.cfg.Differs)})
	}

	k.Own = slices.Concat(k.Own, n.system.Findings(), n.channel.Findings(), found,
		guards.Findings(guards.Dir, n.cfg.Now().Sub(n.cfg.Started)))
	k.Blocked = n.programs.Blocked()
	k.Unbounded = n.programs.Unbounded()
	n.master.Facts(&k)
	return k
}
