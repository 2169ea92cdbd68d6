package main

import (
	"bufio"
	"encoding/hex"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"saltern/master/cache"
	"saltern/master/keys"
	"saltern/master/value"
)

// presence determines which minions are connected to the publish port. It compares the remote
// addresses of the port's connections with the addresses in cached grains (salt/utils/minions.py
// connected_ids). Behind a proxy all connections come from the proxy, so presence finds no minion.
type presence struct {
	data    *cache.Store
	addrs   map[netip.Addr]bool
	anybody bool // at least one minion is connected, so a minion without a connection is really absent
}

func (t *tool) presence() *presence {
	p := &presence{}
	if !t.cfg.MinionDataCache || len(t.cfg.ProxyFrom) > 0 {
		return p
	}

	if _, err := os.Stat(t.cfg.CacheDir); err != nil {
		return p
	}

	data, err := cache.Open(t.cfg.CacheDir, cacheMemory, keys.ValidID)
	if err != nil {
		t.log.Debug("cached grains cannot be read", "error", err)
		return p
	}

	p.data, p.addrs = data, map[netip.Addr]bool{}
	for _, file := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		if f, err := os.Open(file); err == nil {
			remotes(f, t.cfg.PublishPort, p.addrs)
			f.Close()
		}
	}

	replaceLoopback(p.addrs, net.InterfaceAddrs)
	ids, err := data.IDs(cache.Grains)
	if err != nil {
		return p
	}

	p.anybody = slices.ContainsFunc(ids, p.connected)
	return p
}

// isDisconnected reports whether a minion is known and has no connection.
func (p *presence) isDisconnected(id string) bool {
	if !p.anybody || p.connected(id) {
		return false
	}
	_, known := p.data.Get(cache.Grains, id)
	return known
}

func (p *presence) connected(id string) bool {
	g, ok := p.data.Get(cache.Grains, id)
	return ok && (p.anyConnected(g, "ipv4") || p.anyConnected(g, "ipv6"))
}

func (p *presence) anyConnected(g *value.Map, name string) bool {
	for _, s := range g.Texts(name) {
		if a, err := netip.ParseAddr(s); err == nil && p.addrs[a] {
			return true
		}
	}
	return false
}

// replaceLoopback replaces the loopback address, from which a minion on this host connects, by the
// addresses of this host.
func replaceLoopback(addrs map[netip.Addr]bool, local func() ([]net.Addr, error)) {
	loop := false
	for a := range addrs {
		if a.IsLoopback() {
			loop = true
			delete(addrs, a)
		}
	}

	if !loop {
		return
	}

	list, err := local()
	if err != nil {
		return
	}

	for _, n := range list {
		if ip, err := netip.ParsePrefix(n.String()); err == nil && !ip.Addr().IsLoopback() {
			addrs[ip.Addr().Unmap()] = true
		}
	}
}

// remotes adds the remote addresses of the established connections to a local
// port, in the format of /proc/net/tcp and tcp6.
func remotes(r io.Reader, port int, into map[netip.Addr]bool) {
	const established = "01"
	s := bufio.NewScanner(r)
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) < 4 || f[3] != established {
			continue
		}

		_, local, _ := strings.Cut(f[1], ":")
		if n, err := strconv.ParseUint(local, 16, 16); err != nil || int(n) != port {
			continue
		}

		host, _, _ := strings.Cut(f[2], ":")
		b, err := hex.DecodeString(host)
		if err != nil || len(b)%4 != 0 {
			continue
		}

		for i := 0; i < len(b); i += 4 { // 32-bit words in the byte order of the machine
			slices.Reverse(b[i : i+4])
		}

		if a, ok := netip.AddrFromSlice(b); ok {
			into[a.Unmap()] = true
		}
	}
}
