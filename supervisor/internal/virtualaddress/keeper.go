// Package virtualaddress runs keepalived (package vip), which moves the cluster's virtual address
// between nodes, and judges whether this node may have the address.
package virtualaddress

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/lbproxy"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/internal/vip"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Keeper runs this node's keepalived and judges whether the node may have the virtual address.
type Keeper struct {
	cfg    Config
	env    child.Env
	daemon *vip.Daemon

	hearingMu sync.Mutex
	hearing   hearing
}

// Config holds what a [Keeper] uses.
type Config struct {
	Env      child.Env
	Programs *child.Programs
	Socket   string // path of the local API's socket
	Member   *member.Member
	Document func() status.Document
	Balancer *lbproxy.Client
	Service  service.Named // the service that runs keepalived
}

// New returns the keeper of a node. It starts nothing before its service runs.
func New(cfg Config) *Keeper {
	return &Keeper{cfg: cfg, env: cfg.Env}
}

// address returns the cluster's virtual address, or the zero Addr if the cluster has none.
func (k *Keeper) address() netip.Addr {
	t := k.cfg.Member.Table()
	a, _ := netip.ParseAddr(t.Virtual) // the table's check has validated it; "" gives the zero Addr
	return a
}

// Spec returns the service that runs keepalived while the cluster has a virtual address.
func (k *Keeper) Spec() service.Spec {
	out := k.cfg.Programs.Output(status.VirtualService)
	k.daemon = &vip.Daemon{
		Dir: filepath.Join(k.env.Settings.RuntimeDir, "vip"),
		Log: out,
		Env: child.Environ(),
	}
	given := service.Poll("a virtual address", time.Second, time.Second, func(context.Context) error {
		if !k.address().IsValid() {
			return errors.New("the cluster has none")
		}
		return nil
	})

	return service.Spec{
		Name:   status.VirtualService,
		Output: out,
		Runner: k,
		Wait:   service.All(k.cfg.Member.Belongs(), given),
		Prepare: func(ctx context.Context) error {
			err := k.daemon.KillStale(ctx)
			if err == nil {
				_, err = k.writeConfig(ctx)
			}

			if err != nil {
				err = child.Blockers{{
					Code:    status.VirtualUnable,
					Subject: k.address().String(),
					Cause:   settings.OneLine(err),
				}}
			}

			return k.cfg.Programs.Block(status.VirtualService, err)
		},
	}
}

// Run implements [service.Runner].
func (k *Keeper) Run(ctx context.Context, started func(pid int)) error {
	own, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		k.follow(own, k.address())
	}()
	err := k.daemon.Run(ctx, started)
	stop()
	<-followed
	return err
}

