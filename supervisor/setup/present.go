package setup

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// interfaces returns the present network interfaces. The interface of the default route comes
// first.
func interfaces() []Interface {
	out := []Interface{}
	all, err := net.Interfaces()
	if err != nil {
		return out
	}

	def, gateway := defaultRoute("/proc/net")
	leased := leasedAddresses()
	for _, i := range all {
		if i.Flags&net.FlagLoopback != 0 {
			continue
		}

		const linked = net.FlagUp | net.FlagRunning
		f := Interface{
			Name:      i.Name,
			MAC:       i.HardwareAddr.String(),
			Up:        i.Flags&linked == linked,
			Addresses: []string{},
			Default:   i.Name == def,
			MTU:       i.MTU,
			DHCP:      leased[i.Index],
		}
		if f.Default {
			f.Gateway = gateway
		}

		addrs, _ := i.Addrs()
		for _, a := range addrs {
			f.Addresses = append(f.Addresses, a.String())
		}

		out = append(out, f)
	}

	slices.SortStableFunc(out, func(a, b Interface) int {
		if a.Default != b.Default {
			if a.Default {
				return -1
			}
			return 1
		}
		return strings.Compare(a.Name, b.Name)
	})

	return out
}

// defaultRoute returns the name of the default route's interface and the address of its gateway
// (proc(5), net/route and net/ipv6_route).
func defaultRoute(proc string) (name, gateway string) {
	const zero = "00000000"
	if f, err := os.Open(filepath.Join(proc, "route")); err == nil {
		defer f.Close()
		metric := 1 << 62
		for sc := bufio.NewScanner(f); sc.Scan(); {
			w := strings.Fields(sc.Text())
			if len(w) < 8 || w[1] != zero || w[7] != zero {
				continue
			}

			if m, err := strconv.Atoi(w[6]); err == nil && m < metric {
				name = w[0]
				gateway = hexAddress(w[2], true)
				metric = m
			}
		}

		if name != "" {
			return name, gateway
		}
	}

	f, err := os.Open(filepath.Join(proc, "ipv6_route"))
	if err != nil {
		return "", ""
	}
	defer f.Close()

	for sc := bufio.NewScanner(f); sc.Scan(); {
		w := strings.Fields(sc.Text())
		if len(w) == 10 && w[0] == strings.Repeat("0", 32) && w[1] == "00" && w[9] != "lo" {
			return w[9], hexAddress(w[4], false)
		}
	}

	return "", ""
}

// hexAddress decodes an address of the kernel's table of routes. It returns "" for the zero
// address. The table has IPv4 addresses in the machine's byte order; little reports whether that
// order is little endian.
func hexAddress(s string, little bool) string {
	b, err := hex.DecodeString(s)
	if err != nil {
		return ""
	}
	if little {
		slices.Reverse(b)
	}
	a, ok := netip.AddrFromSlice(b)
	if !ok || a.IsUnspecified() {
		return ""
	}
	return a.String()
}

// leasedAddresses returns the indexes of the interfaces with an IPv4 address that expires: a DHCP
// server assigned it (rtnetlink(7), IFA_F_PERMANENT).
func leasedAddresses() map[int]bool {
	leased := map[int]bool{}
	rib, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_INET)
	if err != nil {
		return leased
	}

	list, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return leased
	}

	for _, m := range list {
		if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < syscall.SizeofIfAddrmsg {
			continue
		}
		if flags, index := m.Data[2], binary.NativeEndian.Uint32(m.Data[4:]); flags&syscall.IFA_F_PERMANENT == 0 {
			leased[int(index)] = true
		}
	}

	return leased
}

// resolvers returns the name servers and search domains from the first of the files that names a
// server (resolv.conf(5)).
func resolvers(files ...string) (servers, search []string) {
	servers, search = []string{}, []string{}
	for _, path := range files {
		b, err := readBounded(path)
		if err != nil {
			continue
		}

		for line := range strings.Lines(string(b)) {
			switch w := strings.Fields(line); {
			case len(w) > 1 && w[0] == "nameserver":
				servers = append(servers, w[1])
			case len(w) > 1 && w[0] == "search" && w[1] != ".":
				search = w[1:]
			}
		}

		if len(servers) > 0 {
			return servers, search
		}
	}

	return servers, search
}
