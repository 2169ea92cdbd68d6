package vip

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// InUse reports whether a machine of the network has the address. It sends a datagram to an unused
// port. To send it, the kernel resolves the address (ARP, neighbour discovery), and records the
// outcome in its neighbour table. No privilege is needed. A machine that does not answer within
// three seconds counts as absent.
func InUse(ctx context.Context, a netip.Addr) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 12*time.Second) // the kernel may take 8 s to check an old entry
	defer cancel()
	c, err := net.Dial("udp", netip.AddrPortFrom(a, 9).String()) // port 9, discard, RFC 863
	if err != nil {
		return false, fmt.Errorf("look for %s on the network: %w", a, err)
	}
	defer c.Close()

	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for n := 0; ; n++ {
		if n%10 == 0 {
			_, _ = c.Write([]byte{0}) // even a refusal adds the machine to the neighbour table
		}

		state, err := neighbour(a)
		switch {
		case err != nil:
			return false, err
		case state&(unix.NUD_REACHABLE|unix.NUD_PERMANENT|unix.NUD_NOARP) != 0:
			return true, nil
		case state&unix.NUD_FAILED != 0:
			return false, nil
		case state == 0 && n > 10:
			return false, nil // not a neighbour: the address is behind a router
		}

		select {
		case <-ctx.Done():
			return state&(unix.NUD_STALE|unix.NUD_DELAY|unix.NUD_PROBE) != 0, nil
		case <-tick.C:
		}
	}
}

// neighbour returns the state of the entry in the kernel's neighbour table, or 0 if there is none
// (rtnetlink(7), RTM_GETNEIGH; struct ndmsg).
func neighbour(a netip.Addr) (int, error) {
	family := syscall.AF_INET
	if a.Is6() {
		family = syscall.AF_INET6
	}

	b, err := syscall.NetlinkRIB(syscall.RTM_GETNEIGH, family)
	if err != nil {
		return 0, fmt.Errorf("table of neighbours: %w", err)
	}

	list, err := syscall.ParseNetlinkMessage(b)
	if err != nil {
		return 0, fmt.Errorf("table of neighbours: %w", err)
	}

	for _, m := range list {
		const head = 12
		if m.Header.Type != syscall.RTM_NEWNEIGH || len(m.Data) < head {
			continue
		}

		state := int(binary.NativeEndian.Uint16(m.Data[8:]))
		for rest := m.Data[head:]; len(rest) >= 4; {
			size := int(binary.NativeEndian.Uint16(rest))
			kind := binary.NativeEndian.Uint16(rest[2:])
			if size < 4 || size > len(rest) {
				break
			}

			if got, ok := netip.AddrFromSlice(rest[4:size]); ok && kind == unix.NDA_DST && got == a {
				return state, nil
			}

			rest = rest[min((size+3)&^3, len(rest)):]
		}
	}

	return 0, nil
}
