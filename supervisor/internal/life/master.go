package life

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-multierror"

	"saltern/control"
	"saltern/supervisor/internal/confine"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/salttools"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// master is this node's salt-master.
type master struct {
	*children
	settings func() *settings.Settings // with the members of the cluster
	member   *member.Member            // nil: this node is alone
	insecure []*layout.UserFault       // allowed insecure options; under mu
}

// program lies beside our own executable unless the settings name it.
func (m *master) program() string {
	if m.Settings.Programs.Master != "" {
		return m.Settings.Programs.Master
	}
	return filepath.Join(filepath.Dir(m.Executable), "salt-master")
}

// tools are Salt's tools of our master.
func (m *master) tools() salttools.Tools {
	socket := filepath.Join(m.Settings.MasterSockDir(), control.Socket)
	return salttools.Tools{Control: control.NewClient(socket, m.master.UID), Master: m.program(), Config: m.Settings.MasterConf(), Env: childEnv()}
}

// spec is its service, which waits for what is given first; spoke reports
// whether it has given a sign of life.
func (m *master) spec(wait service.Condition, spoke func(time.Time) bool) service.Spec {
	out := m.output(status.MasterService)
	proc := &service.Process{Path: m.program(), Args: []string{"-c", m.Settings.MasterConf()}, Env: childEnv(), Dir: "/",
		PIDFile: pidFile(m.Settings, status.MasterService), Credential: m.master.Credential, StopTimeout: m.Settings.Limits.StopTimeout, Log: out,
		Confine: func(ctx context.Context, pid int) {
			m.confine(ctx, status.MasterService, pid, confine.MasterOOM, m.Settings.Limits.MasterMemory)
		}}
	return service.Spec{
		Name:   status.MasterService,
		Output: out,
		Runner: proc,
		Wait:   wait,
		Prepare: func(ctx context.Context) error {
			if err := m.accountThere("salt-master", m.Settings.Users.Master, m.master); err != nil {
				return m.block(status.MasterService, err)
			}
			if err := proc.KillStale(ctx); err != nil {
				return m.block(status.MasterService, err)
			}
			return m.block(status.MasterService, m.prepare())
		},
		Health: &service.Health{Interval: 2 * time.Second, Fall: 3, Check: func(ctx context.Context) error {
			if err := probe.Ping(ctx, m.Settings.MasterRequest()); err != nil {
				return fmt.Errorf("master to answer ping on %s: %w", m.Settings.MasterRequest(), err)
			}
			if err := probe.Subscribable(ctx, m.Settings.MasterPublish()); err != nil {
				return fmt.Errorf("master to accept subscribers on %s: %w", m.Settings.MasterPublish(), err)
			}
			return nil
		}, Hang: &service.Hang{
			Silent: func(err error) bool { return errors.Is(err, probe.ErrSilent) },
			Alive:  spoke,
		}},
	}
}

// prepare makes what the master needs.
func (m *master) prepare() error {
	if err := m.make(); err != nil {
		return err
	}
	var b blockers
	var allowed []*layout.UserFault
	for _, f := range layout.CheckUserConf(m.Settings) {
		if f.Insecure && f.Allowed {
			allowed = append(allowed, f)
			continue
		}
		b = append(b, status.Finding{Code: status.MasterConfig, Subject: f.File + " " + f.Option, Cause: f.Error()})
	}
	m.mu.Lock()
	m.insecure = allowed
	m.mu.Unlock()
	b = append(b, keyFindings(layout.CheckKeys(m.Settings.PKIDir(), m.master))...)
	b = append(b, programFindings(m.program())...)
	b = append(b, portFindings(m.Settings.MasterRequest(), m.Settings.MasterPublish())...)
	if len(b) > 0 {
		return b
	}
	if m.member == nil {
		return m.write()
	}
	if err := m.member.WriteSecret(); err != nil {
		return blockers{{Code: status.StorageUnusable, Subject: m.Settings.ClusterConf(), Cause: err.Error()}}
	}
	return m.write()
}

// write writes the master's configuration, and that of its clients.
func (m *master) write() error {
	text, err := layout.MasterConfig(m.settings(), m.master.Name)
	if err != nil {
		return blockers{{Code: status.MasterConfig, Subject: m.ConfigPath, Cause: err.Error()}}
	}
	client, err := layout.ClientConfig(text)
	if err == nil {
		_, err = layout.WriteFile(filepath.Join(layout.ClientConf(m.Settings), "master"), client, 0o644)
	}
	if err != nil {
		return err
	}
	_, err = layout.WriteSecret(filepath.Join(m.Settings.MasterConf(), "master"), text, m.master)
	return err
}

func keyFindings(err error) blockers {
	if err == nil {
		return nil
	}
	list := []error{err}
	if me, ok := errors.AsType[*multierror.Error](err); ok {
		list = me.Errors
	}
	var b blockers
	for _, e := range list {
		if kf, ok := errors.AsType[*layout.KeyFault](e); ok {
			b = append(b, status.Finding{Code: status.KeyUnreadable, Subject: kf.Path, Cause: kf.Reason})
		}
	}
	return b
}

func programFindings(path string) []status.Finding {
	fi, err := os.Stat(path)
	switch {
	case err != nil:
		return []status.Finding{{Code: status.ProgramMissing, Subject: path, Cause: err.Error()}}
	case !fi.Mode().IsRegular() || fi.Mode().Perm()&0o111 == 0:
		return []status.Finding{{Code: status.ProgramMissing, Subject: path, Cause: path + " is not an executable file"}}
	}
	return nil
}

func portFindings(addresses ...string) (out []status.Finding) {
	for _, a := range addresses {
		if err := probe.PortFree(a); err != nil {
			out = append(out, status.Finding{Code: status.PortInUse, Subject: a, Cause: err.Error()})
		}
	}
	return out
}
