package mastersvc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"saltern/internal/command"
	"saltern/internal/printable"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/oneatatime"
	"saltern/supervisor/layout"
	"saltern/supervisor/options"
	"saltern/supervisor/settings"
)

// OptionsNode carries out, on this node, the steps that a rolling change of options requests from
// each node. It implements [options.Node].
type OptionsNode struct {
	cfg   OptionsConfig
	env   child.Env
	trial *Trial
	files oneatatime.Runner // runs reads and checks of files, which may hang
}

// OptionsConfig holds what an [OptionsNode] uses.
type OptionsConfig struct {
	Master *Master
	API    Checker
	// Refresh updates the node's copy of the shared volume. It may be nil: the node has no such
	// copy.
	Refresh func(context.Context) error
	// Moving reports whether the node is moving to the shared volume, and so runs with other
	// settings than those in the file.
	Moving bool
}

// Checker checks a configuration folder with the program that reads it. Check returns why the
// program refuses the folder, or "".
type Checker interface {
	Check(ctx context.Context, dir string) (why string)
}

// NewOptionsNode returns an OptionsNode for this node.
func NewOptionsNode(cfg OptionsConfig) *OptionsNode {
	return &OptionsNode{cfg: cfg, env: cfg.Master.env, trial: cfg.Master.trial, files: oneatatime.New()}
}

// State implements [options.Node].
func (o *OptionsNode) State(ctx context.Context, fresh bool) (st options.State, err error) {
	if fresh && o.cfg.Refresh != nil {
		if err := o.cfg.Refresh(ctx); err != nil {
			return st, err
		}
	}

	files, err := oneatatime.Do(ctx, o.files, "read the options in "+o.env.Settings.UserConfDir(), o.readOptions)
	if err != nil {
		return st, err
	}

	info := o.trial.service.Info()
	st = options.State{
		Files:   files.now.Files,
		Wanted:  files.now.Mark,
		Good:    files.good.Mark,
		Held:    files.held,
		Serving: o.trial.serves(ctx, info),
	}

	st.Running, st.Trying = o.trial.underway()
	st.LastGood = o.cfg.Master.lastGood()
	return st, nil
}

// optionFiles holds what the files of this node say about its options.
type optionFiles struct {
	now, good layout.Options // now: present options; good: options with which the master last served, or zero
	held      bool           // whether earlier options are saved for [OptionsNode.Back]
}

func (o *OptionsNode) readOptions() (f optionFiles, err error) {
	s := o.trial.freshSettings()
	f.now, err = layout.UserOptions(s, s.Master.Options)
	f.good, _ = layout.GoodOptions(o.env.Settings)
	_, none := layout.HeldOptions(o.env.Settings)
	f.held = none == nil
	return f, err
}

// Check implements [options.Node]. It checks the options by the appliance's own rules, with file
// and line, and then by the master, under the master's account.
func (o *OptionsNode) Check(ctx context.Context) (options.Findings, error) {
	return oneatatime.Do(ctx, o.files, "read the options in "+o.env.Settings.UserConfDir(),
		func() (options.Findings, error) { return o.checkOptions(ctx) })
}

