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
	"sync"

	"saltern/internal/durable"
	"saltern/internal/pause"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/datadisk"
	"saltern/supervisor/internal/life"
	"saltern/supervisor/internal/reset"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// A file beside appliance.yaml orders a reset. The reset is carried out between two lives of the
// node. It removes everything that the node has created, including appliance.yaml, and finally the
// order. If the process dies before the reset is done, the next process continues the reset. The
// same mechanism undoes a set-up that no other machine knows yet.

// errAnew is the cause with which a life ends if a reset follows.
var errAnew = errors.New("reset")

// errReset means that a reset has stopped before its end.
var errReset = errors.New("reset")

// order is the content of the file that orders a reset. It contains the former settings, because
// they show which files belong to the node.
type order struct {
	Settings []byte `json:"settings"`
	// Answers reports whether the set-up after the reset searches again for answers given with the
	// machine.
	Answers bool `json:"answers"`
}

// resetter records orders for a reset and carries them out.
type resetter struct {
	opt   Options
	setup *setup.Machine
	leave func(why error) // ends the life of the node with the cause why
	// copied returns why this machine may not act for its node, or "".
	copied func() string

	mu    sync.Mutex
	fault string // why a reset has stopped; empty: none has
}

func (r *resetter) orderFile() string {
	return filepath.Join(filepath.Dir(r.opt.ConfigPath), ".reset-"+filepath.Base(r.opt.ConfigPath))
}

// ordered returns the order that is still to be carried out, or nil.
func (r *resetter) ordered() (*order, error) {
	b, _, err := durable.ReadFile(r.orderFile(), 2<<20, durable.Follow)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var o order
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", r.orderFile(), err)
	}
	return &o, nil
}

func (o *order) settings(hostname string) (*settings.Settings, error) {
	return settings.Parse(o.Settings, "settings of the node", hostname)
}

// PlanReset returns what a reset would do.
func (r *resetter) PlanReset() (api.ResetPlan, error) {
	_, cfg, err := r.toReset()
	if err != nil {
		return api.ResetPlan{}, err
	}

	p, t, err := r.mayReset(cfg)
	if err != nil {
		return api.ResetPlan{}, err
	}

	out := api.ResetPlan{
		Remove:  slices.Concat(p.Bricks, p.Remove),
		Keep:    p.Keep,
		Cluster: t.Cluster,
		Copied:  r.copied(),
	}
	if out.Copied != "" {
		return out, nil
	}

	if self, ok := t.Find(cfg.Node); ok && self.State != nodes.Removed {
		for _, n := range t.Peers(cfg.Node) {
			out.Others = append(out.Others, n.Name)
		}
	}

	return out, nil
}

// Reset orders a reset.
func (r *resetter) Reset() error { return r.writeOrder(true) }

// Undo implements setup.World.
func (w world) Undo() error { return w.s.reset.writeOrder(false) }

func (r *resetter) writeOrder(answers bool) error {
	r.mu.Lock()
	r.fault = ""
	r.mu.Unlock()

	if o, err := r.ordered(); err != nil || o != nil { // an earlier order exists: carry it out again
		r.leave(errAnew)
		return err
	}

	text, cfg, err := r.toReset()
	if err != nil {
		return err
	}

	if _, _, err := r.mayReset(cfg); err != nil {
		return err
	}

	b, err := json.Marshal(order{text, answers})
	if err == nil {
		err = os.MkdirAll(filepath.Dir(r.orderFile()), 0o755)
	}
	if err == nil {
		_, err = layout.WriteFile(r.orderFile(), b, 0o600)
	}

	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}

	r.leave(errAnew)
	return nil
}

// Resetting returns the progress of the reset.
func (r *resetter) Resetting() (api.Resetting, error) {
	o, err := r.ordered()
	r.mu.Lock()
	defer r.mu.Unlock()
	return api.Resetting{UnderWay: o != nil, Fault: r.fault}, err
}

