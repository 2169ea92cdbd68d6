package supervisor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"saltern/internal/audit"
	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/datadisk"
	"saltern/supervisor/internal/life"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/internal/recovery"
	"saltern/supervisor/internal/sharedvolume"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/systemd"
)

// Options configures a Supervisor.
type Options struct {
	ConfigPath string // path of appliance.yaml
	Hostname   string // default name of the node
	Version    string // version shown in the status
	Executable string // path of this program, which is also the load balancer; the master's program is beside it
	Socket     string // path of the local API's socket; empty: as configured
	Log        *slog.Logger
	Notify     systemd.Notifier // may be nil: nobody is notified
	Now        func() time.Time // may be nil: time.Now
	// Renew is called at a reload, while only the load balancer runs. It may replace this process
	// by another program, and then does not return. It may be nil: the process is never replaced.
	Renew func()
	// OnTrial reports whether the system runs a version that is still on trial. It may be nil: no
	// version is on trial.
	OnTrial func() bool
	// InImage reports whether this system is the appliance's image, which has an account for each
	// child. In the image a child without its account is not started; elsewhere such a child runs
	// as root.
	InImage bool
	// Base says where a node keeps its files before appliance.yaml exists.
	Base setup.Base
	// Source searches for answers given with the machine, see setup.Config.
	Source func(context.Context) (setup.Given, error)
}

// socket returns the path of the local API's socket.
func (o Options) socket(cfg *settings.Settings) string {
	if o.Socket != "" {
		return o.Socket
	}
	return cfg.APISocket()
}

// Supervisor runs a node. Its methods are safe for concurrent use.
type Supervisor struct {
	opt     Options
	started time.Time
	reload  chan error // receives the cause with which the life of the node must end: life.ErrReload, errAnew
	// moveFailed reports whether the last try to move to the shared volume failed. Only Run uses
	// it.
	moveFailed bool

	setup    *setup.Machine
	reset    *resetter
	network  *setup.Networker
	recovery *recovery.Recovery

	mu    sync.Mutex
	node  *life.Life // nil: there is no usable configuration
	fault error      // why there is no usable configuration
	board *status.Board
}

// New returns a supervisor. It does nothing before Run.
func New(opt Options) *Supervisor {
	if opt.Now == nil {
		opt.Now = time.Now
	}

	opt.Notify = cmp.Or[systemd.Notifier](opt.Notify, systemd.Nobody{})
	s := &Supervisor{
		opt:     opt,
		started: opt.Now(),
		reload:  make(chan error, 1),
		board:   status.NewBoard(),
		fault:   settings.ErrNone,
	}

	s.network = setup.NewNetworker(opt.Log)
	s.recovery = recovery.New(opt.Executable, opt.Log)
	s.setup = s.newSetup()
	s.reset = &resetter{opt: opt, setup: s.setup, leave: s.endLife, copied: s.copied}

	return s
}

// configPoll is the interval at which a missing or wrong file is read again.
const configPoll = time.Second

