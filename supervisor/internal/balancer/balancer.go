// Package balancer runs the load balancer of a node, and configures it with the masters of the
// cluster.
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
	"sync"
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
	settings func() *settings.Settings // returns the node's settings, with the members of the cluster
	adopted  error
	writing  sync.Mutex // held while the settings are read and written, so that old settings cannot replace new ones
	backends atomic.Pointer[[]lbproxy.Backend]
}

// New returns the load balancer of a node. settings returns the node's settings, with the members
// of its cluster. If the service's context ends with the cause adopted, the load balancer's process
// keeps running for the next life of the node.
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

// Stop ends the process, whichever life of the node has started it.
func (b *Balancer) Stop() { b.process(nil).Stop() }

func (b *Balancer) program() string {
	if b.env.Settings.Programs.LB != "" {
		return b.env.Settings.Programs.LB
	}
	// The image has this program under a second name, for the AppArmor profile of the load
	// balancer.
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

// process returns the runner of the load balancer's process. The process outlives the supervisor,
// and the next life adopts it, so that minions' connections survive a restart of the supervisor.
// After a change of program or configuration a new process replaces it without a refused connection
// (see lbproxy.Serve). Only an ordinary stop ends the process.
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

// Spec returns the service that runs the load balancer. Each start first waits for the condition
// wait.
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
			// Ask the admin socket, not the ports: each connection to a port would count as a
			// session.
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

// prepare creates the files that the load balancer needs. If runs is set, a load balancer already
// runs and has the ports, so prepare does not check them.
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

// writeConfig writes the load balancer's configuration. A running load balancer gets a changed list
// of masters at its next health check. Any other change needs a restart of the service, which
// interrupts no connection.
func (b *Balancer) writeConfig() error {
	b.writing.Lock()
	defer b.writing.Unlock()

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

// TableChanged writes the configuration for a new table of nodes. The first table of a node may
// arrive before the node's directories exist; then prepare writes the configuration later.
func (b *Balancer) TableChanged() error {
	if err := b.writeConfig(); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// tag returns a text that identifies the program and the part of its configuration that cannot
// change while the program runs.
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

// reconcile changes the masters of a running load balancer to want: it adds missing masters, and
// drains and removes all others. If the address of a master has changed, this call removes the
// master and a later call adds it again.
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

// sameBackend reports whether a backend has the wanted address and ports.
func sameBackend(st lbproxy.Status, b lbproxy.BackendStatus, want lbproxy.Backend) bool {
	ip, err := netip.ParseAddr(want.Address)
	if err != nil {
		return true // keep the backend: reconcile could not add an invalid address
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

// CountsMaster reports whether the load balancer sends minions to this node's master. If there is
// no load balancer, it returns true, because minions reach the master directly.
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
