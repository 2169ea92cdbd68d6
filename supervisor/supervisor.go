package supervisor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"saltern/supervisor/api"
	"saltern/supervisor/datadisk"
	"saltern/supervisor/layout"
	"saltern/supervisor/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// Options are what a Supervisor needs from outside.
type Options struct {
	ConfigPath string // of appliance.yaml
	Hostname   string // default identity
	Version    string // shown in status
	Executable string // our own path: the load balancer is the same binary, the master lies beside it
	Socket     string // of the local API; empty: as configured
	Log        *slog.Logger
	Notify     Notifier         // nil: nobody
	Now        func() time.Time // nil: time.Now
	// Renew is called at a reload, while only the load balancer runs. It may
	// put another program into the place of this process and then does not
	// return. nil: nothing.
	Renew func()
	// OnTrial tells whether the system runs a version that is not known to be
	// good yet. nil: it never does.
	OnTrial func() bool
	// InImage says that this is the appliance's image, which has all accounts: a
	// child whose account is missing is not started, instead of run as root.
	InImage bool
	// Base is where a node keeps things before appliance.yaml says so.
	Base setup.Base
	// Source looks for answers given with the machine, see setup.Config.
	Source func(context.Context) (*setup.Answers, string, error)
}

// Supervisor runs a node. Its methods are safe for concurrent use.
type Supervisor struct {
	opt     Options
	started time.Time
	reload  chan error // why the life of the node ends: errReload, errAnew
	// moveFailed: the last try to move to the shared volume failed. Of Run alone.
	moveFailed bool

	setup   *setup.Machine
	network *setup.Networker

	mu    sync.Mutex
	node  *node // nil while there is no usable configuration
	fault error // why there is none
	board *status.Board
	// recoverErr is why the last try to recover failed; empty: it did not.
	recoverErr string
	resetFault string // why a reset has stopped; empty: it has not
}

// New gives a supervisor; nothing happens before Run.
func New(opt Options) *Supervisor {
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Notify == nil {
		opt.Notify = silent{}
	}
	s := &Supervisor{opt: opt, started: opt.Now(), reload: make(chan error, 1), board: status.NewBoard(), fault: settings.ErrNone}
	s.network = setup.NewNetworker(opt.Log)
	s.setup = s.newSetup()
	return s
}

// configPoll is how often a missing or wrong file is looked at again.
const configPoll = time.Second

var errReload = errors.New("reload")

// Run runs the node until ctx ends, then stops its children in reverse order.
// The error lists what did not stop, or says why nothing could be started
// (the local API's socket, above all). A missing or wrong configuration is
// not an error: it is served as status until it is mended.
func (s *Supervisor) Run(ctx context.Context) error {
	own, cancel := context.WithCancel(ctx)
	stopped := s.anew(ctx) // before the set-up does anything
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
		read := signature(s.opt.ConfigPath) // before it is read: a change meanwhile is seen as well
		cfg, err := settings.Load(s.opt.ConfigPath, s.opt.Hostname)
		switch {
		case stopped != nil:
			err = s.runWithout(ctx, read, stopped)
		case err != nil:
			err = s.runWithout(ctx, read, err)
		default:
			err = s.runNode(ctx, cfg)
		}
		if ctx.Err() != nil || !errors.Is(err, errReload) && !errors.Is(err, errAnew) {
			s.opt.Notify.Notify("STOPPING=1")
			return err
		}
		stopped = s.anew(ctx)
		if s.opt.Renew != nil {
			s.opt.Renew()
		}
		s.opt.Log.Info("starting anew with the configuration as it is now", "path", s.opt.ConfigPath)
	}
}

// runWithout serves the status of a node that has no usable configuration,
// until there is another than the one that was read.
func (s *Supervisor) runWithout(ctx context.Context, read string, fault error) error {
	base := s.base()
	if cfg, err := settings.Load(s.opt.ConfigPath, s.opt.Hostname); err == nil { // a reset has stopped
		base = *cfg
	}
	if err := os.MkdirAll(filepath.Dir(s.socket(&base)), 0o755); err != nil {
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
	return s.serveAPI(ctx, cancel, s.socket(&base), base.Users.Admin, func(ctx context.Context) {
		s.opt.Notify.Notify("READY=1\nSTATUS=" + oneLine(fault.Error()))
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
				if signature(s.opt.ConfigPath) != read {
					cancel(errReload)
				}
			}
		}
	})
}

func (s *Supervisor) socket(cfg *settings.Settings) string {
	if s.opt.Socket != "" {
		return s.opt.Socket
	}
	return cfg.APISocket()
}

func (s *Supervisor) unusable(fault error) status.Document {
	now := s.opt.Now()
	f := status.Finding{Code: status.ConfigWrong, Subject: s.opt.ConfigPath, Cause: fault.Error()}
	d := status.Document{Schema: status.Schema, Setup: status.SetupFailed, Version: s.opt.Version, Node: s.opt.Hostname,
		Started: s.started, Nodes: []status.Node{}, Services: []status.Service{}}
	if errors.Is(fault, errReset) {
		f = resetStopped(fault)
	}
	if errors.Is(fault, settings.ErrNone) {
		f = status.Finding{Code: status.NotConfigured, Subject: s.opt.ConfigPath}
		d.Setup = status.SetupNew
		if p := s.setup.Where(); p.Failure != nil {
			d.Setup, f = p.State, stopped(p)
		} else if p.State != status.SetupNew {
			d.Setup, d.SetupStep, f.Cause = p.State, stepUnderWay(p), underWay(p)
		}
	}
	d.Front.Addresses = []string{}
	d.Problems = s.board.Update(now, []status.Finding{f})
	d.Health = status.Worst(d.Problems)
	d.Exit = d.Health.Exit()
	return d
}

