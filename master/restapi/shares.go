package restapi

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"
	"time"

	"saltern/internal/httpserver"
	"saltern/internal/ratelimit"
)

// Who has proved nothing takes nothing from who has: whatever requests share is a pool with a
// part that strangers leave alone, and within it nobody gets more than is left for others.
// A request counts for its address until a token or a password in it is proven, then for
// the user, wherever he asks from.

const (
	maxConns     = 1024
	maxSockets   = maxConns + 256 // those included that have not said whose they are, or are about to be closed
	maxRequests  = 1024           // under way; readers of events are counted apart
	maxReaders   = 512            // of events
	maxFormatted = 8              // of formatted events
	maxLogins    = 32             // passwords and ID tokens that are looked at
	maxProofs    = 32             // tokens that the master is asked for
	maxInLine    = maxRequests    // log-ins, and tokens, that wait for that: they are few already
	queueTime    = 30 * time.Second
	proofTime    = 10 * time.Second // to wait until a token may be asked for
	memoryTime   = 10 * time.Second // to wait for memory
)

// holder is who has a share of something: an address, somebody who has proved who he is,
// or, of log-ins, somebody at an address.
type holder struct {
	system, name string
	from         netip.Addr
}

type (
	pool  = ratelimit.Pool[holder]
	share = ratelimit.Share[holder]
)

// pools are what requests share.
type pools struct {
	requests *pool // under way
	memory   *pool // bytes of bodies, and what they decode to
	workers  *pool // commands at work
	logins   *pool
	proofs   *pool
	readers  *pool
	formats  *pool
}

func newPools(o Options) pools {
	places := func(n int64, line ratelimit.Bounds) *pool {
		return ratelimit.NewPool[holder](ratelimit.Shared(n), line)
	}
	line := ratelimit.Shared(maxInLine)
	workers := ratelimit.Shared(int64(o.Workers))
	waiting := ratelimit.Shared(int64(o.Queue))
	workers.Greed, waiting.Greed = userGreed, userGreed

	return pools{
		requests: places(maxRequests, ratelimit.Bounds{}),
		memory:   places(memoryFor(debug.SetMemoryLimit(-1), o.MaxBody), line),
		workers:  ratelimit.NewPool[holder](workers, waiting),
		logins:   places(maxLogins, line),
		proofs:   places(maxProofs, line),
		readers:  places(maxReaders, ratelimit.Bounds{}),
		formats:  places(maxFormatted, ratelimit.Bounds{}),
	}
}

// userGreed is how many times as many workers as are left one user may have: three fourths
// of them, if he is alone.
const userGreed = 3

// usualMemory is what bodies may take together where nobody limits the memory.
const usualMemory = 96 << 20

// memoryFor is the memory of bodies, given the limit of the runtime's memory and the largest
// body: a third of the limit at most.
func memoryFor(limit, body int64) int64 { return min(limit/3, max(usualMemory, 8*body)) }

// FitMemory adapts the memory of bodies to the limit of the runtime's memory.
func (s *Server) FitMemory() {
	s.pools.memory.Resize(ratelimit.Shared(memoryFor(debug.SetMemoryLimit(-1), s.opts.MaxBody)))
}

// recognize finds out what is known of who sends a request, by the token that it shows
// or by its address. The token is not proven by that: it was a moment ago.
func (s *Server) recognize(q *request) {
	now := s.now()
	q.class, q.holder = ratelimit.Stranger, holder{from: q.from}
	for _, token := range s.allShown(q.http) {
		if who, ok := s.guard.ownerOf(token, now); ok {
			q.class, q.holder = ratelimit.Proven, who.holder()
			return
		}
	}
	if s.guard.sources.Has(q.from, now) {
		q.class = ratelimit.Familiar
	}
}

// allShown are the tokens that a request shows, wherever one may be.
func (s *Server) allShown(r *http.Request) []string {
	all := []string{shownToken(r)}
	if s.console != nil {
		all = append(all, s.console.Token(r))
	}
	if _, token, ok := strings.Cut(r.URL.Path, "/ws/"); ok {
		all = append(all, token)
	}
	return all
}

// countForOwner notes that a request is that of somebody, and all that it has counts for him
// from now on.
func (s *Server) countForOwner(q *request, who owner) {
	q.class, q.holder = ratelimit.Proven, who.holder()
	for _, share := range q.shares {
		share.Move(q.holder, q.class)
	}
	httpserver.Prove(q.http.Context(), q.holder.system+" "+q.holder.name)
	s.guard.sources.Note(q.from, s.now())
}

// keepShare has a request hold a share until it is answered.
func (q *request) keepShare(s *share) { q.shares = append(q.shares, s) }

// noteWorking notes that a request has arrived whole.
func (q *request) noteWorking() {
	if q.worked == nil {
		q.worked = httpserver.Working(q.http.Context())
	}
}

// releaseAll gives back what a request has.
func (q *request) releaseAll() {
	for _, share := range q.shares {
		share.Release()
	}
	q.shares = nil
	q.memory = nil
	q.hasWorker = false
	if q.worked != nil {
		q.worked()
		q.worked = nil
	}
}

// forkForCommand is a request of its own for a command that somebody's stream of events leads to. It
// must leave.
func (q *request) forkForCommand() *request {
	return &request{
		http:   q.http,
		w:      q.w,
		from:   q.from,
		class:  q.class,
		holder: q.holder,
	}
}

// takeWorker waits for a worker, which the request has until it is answered.
func (s *Server) takeWorker(ctx context.Context, q *request) error {
	if q.hasWorker {
		return nil
	}
	short, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	worker, err := s.pools.workers.Wait(short, q.holder, q.class, 1)
	if err != nil {
		return s.fullAnswer(ctx, err,
			"All workers that your requests may have are busy. Try again later, or ask for less at once.")
	}
	q.hasWorker = true
	q.keepShare(worker)
	return nil
}

// fullAnswer is the answer where somebody waited for a share in vain. err is that of the wait.
func (s *Server) fullAnswer(ctx context.Context, err error, text string) error {
	if ctx.Err() != nil && !errors.Is(err, ratelimit.ErrFull) {
		return ctx.Err() // the client has gone
	}
	s.count.busy.Add(1)
	return &failure{http.StatusServiceUnavailable, text}
}

// places are the connections. A load balancer of the cluster, which asks whether we
// serve, is never a stranger, nor is this host, where a proxy may be.
func (s *Server) newPlaces() *httpserver.Places {
	return httpserver.NewPlaces(ratelimit.Shared(maxConns), func(source netip.Addr) ratelimit.Class {
		switch {
		case s.opts.Behind != "" && s.balancers.contains(source):
			return ratelimit.Proven
		case source.IsLoopback() || source == ratelimit.Source(netip.IPv6Loopback()) ||
			s.guard.sources.Has(source, s.now()):
			return ratelimit.Familiar
		}
		return ratelimit.Stranger
	}, s.now)
}
