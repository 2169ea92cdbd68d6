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
	"saltern/lbproxy"
	"saltern/supervisor/guards"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/internal/oneatatime"
	"saltern/supervisor/internal/recovery"
	"saltern/supervisor/internal/salttools"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/systemd"
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
	master    *master
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
	door      *door
	api       *saltAPI
	backups   *backups       // nil: this node makes none by itself
	volume    *volume        // nil: this node keeps no shared volume
	member    *member.Member // nil: this node is alone
	virtual   *virtual       // nil: this node is alone
	recoverer recovery.Worker
	ending    atomic.Bool
}

// New makes a life; nothing runs before [Life.Run].
func New(cfg Config) (*Life, error) {
	cfg, err := asArbiter(cfg)
	if err != nil {
		return nil, err
	}

	s := cfg.Settings
	env := child.Env{
		Settings:   s,
		Log:        cfg.Log,
		Now:        cfg.Now,
		Executable: cfg.Executable,
		ConfigPath: cfg.ConfigPath,
	}

	programs, err := child.NewPrograms(env, cfg.InImage)
	if err != nil {
		return nil, err
	}

	n := &Life{cfg: cfg, env: env, programs: programs}
	n.balancer = &balancer{env: env, programs: programs, admin: lbproxy.NewClient(s.LBSocket()), settings: n.settings}
	n.observer = observe.New(observe.Config{
		Settings: s,
		Version:  cfg.Version,
		Started:  cfg.Started,
		Board:    cfg.Board,
		Log:      cfg.Log,
		Now:      cfg.Now,
		Notify:   cfg.Notify,
		Balancer: n.balancer.admin,
		Services: func(events int) []service.Info { return n.manager.Services(events) },
		Node:     n.known,
	})

	on := s
	if cfg.Move != nil {
		on = cfg.Move.Settings
	}

	n.volume = newVolume(on, env, programs.Master, certifier{n}, n.mayServe)
	n.master = &master{env: env, programs: programs, settings: n.settings, choice: newChoice(env, programs.Master)}
	n.api = &saltAPI{
		env:      env,
		programs: programs,
		setup:    cfg.Setup,
		master:   n.master,
		settings: n.settings,
		lone:     oneatatime.New(),
		restart:  func() error { return n.manager.Restart(status.APIService) },
	}

	n.door = &door{
		env:      env,
		account:  programs.Master,
		record:   cfg.Record,
		document: n.observer.Document,
		points:   n.observer.Points,
		soon:     make(chan string, maxSoon),
		records:  func(ctx context.Context, q audit.Query) (audit.List, error) { return n.records.Audit(ctx, q) },
		exists:   func(name string) error { _, err := n.manager.Output(name, 0); return err },
		restart:  func(name string) error { return n.manager.Restart(name) },
	}

	n.door.newest = n.newest
	n.options = newOptionsNode(n)
	n.packages = &packages{env: env}
	n.records = &records{settings: s, reading: oneatatime.New()}
	n.heads = newHeads(env, cfg.Record)
	n.system = newSystem(env, cfg.Socket, cfg.Setup, n.observer.Document)
	if s.Upgrade.URL != "" {
		n.channel = newChannel(env, n.system.sys)
	}

	n.upgrades = &upgrades{env: env, system: n.system, asked: make(chan upgradeRequest)}
	if n.window, err = newWindow(n); err != nil {
		return nil, err
	}

	n.rolls = &rolls{env: env, options: n.options, asked: make(chan rollRequest)}
	if s.Peering.Enabled {
		tools := n.master.tools()
		n.member, err = member.New(member.Config{
			Settings:       s,
			Version:        cfg.Version,
			Account:        programs.Master,
			Log:            cfg.Log,
			Now:            cfg.Now,
			OnTrial:        cfg.OnTrial,
			Balancer:       n.balancer.admin,
			Volume:         n.volume.manager,
			Document:       n.observer.Document,
			Serving:        n.observer.Serving,
			Removed:        func() bool { return cfg.Setup != nil && cfg.Setup.Where().State == status.SetupRemoved },
			OldKey:         n.master.choice.oldKey,
			RestartMaster:  func() error { return n.manager.Restart(status.MasterService) },
			TableChanged:   n.balancer.tableChanged,
			Master:         tools.Control,
			Minions:        tools.Minions,
			Git:            tools.Git,
			Options:        n.options,
			System:         n.system,
			Audit:          n.records.own,
			Events:         n.observer.Events,
			Points:         n.observer.Points,
			Newest:         n.newest,
			RestartService: n.door.restartSoon,
			Heads:          n.heads.own,
			Record:         cfg.Record,
			Tool:           salttools.NewGuest(tools, programs.Master.Credential, s.MasterRequest()).Prepare,
		})
		if err != nil {
			return nil, err
		}

		n.master.member, n.rolls.member = n.member, &member.Verbs{Member: n.member}
		n.api.member, n.door.member = n.member, n.member
		n.records.peers = n.member.Peers
		n.heads.key, n.heads.others = n.member.Key(), n.member.Heads
		n.system.member, n.upgrades.member = n.rolls.member, n.rolls.member
		n.virtual = &virtual{
			env:      env,
			programs: programs,
			socket:   cfg.Socket,
			member:   n.member,
			document: n.observer.Document,
			balancer: n.balancer.admin,
			restart:  func() error { return n.manager.Restart(status.VirtualService) },
		}
	}

	if n.backups, err = newBackups(env, cfg.Version, n.observer.Document); err != nil {
		return nil, err
	}

	n.recoverer = recovery.Worker{
		Recovery: cfg.Recovery,
		Settings: s,
		Serving:  n.observer.Serving,
		Ready:    func() bool { return n.volume.State().Ready },
	}

	if n.member != nil {
		n.recoverer.Member = n.member
	}

	n.manager, err = service.NewManager(cfg.Log, cfg.Now, n.specs()...)
	return n, err
}