// runNodeAs runs a configured node until ctx ends or a reload is asked for; m
// is what is copied meanwhile, nil: nothing.
func (s *Supervisor) runNodeAs(ctx context.Context, cfg *settings.Settings, m *move) error {
	n, err := newNode(s.opt, cfg, s.started, s.board)
	if err != nil {
		return err
	}
	defer n.close()
	if err := os.MkdirAll(cfg.RuntimeDir, 0o755); err != nil {
		return fmt.Errorf("runtime directory: %w", err)
	}
	n.setup = s.setup
	if err := datadisk.Mount(ctx, cfg); err != nil {
		s.opt.Log.Error("the data disk cannot be mounted", "error", err) // the volume's own problems show in the status
	}
	if m != nil {
		n.volume = n.newVolume(m.cfg)
	}
	s.mu.Lock()
	s.node = n
	s.mu.Unlock()

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var stopped error
	err = s.serveAPI(ctx, cancel, s.socket(cfg), cfg.Users.Admin, func(ctx context.Context) {
		observed := make(chan struct{})
		own, stopObserving := context.WithCancel(context.WithoutCancel(ctx))
		go func() {
			defer close(observed)
			n.observeLoop(own)
		}()
		kept := make(chan struct{})
		go func() {
			defer close(kept)
			n.keepVolume(own)
		}()
		moved := make(chan struct{})
		go func() {
			defer close(moved)
			if m != nil {
				n.copyToVolume(own, m, func() { cancel(errReload) })
			}
		}()
		joined := make(chan struct{})
		go func() {
			defer close(joined)
			if n.member != nil {
				n.member.run(own)
			}
		}()
		recovered := make(chan struct{})
		go func() {
			defer close(recovered)
			s.recovers(own, n, func() { cancel(errReload) })
		}()
		obeyed := make(chan struct{})
		go func() {
			defer close(obeyed)
			n.obey(own)
		}()
		reloading := context.AfterFunc(ctx, n.stopping)
		go func() {
			select {
			case <-ctx.Done():
			case why := <-s.reload:
				cancel(why)
			}
		}()
		stopped = n.manager.Run(ctx, cfg.Limits.StopTimeout+5*time.Second)
		reloading()
		stopObserving()
		<-observed
		<-kept
		<-moved
		<-joined
		<-recovered
		<-obeyed
	})
	if stopped != nil {
		var both *multierror.Error
		return multierror.Append(both, stopped, err).ErrorOrNil()
	}
	return err
}

// serveAPI serves the socket while body runs and returns when both have
// ended; the API answers until the very end. The cause of a reload comes
// through as errReload.
func (s *Supervisor) serveAPI(ctx context.Context, cancel context.CancelCauseFunc, socket, admin string, body func(context.Context)) error {
	srv := api.NewServer(s, admin, s.opt.Log)
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
	if why := context.Cause(ctx); errors.Is(why, errReload) || errors.Is(why, errAnew) {
		return why
	}
	return nil
}

// Status implements api.Node.
func (s *Supervisor) Status() status.Document {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node != nil {
		return s.node.document()
	}
	return s.unusable(s.fault)
}

func (s *Supervisor) manager() *service.Manager {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.node == nil {
		return nil
	}
	return s.node.manager
}

// Output implements api.Node.
func (s *Supervisor) Output(name string, lines int) ([]string, error) {
	if m := s.manager(); m != nil {
		return m.Output(name, lines)
	}
	return nil, fmt.Errorf("%q: %w (this node is not set up; next: applianced setup)", name, service.ErrUnknown)
}

// Restart implements api.Node.
func (s *Supervisor) Restart(name string) error {
	m := s.manager()
	if m == nil {
		return fmt.Errorf("%q: %w (this node is not set up; next: applianced setup)", name, service.ErrUnknown)
	}
	return m.Restart(name)
}

// Reload implements api.Node: the file is checked first, and the running node
// goes on if it is wrong.
func (s *Supervisor) Reload() error {
	if _, err := settings.Load(s.opt.ConfigPath, s.opt.Hostname); err != nil {
		return fmt.Errorf("%w: %w", api.ErrConfig, err)
	}
	s.leave(errReload)
	return nil
}

// leave ends the life of the node, unless that is under way. What was asked for
// last counts.
func (s *Supervisor) leave(why error) {
	for {
		select {
		case s.reload <- why:
			return
		default:
		}
		if why == errReload {
			return
		}
		select {
		case <-s.reload:
		default:
		}
	}
}

// Config implements api.Node.
func (s *Supervisor) Config() ([]byte, error) {
	b, err := os.ReadFile(s.opt.ConfigPath)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	return b, err
}

// CheckConfig implements api.Node.
func (s *Supervisor) CheckConfig(text []byte) error {
	if _, err := settings.Parse(text, filepath.Base(s.opt.ConfigPath), s.opt.Hostname); err != nil {
		return fmt.Errorf("%w: %w", api.ErrConfig, err)
	}
	return nil
}

// SetConfig implements api.Node.
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

// signature changes when a file does; it is empty for a missing one.
func signature(path string) string {
	fi, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return fmt.Sprint(fi.ModTime().UnixNano(), fi.Size())
}
