package setup

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"saltern/internal/pause"
)

// Reach reports whether one part of a network, such as its gateway, answers.
type Reach struct {
	What    string `json:"what"`    // kind of the part: gateway, name server or time server
	Address string `json:"address"` // an IP address or a name; empty: the network has no such part
	Answers bool   `json:"answers"`
	Detail  string `json:"detail,omitempty"` // why the part does not answer; empty: it answers
}

const (
	// reachTakes bounds the check of one part. exchange sends its request up to twice within this
	// time.
	reachTakes = 3 * time.Second
	// mostReached bounds how many parts of one kind are checked.
	mostReached = 3
)

// reachOf checks all servers that the network names, at the same time. It asks the system for the
// servers that DHCP assigned.
func reachOf(ctx context.Context, n Network) []Reach {
	gateway := n.Gateway
	servers := n.DNS
	clocks := n.NTP
	if n.Method != "static" {
		gateway = gatewayOf(n.Interface, interfaces())
		servers, _ = resolvers("/run/systemd/resolve/resolv.conf")
	}

	if len(clocks) == 0 {
		clocks = timeServers("/run/systemd/netif/state", "/etc/chrony/chrony.conf")
	}

	var list []Reach
	var asks []func(context.Context) error
	add := func(name, address string, ask func(context.Context) error) {
		list = append(list, Reach{What: name, Address: address})
		asks = append(asks, ask)
	}

	if gateway == "" {
		add("gateway", "",
			func(context.Context) error { return errors.New("there is none: only this network is reached") })
	} else {
		add("gateway", gateway, func(ctx context.Context) error { return neighbourAnswers(ctx, gateway) })
	}

	for _, s := range servers[:min(len(servers), mostReached)] {
		add("name server", s,
			func(ctx context.Context) error { return nameServerAnswers(ctx, net.JoinHostPort(s, "53")) })
	}

	for _, s := range clocks[:min(len(clocks), mostReached)] {
		add("time server", s,
			func(ctx context.Context) error { return timeServerAnswers(ctx, net.JoinHostPort(s, "123")) })
	}

	ctx, cancel := context.WithTimeout(ctx, reachTakes)
	defer cancel()
	var asked sync.WaitGroup
	for i, ask := range asks {
		asked.Go(func() {
			err := ask(ctx)
			list[i].Answers = err == nil
			if err != nil && !errors.Is(err, errSilent) {
				list[i].Detail = err.Error()
			}
		})
	}

	asked.Wait()
	return list
}

// errSilent means that no answer came.
var errSilent = errors.New("no answer")

// gatewayOf returns the gateway of an interface, or of any if name is "".
func gatewayOf(name string, all []Interface) string {
	i := slices.IndexFunc(all, func(i Interface) bool { return i.Gateway != "" && (name == "" || i.Name == name) })
	if i < 0 {
		return ""
	}
	return all[i].Gateway
}

// timeServers returns the time servers that systemd-networkd learned from the network, or, if there
// are none, those of chrony's configuration. The arguments are the paths of the files of these two
// programs.
func timeServers(networkd, chrony string) (out []string) {
	state, _ := readBounded(networkd) // without the file networkd has learned no servers
	for line := range strings.Lines(string(state)) {
		if list, ok := strings.CutPrefix(strings.TrimSpace(line), "NTP="); ok {
			out = append(out, strings.Fields(list)...)
		}
	}

	if len(out) > 0 {
		return slices.DeleteFunc(out, func(s string) bool { return !hostForm(s) })
	}

	config, _ := readBounded(chrony)
	for line := range strings.Lines(string(config)) {
		if w := strings.Fields(line); len(w) > 1 && (w[0] == "server" || w[0] == "pool") && hostForm(w[1]) {
			out = append(out, w[1])
		}
	}

	return out
}

// exchange sends question to a server over UDP, at most twice, until check returns true for an
// answer. It returns an error if no such answer comes in time.
func exchange(ctx context.Context, address string, question []byte, check func(answer []byte) bool) error {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "udp", address)
	if err != nil {
		return dialFault(err)
	}
	defer conn.Close()

	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Now()) })
	defer stop()
	answer := make([]byte, 1500)
	for range 2 {
		if _, err := conn.Write(question); err != nil {
			return dialFault(err)
		}

		_ = conn.SetReadDeadline(time.Now().Add(reachTakes / 3))
		for {
			size, err := conn.Read(answer)
			if errors.Is(err, os.ErrDeadlineExceeded) {
				break
			}
			if err != nil {
				return dialFault(err)
			}
			if check(answer[:size]) {
				return nil
			}
		}

		if ctx.Err() != nil {
			break
		}
	}

	return errSilent
}

