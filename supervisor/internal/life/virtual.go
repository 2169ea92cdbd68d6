package life

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

const (
	// staleStatus is the age of a status that says nothing any more: the
	// supervisor hangs.
	staleStatus = 10 * time.Second
	vipLook     = 5 * time.Second // at interfaces and the table
	frontTakes  = time.Second     // for the load balancer to say when it heard somebody
)

// virtual keeps this node ready to have the cluster's virtual address.
type virtual struct {
	env      child.Env
	programs *child.Programs
	socket   string // of the local API
	daemon   *vip.Daemon
	member   *member.Member
	document func() status.Document
	balancer *lbproxy.Client
	restart  func() error // of the service

	hearingMu sync.Mutex
	hearing   hearing
}

// address is the cluster's virtual address; invalid: it has none.
func (v *virtual) address() netip.Addr {
	t := v.member.Table()
	a, _ := netip.ParseAddr(t.Virtual) // checked when it came; empty gives none
	return a
}

// spec is the service that runs keepalived while there is an address.
func (v *virtual) spec() service.Spec {
	out := v.programs.Output(status.VirtualService)
	v.daemon = &vip.Daemon{Dir: filepath.Join(v.env.Settings.RuntimeDir, "vip"), Log: out, Env: child.Environ()}
	given := service.Poll("a virtual address", time.Second, time.Second, func(context.Context) error {
		if !v.address().IsValid() {
			return errors.New("the cluster has none")
		}
		return nil
	})

	return service.Spec{
		Name:   status.VirtualService,
		Output: out,
		Runner: v,
		Wait:   service.All(v.member.Belongs(), given),
		Prepare: func(ctx context.Context) error {
			err := v.daemon.KillStale(ctx)
			if err == nil {
				_, err = v.write(ctx)
			}

			if err != nil {
				err = child.Blockers{{
					Code:    status.VirtualUnable,
					Subject: v.address().String(),
					Cause:   settings.OneLine(err),
				}}
			}

			return v.programs.Block(status.VirtualService, err)
		},
	}
}

// Run implements [service.Runner].
func (v *virtual) Run(ctx context.Context, started func(pid int)) error {
	own, stop := context.WithCancel(ctx)
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		v.follow(own, v.address())
	}()
	err := v.daemon.Run(ctx, started)
	stop()
	<-followed
	return err
}

// follow brings a running keepalived in line with the table of nodes and with
// the interfaces. Another address, or none, is a new start.
func (v *virtual) follow(ctx context.Context, began netip.Addr) {
	tick := time.NewTicker(vipLook)
	defer tick.Stop()
	last := ""
	for {
		changed := v.member.Changed()
		if v.address() != began {
			if err := v.restart(); err != nil {
				v.env.Log.Error("virtual address", "error", err)
			}
			return
		}

		fresh, err := v.write(ctx)
		if err == nil && fresh {
			err = v.daemon.Reload(ctx)
		}

		if ctx.Err() != nil {
			return
		}

		if err != nil && err.Error() != last {
			v.env.Log.Error("virtual address: going on as before", "error", err)
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

// write puts keepalived's configuration in place; it reports whether it differs.
func (v *virtual) write(ctx context.Context) (bool, error) {
	c, err := v.config(v.address())
	if err != nil {
		return false, err
	}
	c.Check = []string{v.env.Executable, "--socket", v.socket, "virtual-address", "--fit"}
	text, err := vip.Render(c)
	if err != nil {
		return false, err
	}
	return v.daemon.Write(ctx, text)
}

// config says how this node takes part in having the address, or why it
// cannot.
func (v *virtual) config(a netip.Addr) (vip.Config, error) {
	c := vip.Config{Node: v.env.Settings.Node, Virtual: a}
	if probe.OnEC2(probe.DMI) {
		return c, errors.New("addresses on EC2 do not move this way: use a network load balancer or DNS (docs/aws.md)")
	}

	if _, err := vip.Program(); err != nil {
		return c, err
	}

	if err := listens(v.env.Settings, a); err != nil {
		return c, err
	}

	var err error
	if c.Own, err = netip.ParseAddr(v.env.Settings.Peering.Address); err != nil {
		return c, err
	}

	list, err := vip.Interfaces()
	if err != nil {
		return c, err
	}

	if c.Where, err = vip.Place(a, c.Own, list); err != nil {
		return c, err
	}

	t := v.member.Table()
	self, _ := v.member.Self()
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

// listens reports whether minions that use the address would be heard.
func listens(cfg *settings.Settings, a netip.Addr) error {
	for _, f := range cfg.Front.Addresses {
		if ip, err := netip.ParseAddr(f); err == nil && ip.IsUnspecified() && (ip.Is4() == a.Is4() || ip.Is6()) {
			return nil
		}
	}
	return fmt.Errorf("the load balancer listens on %s only; it has to listen on all addresses (front: {addresses: [0.0.0.0]} in appliance.yaml)",
		strings.Join(cfg.Front.Addresses, ", "))
}

// Fit returns an error that says why this node may not have the virtual address.
func (v *virtual) Fit() error {
	if v.env.Settings.Arbiter {
		return member.NoMaster("have the virtual address", v.member.Table())
	}

	now := v.env.Now()
	if err := fit(v.document(), now); err != nil {
		return err
	}

	others, nodes := v.member.Heard()
	v.hearingMu.Lock()
	defer v.hearingMu.Unlock()

	heard := lastHeard{nodes: nodes, front: v.hearing.last.front}
	if others > 0 && now.Sub(nodes) >= hearEvery {
		heard.front = v.heardAtFront()
	}

	return v.hearing.fit(vip.Held(v.address()), others, heard, v.env.Now())
}

// heardAtFront returns when a client of another machine was last heard at the front. A load balancer
// that does not answer is no sign of deafness: that minions are not served is found otherwise.
func (v *virtual) heardAtFront() time.Time {
	ctx, cancel := context.WithTimeout(context.Background(), frontTakes)
	defer cancel()
	st, err := v.balancer.Status(ctx)
	if err != nil {
		return v.env.Now()
	}
	return st.Heard
}

// fit tells from a node's status whether it may have the virtual address: it
// serves, and is to go on doing so.
func fit(d status.Document, now time.Time) error {
	switch age := now.Sub(d.Time); {
	case age > staleStatus:
		return fmt.Errorf("%w: its status is %s old", api.ErrState, age.Round(time.Second))
	case d.ServingSince == nil:
		return fmt.Errorf("%w: this node does not serve", api.ErrState)
	case d.Setup != status.SetupReady:
		return fmt.Errorf("%w: this node is %s", api.ErrState, d.Setup)
	}
	return nil
}

// SetVirtual gives the cluster another virtual address; empty: none.
func (v *virtual) SetVirtual(ctx context.Context, address string) error {
	t := v.member.Table()
	if v.env.Settings.Arbiter {
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

		if _, err := v.config(a); err != nil {
			return fmt.Errorf("%w: %w", api.ErrState, err)
		}

		if used, err := vip.InUse(ctx, a); err != nil {
			return err
		} else if used {
			return fmt.Errorf("%w: a machine on the network has %s; choose a free one", api.ErrState, address)
		}
	}

	return v.member.Change(ctx, func(t *nodes.Table) error {
		t.Virtual = address
		return nil
	})
}

// facts are what the status tells of the address; nil: there is none.
func (v *virtual) facts() *observe.Virtual {
	if v == nil {
		return nil
	}
	a := v.address()
	if !a.IsValid() {
		return nil
	}
	return &observe.Virtual{Address: a.String(), Here: !v.env.Settings.Arbiter && vip.Held(a)}
}
