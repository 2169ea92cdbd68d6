// Package mastersvc runs the salt-master of a node: its configuration, trials of the
// administrator's new options ([Trial]), the steps of a rolling change ([OptionsNode]), and the
// Python packages.
package mastersvc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/go-multierror"

	"saltern/internal/command"
	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/confine"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/salttools"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Master is this node's salt-master.
type Master struct {
	env      child.Env
	programs *child.Programs
	settings func() *settings.Settings // returns the node's settings, with the members of the cluster
	trial    *Trial                    // trial of the master's options

	mu       sync.Mutex
	insecure []*layout.UserFault // insecure options that the administrator has allowed
	fallback string              // why the master runs with its last good options; "": with the present options
	trouble  string              // the trouble that the master reports about itself; "": none
}

func (m *Master) program() string { return masterProgram(m.env) }

// New returns the master of a node. settings returns the node's settings, with the members of its
// cluster.
func New(env child.Env, programs *child.Programs, settings func() *settings.Settings, trial *Trial) *Master {
	return &Master{env: env, programs: programs, settings: settings, trial: trial}
}

// masterProgram returns the path of salt-master. Unless the settings name a path, salt-master is in
// the folder of this program.
func masterProgram(env child.Env) string {
	return cmp.Or(env.Settings.Programs.Master, env.Beside("salt-master"))
}

// NewTools returns the Salt tools of this node's master, which runs as account.
func NewTools(env child.Env, account layout.Account) salttools.Tools {
	socket := filepath.Join(env.Settings.MasterSockDir(), control.Socket)
	return salttools.Tools{
		Control: control.NewClient(socket, account.UID),
		Master:  masterProgram(env),
		Config:  env.Settings.MasterConf(),
		Env:     child.Environ(),
	}
}

// Start holds what a start of the master depends on.
type Start struct {
	Wait  service.Condition
	Spoke func(since time.Time) bool // reports whether the master has shown a sign of life after since
	// WriteSecret writes the cluster's secret to the file from which the master reads it. It may be
	// nil: the node has no cluster.
	WriteSecret func() error
}

// Spec returns the service that runs the master.
func (m *Master) Spec(begin Start) service.Spec {
	out := m.programs.Output(status.MasterService)
	proc := &service.Process{
		Path:        m.program(),
		Args:        []string{"-c", m.env.Settings.MasterConf()},
		Env:         child.Environ(),
		Dir:         "/",
		PIDFile:     child.PIDFile(m.env.Settings, status.MasterService),
		Credential:  m.programs.Master.Credential,
		StopTimeout: m.env.Settings.Limits.StopTimeout,
		Log:         out,
		Confine: func(ctx context.Context, pid int) error {
			return m.programs.Confine(ctx, status.MasterService, pid, confine.MasterOOM, m.env.Settings.Limits.MasterMemory)
		},
		KillRest: func(pid int) { m.programs.KillRest(status.MasterService, pid) },
	}

	return service.Spec{
		Name:   status.MasterService,
		Output: out,
		Runner: proc,
		Wait:   begin.Wait,
		Ended:  func(_ time.Duration, err error) { m.trial.masterEnded(err, out.Tail(1)) },
		Prepare: func(ctx context.Context) error {
			if err := m.programs.RequireAccount("salt-master", m.env.Settings.Users.Master, m.programs.Master); err != nil {
				return m.programs.Block(status.MasterService, err)
			}
			if err := proc.KillStale(ctx); err != nil {
				return m.programs.Block(status.MasterService, err)
			}
			return m.programs.Block(status.MasterService, m.prepare(ctx, begin.WriteSecret))
		},
		Health: &service.Health{Interval: 2 * time.Second, Fall: 3, Check: func(ctx context.Context) error {
			if err := m.noteTrouble(probe.Ping(ctx, m.env.Settings.MasterRequest())); err != nil {
				return fmt.Errorf("master to answer ping on %s: %w", m.env.Settings.MasterRequest(), err)
			}
			if err := probe.Subscribable(ctx, m.env.Settings.MasterPublish()); err != nil {
				return fmt.Errorf("master to accept subscribers on %s: %w", m.env.Settings.MasterPublish(), err)
			}
			return nil
		}, Hang: &service.Hang{
			Silent: func(err error) bool { return errors.Is(err, probe.ErrSilent) },
			Alive:  begin.Spoke,
		}},
	}
}