// dialFault returns the innermost cause of a network error.
func dialFault(err error) error {
	if dns, ok := errors.AsType[*net.DNSError](err); ok {
		if dns.IsNotFound {
			return errors.New("no such name")
		}
		return errors.New("its name cannot be resolved")
	}

	if code, ok := errors.AsType[syscall.Errno](err); ok {
		return code
	}
	if errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) {
		return errSilent
	}

	return err
}

// nameServerAnswers asks a name server for the root name servers (RFC 1035, 4.1). Any answer
// counts, including a refusal.
func nameServerAnswers(ctx context.Context, address string) error {
	question := []byte{
		0, 0, // ID, set below
		1, 0, // recursion desired
		0, 1, // one question follows
		0, 0, 0, 0, 0, 0,
		0,    // name: the root
		0, 2, // type: NS
		0, 1, // class: IN
	}
	_, _ = rand.Read(question[:2]) // the ID is random
	return exchange(ctx, address, question, func(answer []byte) bool {
		return len(answer) >= 12 && answer[0] == question[0] && answer[1] == question[1] && answer[2]&0x80 != 0
	})
}

// timeServerAnswers asks a time server for the time (RFC 5905, 7.3).
func timeServerAnswers(ctx context.Context, address string) error {
	question := make([]byte, 48)
	question[0] = 4<<3 | 3          // NTP version 4, mode client
	_, _ = rand.Read(question[40:]) // random transmit time, which the server returns
	return exchange(ctx, address, question, func(answer []byte) bool {
		return len(answer) >= 48 && answer[0]&7 == 4 && string(answer[24:32]) == string(question[40:])
	})
}

// neighbourAnswers returns nil if a machine of the local network has this address. It sends a
// packet, so that the kernel must resolve the address. The machine may ignore the packet itself.
func neighbourAnswers(ctx context.Context, address string) error {
	ip, err := netip.ParseAddr(address)
	if err != nil {
		return err
	}

	conn, err := net.Dial("udp", net.JoinHostPort(address, "9")) // port 9, discard
	if err != nil {
		return dialFault(err)
	}
	defer conn.Close()

	for {
		if _, err := conn.Write([]byte{0}); errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EADDRNOTAVAIL) {
			return dialFault(err)
		}

		switch neighbourState(ip) {
		case unix.NUD_REACHABLE, unix.NUD_PERMANENT, unix.NUD_NOARP:
			return nil
		}

		if pause.For(ctx, 100*time.Millisecond) != nil {
			break
		}
	}

	switch neighbourState(ip) {
	// The kernel has an older entry for the neighbour and is checking that entry.
	case unix.NUD_STALE, unix.NUD_DELAY, unix.NUD_PROBE:
		return nil
	}

	return errSilent
}

// neighbourState returns the state of a neighbour in the kernel's table, or 0 if it has no entry
// (rtnetlink(7), RTM_GETNEIGH).
func neighbourState(ip netip.Addr) uint16 {
	family := syscall.AF_INET
	if ip.Is6() {
		family = syscall.AF_INET6
	}

	rib, err := syscall.NetlinkRIB(syscall.RTM_GETNEIGH, family)
	if err != nil {
		return 0
	}

	list, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return 0
	}

	for _, m := range list {
		if m.Header.Type == syscall.RTM_NEWNEIGH && neighbourOf(m.Data) == ip {
			return binary.NativeEndian.Uint16(m.Data[8:])
		}
	}

	return 0
}

// neighbourOf returns the address in an entry of the kernel's neighbour table: a struct ndmsg,
// followed by attributes.
func neighbourOf(data []byte) netip.Addr {
	const header = unix.SizeofNdMsg
	if len(data) < header {
		return netip.Addr{}
	}

	for rest := data[header:]; len(rest) >= unix.SizeofRtAttr; {
		size := int(binary.NativeEndian.Uint16(rest))
		if size < unix.SizeofRtAttr || size > len(rest) {
			break
		}
		if binary.NativeEndian.Uint16(rest[2:]) == unix.NDA_DST {
			ip, _ := netip.AddrFromSlice(rest[unix.SizeofRtAttr:size])
			return ip
		}

		rest = rest[min(len(rest), (size+unix.NLMSG_ALIGNTO-1)&^(unix.NLMSG_ALIGNTO-1)):]
	}

	return netip.Addr{}
}
