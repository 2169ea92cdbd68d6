package lbproxy

import "net/netip"

// Addrs returns the bound addresses of a frontend, after Ready; useful with
// port 0.
func (p *Proxy) Addrs(frontend string) []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []netip.AddrPort
	for _, ln := range p.listeners {
		if ln.frontend.cfg.Name == frontend {
			out = append(out, ln.addr)
		}
	}
	return out
}