// follow updates the configuration of a running keepalived when the table of nodes or the
// interfaces change. If the virtual address changes or is removed, follow restarts the service.
func (k *Keeper) follow(ctx context.Context, began netip.Addr) {
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	last := ""
	pending := false // a configuration was written that keepalived has not loaded
	for {
		changed := k.cfg.Member.Changed()
		if k.address() != began {
			if err := k.cfg.Service.Restart(); err != nil {
				k.env.Log.Error("virtual address", "error", err)
			}
			return
		}

		fresh, err := k.writeConfig(ctx)
		pending = pending || fresh
		if err == nil && pending {
			err = k.daemon.Reload(ctx)
			pending = err != nil
		}

		if ctx.Err() != nil {
			return
		}

		if err != nil && err.Error() != last {
			k.env.Log.Error("virtual address: going on as before", "error", err)
		}

		last = ""
		if err != nil {
			last = err.Error()
		}

		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// writeConfig writes keepalived's configuration and reports whether it has changed.
func (k *Keeper) writeConfig(ctx context.Context) (bool, error) {
	c, err := k.config(k.address())
	if err != nil {
		return false, err
	}
	c.Check = []string{k.env.Executable, "--socket", k.cfg.Socket, "virtual-address", "--fit"}
	text, err := vip.Render(c)
	if err != nil {
		return false, err
	}
	return k.daemon.Write(ctx, text)
}

// config returns keepalived's configuration for this node and the address a, or an error with the
// reason why the node cannot have the address.
func (k *Keeper) config(a netip.Addr) (vip.Config, error) {
	c := vip.Config{Node: k.env.Settings.Node, Virtual: a}
	if probe.OnEC2(probe.DMI) {
		return c, errors.New("addresses on EC2 do not move this way: use a network load balancer or DNS (docs/aws.md)")
	}

	if _, err := vip.Program(); err != nil {
		return c, err
	}

	if err := checkListening(k.env.Settings, a); err != nil {
		return c, err
	}

	var err error
	if c.Own, err = netip.ParseAddr(k.env.Settings.Peering.Address); err != nil {
		return c, err
	}

	list, err := vip.Interfaces()
	if err != nil {
		return c, err
	}

	if c.Where, err = vip.Place(a, c.Own, list); err != nil {
		return c, err
	}

	t := k.cfg.Member.Table()
	self, _ := k.cfg.Member.Self()
	c.Cluster = t.FirstKey()
	for i, o := range t.Nodes {
		if o.Certificate == self.Certificate {
			c.Rank = i
		} else if p, err := netip.ParseAddr(o.Address); err == nil && o.State != nodes.Removed &&
			!o.IsArbiter() && p.Is4() == a.Is4() {
			c.Peers = append(c.Peers, p)
		}
	}

	return c, nil
}

// checkListening returns nil if the load balancer listens at the address a.
func checkListening(cfg *settings.Settings, a netip.Addr) error {
	for _, f := range cfg.Front.Addresses {
		if ip, err := netip.ParseAddr(f); err == nil && ip.IsUnspecified() && (ip.Is4() == a.Is4() || ip.Is6()) {
			return nil
		}
	}
	return fmt.Errorf("the load balancer listens on %s only; it has to listen on all addresses (front: {addresses: [0.0.0.0]} in appliance.yaml)",
		strings.Join(cfg.Front.Addresses, ", "))
}

// Fit returns nil if this node may have the virtual address, else an error with the reason.
func (k *Keeper) Fit(ctx context.Context) error {
	if k.env.Settings.Arbiter {
		return member.NoMaster("have the virtual address", k.cfg.Member.Table())
	}

	now := k.env.Now()
	if err := checkStatus(k.cfg.Document(), now); err != nil {
		return err
	}

	others, nodes := k.cfg.Member.Heard()
	heard := lastHeard{nodes: nodes, front: k.lastAtFront()}
	if others > 0 && now.Sub(nodes) >= hearEvery {
		heard.front = k.heardAtFront(ctx)
	}
	held := vip.Held(k.address())

	k.hearingMu.Lock()
	defer k.hearingMu.Unlock()
	return k.hearing.judge(held, others, heard, k.env.Now())
}

// lastAtFront returns when a client last sent something to the front, as of the last check.
func (k *Keeper) lastAtFront() time.Time {
	k.hearingMu.Lock()
	defer k.hearingMu.Unlock()
	return k.hearing.last.front
}

// heardAtFront returns the time at which a client on another machine last sent something to the
// front. If the load balancer does not answer, it returns the present time. Other checks find a
// silent load balancer, which does not mean that the node receives nothing.
func (k *Keeper) heardAtFront(ctx context.Context) time.Time {
	// The load balancer records when it last received something from a client.
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	st, err := k.cfg.Balancer.Status(ctx)
	if err != nil {
		return k.env.Now()
	}
	return st.Heard
}

// checkStatus returns nil if a node's status permits it to have the virtual address: the node
// serves, and will continue to serve.
func checkStatus(d status.Document, now time.Time) error {
	switch age := now.Sub(d.Time); {
	// The supervisor hangs, so its last status is out of date.
	case age > 10*time.Second:
		return fmt.Errorf("%w: its status is %s old", api.ErrState, age.Round(time.Second))
	case d.ServingSince == nil:
		return fmt.Errorf("%w: this node does not serve", api.ErrState)
	case d.Setup != status.SetupReady:
		return fmt.Errorf("%w: this node is %s", api.ErrState, d.Setup)
	}
	return nil
}

// SetVirtual changes the cluster's virtual address. An empty address removes it.
func (k *Keeper) SetVirtual(ctx context.Context, address string) error {
	t := k.cfg.Member.Table()
	if k.env.Settings.Arbiter {
		return member.NoMaster("change the virtual address", t)
	}

	if address != "" && address != t.Virtual {
		a, err := netip.ParseAddr(address)
		if err != nil || a.Zone() != "" || !a.IsGlobalUnicast() {
			return fmt.Errorf("%w: %.60q is not an IP address", api.ErrState, address)
		}

		if address = a.String(); slices.ContainsFunc(t.Present(),
			func(n nodes.Node) bool { return n.Address == address }) {
			return fmt.Errorf("%w: %s is the address of a node; it has to be one that no machine has",
				api.ErrState, address)
		}

		if _, err := k.config(a); err != nil {
			return fmt.Errorf("%w: %w", api.ErrState, err)
		}

		if used, err := vip.InUse(ctx, a); err != nil {
			return err
		} else if used {
			return fmt.Errorf("%w: a machine on the network has %s; choose a free one", api.ErrState, address)
		}
	}

	return k.cfg.Member.Change(ctx, func(t *nodes.Table) error {
		t.Virtual = address
		return nil
	})
}

// Facts returns the part of the status about the virtual address. k may be nil: there is none.
func (k *Keeper) Facts() *observe.Virtual {
	if k == nil {
		return nil
	}
	a := k.address()
	if !a.IsValid() {
		return nil
	}
	return &observe.Virtual{Address: a.String(), Here: !k.env.Settings.Arbiter && vip.Held(a)}
}
