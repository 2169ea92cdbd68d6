package supervisor

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/datadisk"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
	"saltern/supervisor/vip"
)

// base are the settings of a node that has none yet.
func (s *Supervisor) base() settings.Settings {
	b := settings.Default(s.opt.Hostname)
	if s.opt.Base.DataDir != "" {
		b.DataDir = s.opt.Base.DataDir
	}
	if s.opt.Base.RuntimeDir != "" {
		b.RuntimeDir = s.opt.Base.RuntimeDir
	}
	return b
}

// facts looks at the machine.
func (s *Supervisor) facts(ctx context.Context) setup.Facts {
	return setup.Look(ctx, s.opt.Hostname, s.opt.Version, filepath.Join(s.base().DataDir, "bricks"))
}

// newSetup makes the state machine. Its state is where the node's data is, as
// far as that is known before appliance.yaml is.
func (s *Supervisor) newSetup() *setup.Machine {
	b := s.base()
	return setup.NewMachine(setup.Config{
		Dir: filepath.Join(b.DataDir, "setup"), DataDir: b.DataDir, NodeDir: b.NodeDir(), Base: s.opt.Base, World: world{s},
		Facts:  s.facts,
		Source: s.opt.Source, Version: s.opt.Version, Log: s.opt.Log, Now: s.opt.Now, Accounts: setup.Accounts, Network: s.network.Set,
	})
}

// world is the node as the set-up sees it.
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
	w.s.mu.Lock()
	n := w.s.node
	w.s.mu.Unlock()
	if n == nil || n.member == nil {
		return setup.NodeLook{}
	}
	d := n.document()
	l := setup.NodeLook{Running: true, Serving: d.ServingSince != nil, Table: n.member.keeper.Table(), Addresses: d.Front.Addresses}
	l.Storage, l.StorageWaiting = n.member.ready()
	if key, err := (host{n.member}).ClusterKey(); err == nil {
		l.Finger = key.Finger()
	}
	if !l.Serving {
		l.ServingWaiting = servingWaits(d)
	}
	return l
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

// servingWaits says what a node that does not serve yet waits for.
func servingWaits(d status.Document) string {
	for _, p := range d.Problems {
		if p.Severity == status.Fatal && p.Code != status.SetupStopped {
			return clip(fmt.Sprintf("an end of %s %s (%s); next: %s", p.Code, p.Title, p.Cause, p.Next))
		}
	}
	for _, s := range d.Services {
		if s.State != "running" {
			return clip(s.Name + ": " + s.Message)
		}
	}
	return "an answer through the front"
}

// stopped words a set-up that has stopped, underWay one that goes on.
func stopped(p setup.Progress) status.Finding {
	f := status.Finding{Code: status.SetupStopped, Cause: clip("tried to " + p.Failure.Tried + ": " + p.Failure.Cause)}
	for _, c := range p.Failure.Check {
		f.Cause += "\ncheck: " + clip(c)
	}
	return f
}

func underWay(p setup.Progress) string {
	for _, s := range p.Steps {
		if s.State == "doing" {
			return clip("the set-up is under way: " + s.Name + "; " + s.Message)
		}
	}
	return "the set-up is under way"
}

// stepUnderWay is the step that a set-up has got to; nil: none is being done.
func stepUnderWay(p setup.Progress) *status.SetupStep {
	for i, s := range p.Steps {
		if s.State == "doing" && p.State != status.SetupNew {
			return &status.SetupStep{Number: i + 1, Of: len(p.Steps), Name: s.Name, Message: clip(s.Message)}
		}
	}
	return nil
}

// setupFacts gives the set-up's state and adds what it finds wrong.
func (n *node) setupFacts(found []status.Finding) (status.Setup, []status.Finding) {
	if n.setup == nil || !n.setup.Active() {
		return "", found
	}
	p := n.setup.Where()
	if p.Failure != nil {
		found = append(found, stopped(p))
	}
	if n.member == nil {
		return p.State, found
	}
	if why, gone := n.member.gone(); gone {
		return status.SetupRemoved, append(found, status.Finding{Code: status.NodeRemoved, Cause: why})
	}
	if self, ok := n.member.self(); ok && p.State == status.SetupReady && (self.State == nodes.Draining || self.State == nodes.Leaving) {
		return status.SetupDraining, found
	}
	return p.State, found
}

