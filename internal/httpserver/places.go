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

// Places bounds the connections of a server. Give its methods State and Context
// to an [http.Server] as ConnState and ConnContext. Strangers share [ratelimit.Bounds]
// Strangers of them; [Prove] moves a connection to the account of who has shown who he is.
// All methods are safe for concurrent use.
//
// Overflow policy: the newest connection comes in, and another one goes: of those that
// prove nothing the oldest of the source that has most, else an idle one of somebody who
// has proved himself, who will connect again. One whose request is being answered
// stays. Only where none may go the newest is closed.
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

// holder is who has places: a source, or somebody who has shown who he is.
type holder struct {
	source netip.Addr
	name   string
}

// place is a connection. Its fields are of the lock of the Places.
type place struct {
	conn   net.Conn
	holder holder
	class  ratelimit.Class
	since  time.Time // of its last step: accepted, a request begun or answered
	active bool      // a request is on its way in, or being answered
	busy   int       // requests in the handler
}

// NewPlaces makes places. classOf says what is known of a source whose connection is new.
func NewPlaces(b ratelimit.Bounds, classOf func(netip.Addr) ratelimit.Class, now func() time.Time) *Places {
	return &Places{
		bounds:  b,
		classOf: classOf,
		now:     now,
		all:     map[net.Conn]*place{},
		by:      map[holder]int{},
	}
}

// State is for [http.Server.ConnState].
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

// admitConn lets a connection in, or closes it. The caller holds mu.
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

// fullClass reports whether there is no place for a connection of a class, and up to which class
// those are that could make one. The caller holds mu.
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

// victim is the connection, of those up to a class, that goes for a new one; nil: none
// may. The caller holds mu.
func (p *Places) victim(entering *place, up ratelimit.Class) (worst *place) {
	now := p.now()
	for _, at := range p.all {
		greedy := at.holder == entering.holder || p.by[at.holder] > p.by[entering.holder]
		if at.class > up || !at.mayGo(now, greedy) {
			continue
		}
		if worst == nil || p.goesBefore(at, worst) {
			worst = at
		}
	}
	return worst
}

// mayGo reports whether a connection may be closed for another one. greedy says that its
// holder has more than the other's, or is the same.
func (at *place) mayGo(now time.Time, greedy bool) bool {
	if at.class == ratelimit.Proven {
		return !at.active && at.busy == 0
	}
	// A call that comes whole needs less than a second from its connection's last step on.
	return at.busy == 0 && (greedy || now.Sub(at.since) >= time.Second)
}

// goesBefore reports whether a goes before b. The caller holds mu.
func (p *Places) goesBefore(a, b *place) bool {
	if proven := a.class == ratelimit.Proven; proven != (b.class == ratelimit.Proven) {
		return !proven
	}
	if n, m := p.by[a.holder], p.by[b.holder]; n != m {
		return n > m
	}
	return a.since.Before(b.since)
}

// forgetConn forgets a connection, which may be nil. The caller holds mu.
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

// closeNow closes a connection without a word: a goodbye of TLS would wait for its reader.
func closeNow(c net.Conn) {
	if t, ok := c.(*tls.Conn); ok {
		c = t.NetConn()
	}
	_ = c.Close()
}

// Counted returns the number of open connections, and of those that were closed at once or for
// others since the start.
func (p *Places) Counted() (open int, refused uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.all), p.refused
}

type placeKey struct{}

// placed is a connection for the contexts of its requests.
type placed struct {
	places *Places
	conn   net.Conn
}

// Context is for [http.Server.ConnContext].
func (p *Places) Context(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, placeKey{}, &placed{p, c})
}

// withPlace does something to the place of a request's connection, if it has one.
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

// Prove counts the connection of a request for somebody who has shown who he is. name is any
// text that stands for him.
func Prove(ctx context.Context, name string) {
	withPlace(ctx, func(p *Places, at *place) {
		p.count(at, -1)
		at.holder, at.class = holder{name: name}, ratelimit.Proven
		p.count(at, 1)
	})
}

// Working notes that a request has arrived whole: until done is called its connection
// does not go for others.
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
