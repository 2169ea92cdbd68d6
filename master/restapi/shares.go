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

// Unauthenticated senders (strangers in the code) take no resources away from authenticated users.
// Each resource that requests share is a pool with a part that these senders cannot use, and no
// holder gets so much of a pool that others get nothing. The holder of a request's share is its
// address, until a token or a password in the request is authenticated. After that the holder is
// the user, whatever the user's address.

const (
	maxConns = 1024
	// Open sockets, including those whose load balancer has not named the client yet and those
	// about to be closed.
	maxSockets   = maxConns + 256
	maxRequests  = 1024 // requests at once; readers of events are counted separately
	maxReaders   = 512  // readers of events
	maxFormatted = 8    // readers of formatted events
	maxLogins    = 32   // passwords and ID tokens that the master checks at once
	maxProofs    = 32   // tokens about which the master is asked at once
	// log-ins and tokens that wait for a check; at most as many as requests
	maxInLine = maxRequests
	queueTime = 30 * time.Second // longest wait for a worker or for the check of a password
)

// holder is the owner of a share: an address, an authenticated user, or, during a log-in, a user at
// an address.
type holder struct {
	system, name string
	from         netip.Addr
}

type (
	pool  = ratelimit.Pool[holder]
	share = ratelimit.Share[holder]
)

// pools are the resources that requests share.
type pools struct {
	requests *pool // requests under way
	memory   *pool // bytes of bodies and of their decoded forms
	workers  *pool // workers for commands
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

// userGreed bounds the workers of one user: at most userGreed times the number of free workers. So
// a single user gets three quarters of all workers.
const userGreed = 3

// usualMemory is how many bytes of memory all bodies may take together unless the memory is
// limited.
const usualMemory = 96 << 20

// memoryFor returns how many bytes of memory bodies may take: at most a third of limit, the
// runtime's memory limit. body is the size of the largest body.
func memoryFor(limit, body int64) int64 { return min(limit/3, max(usualMemory, 8*body)) }

// FitMemory adapts the memory for bodies to the limit of the runtime's memory.
func (s *Server) FitMemory() {
	s.pools.memory.Resize(ratelimit.Shared(memoryFor(debug.SetMemoryLimit(-1), s.opts.MaxBody)))
}

// recognize classifies the sender of a request by its token if that was verified recently,
// otherwise by its address. It does not verify the token.
func (s *Server) recognize(q *request) {
	now := s.now()
	q.class, q.holder = ratelimit.Stranger, holder{from: q.from}
	for _, token := range s.allShown(q.http) {
		if user, ok := s.guard.ownerOf(token, now); ok {
			q.class, q.holder = ratelimit.Proven, user.holder()
			return
		}
	}
	if s.guard.sources.Has(q.from, now) {
		q.class = ratelimit.Familiar
	}
}

// allShown returns all tokens in a request: those in the header, in cookies and in the path.
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

// countForOwner counts a request and all its shares for an authenticated user.
func (s *Server) countForOwner(q *request, user owner) {
	q.class, q.holder = ratelimit.Proven, user.holder()
	for _, share := range q.shares {
		share.Move(q.holder, q.class)
	}
	httpserver.Prove(q.http.Context(), q.holder.system+" "+q.holder.name)
	s.guard.sources.Note(q.from, s.now())
}

// keepShare records that a request holds a share until it is answered.
func (q *request) keepShare(s *share) { q.shares = append(q.shares, s) }

// noteWorking records that a request has arrived completely.
func (q *request) noteWorking() {
	if q.worked == nil {
		q.worked = httpserver.Working(q.http.Context())
	}
}

// releaseAll releases the shares of a request.
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

// forkForCommand returns a request for a command that salt-api runs on behalf of a reader of
// events. The caller must call releaseAll for the returned request.
func (q *request) forkForCommand() *request {
	return &request{
		http:   q.http,
		w:      q.w,
		from:   q.from,
		class:  q.class,
		holder: q.holder,
	}
}

// takeWorker waits for a worker, which the request holds until it is answered.
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

// fullAnswer returns the answer to a request that has waited for a share without success. err is
// the error of that wait.
func (s *Server) fullAnswer(ctx context.Context, err error, text string) error {
	if ctx.Err() != nil && !errors.Is(err, ratelimit.ErrFull) {
		return ctx.Err() // the client has disconnected
	}
	s.count.busy.Add(1)
	return &failure{http.StatusServiceUnavailable, text}
}

// newPlaces returns the connection slots. A load balancer of the cluster, which checks whether
// salt-api serves, never has the class of unauthenticated senders; nor has this host, where a proxy
// may run.
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
