package lbproxy

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel holds the system calls that the data path uses. Each method makes one system call: callers
// handle EINTR, EAGAIN and short counts. The system calls are RawSyscalls, which keep the processor
// and therefore must never block (epollWait: for a few milliseconds at most). So every socket is
// non-blocking, and each call also passes the flag for that. Tests use another kernel, which
// interrupts calls.
type kernel interface {
	recv(fd int, p []byte, flags int) (int, unix.Errno)
	send(fd int, p []byte) (int, unix.Errno)
	splice(in, out, n int) (int, unix.Errno)
	accept(fd int) (int, netip.AddrPort, unix.Errno)
	connect(fd int, to netip.AddrPort) unix.Errno
	epollWait(ep int, ev []unix.EpollEvent, limit time.Duration) (int, unix.Errno)
	pause(d time.Duration)
}

type linux struct{}

func (linux) recv(fd int, p []byte, flags int) (int, unix.Errno) {
	if len(p) == 0 {
		return 0, unix.EINVAL
	}
	n, _, e := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)),
		uintptr(unix.MSG_DONTWAIT|flags), 0, 0)
	return int(n), e
}

func (linux) send(fd int, p []byte) (int, unix.Errno) {
	if len(p) == 0 {
		return 0, 0
	}
	n, _, e := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&p[0])), uintptr(len(p)),
		unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
	return int(n), e
}

func (linux) splice(in, out, n int) (int, unix.Errno) {
	r, _, e := unix.RawSyscall6(unix.SYS_SPLICE, uintptr(in), 0, uintptr(out), 0, uintptr(n),
		unix.SPLICE_F_NONBLOCK|unix.SPLICE_F_MOVE)
	return int(r), e
}

func (linux) accept(fd int) (int, netip.AddrPort, unix.Errno) {
	var sa unix.RawSockaddrAny
	l := uint32(unix.SizeofSockaddrAny)
	n, _, e := unix.RawSyscall6(unix.SYS_ACCEPT4, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(unsafe.Pointer(&l)),
		unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0, 0)
	if e != 0 {
		return -1, netip.AddrPort{}, e
	}
	return int(n), addrOf(&sa), 0
}

func (linux) connect(fd int, to netip.AddrPort) unix.Errno {
	var sa unix.RawSockaddrAny
	l := fillAddr(&sa, to)
	_, _, e := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&sa)), uintptr(l))
	return e
}

func (linux) epollWait(ep int, ev []unix.EpollEvent, limit time.Duration) (int, unix.Errno) {
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(ep), uintptr(unsafe.Pointer(&ev[0])), uintptr(len(ev)),
		uintptr(limit/time.Millisecond), 0, 0)
	return int(n), e
}

// pause sleeps for at most d. A signal ends it early.
func (linux) pause(d time.Duration) {
	ts := unix.NsecToTimespec(int64(d))
	_, _, _ = unix.RawSyscall(unix.SYS_NANOSLEEP, uintptr(unsafe.Pointer(&ts)), 0, 0)
}

// addrOf returns the address in a kernel's socket address, whose port is in network order.
func addrOf(sa *unix.RawSockaddrAny) netip.AddrPort {
	switch sa.Addr.Family {
	case unix.AF_INET:
		s := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom4(s.Addr), swapPort(s.Port))
	case unix.AF_INET6:
		s := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
		return netip.AddrPortFrom(netip.AddrFrom16(s.Addr).Unmap(), swapPort(s.Port))
	}
	return netip.AddrPort{}
}

func fillAddr(sa *unix.RawSockaddrAny, ap netip.AddrPort) uint32 {
	if ap.Addr().Is4() {
		s := (*unix.RawSockaddrInet4)(unsafe.Pointer(sa))
		s.Family = unix.AF_INET
		s.Port = swapPort(ap.Port())
		s.Addr = ap.Addr().As4()
		return unix.SizeofSockaddrInet4
	}
	s := (*unix.RawSockaddrInet6)(unsafe.Pointer(sa))
	s.Family = unix.AF_INET6
	s.Port = swapPort(ap.Port())
	s.Addr = ap.Addr().As16()
	return unix.SizeofSockaddrInet6
}