// setupState is the state of the set-up as the status shows it.
func setupState(s status.Setup, serving, served bool) status.Setup {
	switch {
	case s != "" && s != status.SetupReady:
		return s
	case serving:
		return status.SetupReady
	case s == status.SetupReady && served:
		return status.SetupDegraded
	}
	return status.SetupWaiting
}

// SetupProgress implements api.Setup.
func (s *Supervisor) SetupProgress() setup.Progress {
	p := s.setup.Progress()
	if !s.setup.Active() { // somebody wrote appliance.yaml
		p.State = s.Status().Setup
	}
	return p
}

// SetupFacts implements api.Setup.
func (s *Supervisor) SetupFacts(ctx context.Context) (setup.Facts, error) {
	return s.facts(ctx), nil
}

// SetupValidate implements api.Setup.
func (s *Supervisor) SetupValidate(ctx context.Context, a setup.Answers) (setup.Validation, error) {
	return s.setup.Validate(ctx, a), nil
}

// SetupPreflight implements api.Setup.
func (s *Supervisor) SetupPreflight(ctx context.Context, a setup.Answers) ([]setup.Check, error) {
	return s.setup.Preflight(ctx, a)
}

// SetupStart implements api.Setup.
func (s *Supervisor) SetupStart(ctx context.Context, token string, a setup.Answers) error {
	return s.setup.Start(ctx, token, a)
}

// SetupRetry implements api.Setup.
func (s *Supervisor) SetupRetry(_ context.Context, token string) error { return s.setup.Retry(token) }

// SetupBack implements api.Setup.
func (s *Supervisor) SetupBack(_ context.Context, token string) error { return s.setup.Back(token) }

// SetupNetwork implements api.Setup.
func (s *Supervisor) SetupNetwork(ctx context.Context, token, action string, n setup.Network) (setup.Trial, error) {
	if err := s.setup.May(token); err != nil {
		return setup.Trial{}, err
	}
	switch action {
	case "look":
		return s.network.Look(), nil
	case "try":
		v := setup.ValidateNetwork(n, s.facts(ctx))
		if err := setup.Faults(v); err != nil {
			return setup.Trial{}, fmt.Errorf("%w: %s", api.ErrState, settings.OneLine(err))
		}
		return s.network.Try(ctx, n)
	case "confirm":
		if own, lost := s.addressLost(); lost {
			return setup.Trial{}, fmt.Errorf("%w: this machine would lose %s, by which the other nodes know it; to give a node another address: applianced leave, change it, and join again", api.ErrState, own)
		}
		return s.network.Confirm()
	case "revert":
		return s.network.Revert(ctx)
	}
	return setup.Trial{}, fmt.Errorf("%w: %.20q is not known: try, look, confirm or revert", api.ErrState, action)
}

// addressLost tells whether no interface has the address by which the nodes of
// the cluster know this one.
func (s *Supervisor) addressLost() (own string, lost bool) {
	m, err := s.ours()
	if err != nil {
		return "", false
	}
	own = m.n.cfg.Peering.Address
	a, err := netip.ParseAddr(own)
	return own, err == nil && !a.IsLoopback() && !vip.Held(a)
}

// SetupClaim implements api.Setup.
func (s *Supervisor) SetupClaim(_ context.Context, token, name string, lead setup.Lead) (setup.Claim, error) {
	return s.setup.Claim(token, name, lead), nil
}

// obey stops the services of a node that was removed; it tells the set-up, so
// that this holds after a restart.
func (n *node) obey(ctx context.Context) {
	for {
		if n.member != nil {
			if _, gone := n.member.gone(); gone {
				n.opt.Log.Error("this node was removed from the cluster; it serves no more")
				if n.setup != nil {
					n.setup.Remove()
				}
				for _, name := range []string{masterService, lbService} {
					_ = n.manager.Restart(name) // they wait for ever then
				}
				n.endBalancer(ctx)
				return
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Second):
		}
	}
}

// endBalancer ends the load balancer's process, which outlives a restart of its
// service, once that service waits.
func (n *node) endBalancer(ctx context.Context) {
	for n.cfg.LB.Enabled && ctx.Err() == nil {
		for _, i := range n.manager.Services(0) {
			if i.Name == lbService && i.State == service.Waiting {
				n.lbProcess(nil).Stop()
				return
			}
		}
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}
