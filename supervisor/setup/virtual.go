package setup

import (
	"context"
	"net/netip"
	"slices"

	"saltern/supervisor/internal/vip"
)

// virtual checks the form of the virtual address, and that the address belongs to the network of
// this machine and is not the address of a machine.
func (c *checker) virtual(f Facts) {
	a := &c.a
	if a.Virtual == "" {
		return
	}

	const field = "virtual_address"
	v, err := netip.ParseAddr(a.Virtual)
	if err != nil || v.Zone() != "" || !v.IsGlobalUnicast() {
		c.addFault(field, "%.60q is not an IP address", a.Virtual)
		return
	}

	a.Virtual = v.String()
	own, err := netip.ParseAddr(a.Address)
	switch {
	case f.EC2:
		c.addFault(field, "addresses on EC2 do not move this way: "+
			"leave it empty, and use a network load balancer or DNS")
	case err != nil: // the fault is reported for the field of the address
	case v == own:
		c.addFault(field, "is this node's own address; it has to be one that no machine has")
	case v.Is4() != own.Is4():
		c.addFault(field, "has to be of the same kind as the address for the other nodes, %s", own)
	case a.Virtual == a.Network.Gateway:
		c.addFault(field, "is the gateway's address; it has to be one that no machine has")
	case slices.Contains(a.Peers, a.Virtual):
		c.addFault(field, "is the address of a node; it has to be one that no machine has")
	default:
		list := networks(f, a.Network)
		if hasNetwork(list) {
			list = append(list,
				vip.Interface{Name: "own", Addresses: []netip.Prefix{netip.PrefixFrom(own, own.BitLen())}})
			if _, err := vip.Place(v, own, list); err != nil {
				c.addFault(field, "%v", err)
			}
		}
	}

	if !slices.ContainsFunc(a.Front, func(s string) bool {
		ip, err := netip.ParseAddr(s)
		return err != nil || ip.IsUnspecified() && (ip.Is6() || v.Is4())
	}) {
		c.addFault("front", "has to be left out with a virtual address: "+
			"the load balancer listens on all addresses then")
	}
}

// networks returns the interfaces of the machine, and the network that the answers configure.
func networks(f Facts, n Network) (out []vip.Interface) {
	for _, i := range f.Interfaces {
		v := vip.Interface{Name: i.Name}
		for _, s := range i.Addresses {
			if p, err := netip.ParsePrefix(s); err == nil {
				v.Addresses = append(v.Addresses, p)
			}
		}
		out = append(out, v)
	}
	if p, err := netip.ParsePrefix(n.Address); err == nil {
		out = append(out, vip.Interface{Name: n.Interface, Addresses: []netip.Prefix{p}})
	}
	return out
}

// hasNetwork reports whether any address in list has a prefix that is a network, not only itself.
func hasNetwork(list []vip.Interface) bool {
	return slices.ContainsFunc(list, func(i vip.Interface) bool {
		return slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return !p.IsSingleIP() })
	})
}

// virtual checks whether this machine can have the virtual address, and whether the address is
// free.
func (p *Preflight) virtual(ctx context.Context, a Answers) Check {
	c := Check{Name: "virtual", What: "virtual address " + a.Virtual, Result: Pass, Detail: "free"}
	if why, hint := p.unable(a, a.Virtual); why != "" {
		c.Result = Fail
		c.Detail = why
		c.Hint = hint + ", or leave the virtual address out"
		return c
	}

	v, _ := netip.ParseAddr(a.Virtual) // Validate has checked the form
	used, err := vip.InUse(ctx, v)
	switch {
	case err != nil:
		c.Result, c.Detail = Skip, err.Error()
	case used:
		c.Result = Fail
		c.Detail = "a machine on the network has it"
		c.Hint = "choose a free address, or look which machine it is: ip neigh show " + a.Virtual
	}

	return c
}

// unable returns in why the reason why this machine cannot have the virtual address, and in hint
// what to do. why is "" if the machine can have it.
func (p *Preflight) unable(a Answers, virtual string) (why, hint string) {
	if p.Facts.EC2 {
		return "addresses on EC2 do not move this way", "use a network load balancer or DNS"
	}

	if _, err := vip.Program(); err != nil {
		return "keepalived is not installed", "install it (apt-get install keepalived)"
	}

	v, err := netip.ParseAddr(virtual)
	if err != nil {
		return err.Error(), "look at it on a node of the cluster: applianced virtual-address"
	}

	own, _ := netip.ParseAddr(a.Address) // Validate has checked the form
	if _, err := vip.Place(v, own, networks(p.Facts, Network{})); err != nil {
		return err.Error(), "give the machine an address in the network of " + virtual
	}

	return "", ""
}

// joinedVirtual compares the cluster's virtual address with the answers.
func (p *Preflight) joinedVirtual(a Answers, cluster string) Check {
	c := Check{Name: "virtual", What: "virtual address of the cluster", Result: Pass, Detail: cluster}
	if a.Virtual != "" && a.Virtual != cluster {
		c.Result, c.Detail = Fail, "it is "+cluster+", not "+a.Virtual
		if cluster == "" {
			c.Detail = "it has none"
		}
		c.Hint = "leave the virtual address out: a node that joins learns it; " +
			"to change it on the cluster: applianced virtual-address"
		return c
	}

	if why, hint := p.unable(a, cluster); why != "" {
		c.Result = Warn
		c.Detail = "this machine cannot have " + cluster + ": " + why
		c.Hint = hint + "; until then only the other nodes can have it"
	}

	return c
}
