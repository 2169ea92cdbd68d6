package supervisor

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/nodes"
	"saltern/supervisor/probe"
	"saltern/supervisor/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/vip"
)

const vipService = "vip"

const (
	// staleStatus is the age of a status that says nothing any more: the
	// supervisor hangs.
	staleStatus = 10 * time.Second
	vipLook     = 5 * time.Second // at interfaces and the table
)

// virtual keeps this node ready to have the cluster's virtual address.
type virtual struct {
	n      *node
	daemon *vip.Daemon
}

// address is the cluster's virtual address; invalid: it has none.
func (v *virtual) address() netip.Addr {
	t := v.n.member.keeper.Table()
	a, _ := netip.ParseAddr(t.Virtual) // checked when it came; empty gives none
	return a
}

// vipSpec is the service that runs keepalived while there is an address.
func (n *node) vipSpec() service.Spec {
	out := n.output(vipService)
	v := &virtual{n: n, daemon: &vip.Daemon{Dir: filepath.Join(n.cfg.RuntimeDir, "vip"), Log: out, Env: childEnv()}}
	n.virtual = v
	given := service.Poll("a virtual address", time.Second, time.Second, func(context.Context) error {
		if !v.address().IsValid() {
			return errors.New("the cluster has none")
		}
		return nil
	})
	return service.Spec{
		Name:   vipService,
		Output: out,
		Runner: v,
		Wait:   service.All(n.belongs(), given),
		Prepare: func(ctx context.Context) error {
			err := v.daemon.KillStale(ctx)
			if err == nil {
				_, err = v.write(ctx)
			}
			if err != nil {
				err = blockers{{Code: status.VirtualUnable, Subject: v.address().String(), Cause: settings.OneLine(err)}}
			}
			return n.block(vipService, err)
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
		changed := v.n.member.keeper.Changed()
		if v.address() != began {
			if err := v.n.manager.Restart(vipService); err != nil {
				v.n.opt.Log.Error("virtual address", "error", err)
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
			v.n.opt.Log.Error("virtual address: going on as before", "error", err)
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

// write puts keepalived's configuration in place; it tells whether it differs.
func (v *virtual) write(ctx context.Context) (bool, error) {
	n := v.n
	c, err := n.virtualConfig(v.address())
	if err != nil {
		return false, err
	}
	c.Check = []string{n.opt.Executable, "--socket", n.apiSocket(), "virtual-address", "--fit"}
	text, err := vip.Render(c)
	if err != nil {
		return false, err
	}
	return v.daemon.Write(ctx, text)
}

// virtualConfig says how this node takes part in having the address, or why it
// cannot.
func (n *node) virtualConfig(a netip.Addr) (vip.Config, error) {
	c := vip.Config{Node: n.cfg.Node, Virtual: a}
	if probe.OnEC2(probe.DMI) {
		return c, errors.New("addresses on EC2 do not move this way: use a network load balancer or DNS (docs/aws.md)")
	}
	if _, err := vip.Program(); err != nil {
		return c, err
	}
	if err := listens(n.cfg, a); err != nil {
		return c, err
	}
	var err error
	if c.Own, err = netip.ParseAddr(n.cfg.Peering.Address); err != nil {
		return c, err
	}
	list, err := vip.Interfaces()
	if err != nil {
		return c, err
	}
	if c.Where, err = vip.Place(a, c.Own, list); err != nil {
		return c, err
	}
	t := n.member.keeper.Table()
	c.Cluster = t.KeyHash
	for i, o := range t.Nodes {
		if o.Certificate == n.member.id.Hash {
			c.Rank = i
		} else if p, err := netip.ParseAddr(o.Address); err == nil && o.State != nodes.Removed && p.Is4() == a.Is4() {
			c.Peers = append(c.Peers, p)
		}
	}
	return c, nil
}

// listens tells whether minions that use the address would be heard.
func listens(cfg *settings.Settings, a netip.Addr) error {
	for _, f := range cfg.Front.Addresses {
		if ip, err := netip.ParseAddr(f); err == nil && ip.IsUnspecified() && (ip.Is4() == a.Is4() || ip.Is6()) {
			return nil
		}
	}
	return fmt.Errorf("the load balancer listens on %s only; it has to listen on all addresses (front: {addresses: [0.0.0.0]} in appliance.yaml)", strings.Join(cfg.Front.Addresses, ", "))
}

func (n *node) apiSocket() string {
	if n.opt.Socket != "" {
		return n.opt.Socket
	}
	return n.cfg.APISocket()
}

// Fit implements api.Virtual: whether this node may have the virtual address.
func (s *Supervisor) Fit() error {
	m, err := s.ours()
	if err != nil {
		return err
	}
	return fit(m.n.document(), m.n.opt.Now())
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

// SetVirtual implements api.Virtual: another virtual address for the cluster;
// empty: none.
func (s *Supervisor) SetVirtual(ctx context.Context, address string) error {
	m, err := s.ours()
	if err != nil {
		return err
	}
	t := m.keeper.Table()
	if address != "" && address != t.Virtual {
		a, err := netip.ParseAddr(address)
		if err != nil || a.Zone() != "" || !a.IsGlobalUnicast() {
			return fmt.Errorf("%w: %.60q is not an IP address", api.ErrState, address)
		}
		if address = a.String(); slices.ContainsFunc(t.Present(), func(n nodes.Node) bool { return n.Address == address }) {
			return fmt.Errorf("%w: %s is the address of a node; it has to be one that no machine has", api.ErrState, address)
		}
		if _, err := m.n.virtualConfig(a); err != nil {
			return fmt.Errorf("%w: %w", api.ErrState, err)
		}
		if used, err := vip.InUse(ctx, a); err != nil {
			return err
		} else if used {
			return fmt.Errorf("%w: a machine on the network has %s; choose a free one", api.ErrState, address)
		}
	}
	return m.change(ctx, func(t *nodes.Table) error {
		t.Virtual = address
		return nil
	})
}

// virtualFacts are what is known of the virtual address.
type virtualFacts struct {
	address string
	here    bool // this node has it
}

func (n *node) virtualFacts() *virtualFacts {
	if n.virtual == nil {
		return nil
	}
	a := n.virtual.address()
	if !a.IsValid() {
		return nil
	}
	return &virtualFacts{address: a.String(), here: vip.Held(a)}
}

// holders are the nodes that have the address.
func holders(list []status.Node) []string {
	out := []string{}
	for _, n := range list {
		if n.Virtual {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// virtualFindings looks at who has the address. A crash of keepalived is
// among them.
func virtualFindings(f facts) (out []status.Finding) {
	v := f.virtual
	if v == nil {
		return nil
	}
	for _, i := range f.services {
		if i.Name == vipService && (i.State == service.Pausing || i.State == service.Starting && i.Failures > 0) {
			out = append(out, status.Finding{Code: status.VirtualUnable, Subject: v.address, Cause: "keepalived: " + crash(i)})
		}
	}
	var have, away []string
	if v.here {
		have = append(have, "this node")
	}
	for _, n := range f.others {
		switch {
		case n.Virtual:
			have = append(have, n.Name)
		case n.State == "unreachable" || n.State == "?":
			away = append(away, n.Name)
		}
	}
	switch {
	case len(have) > 1:
		out = append(out, status.Finding{Code: status.VirtualTwice, Subject: v.address, Cause: strings.Join(have, " and ") + " have it"})
	case len(have) == 0 && len(away) > 0:
		out = append(out, status.Finding{Code: status.VirtualNobody, Subject: v.address, Cause: "of those that answer; not asked: " + strings.Join(away, ", ")})
	case len(have) == 0:
		out = append(out, status.Finding{Code: status.VirtualNobody, Subject: v.address})
	}
	return out
}
