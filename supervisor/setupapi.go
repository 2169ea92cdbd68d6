package supervisor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"saltern/internal/rpc"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/datadisk"
	"saltern/supervisor/internal/life"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// baseSettings returns the settings of a node that has no appliance.yaml yet.
func (s *Supervisor) baseSettings() settings.Settings {
	b := settings.Default(s.opt.Hostname)
	if s.opt.Base.DataDir != "" {
		b.DataDir = s.opt.Base.DataDir
	}
	if s.opt.Base.RuntimeDir != "" {
		b.RuntimeDir = s.opt.Base.RuntimeDir
	}
	return b
}

// readFacts returns the facts of the machine. It reads the host name again, because the set-up may
// have renamed the machine since this program was started.
func (s *Supervisor) readFacts(ctx context.Context) setup.Facts {
	name, err := os.Hostname()
	if err != nil || name == "" {
		name = s.opt.Hostname
	}

	f := setup.Look(ctx, name, s.opt.Version, filepath.Join(s.baseSettings().DataDir, "bricks"))
	f.Appliance = s.opt.InImage
	return f
}

// newSetup creates the set-up. Its state is stored in the node's data directory, or in the default
// one before appliance.yaml exists.
func (s *Supervisor) newSetup() *setup.Machine {
	b := s.baseSettings()
	return setup.NewMachine(setup.Config{
		Dir:     filepath.Join(b.DataDir, "setup"),
		DataDir: b.DataDir,
		NodeDir: b.NodeDir(),
		Base:    s.opt.Base,
		World:   world{s},
		Facts:   s.readFacts,
		Source:  s.opt.Source,
		Version: s.opt.Version,
		Log:     s.opt.Log,
		Now:     s.opt.Now,
		Host:    setup.ThisHost{Networker: s.network},
		Ours:    s.opt.InImage,
	})
}

// world implements setup.World: it is the node as the set-up sees it.
type world struct{ s *Supervisor }

// Configured implements setup.World.
func (w world) Configured() bool {
	_, err := os.Stat(w.s.opt.ConfigPath)
	return err == nil
}

// Configure implements setup.World.
func (w world) Configure(text []byte, form bool) error {
	cfg, err := settings.Parse(text, filepath.Base(w.s.opt.ConfigPath), w.s.opt.Hostname)
	if err != nil {
		return err
	}

	if form && cfg.OnVolume() {
		if err := storage.AllowForm(cfg); err != nil {
			return err
		}
	}

	if err := os.MkdirAll(filepath.Dir(w.s.opt.ConfigPath), 0o755); err != nil {
		return fmt.Errorf("write configuration: %w", err)
	}

	if _, err := layout.WriteFile(w.s.opt.ConfigPath, text, 0o600); err != nil {
		return err
	}

	return w.s.Reload()
}

// Look implements setup.World.
func (w world) Look() setup.NodeLook {
	if n := w.s.running(); n != nil {
		return n.SetupView().Look()
	}
	return setup.NodeLook{}
}

// addressLost returns the address of the running node, and whether the machine has lost it.
func (s *Supervisor) addressLost() (address string, lost bool) {
	if n := s.running(); n != nil {
		return n.SetupView().AddressLost()
	}
	return "", false
}

// running returns the node that runs, or nil.
func (s *Supervisor) running() *life.Life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.node
}

// Disk implements setup.World.
func (w world) Disk(ctx context.Context, cfg *settings.Settings, dev string, erase bool) error {
	return datadisk.Prepare(ctx, cfg, dev, erase)
}

// Brick implements setup.World.
func (w world) Brick(cfg *settings.Settings) (string, error) {
	if err := os.MkdirAll(cfg.Storage.Bricks, 0o755); err != nil {
		return "", err
	}
	return storage.FreshBrick(cfg.Storage.Bricks, cfg.Storage.Volume)
}

// guide carries out the methods of the set-up for the local API.
type guide struct {
	*setup.Machine
	network *setup.Networker
	look    func(context.Context) setup.Facts
	status  func() status.Document
	lost    func() (address string, lost bool) // see [setupview.View.AddressLost]
}

// register adds the functions for the methods of the set-up to h.
func (g guide) register(h *rpc.Handlers) {
	rpc.Handle(h, api.ReadSetup, func(context.Context, rpc.None) (setup.Progress, error) { return g.Progress(), nil })
	rpc.Handle(h, api.ReadFacts, func(ctx context.Context, _ rpc.None) (setup.Facts, error) { return g.look(ctx), nil })
	rpc.Handle(h, api.CheckAnswers, func(ctx context.Context, a setup.Answers) (setup.Validation, error) {
		return g.Validate(ctx, a), nil
	})
	rpc.Handle(h, api.RunPreflight, g.Preflight)
	rpc.Handle(h, api.StartSetup, rpc.Order(func(ctx context.Context, a setup.Answers) error {
		return g.Start(ctx, api.ClientToken(ctx), a)
	}))
	rpc.Handle(h, api.RetrySetup, rpc.Order(func(ctx context.Context, _ rpc.None) error {
		return g.Retry(api.ClientToken(ctx))
	}))
	rpc.Handle(h, api.LeaveSetup, rpc.Order(func(ctx context.Context, _ rpc.None) error {
		return g.Back(api.ClientToken(ctx))
	}))
	rpc.Handle(h, api.TryNetwork, g.tryNetwork)
	rpc.Handle(h, api.ClaimSetup, func(ctx context.Context, q setup.ClaimRequest) (setup.Claim, error) {
		return g.Claim(api.ClientToken(ctx), q), nil
	})
}

// Progress returns the progress of the set-up.
func (g guide) Progress() setup.Progress {
	p := g.Machine.Progress()
	if !g.Active() { // an administrator wrote appliance.yaml
		p.State = g.status().Setup
	}
	return p
}

// tryNetwork tries, shows, keeps or reverts a network configuration.
func (g guide) tryNetwork(ctx context.Context, q api.NetworkRequest) (setup.Trial, error) {
	if err := g.May(api.ClientToken(ctx)); err != nil {
		return setup.Trial{}, err
	}

	switch q.Action {
	case "look":
		return g.network.Look(), nil
	case "try":
		v := setup.ValidateNetwork(q.Network, g.look(ctx))
		if err := setup.Faults(v); err != nil {
			return setup.Trial{}, fmt.Errorf("%w: %s", api.ErrState, settings.OneLine(err))
		}
		return g.network.Try(ctx, q.Network)
	case "confirm":
		if own, lost := g.lost(); lost {
			return setup.Trial{}, fmt.Errorf(
				"%w: this machine would lose %s, by which the other nodes know it; "+
					"to give a node another address: applianced leave, change it, and join again",
				api.ErrState, own)
		}
		return g.network.Confirm()
	case "revert":
		return g.network.Revert(ctx)
	}

	return setup.Trial{}, fmt.Errorf("%w: %.20q is not known: try, look, confirm or revert", api.ErrState, q.Action)
}
