package httpserver

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"saltern/internal/ratelimit"
)

// Places bounds the open connections of a server. Give its methods State and Context to an
// [http.Server] as ConnState and ConnContext. Unauthenticated connections share the bounds that
// [ratelimit.Bounds] sets for their class. [Prove] assigns a connection to the user who has
// authenticated on it. All methods are safe for concurrent use.
//
// Overflow policy: a new connection is accepted and another one is closed for it. This is the
// oldest unauthenticated connection of the source that has the most connections. If there is no
// unauthenticated one, it is an idle connection of an authenticated user, whose client will connect
// again. A connection whose request is being answered stays open. If no connection may be closed,
// the new one is closed.
type Places struct {
	bounds  ratelimit.Bounds
	classOf func(netip.Addr) ratelimit.Class
	now     func() time.Time

	mu      sync.Mutex
	all     map[net.Conn]*place
	classes [3]int
	by      map[holder]int
	refused uint64
}

// holder is the owner of connections: a source, or a user who has authenticated.
type holder struct {
	source netip.Addr
	name   string
}

// place is the entry of one connection. Places.mu guards its fields.
type place struct {
	conn   net.Conn
	holder holder
	class  ratelimit.Class
	since  time.Time // time of the connection's last event: accepted, a request begun or answered
	active bool      // a request is arriving or being answered
	busy   int       // number of requests that a handler is working on
}

// NewPlaces returns empty places. classOf returns the class of a new connection's source.
func NewPlaces(b ratelimit.Bounds, classOf func(netip.Addr) ratelimit.Class, now func() time.Time) *Places {
	return &Places{
		bounds:  b,
		classOf: classOf,
		now:     now,
		all:     map[net.Conn]*place{},
		by:      map[holder]int{},
	}
}

// State is the ConnState function of an [http.Server].
func (p *Places) State(c net.Conn, state http.ConnState) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch state {
	case http.StateNew:
		p.admitConn(c)
	case http.StateActive, http.StateIdle:
		if at := p.all[c]; at != nil {
			at.active, at.since = state == http.StateActive, p.now()
		}
	case http.StateClosed, http.StateHijacked:
		p.forgetConn(p.all[c])
	}
}

// admitConn admits a new connection, if necessary by closing another one, or closes the new one.
// The caller holds mu.
func (p *Places) admitConn(c net.Conn) {
	source := ratelimit.SourceOf(c.RemoteAddr().String())
	at := &place{conn: c, holder: holder{source: source}, class: p.classOf(source), since: p.now()}
	for full, ok := p.fullClass(at.class); ok; full, ok = p.fullClass(at.class) {
		victim := p.victim(at, full)
		if victim == nil {
			p.refused++
			closeNow(c)
			return
		}

		p.forgetConn(victim)
		closeNow(victim.conn)
	}

	p.all[c] = at
	p.count(at, 1)
}

// fullClass reports in ok whether the bound of class, or of a higher class, is reached. up is the
// class of that bound: closing a connection of up or of a lower class makes room. The caller holds
// mu.
func (p *Places) fullClass(class ratelimit.Class) (up ratelimit.Class, ok bool) {
	n := 0
	for c, limit := range []int64{p.bounds.Strangers, p.bounds.Familiar, p.bounds.All} {
		n += p.classes[c]
		if c >= int(class) && int64(n) >= limit {
			return ratelimit.Class(c), true
		}
	}
	return 0, false
}

// victim returns the connection to close for a new one. Its class is maxClass or lower. victim
// returns nil if no such connection may be closed. The caller holds mu.
func (p *Places) victim(entering *place, maxClass ratelimit.Class) (worst *place) {
	now := p.now()
	for _, at := range p.all {
		greedy := at.holder == entering.holder || p.by[at.holder] > p.by[entering.holder]
		if at.class > maxClass || !at.mayGo(now, greedy) {
			continue
		}
		if worst == nil || p.goesBefore(at, worst) {
			worst = at
		}
	}
	return worst
}

// mayGo reports whether a connection may be closed for a new one. greedy means that the connection
// has the same holder as the new one, or a holder with more connections.
func (at *place) mayGo(now time.Time, greedy bool) bool {
	if at.class == ratelimit.Proven {
		return !at.active && at.busy == 0
	}
	// Within a second of its last step a connection's request may still be arriving.
	return at.busy == 0 && (greedy || now.Sub(at.since) >= time.Second)
}

// goesBefore reports whether to close connection a rather than b. The caller holds mu.
func (p *Places) goesBefore(a, b *place) bool {
	if proven := a.class == ratelimit.Proven; proven != (b.class == ratelimit.Proven) {
		return !proven
	}
	if n, m := p.by[a.holder], p.by[b.holder]; n != m {
		return n > m
	}
	return a.since.Before(b.since)
}

// forgetConn removes a connection from the tables. at may be nil: the call does nothing. The caller
// holds mu.
func (p *Places) forgetConn(at *place) {
	if at == nil || p.all[at.conn] != at {
		return
	}
	delete(p.all, at.conn)
	p.count(at, -1)
}

func (p *Places) count(at *place, n int) {
	p.classes[at.class] += n
	if p.by[at.holder] += n; p.by[at.holder] <= 0 {
		delete(p.by, at.holder)
	}
}

// closeNow closes a connection without sending TLS's close message, because sending might block.
func closeNow(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// Counted returns the number of open connections. refused is how many connections have been closed
// on arrival or to make room since the start.
func (p *Places) Counted() (open int, refused uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all), p.refused
}

type placeKey struct{}

// placed is the value in a request's context that leads to the entry of its connection.
type placed struct {
	places *Places
	conn   net.Conn
}

// Context is the ConnContext function of an [http.Server].
func (p *Places) Context(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, placeKey{}, &placed{p, c})
}

// withPlace calls do with the entry of a request's connection, and holds Places.mu during the call.
// If the connection has no entry, withPlace does nothing.
func withPlace(ctx context.Context, do func(p *Places, at *place)) {
	c, _ := ctx.Value(placeKey{}).(*placed)
	if c == nil {
		return
	}
	c.places.mu.Lock()
	defer c.places.mu.Unlock()
	if at := c.places.all[c.conn]; at != nil {
		do(c.places, at)
	}
}

// Prove assigns the connection of a request to the user who has authenticated with the request.
// name is any text that identifies the user.
func Prove(ctx context.Context, name string) {
	withPlace(ctx, func(p *Places, at *place) {
		p.count(at, -1)
		at.holder, at.class = holder{name: name}, ratelimit.Proven
		p.count(at, 1)
	})
}

// Working records that a request has arrived completely. The request's connection is not closed to
// make room until the caller has called done.
func Working(ctx context.Context) (done func()) {
	step := func(n int) {
		withPlace(ctx, func(p *Places, at *place) {
			at.busy += n
			at.since = p.now()
		})
	}
	step(1)
	return sync.OnceFunc(func() { step(-1) })
}
