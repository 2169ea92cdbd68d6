package lbproxy

import (
	"cmp"
	"net/netip"
	"slices"
	"sync"
	"time"

	"saltern/internal/ratelimit"
)

// maxSources bounds the table of sources. When the table is full and no entry can be removed,
// further sources share one entry and its limits.
const maxSources = 65536

// Default limits of a source. They suffice for all minions behind a NAT gateway when they reconnect
// at once. A known source (see [knownSources]) may have knownFactor times as much. Loopback has no
// default limit.
const (
	defaultPerSource = 20000
	defaultRate      = 500
	defaultBurst     = 10000
	knownFactor      = 10
)

// leastShare is how many sessions an unknown source may always have.
const leastShare = 16

// limitedFor is how long a refused source stays in the status, and maxLimited how many
// sources the status shows.
const (
	limitedFor = 5 * time.Minute
	maxLimited = 16
)

// source holds the counters of one IPv4 address or one IPv6 /64.
type source struct {
	tokens      float64
	tokensAt    int64 // clock when tokens was computed
	sessions    int
	refused     uint64
	lastRefusal int64 // clock of the last refusal
}

// sources applies the per-source limits of a frontend. It is safe for concurrent use.
type sources struct {
	mu              sync.Mutex
	rate            float64 // 0: no limit
	burst           float64
	max             int // 0: no limit
	byAdministrator bool
	table           map[netip.Addr]*source
	limit           int
	overflowUses    uint64 // how often a new source had to share the overflow entry

	overflow source
}

// newSources returns the limits of a frontend, or nil if there are none. Limits that the
// administrator has set hold for every source. The default limits depend on whether a source is
// known. They apply only if salt is set: with another protocol the proxy cannot tell whether a
// source is known.
func newSources(f *Frontend, salt bool) *sources {
	s := &sources{
		rate:            f.Rate,
		burst:           max(f.Burst, 1),
		max:             f.MaxPerSource,
		byAdministrator: f.Rate > 0 || f.MaxPerSource > 0,
		table:           map[netip.Addr]*source{},
		limit:           maxSources,
	}
	if salt && !s.byAdministrator {
		if s.max == 0 {
			s.max = defaultPerSource
		}
		if s.rate == 0 {
			s.rate, s.burst = defaultRate, defaultBurst
		}
	}

	s.rate, s.max = max(s.rate, 0), max(s.max, 0)
	if s.rate == 0 && s.max == 0 {
		return nil
	}

	return s
}

// standing describes a source when it connects.
type standing struct {
	known     bool  // whether the source is known, see [knownSources]
	local     bool  // whether the source is this machine
	roomShare int64 // how many sessions the source may have, given the free descriptors; 0 means no limit
}

// admitSession counts a session of a source and returns true, or returns false to refuse the
// session. For each true the caller must call sessionEnded once.
func (s *sources) admitSession(a netip.Addr, now int64, st standing) bool {
	if s == nil {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entryOf(ratelimit.Source(a), now)
	if !s.withinLimits(e, now, st) {
		e.refused++
		e.lastRefusal = now
		return false
	}
	e.sessions++
	return true
}

func (s *sources) withinLimits(e *source, now int64, st standing) bool {
	maxSessions := s.max
	rate := s.rate
	burst := s.burst
	if !s.byAdministrator {
		switch {
		case st.local:
			return true
		case st.known:
			maxSessions *= knownFactor
			rate *= knownFactor
			burst *= knownFactor
		}
	}

	if st.roomShare > 0 && int64(e.sessions) >= st.roomShare || maxSessions > 0 && e.sessions >= maxSessions {
		return false
	}

	if rate > 0 {
		e.tokens = min(burst, e.tokens+float64(now-e.tokensAt)/1e9*rate)
		e.tokensAt = now
		if e.tokens < 1 {
			return false
		}
		e.tokens--
	}

	return true
}

func (s *sources) entryOf(k netip.Addr, now int64) *source {
	if e := s.table[k]; e != nil {
		return e
	}
	if len(s.table) >= s.limit {
		s.overflowUses++
		if s.overflow.tokensAt == 0 {
			s.overflow.tokens, s.overflow.tokensAt = s.burst, now
		}
		return &s.overflow
	}
	e := &source{tokens: s.burst, tokensAt: now}
	s.table[k] = e
	return e
}

// sessionEnded removes a session that admitSession has counted.
func (s *sources) sessionEnded(a netip.Addr) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.table[ratelimit.Source(a)]; e != nil && e.sessions > 0 {
		e.sessions--
	} else if s.overflow.sessions > 0 {
		s.overflow.sessions--
	}
}

// forgetIdle removes sources without sessions whose bucket is full again.
func (s *sources) forgetIdle(now int64) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for k, e := range s.table {
		if e.sessions == 0 && !e.limited(now) &&
			(s.rate <= 0 || e.tokens+float64(now-e.tokensAt)/1e9*s.rate >= s.burst) {
			delete(s.table, k)
		}
	}
}

func (e *source) limited(now int64) bool {
	return e.refused > 0 && now-e.lastRefusal < int64(limitedFor)
}

// LimitedSource is a source whose connections were refused lately.
type LimitedSource struct {
	// Source is an IPv4 address, the network of an IPv6 /64, or "others": the entry that sources
	// share if the table is full.
	Source   string    `json:"source"`
	Sessions int       `json:"sessions"`
	Refused  uint64    `json:"refused"` // connections refused since the proxy first saw the source
	Last     time.Time `json:"last"`
}

// limited returns sources that were refused within limitedFor, the worst first and maxLimited at most. n is
// the number of all such sources.
func (s *sources) limited(now int64, base time.Time) (list []LimitedSource, n int) {
	if s == nil {
		return nil, 0
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	add := func(name string, e *source) {
		if e.limited(now) {
			list = append(list, LimitedSource{name, e.sessions, e.refused, base.Add(time.Duration(e.lastRefusal))})
		}
	}

	for k, e := range s.table {
		if e.limited(now) {
			name := k.String()
			if k.Is6() {
				name = netip.PrefixFrom(k, 64).String()
			}
			add(name, e)
		}
	}

	add("others", &s.overflow)
	slices.SortFunc(list, func(a, b LimitedSource) int {
		return cmp.Or(-cmp.Compare(a.Refused, b.Refused), cmp.Compare(a.Source, b.Source))
	})

	return list[:min(len(list), maxLimited)], len(list)
}

func contains(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
