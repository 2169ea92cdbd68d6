package restapi

import (
	"context"
	"encoding/hex"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"saltern/internal/ratelimit"
	"saltern/master/client"
	"saltern/master/internal/eauth"
	"saltern/master/internal/username"
	"saltern/master/value"
)

// A session is a token of the master. So it is valid at every master of a cluster and after a
// restart of this program, and nothing could be fixed before a log-in. Salt keeps a table in memory
// instead.

const (
	sessionCookie = "session_id" // of the API; the console has its own

	maxKnown   = 65536 // tokens that are remembered. Overflow policy: any one is forgotten
	trustFor   = 5 * time.Second
	maxSources = 65536 // Overflow policy: all further sources share one budget
)

// wrongRate is how often a source may be wrong. A guess under way is not wrong yet.
func wrongRate() ratelimit.Rate { return ratelimit.Rate{Burst: 20, PerSecond: 0.5} }

// session is a token that the master knew.
type session struct {
	expires, asked time.Time
	owner          owner
}

// owner is the user a token belongs to.
type owner struct {
	name, system string
	groups       []string
	permissions  []any // nil: those of external_auth
	// rights are words of [conf.Master.Rights]. It may be nil: a master of Salt's does not send
	// them.
	rights []string
}

func (o owner) holder() holder { return holder{system: o.system, name: username.Fold(o.name)} }

func ownerOf(token *value.Map) owner {
	who := owner{
		name:        token.Str("name"),
		system:      token.Str("eauth"),
		groups:      token.Texts("groups"),
		permissions: token.List("auth_list"),
	}
	if _, said := token.Get(eauth.RightsField); said {
		who.rights = append([]string{}, token.Texts(eauth.RightsField)...)
	}
	return who
}

// guard knows the proven tokens, who has proved something from where, and which sources were wrong.
// Its methods may be called concurrently.
type guard struct {
	sources ratelimit.Lately[netip.Addr] // addresses from which somebody proved something
	people  ratelimit.Lately[holder]     // users who proved something, each at an address

	mu            sync.Mutex
	known         map[string]session
	wrongBySource map[netip.Addr]*ratelimit.Bucket
	sharedBucket  ratelimit.Bucket // shared by the sources beyond maxSources
}

func newGuard() *guard {
	return &guard{known: map[string]session{}, wrongBySource: map[netip.Addr]*ratelimit.Bucket{}}
}

func (g *guard) bucket(a netip.Addr, now time.Time) *ratelimit.Bucket {
	b := g.wrongBySource[a]
	if b != nil {
		return b
	}

	if len(g.wrongBySource) >= maxSources {
		for k, v := range g.wrongBySource {
			if v.Used(now, wrongRate()) < 1 {
				delete(g.wrongBySource, k)
			}
		}

		if len(g.wrongBySource) >= maxSources {
			return &g.sharedBucket
		}
	}

	b = &ratelimit.Bucket{}
	g.wrongBySource[a] = b
	return b
}

// exhausted reports whether a source has been wrong as often as it may.
func (g *guard) exhausted(a netip.Addr, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.bucket(a, now).Has(now, wrongRate(), 1)
}

// noteWrong counts a wrong guess of a source.
func (g *guard) noteWrong(a netip.Addr, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bucket(a, now).Charge(now, wrongRate(), 1)
}

// reserve charges a guess of an exhausted source in advance, and returns after which time it may be
// made. forgive takes the charge back. When the wait would exceed most, nothing is charged.
func (g *guard) reserve(a netip.Addr, most time.Duration, now time.Time) (wait time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, rate := g.bucket(a, now), wrongRate()
	missing := max(0, b.Used(now, rate)+1-rate.Burst)
	wait = time.Duration(missing / rate.PerSecond * float64(time.Second))
	if wait > most {
		return wait, false
	}
	b.Charge(now, rate, 1)
	return wait, true
}

// forgive takes back the charge of a guess.
func (g *guard) forgive(a netip.Addr, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bucket(a, now).Charge(now, wrongRate(), -1)
}

// lookUp returns whether a token was valid, and whether it was checked a moment ago.
func (g *guard) lookUp(token string, now time.Time) (good, fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.known[token]
	return ok && now.Before(s.expires), ok && now.Sub(s.asked) < trustFor
}

// ownerOf returns the owner of a token that the master knew. It may have been revoked since.
func (g *guard) ownerOf(token string, now time.Time) (owner, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.known[token]
	return s.owner, ok && now.Before(s.expires)
}

func (g *guard) learnToken(token string, who owner, expires, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.known[token]; !ok && len(g.known) >= maxKnown {
		for k := range g.known {
			delete(g.known, k)
			break
		}
	}
	g.known[token] = session{expires, now, who}
}

