// Package balancer runs the load balancer of a node, and brings it in line with the masters of the cluster.
package balancer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"saltern/lbproxy"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/confine"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Balancer is the load balancer of this node.
type Balancer struct {
	env      child.Env
	programs *child.Programs
	admin    *lbproxy.Client
	settings func() *settings.Settings // with the members of the cluster
	adopted  error
	backends atomic.Pointer[[]lbproxy.Backend]
}

// New returns the load balancer of a node. settings returns those of the node with the members of
// its cluster. A stop with the cause adopted leaves the process to the next life of the node.
func New(
	env child.Env,
	programs *child.Programs,
	settings func() *settings.Settings,
	adopted error,
) *Balancer {
	return &Balancer{
		env:      env,
		programs: programs,
		admin:    lbproxy.NewClient(env.Settings.LBSocket()),
		settings: settings,
		adopted:  adopted,
	}
}

// Admin returns the client of the load balancer's admin socket.
func (b *Balancer) Admin() *lbproxy.Client { return b.admin }

// Stop ends the process, whatever life of the node has started it.
func (b *Balancer) Stop() { b.process(nil).Stop() }

func (b *Balancer) program() string {
	if b.env.Settings.Programs.LB != "" {
		return b.env.Settings.Programs.LB
	}
	// The image has it under a name of its own, for its AppArmor profile.
	named := filepath.Join(filepath.Dir(b.env.Executable), "saltern-lb")
	if ours, err := os.Stat(b.env.Executable); err == nil {
		if fi, err := os.Stat(named); err == nil && os.SameFile(ours, fi) {
			return named
		}
	}
	return b.env.Executable
}

func (b *Balancer) arguments() []string {
	return []string{"lb", "--config", b.env.Settings.LBConf(), "--log-format", "json", "--log-level", b.env.Settings.Log.Level}
}

// process is the load balancer's process. It outlives this one and is
// adopted by the next life, so that minions' connections survive a restart of
// the supervisor; a changed program or configuration takes its place without a
// refused connection (see lbproxy.Serve). Only an ordinary stop ends it.
func (b *Balancer) process(out *service.Lines) *service.Lasting {
	p := &service.Lasting{
		Path:        b.program(),
		Args:        b.arguments(),
		Env:         child.Environ(),
		Dir:         "/",
		PIDFile:     child.PIDFile(b.env.Settings, status.BalancerService),
		Pipe:        filepath.Join(b.env.Settings.RuntimeDir, status.BalancerService+".out"),
		Credential:  b.programs.Balancer.Credential,
		StopTimeout: b.env.Settings.Limits.StopTimeout,
		Tag:         b.tag,
		Answers:     b.answers,
		Leave:       func(cause error) bool { return errors.Is(cause, b.adopted) },
		Confine: func(ctx context.Context, pid int) error {
			return b.programs.Confine(ctx, status.BalancerService, pid, confine.BalancerOOM, b.env.Settings.Limits.LBMemory)
		},
	}

	if out != nil {
		p.Log = out
	}

	return p
}

func (b *Balancer) answers(ctx context.Context) error {
	_, err := b.admin.Status(ctx)
	return err
}

// Spec is its service, which waits for what is given first.
func (b *Balancer) Spec(wait service.Condition) service.Spec {
	out := b.programs.Output(status.BalancerService)
	proc := b.process(out)
	return service.Spec{
		Name:    status.BalancerService,
		Output:  out,
		Runner:  proc,
		Wait:    wait,
		Prepare: func(context.Context) error { return b.programs.Block(status.BalancerService, b.prepare(proc.Alive())) },
		Health: &service.Health{Interval: 2 * time.Second, Fall: 2, Check: func(ctx context.Context) error {
			// Not by its ports: each such connection would count as a session.
			st, err := b.admin.Status(ctx)
			if err != nil {
				return fmt.Errorf("load balancer to answer on its admin socket: %w", err)
			}

			if want := b.backends.Load(); want != nil {
				if err := reconcile(ctx, b.admin, st, *want); err != nil {
					b.env.Log.Warn("load balancer's list of masters", "error", err)
				}
			}

			return nil
		}},
	}
}

// prepare makes what the load balancer needs. One that runs already has the
// ports.
func (b *Balancer) prepare(runs bool) error {
	if err := b.programs.RequireAccount("applianced lb", b.env.Settings.Users.LB, b.programs.Balancer); err != nil {
		return err
	}

	if err := b.programs.MakeDirectories(); err != nil {
		return err
	}

	found := child.Blockers(child.CheckProgram(b.program()))
	if !runs {
		found = append(found, probe.PortFindings(append(b.env.Settings.FrontRequest(), b.env.Settings.FrontPublish()...)...)...)
	}

	if len(found) > 0 {
		return found
	}

	return b.writeConfig()
}

