package lbproxy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"
)

// AddBackend adds a master, before or during Run.
func (p *Proxy) AddBackend(cfg Backend) error {
	cfg.setDefaults()
	if errs := cfg.faults(); len(errs) > 0 {
		return fmt.Errorf("add backend: %w", errs[0])
	}

	b := &backend{name: cfg.Name, cfg: cfg}
	b.weight.Store(int32(cfg.Weight))
	ip := netip.MustParseAddr(cfg.Address).Unmap()
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, o := range p.backends {
		if o.name == cfg.Name {
			return fmt.Errorf("add backend %s: %w", cfg.Name, errExists)
		}
	}

	for _, fe := range p.frontends {
		b.members = append(b.members, &member{
			frontend:    fe,
			backend:     b,
			addr:        netip.AddrPortFrom(ip, uint16(cfg.portFor(fe.mode))),
			sendsHeader: cfg.ProxyV2 || fe.cfg.ProxyV2,
			seed:        seedOf(cfg.Name),
			evidence:    make(chan evidence, 16),
		})
	}

	for i, m := range b.members {
		if !m.frontend.addMember(m) {
			for _, added := range b.members[:i] {
				added.frontend.removeMember(added)
			}
			return fmt.Errorf("add backend %s: more than %d backends", cfg.Name, maxBackends)
		}
	}

	p.backends = append(p.backends, b)
	if p.ctx != nil {
		p.watchBackend(b)
	}

	return nil
}

// startCheckers starts the checks of all backends.
func (p *Proxy) startCheckers(ctx context.Context) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ctx = ctx // for backends added later; ends with Run
	for _, b := range p.backends {
		p.watchBackend(b)
	}
}

// watchBackend starts a checker for each member. The caller holds p.mu.
func (p *Proxy) watchBackend(b *backend) {
	if p.ctx.Err() != nil {
		return
	}

	for _, m := range b.members {
		ctx, cancel := context.WithCancel(p.ctx)
		h := &p.cfg.Health
		pr := &prober{
			check:  h.Check,
			send:   h.Send,
			expect: h.Expect,
			header: m.sendsHeader,
			dial:   p.dialer,
			// Masters drop a peer that does not answer their PINGs in time. So checks reuse no
			// connection if they are further apart than this.
			reuse: reuse{off: h.Inter > 2*time.Second || m.frontend.mode != Request},
		}

		addr := m.addr.String()
		probe := func(ctx context.Context) error { return pr.probe(ctx, addr, m.frontend.mode) }
		closeProbe := pr.reuse.close
		if m.frontend.mode == API && h.checksSalt() {
			web := newWebProbe(addr, m.sendsHeader, p.dialer)
			probe, closeProbe = web.probe, web.close
		}

		c := &checker{
			member:  m,
			cfg:     h,
			log:     p.log,
			clock:   p.clock,
			verdict: verdict{rise: h.Rise, fall: h.Fall},
			probe:   probe,
			reused:  func() bool { return pr.reuse.used },
			judged: func(state State, _ bool, g grade, badSince int64) {
				if state == Down {
					p.cutFailed(m, g, badSince)
				}
			},
		}

		p.checkers[m] = &runningCheck{checker: c, cancel: cancel}
		p.wg.Go(func() {
			c.run(ctx)
			closeProbe()
		})
	}
}

func (p *Proxy) backendNamed(name string) (*backend, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.backends {
		if b.name == name {
			return b, nil
		}
	}
	return nil, fmt.Errorf("backend %q: %w", name, errNoBackend)
}

// Drain stops new sessions to a backend and moves its sessions to others: request sessions between
// two requests, publish sessions at the pace of Rebalance.Rate, never inside a frame.
func (p *Proxy) Drain(name string) error {
	return p.changeBackend(name, "drain", func(b *backend) { b.draining.Store(true) })
}

// Undrain ends drain and maint.
func (p *Proxy) Undrain(name string) error {
	return p.changeBackend(name, "undrain", func(b *backend) { b.draining.Store(false); b.maintenance.Store(false) })
}

// Maint stops new sessions and health checks of a backend. Its sessions stay; Drain or Cut ends
// them.
func (p *Proxy) Maint(name string) error {
	return p.changeBackend(name, "maint", func(b *backend) { b.maintenance.Store(true) })
}

// Weight sets the share of new sessions, 1 to 1000.
func (p *Proxy) Weight(name string, weight int) error {
	if weight < 1 || weight > 1000 {
		return fmt.Errorf("weight %d is not within 1 to 1000", weight)
	}
	return p.changeBackend(name, "weight", func(b *backend) { b.weight.Store(int32(weight)) })
}

func (p *Proxy) changeBackend(name, action string, f func(*backend)) error {
	b, err := p.backendNamed(name)
	if err != nil {
		return err
	}
	f(b)
	p.log.Info("backend changed", "backend", name, "change", action, "weight", b.weight.Load())
	return nil
}

// RemoveBackend drains a master and removes it when it has no sessions. With force it cuts the
// sessions and removes the master at once.
func (p *Proxy) RemoveBackend(name string, force bool) error {
	err := p.changeBackend(name, "remove", func(b *backend) { b.removing.Store(true) })
	if err != nil {
		return err
	}
	if force {
		_, err = p.Cut(name, "")
	}
	p.dropRemoved()
	return err
}

// dropRemoved removes backends that are being removed and have no session.
func (p *Proxy) dropRemoved() {
	for _, name := range p.takeRemoved() {
		p.log.Info("backend removed", "backend", name)
	}
}

func (p *Proxy) takeRemoved() (names []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backends = slices.DeleteFunc(p.backends, func(b *backend) bool {
		if !b.removing.Load() {
			return false
		}

		for _, m := range b.members {
			if m.sessions.Load() > 0 {
				return false
			}
		}

		for _, m := range b.members {
			m.frontend.removeMember(m)
			if w := p.checkers[m]; w != nil {
				w.cancel()
				delete(p.checkers, m)
			}
		}

		names = append(names, b.name)
		return true
	})

	return names
}

// Cut closes the sessions of a backend at once: the sessions of one frontend, or all if frontend is
// "". It returns the number of closed sessions.
func (p *Proxy) Cut(name, frontend string) (int, error) {
	b, err := p.backendNamed(name)
	if err != nil {
		return 0, err
	}

	n, found := 0, false
	for _, m := range b.members {
		if frontend == "" || m.frontend.cfg.Name == frontend {
			found = true
			k, err := p.cutWhere(endCut, -1, func(s *session, _ int64) bool { return s.member == m })
			n += k
			if err != nil {
				return n, err
			}
		}
	}

	if !found {
		return 0, fmt.Errorf("frontend %q: %w", frontend, errNoFrontend)
	}

	p.log.Info("sessions cut", "backend", name, "sessions", n)
	return n, nil
}

// cutWhere moves or closes the open sessions for which f returns true, at most limit of them
// (negative: no limit), and returns their number. It waits for the loops, so a loop must not call
// it.
func (p *Proxy) cutWhere(why ending, limit int, f func(s *session, now int64) bool) (int, error) {
	n := 0
	for _, l := range p.allLoops() {
		ok := l.runAndWait(func() {
			now := p.clock()
			l.eachOpen(func(s *session) {
				if (limit < 0 || n < limit) && f(s, now) {
					s.member.cuts.Add(1)
					l.now = now
					if !why.allowsMove() || !l.transfer(s, why) {
						l.closeSession(s, why)
					}
					n++
				}
			})
		})
		if !ok {
			return n, errStopped
		}
	}

	return n, nil
}