// swapPort converts a port between host and network order, in either direction.
func swapPort(p uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], p)
	return binary.NativeEndian.Uint16(b[:])
}

// sockErr returns and clears the pending error of a socket.
func sockErr(fd int) unix.Errno {
	v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		if e, ok := err.(unix.Errno); ok {
			return e
		}
		return unix.EBADF
	}
	return unix.Errno(v)
}

func localAddr(fd int) netip.AddrPort {
	var sa unix.RawSockaddrAny
	l := uint32(unix.SizeofSockaddrAny)
	if _, _, e := unix.RawSyscall(unix.SYS_GETSOCKNAME, uintptr(fd), uintptr(unsafe.Pointer(&sa)),
		uintptr(unsafe.Pointer(&l))); e != 0 {
		return netip.AddrPort{}
	}
	return addrOf(&sa)
}

func newTCP(ap netip.AddrPort) (int, error) {
	family := unix.AF_INET6
	if ap.Addr().Is4() {
		family = unix.AF_INET
	}
	fd, _, e := unix.RawSyscall(unix.SYS_SOCKET, uintptr(family),
		unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if e != 0 {
		return -1, e
	}
	return int(fd), nil
}

// noDelay turns TCP_NODELAY on, which cannot fail on a TCP socket.
func noDelay(fd int) {
	one := int32(1)
	_, _, _ = unix.RawSyscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_NODELAY,
		uintptr(unsafe.Pointer(&one)), 4, 0)
}

// endStream ends the stream to the peer. It ignores ENOTCONN: the peer has disconnected, which an
// event reports as well.
func endStream(fd int) {
	_, _, _ = unix.RawSyscall(unix.SYS_SHUTDOWN, uintptr(fd), unix.SHUT_WR, 0)
}

// closeSocket closes a socket of a session. Without SO_LINGER, close(2) never waits. It must not be
// repeated, whatever it returns.
func closeSocket(fd int) { _, _, _ = unix.RawSyscall(unix.SYS_CLOSE, uintptr(fd), 0, 0) }

// keepaliveOpts sets keepalive and the user timeout. Accepted sockets inherit both from their
// listener (tcp(7)) at no cost. Backend sockets get them at their first sweep, so that short
// connections do not pay for the system calls.
func keepaliveOpts(fd int, k Keepalive) error {
	for _, o := range []struct{ level, name, v int }{
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, int(k.Idle / time.Second)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, int(k.Interval / time.Second)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, k.Count},
		{unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(k.UserTimeout / time.Millisecond)},
	} {
		if err := unix.SetsockoptInt(fd, o.level, o.name, o.v); err != nil {
			return fmt.Errorf("set socket option %d/%d: %w", o.level, o.name, err)
		}
	}
	return nil
}

// listenTCP opens a listening socket.
func listenTCP(ap netip.AddrPort, backlog int, k Keepalive) (int, error) {
	fd, err := newTCP(ap)
	if err != nil {
		return -1, fmt.Errorf("open socket for %s: %w", ap, err)
	}

	fail := func(action string, err error) (int, error) {
		unix.Close(fd)
		return -1, fmt.Errorf("%s %s: %w", action, ap, err)
	}

	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		return fail("set address reuse on", err)
	}

	if ap.Addr().Is6() {
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1); err != nil {
			return fail("set IPv6 only on", err)
		}
	}

	if err := tuneListener(fd, k); err != nil {
		return fail("prepare", err)
	}

	var sa unix.Sockaddr
	if ap.Addr().Is4() {
		sa = &unix.SockaddrInet4{Port: int(ap.Port()), Addr: ap.Addr().As4()}
	} else {
		sa = &unix.SockaddrInet6{Port: int(ap.Port()), Addr: ap.Addr().As16()}
	}

	if err := unix.Bind(fd, sa); err != nil {
		return fail("bind", err)
	}

	if err := unix.Listen(fd, backlog); err != nil {
		return fail("listen on", err)
	}

	return fd, nil
}

func tuneListener(fd int, k Keepalive) error {
	if err := unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return fmt.Errorf("set no delay: %w", err)
	}
	return keepaliveOpts(fd, k)
}