func (o *OptionsNode) checkOptions(ctx context.Context) (f options.Findings, err error) {
	run := command.Exec{Limit: child.CheckTakes, MaxOutput: 1 << 20, Env: append(child.Environ(), "TMPDIR="+o.env.Settings.RuntimeDir)}
	out, err := run.Run(ctx, []string{o.env.Executable, "--config", o.env.ConfigPath, "config", "check", "--json"})
	if err != nil {
		return f, fmt.Errorf("check the options: %w", err)
	}

	if err := json.Unmarshal(out.Stdout, &f); err != nil {
		return f, fmt.Errorf("check the options: %w", errors.Join(err, out.Err()))
	}
	if len(f.Faults) > 0 {
		return f, nil
	}

	if o.reloads() {
		f.Notes = append(f.Notes,
			options.Fault{
				File: o.env.ConfigPath,
				Text: o.env.ConfigPath + ": has changes besides master.options; they count at: applianced reload",
			})
	}

	s := o.trial.freshSettings()
	now, err := layout.UserOptions(s, s.Master.Options)
	if err != nil {
		return f, err
	}

	text, err := layout.MasterConfig(o.trial.withOptions(o.cfg.Master.settings(), now), o.trial.account.Name, now.Dir)
	if err != nil {
		return f, err
	}

	dir := filepath.Join(o.env.Settings.RuntimeDir, "options")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return f, fmt.Errorf("check the options: %w", err)
	}
	defer os.RemoveAll(dir)

	if _, err := layout.WriteSecret(filepath.Join(dir, "master"), text, o.trial.account); err != nil {
		return f, err
	}

	if why := o.cfg.Master.refusal(ctx, dir); why != "" {
		f.Faults = append(f.Faults, options.Fault{Text: why})
	} else if o.env.Settings.API.Enabled {
		if why := o.cfg.API.Check(ctx, dir); why != "" {
			f.Faults = append(f.Faults, options.Fault{Text: why})
		}
	}

	return f, nil
}

// reloads reports whether appliance.yaml has changes that take effect only at a reload.
func (o *OptionsNode) reloads() bool {
	now, err := settings.Load(o.env.ConfigPath, o.env.Settings.Node)
	if err != nil || o.cfg.Moving {
		return false
	}
	was := *o.env.Settings
	was.Master.Options, was.AllowInsecure = now.Master.Options, now.AllowInsecure
	a, err1 := json.Marshal(was)
	b, err2 := json.Marshal(now)
	return err1 == nil && err2 == nil && string(a) != string(b)
}

// Try implements [options.Node].
func (o *OptionsNode) Try(ctx context.Context, mark string, limit time.Duration) error {
	st, err := o.State(ctx, false)
	if err != nil {
		return err
	}

	limit = min(max(limit, options.MinLimit), options.MaxLimit)
	switch {
	case mark == "" || st.Wanted != mark:
		return options.ErrChanged
	case st.Current() && st.Serving:
		return nil
	}

	again, err := o.trial.request(mark, limit)
	if err != nil || again {
		return err
	}

	if err := o.prepare(); err != nil {
		o.trial.withdraw()
		return err
	}

	o.env.Log.Info("salt-master is restarted to take new options")
	o.trial.restart()
	return nil
}

// prepare stores the last good options, so that the node can go back to them.
func (o *OptionsNode) prepare() error {
	good, err := layout.GoodOptions(o.env.Settings)
	if err == nil {
		err = layout.Hold(o.env.Settings, good, o.trial.account)
	} else { // no options have served; forget those that an earlier roll saved
		err = layout.Release(o.env.Settings)
	}
	if err != nil {
		return err
	}
	o.trial.setRefused(layout.Refusal{})
	return nil
}

// Back implements [options.Node]. It restores the earlier options before it refuses the present
// ones, so that a master that starts between the two steps always has options.
func (o *OptionsNode) Back(ctx context.Context, mark, why string) error {
	st, err := o.State(ctx, false)
	if err != nil {
		return err
	}
	if st.Running != mark && !st.Trying || st.LastGood != "" {
		return layout.Release(o.env.Settings)
	}

	held, err := layout.HeldOptions(o.env.Settings)
	if err != nil || held.Mark == mark {
		return options.ErrNotHeld
	}

	if err := layout.KeepGood(o.env.Settings, held, o.trial.account); err != nil {
		return err
	}

	o.trial.setRefused(layout.Refusal{Mark: mark, Why: printable.Brief(why, 500)})
	if err := layout.Release(o.env.Settings); err != nil {
		o.env.Log.Warn("the options from before a change are not removed", "error", err)
	}

	o.trial.abandon()
	o.env.Log.Warn("salt-master goes back to the earlier options", "reason", printable.Brief(why, 500))
	o.trial.restart()
	return nil
}

// Keep implements [options.Node].
func (o *OptionsNode) Keep(ctx context.Context, mark string) error {
	st, err := o.State(ctx, false)
	if err != nil {
		return err
	}
	if st.Running != mark || st.Trying {
		return options.ErrChanged
	}
	return layout.Release(o.env.Settings)
}