// Run runs the node until ctx ends, then stops its children in reverse order. The error lists the
// children that did not stop, or says why nothing could be started: most often, another supervisor
// runs the node, and then Run has changed nothing. A missing or wrong configuration is not an error:
// the status reports it until somebody corrects it.
func (s *Supervisor) Run(ctx context.Context) error {
	claim, err := claimConfig(ctx, s.opt.ConfigPath, s.opt.Log)
	if err != nil {
		return err
	}
	defer claim.release()
	if err := s.claimDataDir(ctx, claim); err != nil {
		return err
	}

	own, cancel := context.WithCancel(ctx)
	stopped := s.reset.carryOut(ctx) // before the set-up starts
	var machine sync.WaitGroup
	machine.Go(func() { s.setup.Run(own) })

	if err := s.network.Resume(ctx); err != nil {
		s.opt.Log.Error("the network that was being tried cannot be taken back", "error", err)
	}

	defer func() {
		if err := s.network.Close(); err != nil {
			s.opt.Log.Error("the network that was being tried cannot be taken back", "error", err)
		}
	}()

	defer machine.Wait()
	defer cancel()
	for {
		// The signature is computed before the file is read, so that a change during the reading is
		// noticed.
		read := layout.Signature(s.opt.ConfigPath)
		cfg, err := settings.Load(s.opt.ConfigPath, s.opt.Hostname)
		if claimed := s.claimDataDir(ctx, claim); claimed != nil {
			err = claimed
		}
		switch {
		case stopped != nil:
			err = s.runWithout(ctx, read, stopped)
		case err != nil:
			err = s.runWithout(ctx, read, err)
		default:
			differs := nodeapi.CheckRecorded(cfg, s.opt.ConfigPath)
			err = s.runNode(ctx, nodeapi.FollowTable(cfg), differs)
		}

		if ctx.Err() != nil || !errors.Is(err, life.ErrReload) && !errors.Is(err, errAnew) {
			s.opt.Notify.Notify("STOPPING=1")
			return err
		}

		stopped = s.reset.carryOut(ctx)
		if s.opt.Renew != nil {
			s.opt.Renew()
		}

		s.opt.Log.Info("restarting with the present configuration", "path", s.opt.ConfigPath)
	}
}

// claimDataDir locks the data directory that the node has, or will have if it is not configured yet.
func (s *Supervisor) claimDataDir(ctx context.Context, c *claim) error {
	cfg, err := settings.Load(s.opt.ConfigPath, s.opt.Hostname)
	switch {
	case err == nil:
		return c.lockDataDir(ctx, cfg.DataDir)
	case errors.Is(err, settings.ErrNone):
		return c.lockDataDir(ctx, s.baseSettings().DataDir)
	default: // a wrong configuration does not name the data directory
		return nil
	}
}

// runWithout serves the status of a node without a usable configuration, until the signature of the
// configuration file differs from read. fault says why there is no usable configuration.
func (s *Supervisor) runWithout(ctx context.Context, read string, fault error) error {
	base := s.baseSettings()
	// A reset has stopped, and the configuration file is still there.
	if cfg, err := settings.Load(s.opt.ConfigPath, s.opt.Hostname); err == nil {
		base = *cfg
	}

	if err := os.MkdirAll(filepath.Dir(s.opt.socket(&base)), 0o755); err != nil {
		return fmt.Errorf("%w; and the local API cannot be served: %w", fault, err)
	}

	s.mu.Lock()
	s.node, s.fault = nil, fault
	s.mu.Unlock()

	switch {
	case errors.Is(fault, settings.ErrNone):
		s.opt.Log.Warn("not configured yet", "path", s.opt.ConfigPath)
	case !errors.Is(fault, errReset):
		s.opt.Log.Error("configuration is wrong", "error", fault)
	}

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	served := api.Config{
		Handlers: s.handlers(),
		Record:   record(&base, s.opt.Log),
		Admin:    base.Users.Admin,
	}
	defer served.Record.Close()

	return s.serveAPI(ctx, cancel, s.opt.socket(&base), served, func(ctx context.Context) {
		s.opt.Notify.Notify("READY=1\n" + systemd.Status(fault.Error()))
		tick := time.NewTicker(configPoll)
		defer tick.Stop()

		for {
			select {
			case <-ctx.Done():
				return
			case why := <-s.reload:
				cancel(why)
			case <-tick.C:
				s.opt.Notify.Notify("WATCHDOG=1")
				if layout.Signature(s.opt.ConfigPath) != read {
					cancel(life.ErrReload)
				}
			}
		}
	})
}