// writeConfig writes the load balancer's configuration. Of a change, one that
// runs takes the list of masters at its next health check; anything else
// needs a restart of the service, which no connection notices.
func (b *Balancer) writeConfig() error {
	text, err := layout.BalancerConfig(b.settings())
	if err != nil {
		return err
	}
	c, err := lbproxy.ParseConfig(text)
	if err != nil {
		return fmt.Errorf("load balancer configuration: %w", err)
	}
	b.backends.Store(&c.Backends)
	_, err = layout.WriteFile(b.env.Settings.LBConf(), text, 0o644)
	return err
}

// TableChanged writes it for a new table of nodes. The first table of a node may come
// before its directories are made: prepare writes it then.
func (b *Balancer) TableChanged() error {
	if err := b.writeConfig(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// tag stands for the program and all of its configuration that cannot be
// changed while it runs.
func (b *Balancer) tag() (string, error) {
	fi, err := os.Stat(b.program())
	if err != nil {
		return "", err
	}

	text, err := layout.BalancerConfig(b.settings())
	if err != nil {
		return "", err
	}

	c, err := lbproxy.ParseConfig(text)
	if err != nil {
		return "", err
	}

	c.Backends = nil
	conf, err := json.Marshal(c)
	if err != nil {
		return "", err
	}

	var inode uint64
	if st, ok := fi.Sys().(*syscall.Stat_t); ok {
		inode = st.Ino
	}

	h := sha256.New()
	fmt.Fprintln(h, b.arguments(), b.programs.Balancer.Credential, b.env.Settings.LB.ProxyProtocol, inode, fi.Size(), fi.ModTime().UnixNano())
	h.Write(conf)
	return fmt.Sprintf("%x", h.Sum(nil)[:16]), nil
}

// reconcile gives a running load balancer the masters it is to have: what is
// missing is added, what is too much is drained and removed, and what has
// moved is removed now and added when it is gone.
func reconcile(ctx context.Context, c *lbproxy.Client, st lbproxy.Status, want []lbproxy.Backend) (errs error) {
	have := map[string]bool{}
	for _, b := range st.Backends {
		have[b.Name] = true
		i := slices.IndexFunc(want, func(w lbproxy.Backend) bool { return w.Name == b.Name })
		if b.Removing || (i >= 0 && sameBackend(st, b, want[i])) {
			continue
		}

		if err := c.Remove(ctx, b.Name, false); err != nil {
			errs = errors.Join(errs, fmt.Errorf("remove %s: %w", b.Name, err))
		}
	}

	for _, w := range want {
		if have[w.Name] {
			continue
		}
		if err := c.Add(ctx, w); err != nil {
			errs = errors.Join(errs, fmt.Errorf("add %s: %w", w.Name, err))
		}
	}

	return errs
}

// sameBackend says whether the ports of a backend are where they should be.
func sameBackend(st lbproxy.Status, b lbproxy.BackendStatus, want lbproxy.Backend) bool {
	ip, err := netip.ParseAddr(want.Address)
	if err != nil {
		return true // it could not be added either
	}

	for _, p := range b.Ports {
		port := want.PublishPort
		for _, fe := range st.Frontends {
			switch {
			case fe.Name != p.Frontend:
			case fe.Mode == lbproxy.Request:
				port = want.RequestPort
			case fe.Mode == lbproxy.API:
				port = want.APIPort
			}
		}

		if p.Address != netip.AddrPortFrom(ip.Unmap(), uint16(port)).String() {
			return false
		}
	}

	return true
}

// CountsMaster reports whether the load balancer gives minions to this node's master;
// without a load balancer they come by themselves.
func (b *Balancer) CountsMaster(ctx context.Context) bool {
	if !b.env.Settings.LB.Enabled {
		return true
	}
	st, err := b.admin.Status(ctx)
	if err != nil {
		return false
	}
	i := slices.IndexFunc(st.Backends, func(o lbproxy.BackendStatus) bool { return o.Name == b.env.Settings.Node })
	return i >= 0 && len(st.Backends[i].Ports) > 0 &&
		!slices.ContainsFunc(st.Backends[i].Ports,
			func(p lbproxy.PortStatus) bool { return p.State != lbproxy.Up && !st.ForAPI(p) })
}
