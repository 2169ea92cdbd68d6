package vip

import (
	"fmt"
	"net"
	"net/netip"
)

// Interface is one network interface and its addresses.
type Interface struct {
	Name      string
	Addresses []netip.Prefix
}

// Where names the interfaces that a node uses.
type Where struct {
	Interface string // the interface with the node's own address; announcements are sent there
	Device    string // the interface that gets the virtual address
}

// Place returns the interface for the virtual address: the one whose network contains that address.
// nodeAddress is the node's address for the other nodes.
func Place(virtual, nodeAddress netip.Addr, list []Interface) (w Where, err error) {
	var network netip.Prefix
	for _, i := range list {
		for _, p := range i.Addresses {
			a := p.Addr().WithZone("")
			if a == nodeAddress {
				w.Interface = i.Name
			}
			if !p.IsSingleIP() && p.Contains(virtual) && (w.Device == "" || a == nodeAddress) {
				w.Device, network = i.Name, p.Masked()
			}
		}
	}

	switch {
	case w.Interface == "":
		return w, fmt.Errorf("no interface of this node has its address %s", nodeAddress)
	case w.Device == "":
		return w, fmt.Errorf("%s is in none of this node's networks", virtual)
	case virtual == nodeAddress:
		return w, fmt.Errorf("%s is this node's own address; it has to be one that no machine has", virtual)
	case virtual == network.Addr() && virtual.Is4() &&
		network.Bits() < 31, virtual.Is4() && virtual == broadcastAddress(network) && network.Bits() < 31:
		return w, fmt.Errorf("%s stands for the whole network %s", virtual, network)
	}

	return w, nil
}

// broadcastAddress returns the broadcast address of an IPv4 network.
func broadcastAddress(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As16()
	for i := p.Bits() + 96; i < 128 && p.Addr().Is4(); i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	return netip.AddrFrom16(b).Unmap()
}

// Interfaces returns the interfaces of this machine.
func Interfaces() ([]Interface, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list the interfaces: %w", err)
	}

	var out []Interface
	for _, i := range all {
		v := Interface{Name: i.Name}
		addrs, err := i.Addrs()
		if err != nil {
			continue // the interface has vanished meanwhile
		}

		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				v.Addresses = append(v.Addresses, p)
			}
		}

		out = append(out, v)
	}

	return out, nil
}

// Held reports whether this machine has the virtual address now.
func Held(virtual netip.Addr) bool {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, a := range own {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().WithZone("") == virtual {
			return true
		}
	}
	return false
}
