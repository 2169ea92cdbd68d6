package probe

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"

	"saltern/supervisor/status"
)

// AddressFinding returns a finding if nobody can reach the node at ip, because this machine does
// not have the address or may not use it. A missing address is a finding even if programs can
// listen on it (ip_nonlocal_bind in ip(7)). If the machine has the address, or if that is not
// known, AddressFinding returns nil.
func AddressFinding(ip string) *status.Finding {
	address, err := netip.ParseAddr(ip)
	if err != nil || address.IsUnspecified() {
		return nil
	}
	if has, err := HasAddress(ip); err != nil || has && usable(ip) {
		return nil
	}
	return &status.Finding{Code: status.AddressMissing, Subject: ip, Cause: "this machine has " + ownAddresses()}
}

// usable reports whether the kernel permits the use of an address of this machine. The kernel does
// not permit it if another machine has the same IPv6 address (RFC 4862, 5.4).
func usable(ip string) bool {
	c, err := net.ListenPacket("udp", net.JoinHostPort(ip, "0"))
	if err == nil {
		_ = c.Close() // only whether the socket opens matters
	}
	return !errors.Is(err, syscall.EADDRNOTAVAIL)
}

// maxOwn is the largest number of addresses that a cause names.
const maxOwn = 8

// ownAddresses returns a text with the machine's addresses and their interfaces, without those of
// the loopback interface.
func ownAddresses() string {
	var have []string
	all, err := net.Interfaces()
	if err != nil {
		return "addresses that cannot be told: " + err.Error()
	}

	for _, one := range all {
		list, err := one.Addrs()
		if err != nil || one.Flags&net.FlagLoopback != 0 {
			continue
		}

		for _, a := range list {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && !p.Addr().IsLinkLocalUnicast() {
				have = append(have, p.Addr().String()+" on "+one.Name)
			}
		}
	}

	if len(have) == 0 {
		return "no address but those of the loopback"
	}

	more := ""
	if n := len(have) - maxOwn; n > 0 {
		more = fmt.Sprintf(" and %d more", n)
	}

	return strings.Join(have[:min(len(have), maxOwn)], ", ") + more
}

// LinkFault returns the fault of the interface that has an address. It returns "" if there is no
// fault, or if no interface has the address.
func LinkFault(ip string) string {
	want, err := netip.ParseAddr(ip)
	if err != nil {
		return ""
	}

	want = want.Unmap()
	all, _ := net.Interfaces() // if that fails, nothing is known
	for _, one := range all {
		list, _ := one.Addrs()
		for _, a := range list {
			p, err := netip.ParsePrefix(a.String())
			switch {
			case err != nil || p.Addr() != want:
			case one.Flags&net.FlagUp == 0:
				return one.Name + ", which has " + ip + ", is down"
			case one.Flags&net.FlagRunning == 0:
				return one.Name + ", which has " + ip + ", has no carrier"
			}
		}
	}

	return ""
}

// PortFindings returns a finding for each address (ip:port) of this node at which no program could
// listen. Each cause has its own finding: another program has the port, the machine lacks the
// address, or listening failed with another errno.
func PortFindings(addresses ...string) (found []status.Finding) {
	for _, a := range addresses {
		if err := PortFree(a); err != nil {
			found = append(found, PortFinding(a, err))
		}
	}
	return found
}

// PortFinding returns the finding for an address (ip:port) where listening failed with err.
func PortFinding(address string, err error) status.Finding {
	switch {
	case IsTaken(err):
		return status.Finding{Code: status.PortInUse, Subject: address, Cause: err.Error()}
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		ip, _, err := net.SplitHostPort(address)
		if err != nil {
			ip = address // a child reported the error and did not say which address
		}
		return status.Finding{Code: status.AddressMissing, Subject: ip, Cause: "this machine has " + ownAddresses()}
	}
	return status.Finding{Code: status.PortRefused, Subject: address, Cause: ListenCause(err)}
}

// listenExplanations returns the meanings of the errnos with which listening fails.
func listenExplanations() []explanation {
	return []explanation{
		{[]syscall.Errno{syscall.EADDRINUSE}, "another program has the port: ss -ltnp"},
		{[]syscall.Errno{syscall.EADDRNOTAVAIL}, "this machine does not have the address: ip addr"},
		{[]syscall.Errno{syscall.EACCES, syscall.EPERM},
			"what confines the service forbids it, or the port is below net.ipv4.ip_unprivileged_port_start"},
		{[]syscall.Errno{syscall.EAFNOSUPPORT, syscall.EPROTONOSUPPORT},
			"the kernel of this machine has no such network, as with IPv6 switched off"},
		{[]syscall.Errno{syscall.ENETDOWN, syscall.ENETUNREACH, syscall.ENODEV, syscall.ENXIO},
			"the network interface is down or gone: ip link"},
		{[]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM},
			"the machine or the process has too few open files or too little memory"},
		{[]syscall.Errno{syscall.EINVAL}, "nothing can listen on an address of that kind"},
	}
}

// ListenCause returns the text of an error with which listening failed, and its cause if the errno
// is known.
func ListenCause(err error) string { return explained(err, listenExplanations()) }
