package lbproxy

import (
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
)

// frontend is one service: its listeners, its limits, and the members to choose from.
type frontend struct {
	proxy   *Proxy
	cfg     Frontend
	mode    Mode
	sources *sources

	sessions     atomic.Int64
	accepted     atomic.Uint64
	refused      [refusals]atomic.Uint64
	ended        [endings]atomic.Uint64
	notListening atomic.Pointer[error] // why a listener of the API is not open yet; nil when all are open

	mu      sync.Mutex
	members []*member // by member.index; nil where a member was removed
}

// refusal is the reason why a connection was refused.
type refusal uint8

const (
	refusedACL refusal = iota
	refusedSource
	refusedMax
	refusedDescriptors
	refusedReserve // only descriptors for known sources and this machine are left
	refusals
)

var refusalNames = [refusals]string{"acl", "source-limit", "max-sessions", "descriptors", "reserve"}

func (r refusal) String() string { return refusalNames[r] }

// admits reports whether Allow and Deny permit an address.
func (f *frontend) admits(a netip.Addr) bool {
	if contains(f.cfg.Deny, a) {
		return false
	}
	return len(f.cfg.Allow) == 0 || contains(f.cfg.Allow, a)
}

// behindProxy reports whether connections from a begin with a PROXY header.
func (f *frontend) behindProxy(a netip.Addr) bool {
	return len(f.cfg.ProxyFrom) > 0 && contains(f.cfg.ProxyFrom, a)
}

func (f *frontend) sessionClosed(s *session) {
	f.sessions.Add(-1)
	f.ended[s.why].Add(1)
	if s.counted {
		f.sources.sessionEnded(s.source.addr())
	}
}

// addMember assigns a free index to a member. It returns false if there is none.
func (f *frontend) addMember(m *member) bool {
	f.mu.Lock()
	defer f.mu.Unlock()

	// A random start: otherwise several proxies with few sessions each would all begin with the
	// same one of equal masters.
	m.credit = rand.Int64N(int64(m.backend.weight.Load()) * 1000)
	for i, old := range f.members {
		if old == nil {
			m.index = uint(i)
			f.members[i] = m
			return true
		}
	}

	if len(f.members) >= maxBackends {
		return false
	}

	m.index = uint(len(f.members))
	f.members = append(f.members, m)
	return true
}

func (f *frontend) removeMember(m *member) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if int(m.index) < len(f.members) && f.members[m.index] == m {
		f.members[m.index] = nil
	}
}

// tierOf returns the preference of a member for new sessions: 0 is best, -1 means never. While any
// member is up, only members that are up get new sessions. If none is up, the proxy tries the one
// that was up last.
func (f *frontend) tierOf(m *member) int {
	if m.backend.closedToNew() {
		return -1
	}

	if limit := m.backend.cfg.MaxSessions; limit > 0 && m.sessions.Load() >= int64(limit) {
		return -1
	}

	switch m.State() {
	case Up:
		// A master that answers no requests serves subscribers badly. So does the API
		// beside it, whose commands go to that master.
		for _, o := range m.backend.members {
			if st := o.State(); f.mode != Request && o != m && o.frontend.mode == Request &&
				(st == Down || st == Joining || st == Unwell) {
				return 1
			}
		}
		return 0
	case Unknown, Unwell:
		return 2
	}

	return 3
}

// chooseMember chooses a member for a client, except those in tried, and counts a session on it. It
// returns nil if there is no such member.
func (f *frontend) chooseMember(tried uint64, now int64, client netip.Addr) *member {
	f.mu.Lock()
	defer f.mu.Unlock()

	// Look at each member once: a state that changes meanwhile must not leave the
	// client without a member.
	level := 4
	var tiers [maxBackends]int8
	for i, m := range f.members {
		tiers[i] = -1
		if m != nil && tried&(1<<m.index) == 0 {
			t := f.tierOf(m)
			tiers[i] = int8(t)
			if t >= 0 && t < level {
				level = t
			}
		}
	}

	if level == 4 {
		return nil
	}

	best := (*member)(nil)
	var score, total int64
	fit, own := 0.0, uint64(0)
	if f.cfg.Balance == bySource {
		own = sourceHash(client)
	}

	for i, m := range f.members {
		if m == nil || int(tiers[i]) != level {
			continue
		}

		w := m.effectiveWeight(now)
		total += w
		m.credit += w
		switch {
		case level == 3: // all members are down: choose the one that was up last
			if best == nil || m.lastUp.Load() > best.lastUp.Load() {
				best = m
			}
		case f.cfg.Balance == bySource:
			if v := affinity(own, m.seed, w); best == nil || v > fit {
				best, fit = m, v
			}
		case f.cfg.Balance == roundRobin:
			if best == nil || m.credit > best.credit {
				best = m
			}
		default:
			// Fewest sessions per weight. Among equal members the credit decides, so that they get
			// sessions in proportion to their weights.
			v := (m.sessions.Load() + 1) * 1e9 / w
			if best == nil || v < score || (v == score && m.credit > best.credit) {
				best, score = m, v
			}
		}
	}

	best.credit = max(best.credit-total, -8*total)
	for _, m := range f.members {
		if m != nil {
			m.credit = min(m.credit, 8*total) // bounds the credit that accumulates while a member cannot be chosen
		}
	}

	best.sessions.Add(1)
	return best
}

// hasAlternative reports whether a member that is not in tried is worth a hedged dial.
func (f *frontend) hasAlternative(tried uint64) bool { return f.hasBetterThan(3, tried) }

// hasBetterThan reports whether a member that is not in tried has a better tier.
func (f *frontend) hasBetterThan(tier int, tried uint64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, m := range f.members {
		if m != nil && tried&(1<<m.index) == 0 {
			if t := f.tierOf(m); t >= 0 && t < tier {
				return true
			}
		}
	}
	return false
}

func (f *frontend) currentMembers() []*member {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make([]*member, 0, len(f.members))
	for _, m := range f.members {
		if m != nil {
			out = append(out, m)
		}
	}
	return out
}
