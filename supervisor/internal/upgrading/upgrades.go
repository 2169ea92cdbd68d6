package upgrading

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"sync"

	"saltern/image/bundle"
	"saltern/internal/durable"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/roll"
	"saltern/supervisor/upgrade/rollout"
)

// Upgrades drives upgrades that install a version of the system on all nodes, one upgrade at a
// time. An upgrade continues after its caller has returned. It ends with this life of the node, and
// may then be started again.
type Upgrades struct {
	env    child.Env
	system *System
	others func() []rollout.Target // returns the other nodes of the cluster; nil: this node has no cluster
	driver *roll.Driver[rollout.Result]

	mu      sync.Mutex
	version string // version of the newest upgrade
}

// NewUpgrades returns the driver of upgrades that start at this node. others returns the other
// nodes of the cluster. It may be nil: the node has no cluster.
func NewUpgrades(env child.Env, system *System, others func() []rollout.Target) *Upgrades {
	return &Upgrades{env: env, system: system, others: others, driver: roll.NewDriver[rollout.Result](env.Now)}
}

// Upgrade starts an upgrade. It returns [api.ErrState] while another upgrade is running, and if the
// file is not signed.
func (u *Upgrades) Upgrade(ctx context.Context, q api.UpgradeRequest) error {
	if !filepath.IsAbs(q.Path) {
		return fmt.Errorf("%w: the path of the file is not absolute", api.ErrState)
	}

	st, err := u.system.State(ctx)
	if err != nil {
		return err
	}
	if !st.Image {
		return fmt.Errorf("%w: this machine %s; run it on a node that was made from the image", api.ErrState,
			rollout.Hosts)
	}

	open := func() (io.ReadCloser, error) {
		f, _, err := durable.Open(q.Path, durable.Follow)
		return f, err
	}

	m, err := u.proven(open)
	if err != nil {
		return fmt.Errorf("%w: %w", api.ErrState, err)
	}

	_, err = u.beginRoll(ctx, &rollout.Roll{Manifest: m, Open: open, Dry: q.Dry})
	return err
}

// beginRoll starts a rollout over all nodes. The channel delivers the result.
func (u *Upgrades) beginRoll(ctx context.Context, r *rollout.Roll) (<-chan rollout.Result, error) {
	if u.others != nil {
		r.Targets = u.others()
	}

	r.Targets = append(r.Targets, rollout.Target{Name: u.env.Settings.Node, Node: u.system})
	by := ""
	if r.Window != "" {
		by = " (upgrade.window)"
	}

	drives := "upgrades all nodes to version " + r.Manifest.Version + " since " +
		u.env.Now().UTC().Format("15:04:05 UTC") + by
	ended, err := u.driver.Begin(ctx, roll.Roll[rollout.Result]{
		What: drives,
		Begun: func() {
			u.setVersion(r.Manifest.Version)
			u.system.setDriving(drives)
		},
		Make: func(ctx context.Context, note func(string)) rollout.Result { return u.makeRoll(ctx, r, note) },
	})
	switch {
	case errors.Is(err, roll.ErrRunning):
		return nil, fmt.Errorf("%w: this node %s; it goes on: try again when it is done", api.ErrState,
			u.driver.Progress().What)
	case err != nil:
		return nil, fmt.Errorf("begin the upgrade: %w", err)
	}
	return ended, nil
}

// makeRoll carries out a rollout and returns its result. note records its steps.
func (u *Upgrades) makeRoll(ctx context.Context, r *rollout.Roll, note func(string)) rollout.Result {
	defer u.system.setDriving("")
	r.Tell = func(step string) {
		u.env.Log.Info("upgrade all nodes", "step", step)
		note(step)
	}

	out := r.Run(ctx)
	u.env.Log.Info("the upgrade of all nodes has ended", "result", string(out.Code), "reason", out.Cause)
	return out
}

// proven returns the manifest of a bundle, if one of the keys that this node trusts has signed it.
func (u *Upgrades) proven(open func() (io.ReadCloser, error)) (bundle.Manifest, error) {
	keys, err := bundle.Keys(u.system.keyDirs...)
	if err != nil {
		return bundle.Manifest{}, err
	}

	in, err := open()
	if err != nil {
		return bundle.Manifest{}, err
	}
	defer in.Close()

	b, err := bundle.Open(in, keys)
	if err != nil {
		return bundle.Manifest{}, err
	}

	return b.Manifest, nil
}

// Upgrading returns the progress of the upgrade.
func (u *Upgrades) Upgrading() rollout.Progress {
	p := u.driver.Progress()
	u.mu.Lock()
	defer u.mu.Unlock()
	return rollout.Progress{
		Schema:  rollout.Schema,
		Running: p.Running,
		Version: u.version,
		Lines:   p.Lines,
		Result:  p.Result,
	}
}

func (u *Upgrades) setVersion(version string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.version = version
}

// Run carries out the upgrades that Upgrade starts, until ctx ends.
func (u *Upgrades) Run(ctx context.Context) { u.driver.Run(ctx) }
