package lbproxy

import (
	"cmp"
	"context"
	"slices"
	"time"
)

// manage does the work of each tick until ctx ends, a loop fails or the listeners were handed over.
func (p *Proxy) manage(ctx context.Context, faults chan error) error {
	t := time.NewTicker(p.tick)
	defer t.Stop()
	busy, last := map[*loop]int64{}, p.clock()
	hot := 0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.retire:
			return nil
		case err := <-faults:
			return err
		case <-t.C:
		}

		now := p.clock()
		for _, fe := range p.frontends {
			fe.sources.forgetIdle(now)
			p.drainTick(fe)
			p.rebalanceTick(fe, now)
		}

		p.known.forgetOld(now)
		p.dropRemoved()
		p.listenAgain()

		// Add a loop only for lasting load: two loops cost more per message than one.
		any := false
		for _, l := range p.allLoops() {
			b := l.busyTime.Load()
			any = any || float64(b-busy[l]) > 0.6*float64(now-last)
			busy[l] = b
		}

		last = now
		hot++
		if !any {
			hot = 0
		}

		if hot >= 10 && len(p.allLoops()) < p.cfg.MaxLoops {
			hot = 0
			if err := p.addLoop(faults); err != nil {
				p.logFault("add event loop", err)
			} else {
				p.log.Info("event loop added", "loops", len(p.allLoops()))
			}
		}
	}
}

// cutFailed ends sessions of a port that is down. It runs when the port goes down and after each
// further bad check.
//
// A session that has received bytes since the checks began to fail stays until it has been silent
// for Health.Silence, which is longer than the interval of ZMTP heartbeats. If connects are refused
// or find no route, the master is not running or not reachable, and cutFailed ends the other
// sessions at once.
//
// Checks that time out do not prove that the master is lost: the fault may be on this machine or in
// the network. After such checks cutFailed ends the other sessions only if no session of the port
// has received a byte. A session that has ever received an answer stays until another master can
// take it. Otherwise its minion would reconnect to the same slow master, which would have to answer
// one more handshake.
func (p *Proxy) cutFailed(m *member, g grade, since int64) {
	if p.cfg.Health.KeepSessions || m.sessions.Load() == 0 {
		return
	}

	// Bytes that came while the first bad check was waiting are not fresh.
	fresh := since + int64(p.cfg.Health.FastInter)
	all := g == gradeGone || m.lastHeard.Load() < fresh
	elsewhere := g == gradeGone || m.frontend.hasAlternative(1<<m.index)
	n, _ := p.cutWhere(endDown, -1, func(s *session, now int64) bool {
		if s.member != m || s.half[sideBackend].holdsBytes() {
			return false // the client accepts no bytes: Config.Stall ends such a session
		}
		if s.half[sideBackend].bytes == 0 {
			// The kernel may accept a connection for a master that hangs: give the master a moment
			// to answer.
			return all && now-s.connectedAt > int64(p.cfg.Health.Timeout)
		}

		return (all && elsewhere && s.half[sideBackend].lastRead < fresh) || now-s.half[sideBackend].lastRead > int64(p.cfg.Health.Silence)
	})
	if n > 0 {
		p.log.Warn("sessions of a failed backend moved or cut", "backend", m.backend.name, "frontend",
			m.frontend.cfg.Name, "sessions", n)
	}
}

// drainTick moves sessions away from members that are drained or removed, and from members whose
// master is unwell while another master is well.
func (p *Proxy) drainTick(fe *frontend) {
	for _, m := range fe.currentMembers() {
		leaving := m.backend.draining.Load() || m.backend.removing.Load()
		if !leaving && m.backend.unwell() && !p.cfg.Health.KeepSessions {
			leaving = fe.hasBetterThan(1, 1<<m.index)
		}

		if !leaving {
			continue
		}
		if m.sessions.Load() == 0 {
			continue
		}

		limit := -1
		if fe.mode == Publish {
			limit = p.cutsPerTick(fe.sessions.Load())
		}

		p.cutOldest(m, limit, endDrain)
	}
}

// cutsPerTick returns how many sessions a frontend with n sessions may lose in one tick.
func (p *Proxy) cutsPerTick(n int64) int {
	return max(1, int(float64(n)*p.cfg.Rebalance.Rate*p.tick.Seconds()+0.5))
}

