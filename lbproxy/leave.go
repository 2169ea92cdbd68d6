package lbproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"time"

	"saltern/internal/pause"

	"golang.org/x/sys/unix"
)

// settleFor is how long an address must be missing before its sessions are cut: programs that
// configure networks remove addresses and add them again. Masters resend what was published during
// that time (master/internal/presence, cutMargin).
const settleFor = time.Second

// watchAddresses subscribes to changes of this machine's addresses and returns a function that
// handles them until its ctx ends. A virtual address that disappears has moved to another machine.
// The packets of its sessions no longer arrive here, so the proxy cuts those sessions. The kernel
// reports changes (rtnetlink(7), RTMGRP_IPV4_IFADDR). If subscribing fails, watchAddresses logs
// that, and such sessions last until their clients end them.
func (p *Proxy) watchAddresses() (run func(ctx context.Context)) {
	f, err := addressEvents()
	if err == nil {
		var had map[netip.Addr]bool
		if had, err = hostAddresses(); err == nil {
			return func(ctx context.Context) { p.followAddresses(ctx, f, had) }
		}
		_ = f.Close()
	}
	p.log.Warn("sessions to an address that leaves this machine will not be cut", "error", err)
	return func(context.Context) {}
}

// followAddresses cuts the sessions of addresses that leave. initial holds the addresses at the
// start.
func (p *Proxy) followAddresses(ctx context.Context, f *os.File, initial map[netip.Addr]bool) {
	events := make(chan struct{}, 1)
	ended := make(chan struct{})
	defer func() {
		_ = f.Close()
		<-ended
	}()

	go func() {
		defer close(ended)
		b := make([]byte, 4<<10) // only the arrival of a message matters
		for {
			_, err := f.Read(b)
			if err != nil && !errors.Is(err, unix.ENOBUFS) { // ENOBUFS: messages were lost, so something changed
				if !errors.Is(err, os.ErrClosed) {
					p.log.Warn("sessions to an address that leaves this machine will not be cut any more", "error", err)
				}
				return
			}

			select {
			case events <- struct{}{}:
			default:
			}
		}
	}()

	for {
		select {
		case <-ctx.Done():
			return
		case <-events:
		}

		if pause.For(ctx, settleFor) != nil {
			return
		}

		select { // drop further reports: the list below is newer
		case <-events:
		default:
		}

		now, err := hostAddresses()
		if err != nil {
			p.logFault("list addresses", err)
			continue
		}

		maps.DeleteFunc(initial, func(a netip.Addr, _ bool) bool { return now[a] })
		if len(initial) > 0 {
			p.cutLocal(initial)
		}

		initial = now
	}
}

// addressEvents opens a socket that gets a message for each address that comes or goes.
func addressEvents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink socket: %w", err)
	}
	if err := unix.Bind(fd,
		&unix.SockaddrNetlink{
			Family: unix.AF_NETLINK,
			Groups: unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR,
		}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("bind netlink socket: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// hostAddresses returns the addresses of all interfaces.
func hostAddresses() (map[netip.Addr]bool, error) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil, err
	}
	out := make(map[netip.Addr]bool, len(list))
	for _, a := range list {
		if n, ok := a.(*net.IPNet); ok {
			if ip, ok := netip.AddrFromSlice(n.IP); ok {
				out[ip.Unmap()] = true
			}
		}
	}
	return out, nil
}

// cutLocal closes all sessions whose clients connected to an address in gone. The masters see
// resets, as after every cut.
func (p *Proxy) cutLocal(gone map[netip.Addr]bool) {
	n, err := p.cutWhere(endCut, -1, func(s *session, _ int64) bool {
		sa, err := unix.Getsockname(int(s.fd[sideClient]))
		if err != nil {
			return false // the session is ending
		}

		switch a := sa.(type) {
		case *unix.SockaddrInet4:
			return gone[netip.AddrFrom4(a.Addr)]
		case *unix.SockaddrInet6:
			return gone[netip.AddrFrom16(a.Addr).Unmap()]
		}

		return false
	})
	if n > 0 {
		for a := range gone {
			p.log.Info("an address has left this machine", "address", a)
		}
		p.log.Info("sessions to addresses that are gone cut", "sessions", n)
	}

	if err != nil && !errors.Is(err, errStopped) {
		p.logFault("cut sessions", err)
	}
}
