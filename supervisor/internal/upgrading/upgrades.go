package upgrading

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"sync"
	"time"

	"saltern/image/bundle"
	"saltern/internal/durable"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/upgrade/rollout"
)

// Upgrades brings a version of the system to all nodes, one upgrade at a time. An
// upgrade goes on when whoever asked for it is gone; it ends with this life, and may then be
// begun again.
type Upgrades struct {
	env    child.Env
	system *System
	others func() []rollout.Target // of the cluster; nil: this node is alone
	asked  chan upgradeRequest

	mu   sync.Mutex
	last rollout.Progress
}

// NewUpgrades returns the upgrades that this node drives. others returns the other nodes of the
// cluster. It may be nil: the node is alone.
func NewUpgrades(env child.Env, system *System, others func() []rollout.Target) *Upgrades {
	return &Upgrades{env: env, system: system, others: others, asked: make(chan upgradeRequest)}
}

// maxSteps bounds what is kept of one upgrade: a few lines for each of 64 nodes.
const maxSteps = 1000

type upgradeRequest struct {
	*rollout.Roll
	taken chan struct{}
	ended chan rollout.Result // takes the result without waiting
}

// Upgrade begins an upgrade. It is refused with [api.ErrState] while another one is under way,
// and for a file that is not signed.
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

// beginRoll has a roll over all nodes made. It returns when that has begun; the result comes
// by the channel.
func (u *Upgrades) beginRoll(ctx context.Context, roll *rollout.Roll) (<-chan rollout.Result, error) {
	if u.others != nil {
		roll.Targets = u.others()
	}

	roll.Targets = append(roll.Targets, rollout.Target{Name: u.env.Settings.Node, Node: u.system})
	roll.Tell = u.noteStep
	ask := upgradeRequest{roll, make(chan struct{}), make(chan rollout.Result, 1)}
	select {
	case u.asked <- ask:
		<-ask.taken
		return ask.ended, nil
	case <-ctx.Done():
	case <-time.After(time.Second): // the loop may be between two of them
	}

	st, err := u.system.State(ctx)
	if err == nil {
		err = fmt.Errorf("%w: this node %s; it goes on: try again when it is done", api.ErrState, st.Drives)
	}

	return nil, err
}

// proven reads the manifest of a bundle whose signature this node trusts.
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

// Upgrading returns how far the upgrade is.
func (u *Upgrades) Upgrading() rollout.Progress {
	u.mu.Lock()
	defer u.mu.Unlock()
	p := u.last
	p.Schema = rollout.Schema
	p.Lines = append([]string{}, p.Lines...)
	return p
}

func (u *Upgrades) noteStep(line string) {
	u.env.Log.Info("upgrade all nodes", "step", line)
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.last.Lines) < maxSteps {
		u.last.Lines = append(u.last.Lines, line)
	}
}

// Run makes the upgrades that are asked for until ctx ends.
func (u *Upgrades) Run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-u.asked:
			u.mu.Lock()
			u.last = rollout.Progress{Running: true, Version: q.Manifest.Version}
			u.mu.Unlock()

			by := ""
			if q.Window != "" {
				by = " (upgrade.window)"
			}

			u.system.setDriving("upgrades all nodes to version " + q.Manifest.Version + " since " +
				u.env.Now().UTC().Format("15:04:05 UTC") + by)
			close(q.taken)
			out := q.Run(ctx)
			u.system.setDriving("")
			u.env.Log.Info("the upgrade of all nodes has ended", "result", string(out.Code), "reason", out.Cause)
			u.mu.Lock()
			u.last.Running, u.last.Result = false, &out
			u.mu.Unlock()

			q.ended <- out
		}
	}
}
