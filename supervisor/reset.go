package supervisor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/datadisk"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/reset"
	"saltern/supervisor/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
	"saltern/supervisor/vip"
)

// A reset is ordered by a file beside appliance.yaml and done between two lives
// of the node: all that it has made goes, appliance.yaml included, and the file
// last. A process that ends meanwhile goes on at its next start. The same takes
// back a set-up that no other machine knows of yet.

// errAnew ends a life of the node that is followed by a reset.
var errAnew = errors.New("reset")

// errReset marks a reset that has stopped.
var errReset = errors.New("reset")

// order is that file: the settings as they were, since they tell what is the
// node's.
type order struct {
	Settings []byte `json:"settings"`
	// Answers tells to look for answers given with the machine afterwards.
	Answers bool `json:"answers"`
}

func (s *Supervisor) orderFile() string {
	return filepath.Join(filepath.Dir(s.opt.ConfigPath), ".reset-"+filepath.Base(s.opt.ConfigPath))
}

// ordered gives the order that is under way, nil for none.
func (s *Supervisor) ordered() (*order, error) {
	b, err := layout.ReadFile(s.orderFile(), 2<<20, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var o order
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.orderFile(), err)
	}
	return &o, nil
}

func (o *order) settings(hostname string) (*settings.Settings, error) {
	return settings.Parse(o.Settings, "settings of the node", hostname)
}

// PlanReset implements api.Reset.
func (s *Supervisor) PlanReset() (api.ResetPlan, error) {
	_, cfg, err := s.toReset()
	if err != nil {
		return api.ResetPlan{}, err
	}
	p, t, err := s.mayReset(cfg)
	if err != nil {
		return api.ResetPlan{}, err
	}
	out := api.ResetPlan{Remove: slices.Concat(p.Bricks, p.Remove), Keep: p.Keep, Cluster: t.Cluster}
	if self, ok := t.Find(cfg.Node); ok && self.State != nodes.Removed {
		for _, n := range t.Peers(cfg.Node) {
			out.Others = append(out.Others, n.Name)
		}
	}
	return out, nil
}

// Reset implements api.Reset.
func (s *Supervisor) Reset() error { return s.orderReset(true) }

// Undo implements setup.World.
func (w world) Undo() error { return w.s.orderReset(false) }

func (s *Supervisor) orderReset(answers bool) error {
	s.mu.Lock()
	s.resetFault = ""
	s.mu.Unlock()
	if o, err := s.ordered(); err != nil || o != nil { // it has stopped: again
		s.leave(errAnew)
		return err
	}
	text, cfg, err := s.toReset()
	if err != nil {
		return err
	}
	if _, _, err := s.mayReset(cfg); err != nil {
		return err
	}
	b, err := json.Marshal(order{text, answers})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(s.orderFile()), 0o755)
	}
	if err == nil {
		_, err = layout.WriteFile(s.orderFile(), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	s.leave(errAnew)
	return nil
}

// Resetting implements api.Reset.
func (s *Supervisor) Resetting() (api.Resetting, error) {
	o, err := s.ordered()
	s.mu.Lock()
	defer s.mu.Unlock()
	return api.Resetting{UnderWay: o != nil, Fault: s.resetFault}, err
}

// toReset gives the settings of the node that is there, or that the set-up was
// about to make.
func (s *Supervisor) toReset() ([]byte, *settings.Settings, error) {
	text, err := os.ReadFile(s.opt.ConfigPath)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = s.setup.Intended(), nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reset: %w", err)
	}
	cfg, err := settings.Parse(text, filepath.Base(s.opt.ConfigPath), s.opt.Hostname)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: it is not known which directories are this node's: %w; correct that first: applianced config check", api.ErrState, err)
	}
	return text, cfg, nil
}

// mayReset finds what is to be removed, and refuses what others would lose.
func (s *Supervisor) mayReset(cfg *settings.Settings) (reset.Plan, nodes.Table, error) {
	var t nodes.Table
	if b, err := layout.ReadFile(filepath.Join(cfg.DataDir, nodes.File), nodes.MaxTable, 0); err == nil {
		if t, err = nodes.Parse(b); err != nil {
			s.opt.Log.Warn("reset: the table of nodes is not used", "error", err)
		}
	}
	p, err := reset.New(cfg, s.opt.ConfigPath)
	if err == nil {
		own := []string{}
		if cfg.OnVolume() {
			own = append(own, filepath.Clean(cfg.Storage.Path))
			err = storage.NewDissolution(cfg, s.opt.Executable, t, s.opt.Log).Fault()
		}
		err = errors.Join(err, p.Mounted(own...))
	}
	if err != nil {
		return reset.Plan{}, t, fmt.Errorf("%w: %w", api.ErrState, err)
	}
	return p, t, nil
}

// anew does what was ordered; it returns why that is not done yet.
func (s *Supervisor) anew(ctx context.Context) error {
	o, err := s.ordered()
	if err == nil && o == nil {
		return nil
	}
	if err == nil {
		stop := s.notifyWorking(ctx)
		err = s.setup.Anew(o.Answers, func() error { return s.erase(ctx, o) })
		stop()
	}
	if err != nil {
		s.opt.Log.Error("the reset of this node has stopped", "error", err)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.resetFault = clip(err.Error())
		return fmt.Errorf("%w: %w", errReset, err)
	}
	s.opt.Log.Info("this machine is new: all that the node had made is removed")
	return nil
}

// notifyWorking tells systemd that this process is well until stop is called:
// much data takes long.
func (s *Supervisor) notifyWorking(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			s.opt.Notify.Notify("WATCHDOG=1\nEXTEND_TIMEOUT_USEC=60000000\nSTATUS=removing what this node has made")
			select {
			case <-ctx.Done():
			case <-time.After(configPoll):
			}
		}
	}()
	return func() { cancel(); <-done }
}

// erase may be repeated: what is gone already is no fault.
func (s *Supervisor) erase(ctx context.Context, o *order) error {
	cfg, err := o.settings(s.opt.Hostname)
	if err != nil {
		return err
	}
	_, t, err := s.mayReset(cfg)
	if err != nil {
		return err
	}
	if err := endChildren(ctx, cfg); err != nil {
		return err
	}
	if err := datadisk.Mount(ctx, cfg); err != nil {
		return err
	}
	if cfg.OnVolume() {
		if err := storage.NewDissolution(cfg, s.opt.Executable, t, s.opt.Log).Do(ctx); err != nil {
			return err
		}
	}
	p, err := reset.New(cfg, s.opt.ConfigPath)
	if err != nil {
		return err
	}
	if err := p.Do(ctx, func(ctx context.Context) error { return datadisk.Release(ctx, cfg) }); err != nil {
		return err
	}
	return os.Remove(s.orderFile())
}

// endChildren ends what an earlier life has left behind.
func endChildren(ctx context.Context, cfg *settings.Settings) error {
	n := &node{cfg: cfg}
	lb := service.Lasting{PIDFile: n.pidFile(lbService), Pipe: filepath.Join(cfg.RuntimeDir, lbService+".out"), StopTimeout: cfg.Limits.StopTimeout}
	lb.Stop()
	master := service.Process{PIDFile: n.pidFile(masterService)}
	address := vip.Daemon{Dir: filepath.Join(cfg.RuntimeDir, "vip")}
	return errors.Join(master.KillStale(ctx), address.KillStale(ctx))
}

// resetStopped words a reset that has stopped.
func resetStopped(fault error) status.Finding {
	return status.Finding{Code: status.ResetStopped, Cause: clip(fault.Error())}
}