// specs are the services of this life: the programs, then what runs in this
// process until all programs have stopped.
func (n *Life) specs() []service.Spec {
	var ready []service.Condition             // what the master waits for
	if n.volume != nil && n.cfg.Move == nil { // it is not being filled
		ready = append(ready, n.volume.ready())
	}

	var belongs service.Condition
	if n.member != nil {
		belongs = n.member.Belongs()
		ready = append(ready, n.member.Ready(), belongs)
	}

	var specs []service.Spec
	if n.cfg.Settings.Arbiter {
		if err := noTools(n.cfg.Settings); err != nil {
			n.cfg.Log.Warn("Salt's tools will not say that this node is the arbiter", "error", err)
		}
	} else {
		specs = append(specs, n.master.spec(service.All(ready...), n.observer.MasterSpoke),
			service.Loop("packages", n.packages.run))
	}

	if n.cfg.Settings.LB.Enabled {
		specs = append(specs, n.balancer.spec(belongs))
	} else {
		n.balancer.process(nil).Stop() // of a life in which it was enabled
	}

	if n.virtual != nil && !n.cfg.Settings.Arbiter {
		specs = append(specs, n.virtual.spec())
	}

	if n.cfg.Settings.API.Enabled && !n.cfg.Settings.Arbiter {
		specs = append(specs, n.api.spec(belongs))
	} else {
		// of a life in which it was enabled
		specs = append(specs, service.Loop("no API", func(ctx context.Context) { n.api.open(ctx, 0) }))
	}

	specs = append(specs, service.Loop("options", n.master.choice.run), service.Loop("roll", n.rolls.run), service.Loop("system", n.system.run), service.Loop("age", n.system.watch), service.Loop("upgrades", n.upgrades.run), service.Loop("heads", n.heads.run), service.Loop("observe", n.observer.Run), service.Loop("door", n.door.run),
		service.Loop("recovery", func(ctx context.Context) { n.recoverer.Run(ctx, n.cfg.Leave) }))
	if n.cfg.Settings.Webhook.Listen != "" {
		specs = append(specs, service.Loop("webhook", func(ctx context.Context) { serveWebhook(ctx, n) }))
	}

	if n.channel != nil {
		specs = append(specs, service.Loop("channel", n.channel.run))
	}

	if n.window != nil {
		specs = append(specs, service.Loop("window", n.window.run))
	}

	if n.backups != nil {
		specs = append(specs, service.Loop("backups", n.backups.Run))
	}

	if n.volume != nil {
		specs = append(specs, service.Loop("volume", n.volume.keep))
	}

	if n.cfg.Move != nil {
		specs = append(specs, service.Loop("move", func(ctx context.Context) { n.volume.take(ctx, n.cfg.Move, n.cfg.Leave) }))
	}

	if n.member != nil {
		specs = append(specs, service.Loop("member", n.member.Run),
			service.Loop("removed", func(ctx context.Context) { n.balancer.whenRemoved(ctx, n.cfg.Setup, n.member, n.manager) }))
	}

	return specs
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
	if n.member == nil {
		return ""
	}
	return n.member.Copied()
}

// settings are those of the node with the members of its cluster, if it has one.
func (n *Life) settings() *settings.Settings {
	if n.member == nil {
		return n.cfg.Settings
	}
	return n.member.Settings()
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