// sessionOf returns the session of a token, or the zero session when it was forgotten meanwhile.
func (g *guard) sessionOf(token string) session {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.known[token]
}

func (g *guard) forget(token string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.known, token)
}

// isToken reports whether text has the form of a token. The master is asked about nothing else.
func isToken(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) >= 16 && len(b) <= 64
}

// shownToken returns the token that a request shows: the header counts before the cookie.
func shownToken(r *http.Request) string {
	if t := r.Header.Get("X-Auth-Token"); t != "" {
		return t
	}
	if c, err := r.Cookie(sessionCookie); err == nil {
		return c.Value
	}
	return ""
}

// proveToken returns nil when a token is valid; the request then counts for its owner. The master
// is asked about a token that was not checked lately.
func (s *Server) proveToken(ctx context.Context, token string, q *request) error {
	denied := &failure{code: http.StatusUnauthorized}
	if !isToken(token) {
		return denied
	}

	now := s.now()
	good, fresh := s.guard.lookUp(token, now)
	if good && fresh {
		s.countForOwner(q, s.guard.sessionOf(token).owner)
		return nil
	}
	if !good && s.guard.exhausted(q.from, now) && !s.isKept(token, now) {
		return s.tooMany(q.from)
	}

	m, err := s.askFor(ctx, token, q)
	if err != nil {
		return err
	}

	now = s.now()
	expires, ok := timeOf(m.Value("expire"))
	if !ok || !now.Before(expires) {
		s.guard.forget(token)
		s.guard.noteWrong(q.from, now)
		s.count.wrong.Add(1)
		s.loginRefused(ctx, "UNKNOWN", "no such token")
		return denied
	}

	who := ownerOf(m)
	s.guard.learnToken(token, who, expires, now)
	s.countForOwner(q, who)
	return nil
}

// askFor asks the master about a token. The answer is empty for one that it does not know.
func (s *Server) askFor(ctx context.Context, token string, q *request) (*value.Map, error) {
	short, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	turn, err := s.pools.proofs.Wait(short, q.holder, q.class, 1)
	if err != nil {
		return nil, s.fullAnswer(ctx, err, "Too many tokens are looked at. Try again in a few seconds.")
	}
	defer turn.Release()

	c := s.clientFor(call{})
	defer c.Close()
	v, err := c.Ask(ctx, value.NewMap("cmd", "get_token", "token", token))
	m, _ := v.(*value.Map)
	return m, err
}

// isKept reports whether there is a file for a token. Its owner must not be refused for the wrong
// guesses of others at his address. It is quick, so it may be called for many guesses.
func (s *Server) isKept(token string, now time.Time) bool {
	tokens, err := eauth.OpenTokens(s.master.TokenDir, "")
	if err != nil {
		return false
	}
	_, err = tokens.Get(token, now)
	return err == nil
}

// tooMany refuses a source that has been wrong too often and is wrong again.
func (s *Server) tooMany(from netip.Addr) error {
	s.count.limited.Add(1)
	s.quiet.Warn("too many wrong log-ins of an address; it is refused for a while", "peer", from)
	return &failure{http.StatusTooManyRequests, "Too many log-ins of this address were wrong. Try again later."}
}

func timeOf(v any) (time.Time, bool) {
	switch v := v.(type) {
	case float64:
		return time.UnixMicro(int64(v * 1e6)), true
	case int64:
		return time.Unix(v, 0), true
	}
	return time.Time{}, false
}

// clientFor returns a client of the master that brings no key of its own. The key of the account,
// which this program can read as tools of the master do, vouches for the address of the client.
// Without it the master locks nobody out for wrong passwords here.
func (s *Server) clientFor(in call) *client.Client {
	m := s.master
	key, err := client.ReadKey(m.CacheDir, s.user, m.User)
	if err != nil {
		s.quiet.Warn("the key of this account cannot be read: the master locks nobody out for wrong passwords here",
			"error", err)
	}

	return client.New(client.Config{
		Interface:    m.Interface,
		RetPort:      m.RetPort,
		SockDir:      m.SockDir,
		CacheDir:     m.CacheDir,
		MasterUser:   m.User,
		Timeout:      m.Timeout,
		Gather:       m.GatherJobTimeout,
		Publish:      m.PublishTimeout,
		HashType:     m.HashType,
		ExtCache:     m.ExtJobCache,
		Nodegroups:   m.Nodegroups,
		ConfFile:     m.Path,
		LowerMasters: m.OrderMasters,
		SyndicWait:   m.SyndicWait,
		User:         s.user,
		NoKey:        true,
		SourceKey:    key,
		Shared:       s.shared,
		Answered:     in.answered,
		OldFiles:     in.oldFiles,
		Log:          s.quiet,
		Now:          s.now,
	})
}
