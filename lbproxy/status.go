package lbproxy

import (
	"slices"
	"time"
)

// Status is the answer of the admin API: the state at one moment, and counters since the start.
type Status struct {
	Version  int         `json:"version"` // version of this document: 1
	Started  time.Time   `json:"started"`
	Loops    int         `json:"loops"`
	Sessions int64       `json:"sessions"`
	FDs      Descriptors `json:"descriptors"`
	Pending  int64       `json:"pending_bytes"`
	LogDrops uint64      `json:"log_lines_dropped"`
	Hedges   uint64      `json:"hedged_connects"`
	Moved    uint64      `json:"sessions_rebalanced"`
	// number of sessions moved to another backend while the client's connection stayed open
	Given  uint64 `json:"sessions_moved"`
	Kept   int64  `json:"kept_bytes"` // number of bytes of requests that wait for their answers
	Unkept uint64 `json:"requests_not_kept"`
	Known  int    `json:"known_sources"` // number of known sources: a master has accepted minions there
	// Heard is the time at which a client on another machine last connected or sent bytes. It is
	// zero if none has.
	Heard     time.Time        `json:"heard,omitzero"`
	Frontends []FrontendStatus `json:"frontends"`
	Backends  []BackendStatus  `json:"backends"`
}

// Descriptors is the budget for sessions.
type Descriptors struct {
	Budget int64 `json:"budget"`
	Free   int64 `json:"free"`
}

// FrontendStatus is the status of one frontend.
type FrontendStatus struct {
	Name   string   `json:"name"`
	Mode   Mode     `json:"mode"`
	Listen []string `json:"listen"`
	// Unheard is the reason why a listener is not open yet, or "". The proxy keeps trying to open
	// it.
	Unheard  string            `json:"unheard,omitempty"`
	Sessions int64             `json:"sessions"`
	Accepted uint64            `json:"accepted"`
	Refused  map[string]uint64 `json:"refused,omitempty"`
	Ended    map[string]uint64 `json:"ended,omitempty"`
	// Limited lists sources that were refused within the last five minutes, the worst first. The
	// list is truncated; LimitedSources is the number of all such sources.
	Limited        []LimitedSource `json:"limited,omitempty"`
	LimitedSources int             `json:"limited_sources,omitempty"`
	// Serving reports whether a backend is up for this frontend.
	Serving bool `json:"serving"`
}

// BackendStatus is the status of one master.
type BackendStatus struct {
	Name     string       `json:"name"`
	Address  string       `json:"address"`
	Weight   int          `json:"weight"`
	Drain    bool         `json:"drain"`
	Maint    bool         `json:"maint"`
	Removing bool         `json:"removing"`
	Ports    []PortStatus `json:"ports"`
}

// PortStatus is the status of one master at one frontend.
type PortStatus struct {
	Frontend  string        `json:"frontend"`
	Address   string        `json:"address"`
	State     State         `json:"state"`
	Since     time.Time     `json:"since"`
	LastError string        `json:"last_error,omitempty"`
	CheckTime time.Duration `json:"check_ns"` // smoothed duration of a check
	Checks    uint64        `json:"checks"`
	Failed    uint64        `json:"checks_failed"`
	Sessions  int64         `json:"sessions"`
	Total     uint64        `json:"sessions_total"`
	BytesUp   uint64        `json:"bytes_up"` // bytes of ended sessions
	BytesDown uint64        `json:"bytes_down"`
	Refusals  uint64        `json:"connect_errors"`
	Resets    uint64        `json:"resets"`
	Cuts      uint64        `json:"cuts"`
}

// ForAPI reports whether a port belongs to a frontend of Salt's API, which minions do not need.
func (s *Status) ForAPI(p PortStatus) bool {
	return slices.ContainsFunc(s.Frontends,
		func(fe FrontendStatus) bool { return fe.Name == p.Frontend && fe.Mode == API })
}

// Status gathers the state of the proxy.
func (p *Proxy) Status() Status {
	st := Status{
		Version:  1,
		Started:  p.base,
		LogDrops: p.sessionLog.dropped.Load(),
		Hedges:   p.counters.hedges.Load(),
		Moved:    p.counters.rebalanced.Load(),
		Given:    p.counters.transferred.Load(),
		Kept:     p.counters.keptBytes.Load(),
		Unkept:   p.counters.requestsNotKept.Load(),
		Known:    p.known.count(),
		FDs:      Descriptors{p.budget.size.Load(), p.budget.left.Load()},
	}

	heard := int64(0)
	for _, l := range p.allLoops() {
		st.Loops++
		st.Sessions += l.sessions.Load()
		st.Pending += l.pendingShown.Load()
		if at := l.lastHeard.Load(); at > 0 {
			heard = max(heard, at)
		}
	}

	if heard > 0 {
		st.Heard = p.base.Add(time.Duration(heard))
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	for _, fe := range p.frontends {
		fs := FrontendStatus{
			Name:     fe.cfg.Name,
			Mode:     fe.mode,
			Sessions: fe.sessions.Load(),
			Accepted: fe.accepted.Load(),
			Refused:  map[string]uint64{},
			Ended:    map[string]uint64{},
		}

		fs.Limited, fs.LimitedSources = fe.sources.limited(p.clock(), p.base)
		for i := range fe.refused {
			if n := fe.refused[i].Load(); n > 0 {
				fs.Refused[refusal(i).String()] = n
			}
		}

		for i := range fe.ended {
			if n := fe.ended[i].Load(); n > 0 {
				fs.Ended[ending(i).String()] = n
			}
		}

		for _, ln := range p.listeners {
			if ln.frontend == fe {
				fs.Listen = append(fs.Listen, ln.addr.String())
			}
		}

		if err := fe.notListening.Load(); err != nil {
			fs.Unheard = (*err).Error()
		}

		for _, m := range fe.currentMembers() {
			fs.Serving = fs.Serving || (m.State() == Up && !m.backend.closedToNew())
		}

		st.Frontends = append(st.Frontends, fs)
	}

	for _, b := range p.backends {
		bs := BackendStatus{
			Name:     b.name,
			Address:  b.cfg.Address,
			Weight:   int(b.weight.Load()),
			Drain:    b.draining.Load(),
			Maint:    b.maintenance.Load(),
			Removing: b.removing.Load(),
		}

		for _, m := range b.members {
			ps := PortStatus{
				Frontend:  m.frontend.cfg.Name,
				Address:   m.addr.String(),
				State:     m.State(),
				Sessions:  m.sessions.Load(),
				Total:     m.sessionsTotal.Load(),
				BytesUp:   m.bytesUp.Load(),
				BytesDown: m.bytesDown.Load(),
				Refusals:  m.refusals.Load(),
				Resets:    m.resets.Load(),
				Cuts:      m.cuts.Load(),
				Since:     p.base,
			}

			if w := p.checkers[m]; w != nil {
				w.mu.Lock()
				ps.Since = p.base.Add(time.Duration(w.since))
				ps.LastError = w.lastErr
				ps.CheckTime = w.smoothedTime
				ps.Checks, ps.Failed = w.checks, w.failed
				w.mu.Unlock()
			}

			bs.Ports = append(bs.Ports, ps)
		}

		st.Backends = append(st.Backends, bs)
	}

	return st
}