// noteTrouble handles the error of a ping. If the error is a fault that the master reports about
// itself, noteTrouble records the fault and returns nil, because the master has answered. It
// returns every other error unchanged.
func (m *Master) noteTrouble(err error) error {
	unwell, ok := errors.AsType[probe.UnwellError](err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.trouble = string(unwell)
	if ok {
		return nil
	}
	return err
}

// prepare writes what the master needs for a start.
func (m *Master) prepare(ctx context.Context, writeSecret func() error) error {
	if err := m.programs.MakeDirectories(); err != nil {
		return err
	}

	var b child.Blockers
	b = append(b, keyFindings(layout.CheckKeys(m.env.Settings.PKIDir(), m.programs.Master))...)
	b = append(b, child.CheckProgram(m.program())...)
	b = append(b, probe.PortFindings(m.env.Settings.MasterRequest(), m.env.Settings.MasterPublish())...)
	if len(b) > 0 {
		now, _ := m.trial.current()
		return append(b, m.faultsOf(now)...)
	}

	if writeSecret != nil {
		if err := writeSecret(); err != nil {
			return err
		}
	}

	return m.configure(ctx)
}

// configure writes a configuration with the administrator's present options. If the master cannot
// start with these, or did not serve with them, configure writes the last good options instead, and
// the status says so.
func (m *Master) configure(ctx context.Context) error {
	now, refused := m.trial.current()
	good, none := layout.GoodOptions(m.env.Settings)
	var b child.Blockers
	why := refused
	if why == "" || none != nil {
		var err error
		if b, why, err = m.tryOptions(ctx, now); err != nil {
			return err
		}
	}

	if why == "" {
		m.setFallback("")
		m.trial.noteStart(now, none == nil && good.Mark != now.Mark)
		return nil
	}

	if none == nil {
		if _, bad, err := m.tryOptions(ctx, good); err == nil && bad == "" {
			m.env.Log.Warn("salt-master starts with its last good options", "reason", why)
			m.setFallback(why)
			m.trial.noteStart(good, false)
			return nil
		}
	}

	m.setFallback("")
	m.trial.noteStart(layout.Options{}, false)
	if len(b) > 0 {
		return b
	}

	return m.writeConfig(now) // the master itself will report what is wrong
}

func (m *Master) setFallback(why string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fallback = why
}

// tryOptions writes the configuration with options and checks it. why is the reason that prevents a
// start, or "". b lists what the appliance itself refuses.
func (m *Master) tryOptions(ctx context.Context, o layout.Options) (b child.Blockers, why string, err error) {
	if b = m.faultsOf(o); len(b) > 0 {
		return b, b.Error(), nil
	}
	if err := m.writeConfig(o); err != nil {
		return nil, "", err
	}
	return nil, m.refusal(ctx, m.env.Settings.MasterConf()), nil
}

// refusal returns why the master refuses a configuration folder. It returns "" if the master
// accepts the folder, or if this process cannot run the check.
func (m *Master) refusal(ctx context.Context, dir string) string {
	run := command.Exec{
		Limit:      child.CheckTakes,
		MaxOutput:  64 << 10,
		Cut:        true,
		Env:        child.Environ(),
		Credential: m.programs.Master.Credential,
	}
	out, err := run.Run(ctx, []string{m.program(), "--check", "-c", dir})
	if err != nil || out.Exit != exitConfig {
		return "" // the start will show what is wrong
	}
	_, text, _ := strings.Cut(string(out.Stderr), "\n") // the first line is a heading
	return status.Clip(printable.Brief(cmp.Or(text, string(out.Stderr)), 500))
}

const exitConfig = 78 // exit code of salt-master: sysexits.h, EX_CONFIG

// faultsOf returns what the appliance itself refuses in options.
func (m *Master) faultsOf(o layout.Options) (b child.Blockers) {
	var allowed []*layout.UserFault
	for _, f := range layout.CheckUserConf(m.trial.withOptions(m.env.Settings, o), o.Dir) {
		if f.Insecure && f.Allowed {
			allowed = append(allowed, f)
			continue
		}
		b = append(b, status.Finding{Code: status.MasterConfig, Subject: f.File + " " + f.Option, Cause: f.Error()})
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.insecure = allowed
	return b
}

// writeConfig writes the configuration of the master, with options, and the configuration of its
// clients.
func (m *Master) writeConfig(o layout.Options) error {
	text, err := layout.MasterConfig(m.trial.withOptions(m.settings(), o), m.programs.Master.Name, o.Dir)
	if err != nil {
		return child.Blockers{{Code: status.MasterConfig, Subject: m.env.ConfigPath, Cause: err.Error()}}
	}
	client, err := layout.ClientConfig(text)
	if err == nil {
		_, err = layout.WriteFile(filepath.Join(layout.ClientConf(m.env.Settings), "master"), client, 0o644)
	}
	if err != nil {
		return err
	}
	_, err = layout.WriteSecret(filepath.Join(m.env.Settings.MasterConf(), "master"), text, m.programs.Master)
	return err
}

func keyFindings(err error) child.Blockers {
	if err == nil {
		return nil
	}

	list := []error{err}
	if me, ok := errors.AsType[*multierror.Error](err); ok {
		list = me.Errors
	}

	var b child.Blockers
	for _, e := range list {
		if kf, ok := errors.AsType[*layout.KeyFault](e); ok {
			if probe.IsOfDisk(kf.Err) {
				b = append(b, probe.FileFinding(kf.Path, kf.Err))
				continue
			}
			b = append(b, status.Finding{Code: status.KeyUnreadable, Subject: kf.Path, Cause: kf.Reason})
		}
	}

	return b
}

// lastGood returns why the master runs with its last good options, or "" if it runs with the
// present ones.
func (m *Master) lastGood() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.fallback
}

// Facts adds to k what the status shows of the master.
func (m *Master) Facts(k *observe.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()

	k.LastGood = m.fallback
	k.Trouble = m.trouble
	for _, u := range m.insecure {
		k.Insecure = append(k.Insecure, u.Option)
	}
}