// runNodeAs runs a configured node until ctx ends or somebody requests a reload. m is the move to
// the shared volume that the node makes while it runs; nil: none. differs says where appliance.yaml
// contradicts the table of nodes; nil: nowhere.
func (s *Supervisor) runNodeAs(ctx context.Context, cfg *settings.Settings, differs error, m *sharedvolume.Migration) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	records := record(cfg, s.opt.Log)
	defer records.Close()

	n, err := life.New(life.Config{
		Settings:   cfg,
		Version:    s.opt.Version,
		ConfigPath: s.opt.ConfigPath,
		Executable: s.opt.Executable,
		Socket:     s.opt.socket(cfg),
		Started:    s.started,
		Board:      s.board,
		Log:        s.opt.Log,
		Now:        s.opt.Now,
		Notify:     s.opt.Notify,
		OnTrial:    s.opt.OnTrial,
		InImage:    s.opt.InImage,
		Setup:      s.setup,
		Recovery:   s.recovery,
		Record:     records,
		Differs:    differs,
		Move:       m,
		Leave:      func() { cancel(life.ErrReload) },
	})
	if err != nil {
		return err
	}
	defer n.Close()

	if err := os.MkdirAll(cfg.RuntimeDir, 0o755); err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}

	if err := layout.LinkFiles(cfg); err != nil {
		s.opt.Log.Error("/srv/salt and /srv/pillar do not lead to states and pillars", "error", err)
	}

	if err := datadisk.Mount(ctx, cfg); err != nil {
		s.opt.Log.Error("the data disk cannot be mounted", "error", err) // the status shows the problem
	}

	s.mu.Lock()
	s.node = n
	s.mu.Unlock()

	served := api.Config{
		Handlers: s.handlers(),
		Settings: cfg,
		Record:   records,
		Admin:    cfg.Users.Admin,
	}
	n.Register(served.Handlers)

	var stopped error
	err = s.serveAPI(ctx, cancel, s.opt.socket(cfg), served, func(ctx context.Context) {
		var asked sync.WaitGroup
		asked.Go(func() {
			select {
			case <-ctx.Done():
			case why := <-s.reload:
				cancel(why)
			}
		})

		if stopped = n.Run(ctx); stopped != nil {
			s.opt.Log.Error("parts of this node did not stop", "error", stopped)
		}
		cancel(nil) // if the life has ended without a reload, end the goroutine that waits for one
		asked.Wait()
	})

	if stopped != nil {
		var both *multierror.Error
		return multierror.Append(both, stopped, err).ErrorOrNil()
	}

	return err
}

// record returns the audit log for actions through the supervisor of a node.
func record(cfg *settings.Settings, log *slog.Logger) *audit.Log {
	return audit.Open(audit.Config{
		Dir:     cfg.AuditDir(),
		Node:    cfg.Node,
		Program: "applianced",
		Log:     log,
	})
}

// handlers returns the functions for the methods of the local API that every machine has.
func (s *Supervisor) handlers() *rpc.Handlers {
	h := &rpc.Handlers{}
	rpc.Handle(h, api.ReadStatus, func(context.Context, rpc.None) (status.Document, error) {
		return s.Status(), nil
	})
	rpc.Handle(h, api.ReadConfig, func(context.Context, rpc.None) (api.ConfigText, error) {
		text, err := s.Config()
		return api.ConfigText{Text: string(text)}, err
	})
	rpc.Handle(h, api.CheckConfig, rpc.Order(func(_ context.Context, text []byte) error { return s.CheckConfig(text) }))
	rpc.Handle(h, api.SetConfig, rpc.Order(func(_ context.Context, text []byte) error { return s.SetConfig(text) }))
	rpc.Handle(h, api.Reload, rpc.Order(func(context.Context, rpc.None) error { return s.Reload() }))

	rpc.Handle(h, api.PlanReset, func(context.Context, rpc.None) (api.ResetPlan, error) { return s.reset.PlanReset() })
	rpc.Handle(h, api.ResetNode, rpc.Order(func(context.Context, rpc.None) error { return s.reset.Reset() }))
	rpc.Handle(h, api.ReadReset, func(context.Context, rpc.None) (api.Resetting, error) { return s.reset.Resetting() })

	s.guide().register(h)
	return h
}

