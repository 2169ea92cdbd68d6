// Package life is one life of a configured node, from a start or a reload to the
// next: the services that it consists of, each in a file of its own, and what
// they know of each other. All that runs is a [service.Spec], programs and loops
// alike, so that one manager starts and stops it.
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
	"saltern/lbproxy"
	"saltern/supervisor/guards"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/internal/oneatatime"
	"saltern/supervisor/internal/recovery"
	"saltern/supervisor/internal/salttools"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/systemd"
	"saltern/supervisor/upgrade/rollout"
)

// ErrReload ends a life that is followed by another one.
var ErrReload = errors.New("reload")

// Config is what a life needs.
type Config struct {
	Settings   *settings.Settings
	Version    string
	ConfigPath string // of appliance.yaml
	Executable string // our own path: the load balancer is the same binary, the master lies beside it
	Socket     string // of the local API
	Started    time.Time
	Board      *status.Board
	Log        *slog.Logger
	Now        func() time.Time
	Notify     systemd.Notifier
	OnTrial    func() bool // the system's version is not known to be good yet; nil: never
	InImage    bool        // a child whose account is missing is not started, instead of run as root
	Setup      *setup.Machine
	Recovery   *recovery.Recovery
	Record     *audit.Log // of what is done through this node
	Differs    error      // what of appliance.yaml the table of nodes says otherwise; nil: nothing
	Move       *Move      // what is moved to the shared volume meanwhile; nil: nothing
	Leave      func()     // ends this life, another one follows
}

// Life is a node that runs. Its methods are safe for concurrent use.
type Life struct {
	cfg       Config
	env       child.Env
	programs  *child.Programs
	manager   *service.Manager
	observer  *observe.Observer
	cluster   *member.Membership // nil: this node is alone
	role      role
	member    *member.Member // nil: this node is alone
	tools     salttools.Tools
	master    *master
	trial     *choice
	options   *optionsNode
	rolls     *rolls
	system    *system
	upgrades  *upgrades
	channel   *channel // nil: there is no address to ask
	window    *window  // nil: nothing is installed by itself
	packages  *packages
	records   *records
	heads     *heads
	balancer  *balancer
	restarts  *restarts
	door      *door
	api       *saltAPI
	backups   *backups // nil: this node makes none by itself
	volume    *volume  // nil: this node keeps no shared volume
	virtual   *virtual // nil: this node is alone
	recoverer recovery.Worker
	ending    atomic.Bool
}

// New makes a life; nothing runs before [Life.Run]. What a part needs exists before it: first
// what knows the cluster, then this node's programs, then the member that offers both to the
// other nodes, then what asks the other nodes.
func New(cfg Config) (*Life, error) {
	cfg, err := asArbiter(cfg)
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

	return n, n.manager.Add(n.specs()...)
}

// openCluster opens what the node knows of its cluster, and the volume that they share.
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

	n.volume = newVolume(onVolume, n.env, n.programs.Master, n.cluster)
	return nil
}

// removedBefore reports whether the set-up knows that this node was removed from its cluster.
func (n *Life) removedBefore() bool {
	return n.cfg.Setup != nil && n.cfg.Setup.Where().State == status.SetupRemoved
}

// makePrograms creates the load balancer, salt-master and salt-api of this node, and what looks at them.
func (n *Life) makePrograms() {
	s := n.cfg.Settings
	admin := lbproxy.NewClient(s.LBSocket())
	n.balancer = &balancer{env: n.env, programs: n.programs, admin: admin, settings: n.settings}
	n.observer = observe.New(observe.Config{
		Settings: s,
		Version:  n.cfg.Version,
		Started:  n.cfg.Started,
		Board:    n.cfg.Board,
		Log:      n.cfg.Log,
		Now:      n.cfg.Now,
		Notify:   n.cfg.Notify,
		Balancer: admin,
		Services: n.manager.Services,
	})

	n.tools = newTools(n.env, n.programs.Master)
	n.trial = newChoice(n.env, n.programs.Master, n.named(status.MasterService), n.balancer.counts)
	n.master = &master{env: n.env, programs: n.programs, settings: n.settings, choice: n.trial}
	n.api = &saltAPI{
		env:      n.env,
		programs: n.programs,
		setup:    n.cfg.Setup,
		table:    n.table(),
		restart:  n.named(status.APIService).Restart,
		settings: n.settings,
		options:  n.trial.Mark,
		lone:     oneatatime.New(),
	}

	n.options = &optionsNode{
		env:    n.env,
		choice: n.trial,
		master: n.master,
		api:    n.api,
		moving: n.cfg.Move != nil,
		lone:   oneatatime.New(),
	}
	if n.volume != nil && n.cfg.Move == nil {
		n.options.refresh = n.volume.Refresh
	}

	n.packages = &packages{env: n.env}
	n.restarts = newRestarts(n.cfg.Log, n.manager)
}

