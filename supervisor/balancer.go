package supervisor

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"saltern/lbproxy"
	"saltern/supervisor/layout"
	"saltern/supervisor/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

func (n *node) lbProgram() string {
	if n.cfg.Programs.LB != "" {
		return n.cfg.Programs.LB
	}
	// The image has it under a name of its own, for its AppArmor profile.
	named := filepath.Join(filepath.Dir(n.opt.Executable), "saltern-lb")
	if ours, err := os.Stat(n.opt.Executable); err == nil {
		if fi, err := os.Stat(named); err == nil && os.SameFile(ours, fi) {
			return named
		}
	}
	return n.opt.Executable
}

func (n *node) lbArgs() []string {
	return []string{"lb", "--config", n.cfg.LBConf(), "--log-format", "json", "--log-level", n.cfg.Log.Level}
}

// lbProcess is the load balancer's process. It outlives this one and is
// adopted by the next life, so that minions' connections survive a restart of
// the supervisor; a changed program or configuration takes its place without a
// refused connection (see lbproxy.Serve). Only an ordinary stop ends it.
func (n *node) lbProcess(out *service.Lines) *service.Lasting {
	p := &service.Lasting{Path: n.lbProgram(), Args: n.lbArgs(), Env: childEnv(), Dir: "/", PIDFile: n.pidFile(lbService),
		Pipe: filepath.Join(n.cfg.RuntimeDir, lbService+".out"), Credential: n.lb.Credential, StopTimeout: n.cfg.Limits.StopTimeout,
		Tag: n.lbTag, Answers: n.lbAnswers, Leave: func(cause error) bool { return errors.Is(cause, errReload) },
		Confine: func(ctx context.Context, pid int) { n.confine(ctx, lbService, pid, lbOOM, n.cfg.Limits.LBMemory) }}
	if out != nil {
		p.Log = out
	}
	return p
}

func (n *node) lbAnswers(ctx context.Context) error {
	_, err := n.balancer.Status(ctx)
	return err
}

func (n *node) lbSpec() service.Spec {
	out := n.output(lbService)
	proc := n.lbProcess(out)
	return service.Spec{
		Name:    lbService,
		Output:  out,
		Runner:  proc,
		Prepare: func(context.Context) error { return n.block(lbService, n.prepareLB(proc.Alive())) },
		Health: &service.Health{Interval: 2 * time.Second, Fall: 2, Check: func(ctx context.Context) error {
			// Not by its ports: each such connection would count as a session.
			st, err := n.balancer.Status(ctx)
			if err != nil {
				return fmt.Errorf("load balancer to answer on its admin socket: %w", err)
			}
			if want := n.backends.Load(); want != nil {
				if err := reconcile(ctx, n.balancer, st, *want); err != nil {
					n.opt.Log.Warn("load balancer's list of masters", "error", err)
				}
			}
			return nil
		}},
	}
}

// prepareLB makes what the load balancer needs. One that runs already has the
// ports.
func (n *node) prepareLB(runs bool) error {
	if err := n.accountThere("applianced lb", n.cfg.Users.LB, n.lb); err != nil {
		return err
	}
	if err := layout.Make(n.cfg, n.master, n.lb); err != nil {
		return blockers{{Code: status.StorageUnusable, Subject: n.cfg.StorageDir(), Cause: settings.OneLine(err)}}
	}
	b := blockers(programFindings(n.lbProgram()))
	if !runs {
		b = append(b, portFindings(append(n.cfg.FrontRequest(), n.cfg.FrontPublish()...)...)...)
	}
	if len(b) > 0 {
		return b
	}
	return n.writeBalancer()
}

// writeBalancer writes the load balancer's configuration. Of a change, one that
// runs takes the list of masters at its next health check; anything else
// needs a restart of the service, which no connection notices.
func (n *node) writeBalancer() error {
	text, err := layout.BalancerConfig(n.settings())
	if err != nil {
		return err
	}
	c, err := lbproxy.ParseConfig(text)
	if err != nil {
		return fmt.Errorf("load balancer configuration: %w", err)
	}
	n.backends.Store(&c.Backends)
	_, err = layout.WriteFile(n.cfg.LBConf(), text, 0o644)
	return err
}

// lbTag stands for the program and all of its configuration that cannot be
// changed while it runs.
func (n *node) lbTag() (string, error) {
	fi, err := os.Stat(n.lbProgram())
	if err != nil {
		return "", err
	}
	text, err := layout.BalancerConfig(n.settings())
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
	fmt.Fprintln(h, n.lbArgs(), n.lb.Credential, n.cfg.LB.ProxyProtocol, inode, fi.Size(), fi.ModTime().UnixNano())
	h.Write(conf)
	return fmt.Sprintf("%x", h.Sum(nil)[:16]), nil
}

// reconcile gives a running load balancer the masters it is to have: what is
// missing is added, what is too much is drained and removed, and what has
// moved is removed now and added when it is gone.
func reconcile(ctx context.Context, c *lbproxy.Client, st lbproxy.Status, want []lbproxy.Backend) error {
	var errs error
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
			if fe.Name == p.Frontend && fe.Mode == lbproxy.Request {
				port = want.RequestPort
			}
		}
		if p.Address != netip.AddrPortFrom(ip.Unmap(), uint16(port)).String() {
			return false
		}
	}
	return true
}

// askBalancer asks the load balancer how it is.
func askBalancer(ctx context.Context, c *lbproxy.Client) (*balancerFacts, error) {
	st, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	return fromBalancer(st), nil
}

// fromBalancer picks what the node's status needs. A backend counts as up
// when it is up on all of its ports.
func fromBalancer(st lbproxy.Status) *balancerFacts {
	f := &balancerFacts{backends: len(st.Backends), fdBudget: st.FDs.Budget, fdFree: st.FDs.Free, down: map[string]string{}}
	var why []string
	for _, b := range st.Backends {
		up, down := len(b.Ports) > 0, ""
		for _, p := range b.Ports {
			if p.State == lbproxy.Up {
				continue
			}
			up = false
			reason := fmt.Sprintf("%s %s is %s", b.Name, p.Frontend, p.State)
			if p.LastError != "" {
				reason += ": " + p.LastError
			}
			if p.State == lbproxy.Down {
				down = reason
			}
			why = append(why, reason)
		}
		switch {
		case up:
			f.up++
		case down != "" && !b.Maint && !b.Removing:
			f.down[b.Name] = down
		}
	}
	worst, others := uint64(0), 0
	for _, fe := range st.Frontends {
		for _, l := range fe.Limited[:min(1, len(fe.Limited))] {
			others += fe.LimitedSources
			if l.Refused > worst {
				worst = l.Refused
				f.limited = fmt.Sprintf("%s has %d sessions on the %s port and was refused %d times", l.Source, l.Sessions, fe.Mode, l.Refused)
			}
		}
		if fe.Mode == lbproxy.Publish {
			f.sessions += int(fe.Sessions)
		}
	}
	if others > 1 {
		f.limited += fmt.Sprintf("; %d more", others-1)
	}
	f.why = clip(strings.Join(why, "; "))
	return f
}