// toReset returns the settings of the present node, or of the node that the set-up was about to
// create, as text and parsed.
func (r *resetter) toReset() ([]byte, *settings.Settings, error) {
	text, err := os.ReadFile(r.opt.ConfigPath)
	if errors.Is(err, fs.ErrNotExist) {
		text, err = r.setup.Intended(), nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reset: %w", err)
	}
	cfg, err := settings.Parse(text, filepath.Base(r.opt.ConfigPath), r.opt.Hostname)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: it is not known which directories are this node's: %w; "+
			"correct that first: applianced config check",
			api.ErrState, err)
	}
	return text, nodeapi.FollowTable(cfg), nil
}

// mayReset returns what a reset removes. It returns an error if other nodes would lose something by
// the reset.
func (r *resetter) mayReset(cfg *settings.Settings) (reset.Plan, nodes.Table, error) {
	var t nodes.Table
	if b, _, err := durable.ReadFile(filepath.Join(cfg.DataDir, nodes.File), nodes.MaxTable,
		durable.Follow); err == nil {
		if t, err = nodes.Parse(b); err != nil {
			r.opt.Log.Warn("reset: the table of nodes is not used", "error", err)
		}
	}

	p, err := reset.New(cfg, r.opt.ConfigPath)
	if err == nil {
		own := []string{}
		if cfg.OnVolume() {
			own = append(own, filepath.Clean(cfg.Storage.Path))
			err = storage.NewDissolution(cfg, r.opt.Executable, t, r.opt.Log).Fault()
		}
		err = errors.Join(err, p.Mounted(own...))
	}

	if err != nil {
		return reset.Plan{}, t, fmt.Errorf("%w: %w", api.ErrState, err)
	}

	return p, t, nil
}

// carryOut carries out the order, if there is one. The error says why the order could not be
// carried out yet.
func (r *resetter) carryOut(ctx context.Context) error {
	o, err := r.ordered()
	if err == nil && o == nil {
		return nil
	}

	if err == nil {
		stop := r.notifyWorking(ctx)
		err = r.setup.Anew(o.Answers, func() error { return r.eraseFiles(ctx, o) })
		stop()
	}

	if err != nil {
		r.opt.Log.Error("the reset of this node has stopped", "error", err)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.fault = status.Clip(err.Error())
		return fmt.Errorf("%w: %w", errReset, err)
	}

	r.opt.Log.Info("this machine is new: all that the node had made is removed")
	return nil
}

// notifyWorking tells systemd repeatedly that this process is working, because removing much data
// takes long. It ends when stop is called.
func (r *resetter) notifyWorking(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			r.opt.Notify.Notify("WATCHDOG=1\nEXTEND_TIMEOUT_USEC=60000000\nSTATUS=removing what this node has made")
			_ = pause.For(ctx, configPoll)
		}
	}()
	return func() { cancel(); <-done }
}

// eraseFiles removes everything that the order names. It ignores missing files, so it may be
// repeated.
func (r *resetter) eraseFiles(ctx context.Context, o *order) error {
	cfg, err := o.settings(r.opt.Hostname)
	if err != nil {
		return err
	}

	cfg = nodeapi.FollowTable(cfg)
	_, t, err := r.mayReset(cfg)
	if err != nil {
		return err
	}

	if err := life.End(ctx, cfg); err != nil {
		return err
	}

	if err := datadisk.Mount(ctx, cfg); err != nil {
		return err
	}

	if cfg.OnVolume() {
		if err := storage.NewDissolution(cfg, r.opt.Executable, t, r.opt.Log).Do(ctx); err != nil {
			return err
		}
	}

	p, err := reset.New(cfg, r.opt.ConfigPath)
	if err != nil {
		return err
	}

	if err := p.Do(ctx, func(ctx context.Context) error { return datadisk.Release(ctx, cfg) }); err != nil {
		return err
	}

	return os.Remove(r.orderFile())
}
