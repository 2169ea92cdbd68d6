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
// restart of salt-api, and an attacker cannot prepare a session before its user logs in (session
// fixation). Salt has a table of sessions in memory.

const (
	sessionCookie = "session_id" // cookie of the API; the console has another cookie

	maxKnown = 65536           // most tokens that are stored. Overflow policy: an arbitrary token is dropped
	trustFor = 5 * time.Second // how long salt-api trusts a token before it asks the master again
	// addresses with a budget for wrong guesses. Overflow policy: further addresses share one budget
	maxSources = 65536
)

// wrongRate returns the rate limit of wrong passwords of one address. A guess without an outcome is
// not a wrong password.
func wrongRate() ratelimit.Rate { return ratelimit.Rate{Burst: 20, PerSecond: 0.5} }

// session holds the master's answer about a token: the time at which the token expires, and its
// owner. It also holds the time at which salt-api asked the master.
type session struct {
	expires, asked time.Time
	owner          owner
}

// owner is the user to whom a token belongs.
type owner struct {
	name, system string
	groups       []string
	permissions  []any // permissions in the token; nil: external_auth decides
	// rights holds the result of [conf.Master.Rights] for the token's owner. It is nil when a Salt
	// master answered, which sends no rights.
	rights []string
}

func (o owner) holder() holder { return holder{system: o.system, name: username.Fold(o.name)} }

func ownerOf(token *value.Map) owner {
	user := owner{
		name:        token.Str("name"),
		system:      token.Str("eauth"),
		groups:      token.Texts("groups"),
		permissions: token.List("auth_list"),
	}
	if _, said := token.Get(eauth.RightsField); said {
		user.rights = append([]string{}, token.Texts(eauth.RightsField)...)
	}
	return user
}

// guard records which tokens are valid, who has logged in from which address, and which addresses
// sent wrong passwords. Its methods may be called concurrently.
type guard struct {
	sources ratelimit.Lately[netip.Addr] // addresses from which a user has logged in
	people  ratelimit.Lately[holder]     // users who have logged in, each with his address

	mu            sync.Mutex
	known         map[string]session
	wrongBySource map[netip.Addr]*ratelimit.Bucket
	sharedBucket  ratelimit.Bucket // budget of all addresses beyond maxSources
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

// exhausted reports whether an address has used up its wrong passwords.
func (g *guard) exhausted(a netip.Addr, now time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !g.bucket(a, now).Has(now, wrongRate(), 1)
}

// noteWrong counts a wrong password of an address.
func (g *guard) noteWrong(a netip.Addr, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bucket(a, now).Charge(now, wrongRate(), 1)
}

// reserve charges the next guess to an address that has used up its wrong passwords, and returns
// how long the address must wait. forgive takes the charge back. If the wait would exceed limit,
// reserve charges nothing and returns false.
func (g *guard) reserve(a netip.Addr, limit time.Duration, now time.Time) (wait time.Duration, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	b, rate := g.bucket(a, now), wrongRate()
	missing := max(0, b.Used(now, rate)+1-rate.Burst)
	wait = time.Duration(missing / rate.PerSecond * float64(time.Second))
	if wait > limit {
		return wait, false
	}
	b.Charge(now, rate, 1)
	return wait, true
}

// forgive takes back the charge of reserve.
func (g *guard) forgive(a netip.Addr, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.bucket(a, now).Charge(now, wrongRate(), -1)
}

// lookUp looks up the master's last answer about a token. valid reports whether the token was valid
// then and has not expired since. fresh reports whether that answer is recent.
func (g *guard) lookUp(token string, now time.Time) (valid, fresh bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.known[token]
	return ok && now.Before(s.expires), ok && now.Sub(s.asked) < trustFor
}

// ownerOf returns the owner of a token that the master has confirmed, or false if there is no such
// answer of the master. The token may have been revoked after that answer.
func (g *guard) ownerOf(token string, now time.Time) (owner, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s, ok := g.known[token]
	return s.owner, ok && now.Before(s.expires)
}

func (g *guard) learnToken(token string, user owner, expires, now time.Time) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if _, ok := g.known[token]; !ok && len(g.known) >= maxKnown {
		for k := range g.known {
			delete(g.known, k)
			break
		}
	}
	g.known[token] = session{expires, now, user}
}

// sessionOf returns the session of a token, or the zero session if the guard has not stored the
// token.
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

// isToken reports whether text has the form of a token. salt-api asks the master only about such
// texts.
func isToken(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) >= 16 && len(b) <= 64
}

// shownToken returns the token in a request's header. Without such a header it returns the token in
// the request's cookie, or "".
func shownToken(r *http.Request) string {
	if t := r.Header.Get("X-Auth-Token"); t != "" {
		return t
	}
	if c, err := r.Cookie(sessionCookie); err == nil {
		return c.Value
	}
	return ""
}

// proveToken returns nil if a token is valid, and attributes the request to the token's owner. It
// asks the master unless the token was checked within the last trustFor.
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

	user := ownerOf(m)
	s.guard.learnToken(token, user, expires, now)
	s.countForOwner(q, user)
	return nil
}

// askFor asks the master about a token. It returns an empty map if the master does not know the
// token.
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

// isKept reports whether the folder of tokens contains a file for the token. The owner of such a
// token must not be refused because other users of the same address sent wrong passwords. The check
// is fast enough for a flood of guesses.
func (s *Server) isKept(token string, now time.Time) bool {
	tokens, err := eauth.OpenTokens(s.master.TokenDir, "")
	if err != nil {
		return false
	}
	_, err = tokens.Get(token, now)
	return err == nil
}

// tooMany returns the refusal for a wrong password from an address that has used up its wrong
// passwords.
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

// clientFor returns a client of the master without rights. The client sends the key of this
// program's account only to vouch for the address of salt-api's client: without that proof the
// master does not count wrong passwords against an address.
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
		Page:         in.page,
		Answered:     in.answered,
		OldFiles:     in.oldFiles,
		Log:          s.quiet,
		Now:          s.now,
	})
}