// makeSystem creates what looks after this machine's system and its records.
func (n *Life) makeSystem() {
	n.records = &records{own: &ownRecords{settings: n.cfg.Settings, reading: oneatatime.New()}, peers: n.peers()}
	n.heads = newHeads(n.env, n.cfg.Record)
	n.system = newSystem(n.env, n.cfg.Socket, n.cfg.Setup, n.observer.Document, n.table())
	if n.cfg.Settings.Upgrade.URL != "" {
		n.channel = newChannel(n.env, n.system.sys)
	}
}

// makeMember creates this node's part in its cluster.
func (n *Life) makeMember() {
	s := n.cfg.Settings
	n.member = member.New(n.cluster, member.Config{
		Version:       n.cfg.Version,
		OnTrial:       n.cfg.OnTrial,
		Volume:        n.volume.manager(),
		Balancer:      n.balancer.admin,
		TableChanged:  n.balancer.tableChanged,
		Observer:      n.observer,
		Records:       nodeRecords{n.records.own, n.heads},
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

// makeRest creates what serves users and administrators, here and on the other nodes.
func (n *Life) makeRest() (err error) {
	var others func() []rollout.Target
	if n.member != nil {
		verbs := member.Verbs{Member: n.member}
		others = verbs.Systems
		n.rolls = newRolls(n.env, n.options, verbs)
		n.virtual = &virtual{
			env:      n.env,
			programs: n.programs,
			socket:   n.cfg.Socket,
			member:   n.member,
			document: n.observer.Document,
			balancer: n.balancer.admin,
			restart:  n.named(status.VirtualService).Restart,
		}
	} else {
		n.rolls = newRolls(n.env, n.options, nil)
	}

	n.upgrades = &upgrades{env: n.env, system: n.system, others: others, asked: make(chan upgradeRequest)}
	n.window, err = newWindow(n)
	if err != nil {
		return err
	}

	n.door = &door{
		env:      n.env,
		account:  n.programs.Master,
		record:   n.cfg.Record,
		document: n.observer.Document,
		points:   n.observer.Points,
		restarts: n.restarts,
		records:  n.records.Audit,
		newest:   n.newest,
		member:   n.member,
	}

	n.backups, err = newBackups(n.env, n.cfg.Version, n.observer.Document)
	if err != nil {
		return err
	}

	n.recoverer = recovery.Worker{
		Recovery: n.cfg.Recovery,
		Settings: n.cfg.Settings,
		Serving:  n.observer.Serving,
		Ready:    func() bool { return n.volume.State().Ready },
	}
	if n.member != nil {
		n.recoverer.Member = n.member
	}
	return nil
}

// named returns a service of this life.
func (n *Life) named(name string) service.Named { return service.Named{Manager: n.manager, Name: name} }

// table returns what reads the table of nodes; nil: this node is alone.
func (n *Life) table() func() nodes.Table {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.Table
}

// peers returns what lists the other nodes that have a master; nil: this node is alone.
func (n *Life) peers() func() map[string]*nodeapi.Client {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.Peers
}

// newest brings the files from which this node's master serves up to date.
func (n *Life) newest(ctx context.Context) control.Newest { return n.role.newest(ctx, n) }

// conditions returns what the master waits for, and that this node belongs to its cluster, which
// all its services wait for; nil: the node is alone.
func (n *Life) conditions() (master, belongs service.Condition) {
	var ready []service.Condition
	if n.volume != nil && n.cfg.Move == nil { // it is not being filled
		ready = append(ready, n.volume.ready())
	}
	if n.cluster == nil {
		return service.All(ready...), nil
	}

	belongs = n.cluster.Belongs()
	return service.All(append(ready, n.cluster.Ready(), belongs)...), belongs
}

// balancerSpecs returns the service of the load balancer. One that runs from a life in which it
// was enabled ends.
func (n *Life) balancerSpecs(belongs service.Condition) []service.Spec {
	if n.cfg.Settings.LB.Enabled {
		return []service.Spec{n.balancer.spec(belongs)}
	}
	n.balancer.process(nil).Stop()
	return nil
}

// noAPI closes the port of a salt-api from a life in which it was enabled.
func (n *Life) noAPI() service.Spec {
	return service.Loop("no API", func(ctx context.Context) { n.api.open(ctx, 0) })
}

// specs lists the services of this life: the programs, then what runs in this process until all
// programs have stopped.
func (n *Life) specs() []service.Spec {
	specs := append(n.role.services(n),
		service.Loop("options", n.trial.run),
		service.Loop("roll", n.rolls.run),
		service.Loop("system", n.system.run),
		service.Loop("age", n.system.watch),
		service.Loop("upgrades", n.upgrades.run),
		service.Loop("heads", n.watchHeads),
		service.Loop("observe", func(ctx context.Context) { n.observer.Run(ctx, n.known) }),
		service.Loop("restarts", n.restarts.run),
		service.Loop("recovery", func(ctx context.Context) { n.recoverer.Run(ctx, n.cfg.Leave) }),
	)

	add := func(name string, run func(context.Context)) { specs = append(specs, service.Loop(name, run)) }
	if n.cfg.Settings.Webhook.Listen != "" {
		add("webhook", n.serveWebhook)
	}
	if n.channel != nil {
		add("channel", n.channel.run)
	}
	if n.window != nil {
		add("window", n.window.run)
	}
	if n.backups != nil {
		add("backups", n.backups.Run)
	}
	if n.volume != nil {
		add("volume", n.volume.keep)
	}
	if n.cfg.Move != nil {
		add("move", func(ctx context.Context) { n.volume.take(ctx, n.cfg.Move, n.cfg.Leave) })
	}
	if n.member != nil {
		add("member", n.member.Run)
		add("removed", n.stopWhenRemoved)
	}
	return specs
}

// watchHeads tells the heads of this node's audit record, and writes down those of the others.
func (n *Life) watchHeads(ctx context.Context) {
	if n.cluster == nil {
		n.heads.run(ctx, "", nil)
		return
	}
	n.heads.run(ctx, n.cluster.Key(), n.cluster.Heads)
}

func (n *Life) stopWhenRemoved(ctx context.Context) {
	n.balancer.whenRemoved(ctx, n.cfg.Setup, n.cluster, n.manager)
}

// Run runs the node until ctx ends; its cause says whether another life
// follows. The error lists what did not stop.
func (n *Life) Run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { n.ending.Store(true) })()
	return n.manager.Run(ctx, n.cfg.Settings.Limits.StopTimeout+5*time.Second)
}

// Close closes the files of a life that has ended.
func (n *Life) Close() { n.programs.Close() }

// Document is the newest status.
func (n *Life) Document() status.Document { return n.observer.Document() }

// Copied says why this machine may not act for the node whose key it has, "" when it may.
func (n *Life) Copied() string {
	if n.cluster == nil {
		return ""
	}
	return n.cluster.Copied()
}

// settings are those of the node with the members of its cluster, if it has one.
func (n *Life) settings() *settings.Settings {
	if n.cluster == nil {
		return n.cfg.Settings
	}
	return n.cluster.Settings()
}

// known is what the node knows of itself, for the status.
func (n *Life) known() observe.Node {
	k := observe.Node{
		Role:     status.RoleSingle,
		Address:  n.cfg.Settings.Peering.Address,
		Volume:   n.volume.facts(),
		Virtual:  n.virtual.facts(),
		AsRoot:   n.programs.AsRoot(),
		Stopping: n.ending.Load(),
		Console:  n.api.console(),
	}

	if n.member != nil {
		st := n.member.State()
		k.Others = st.Others
		k.Cluster = st.Findings
		k.Role = st.Role
	}

	if k.Setup, k.Cluster = setupFacts(n.cfg.Setup, n.member, k.Cluster); k.Setup != "" {
		k.Step = observe.SetupStep(n.cfg.Setup.Where())
	}

	k.Packages = n.packages.why()
	if err := n.cfg.Record.Fault(); err != nil {
		k.Audit = err.Error()
	}

	k.Backup, k.Own = n.backups.facts()
	upgrade, found := n.window.facts()
	k.Upgrade = upgrade
	if n.cfg.Differs != nil {
		k.Own = append(k.Own,
			status.Finding{Code: status.ConfigDiffers, Subject: n.cfg.ConfigPath, Cause: settings.OneLine(n.cfg.Differs)})
	}

	k.Own = slices.Concat(k.Own, n.system.findings(), n.channel.findings(), found,
		guards.Findings(guards.Dir, n.cfg.Now().Sub(n.cfg.Started)))
	k.Blocked = n.programs.Blocked()
	k.Unbounded = n.programs.Unbounded()
	n.master.facts(&k)
	return k
}