// rebalanceTick moves sessions away from the member that is furthest above its share, after another
// member has joined or returned. Publish sessions last long, so without rebalanceTick the shares
// would stay uneven.
func (p *Proxy) rebalanceTick(fe *frontend, now int64) {
	if p.cfg.Rebalance.Off || fe.mode != Publish {
		return
	}

	var members []*member
	var total, weights int64
	for _, m := range fe.currentMembers() {
		total += m.sessions.Load()
		if fe.tierOf(m) != 0 {
			continue
		}
		if now-m.upAt.Load() < int64(p.cfg.Rebalance.Delay) && m.upAt.Load() > 0 {
			return // the member came up a moment ago: move no sessions to it yet
		}

		members = append(members, m)
		weights += m.effectiveWeight(now)
	}

	if len(members) < 2 || total == 0 {
		return
	}

	over, excess := (*member)(nil), 0.0
	under := false
	for _, m := range members {
		share := float64(total) * float64(m.effectiveWeight(now)) / float64(weights)
		have := float64(m.sessions.Load())
		if have < share-0.5 {
			under = true
		}

		if e := have - share*(1+p.cfg.Rebalance.Excess); e > 0.5 && e > excess && have-share >= 1 {
			over, excess = m, e
		}
	}

	if over == nil || !under {
		return
	}

	n := p.cutOldest(over, min(p.cutsPerTick(total), int(excess)+1), endRebalance)
	p.counters.rebalanced.Add(uint64(n))
}

// cutOldest moves or closes the oldest sessions of a member, at most limit of them (negative: no
// limit), and returns their number. It takes only sessions that are quiet and between frames.
func (p *Proxy) cutOldest(m *member, limit int, why ending) int {
	quiet := int64(p.cfg.Rebalance.Quiet)
	mine := func(s *session, now int64) bool { return s.member == m && s.cuttable(now, quiet) }
	if limit < 0 {
		n, _ := p.cutWhere(why, -1, mine)
		return n
	}

	// Find out first when the oldest sessions began. Then cut those.
	var opened []int64
	for _, l := range p.allLoops() {
		l.runAndWait(func() {
			now := p.clock()
			l.eachOpen(func(s *session) {
				if mine(s, now) {
					opened = append(opened, s.connectedAt)
				}
			})
		})
	}

	if len(opened) == 0 {
		return 0
	}

	slices.Sort(opened)
	edge := opened[min(limit, len(opened))-1]
	n, _ := p.cutWhere(why, limit, func(s *session, now int64) bool { return s.connectedAt <= edge && mine(s, now) })
	return n
}

// patientFor is how long a hand-over waits until request sessions have been quiet for
// Rebalance.Quiet. After that any pause between two requests is enough. streamsFor is how long
// sessions of the API that are never quiet, such as event streams, may continue.
const (
	patientFor = 30 * time.Second
	streamsFor = 10 * time.Minute
)

// windDown ends the sessions after the listeners have closed. Requests may finish. Publish sessions
// are cut one after the other: after a hand-over at the pace of Rebalance.Rate, and once ctx has
// ended within Config.Stop.
func (p *Proxy) windDown(ctx context.Context) {
	step := min(p.tick, 100*time.Millisecond)
	t := time.NewTicker(step)
	defer t.Stop()

	var deadline int64
	began := p.clock()
	quiet := int64(p.cfg.Rebalance.Quiet)
	done := ctx.Done()
	for {
		var left int64
		for _, l := range p.allLoops() {
			left += l.sessions.Load()
		}

		if left == 0 {
			return
		}

		if ctx.Err() != nil {
			done = nil
			deadline = cmp.Or(deadline, p.clock()+int64(p.cfg.Stop))
		}

		pace := p.cfg.Rebalance.Rate * step.Seconds() * float64(left)

		// Clients whose request sessions are cut reconnect at once, subscribers after seconds.
		requests := int(10*pace) + 1
		if deadline != 0 {
			remain := float64(deadline-p.clock()) / float64(step)
			if remain <= 1 {
				return
			}
			pace = float64(left) / remain
			requests = -1
		}

		// A client may be sending a request just when its session is cut. While there is time,
		// choose sessions that have been quiet for longer.
		need := quiet
		if deadline != 0 || p.clock()-began > int64(patientFor) {
			need = min(quiet, int64(step))
		}

		_, err := p.cutWhere(endStop, requests, func(s *session, now int64) bool {
			if s.frontend.mode == API && now-began > int64(streamsFor) {
				return !s.outstanding()
			}
			return s.frontend.mode != Publish && s.cuttable(now, need) && !s.hasUnread()
		})
		if err != nil {
			return
		}

		_, _ = p.cutWhere(endStop, int(pace)+1, func(s *session, now int64) bool {
			return s.frontend.mode == Publish && s.cuttable(now, min(quiet, int64(step)))
		})
		select {
		case <-done:
		case <-t.C:
		}
	}
}