func (s *Supervisor) guide() guide {
	return guide{s.setup, s.network, s.readFacts, s.Status, s.addressLost}
}

// serveAPI serves the socket while body runs, and returns when both have ended. The API answers
// until body has ended. A reload cancels the context of body with the cause life.ErrReload.
func (s *Supervisor) serveAPI(
	ctx context.Context,
	cancel context.CancelCauseFunc,
	socket string,
	served api.Config,
	body func(context.Context),
) error {
	served.Log = s.opt.Log
	srv := api.NewServer(served)
	ln, err := srv.Listen(socket)
	if err != nil {
		return err
	}

	apiCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() {
		err := srv.Serve(apiCtx, ln)
		if err != nil {
			cancel(err)
		}
		ended <- err
	}()

	body(ctx)
	stop()
	if err := <-ended; err != nil {
		return err
	}

	if why := context.Cause(ctx); errors.Is(why, life.ErrReload) || errors.Is(why, errAnew) {
		return why
	}

	return nil
}

// Status returns the status document of the node, or of a machine that is not configured.
func (s *Supervisor) Status() status.Document {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		return s.node.Document()
	}

	return observe.Idle{
		Version:  s.opt.Version,
		Hostname: s.opt.Hostname,
		Started:  s.started,
		Config:   s.opt.ConfigPath,
		Fault:    s.fault,
		Reset:    errors.Is(s.fault, errReset),
		Setup:    s.setup.Where(),
	}.Document(s.board, s.opt.Now())
}

// Reload starts a new life of the node with the configuration file. It checks the file first: if
// the file is wrong, the running node continues.
func (s *Supervisor) Reload() error {
	cfg, err := settings.Load(s.opt.ConfigPath, s.opt.Hostname)
	if err == nil {
		err = nodeapi.CheckRecorded(cfg, s.opt.ConfigPath)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", api.ErrConfig, err)
	}
	s.endLife(life.ErrReload)
	return nil
}

// copied returns why this machine may not act for its node, or "" if it may, or if no node is
// configured.
func (s *Supervisor) copied() string {
	s.mu.Lock()
	n := s.node
	s.mu.Unlock()
	if n == nil {
		return ""
	}
	return n.Copied()
}

// endLife ends the life of the node with the cause why. A reset replaces a pending reload.
func (s *Supervisor) endLife(why error) {
	for {
		select {
		case s.reload <- why:
			return
		default:
		}

		if why == life.ErrReload {
			return
		}

		select {
		case <-s.reload:
		default:
		}
	}
}

// Config returns the text of the configuration file. The text is empty if there is no file.
func (s *Supervisor) Config() ([]byte, error) {
	b, err := os.ReadFile(s.opt.ConfigPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// CheckConfig checks a configuration. Its error is an [api.ErrConfig]. It refuses an empty
// configuration: this may come from a failed upload, and would turn this node into another one.
func (s *Supervisor) CheckConfig(text []byte) error {
	if settings.IsEmpty(text) {
		return fmt.Errorf("%w: it is empty: this node would have the defaults of all settings; "+
			"to start over: applianced reset", api.ErrConfig)
	}

	name := filepath.Base(s.opt.ConfigPath)
	cfg, err := settings.Parse(text, name, s.opt.Hostname)
	if err == nil {
		err = nodeapi.CheckRecorded(cfg, name)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", api.ErrConfig, err)
	}
	return nil
}

// SetConfig checks a configuration, replaces the file and starts a new life of the node.
func (s *Supervisor) SetConfig(text []byte) error {
	if err := s.CheckConfig(text); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(s.opt.ConfigPath), 0o755); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}
	if _, err := layout.WriteFile(s.opt.ConfigPath, text, 0o600); err != nil {
		return err
	}
	return s.Reload()
}
