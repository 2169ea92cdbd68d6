package restapi

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"saltern/internal/pause"
	"saltern/internal/ratelimit"
	"saltern/master/client"
	"saltern/master/internal/acl"
	"saltern/master/internal/username"
	"saltern/master/value"
)

func askLogin(_ *Server, _ context.Context, q *request) (any, error) {
	q.w.Header().Set("WWW-Authenticate", "Session")
	return value.NewMap("status", nil, "return", "Please log in"), nil
}

// handleLogin gets a token from the master for the name and password in a request, and sends the
// token as the answer.
func handleLogin(s *Server, ctx context.Context, q *request) (any, error) {
	if !s.masterIsUp(ctx) {
		return nil, &failure{http.StatusServiceUnavailable, "Salt Master is not available."}
	}

	low := q.lowData()
	if l, ok := low.([]any); ok && len(l) > 0 {
		low = l[0]
	}

	creds, ok := low.(*value.Map)
	if m, isMap := q.data.(*value.Map); isMap {
		creds, ok = m, true
	}

	if !ok {
		return nil, &failure{http.StatusBadRequest, "The body holds no username, password and eauth."}
	}
	if !s.mayLogIn(creds.Value("username"), clientHost(q.http)) {
		s.loginRefused(ctx, value.StrMax(creds.Value("username"), 256), "api_acl")
		return nil, &failure{code: http.StatusUnauthorized}
	}

	token, expires, err := s.logIn(ctx, q, creds)
	if err != nil {
		return nil, err
	}

	now := s.now()
	q.w.Header().Set("X-Auth-Token", token.Str("token"))
	q.w.Header().Set("Cache-Control", "no-store")
	http.SetCookie(q.w, s.cookie(token.Str("token"), int(expires.Sub(now)/time.Second), expires))

	return result([]any{value.NewMap("token", token.Str("token"), "expire", token.Value("expire"), "start", token.Value("start"),
		"user", token.Value("name"), "eauth", token.Value("eauth"), "perms", s.permissions(token))}), nil
}

// logIn gets a token for a user whom api_acl admits, and records the token as valid.
func (s *Server) logIn(
	ctx context.Context,
	q *request,
	creds *value.Map,
) (token *value.Map, expires time.Time, err error) {
	g, err := s.startGuess(ctx, q, creds.Str("eauth"), creds.Str("username"))
	if err != nil {
		return nil, expires, err
	}

	token, err = s.requestToken(ctx, creds)
	g.releaseTurn()
	if err != nil {
		g.noteUnseen()
		return nil, expires, err
	}

	expires, ok := timeOf(token.Value("expire"))
	if t := token.Str("token"); !ok || t == "" {
		if g.noteWrong() {
			return nil, expires, s.tooMany(q.from)
		}
		return nil, expires, &failure{http.StatusUnauthorized, "Could not authenticate using provided credentials"}
	}

	g.noteRight()
	user := ownerOf(token)
	s.guard.learnToken(token.Str("token"), user, expires, s.now())
	s.countForOwner(q, user)

	return token, expires, nil
}

// requestToken asks the master for a token. If the master refuses, requestToken returns an empty
// map.
func (s *Server) requestToken(ctx context.Context, creds *value.Map) (*value.Map, error) {
	load := creds.Clone()
	for _, k := range []string{"key", "user", "token"} {
		load.Delete(k)
	}
	load.Set("cmd", "mk_token")
	c := s.clientFor(call{})
	defer c.Close()
	v, err := c.Ask(ctx, load)
	if err != nil {
		return nil, err
	}
	m, _ := v.(*value.Map)
	return m, client.ErrorIn(m)
}

// guess is one check of a password, or of another secret that serves as a password. The code that
// starts a guess must call noteRight, noteWrong or noteUnseen when the outcome is known. Only a
// wrong password counts against the address. An address with too many wrong passwords must wait
// before its next guess, except for a user who has logged in from that address before.
type guess struct {
	s       *Server
	from    netip.Addr
	who     holder // the user who logs in, at his address
	counted bool   // the guess is charged as wrong in advance
	turn    *share
}

// startGuess waits until this user at this address may have a password checked by the master.
func (s *Server) startGuess(ctx context.Context, q *request, system, user string) (*guess, error) {
	g := &guess{s: s, from: q.from, who: holder{system: system, name: username.Fold(user), from: q.from}}
	now := s.now()
	class := q.class
	by := q.holder
	switch {
	case user != "" && s.guard.people.Has(g.who, now):
		class, by = ratelimit.Proven, g.who
	case s.guard.exhausted(q.from, now):
		if err := g.waitPace(ctx); err != nil {
			return nil, err
		}
	}

	short, cancel := context.WithTimeout(ctx, queueTime)
	defer cancel()
	turn, err := s.pools.logins.Wait(short, by, class, 1)
	if err != nil {
		g.noteUnseen()
		return nil, s.fullAnswer(ctx, err, "Too many log-ins are under way. Try again in a few seconds.")
	}

	g.turn = turn
	return g, nil
}

// waitPace delays a log-in from an address that has sent too many wrong passwords, until the
// address's rate limit permits the log-in.
func (g *guess) waitPace(ctx context.Context) error {
	wait, ok := g.s.guard.reserve(g.from, queueTime, g.s.now())
	if !ok {
		g.s.count.limited.Add(1)
		return &failure{http.StatusServiceUnavailable,
			"Many log-ins of this address were wrong, and others wait for their turn before this one. Nobody has looked at the password. Try again later."}
	}
	g.counted = true
	if err := pause.For(ctx, wait); err != nil {
		g.noteUnseen()
		return err
	}
	return nil
}

// releaseTurn frees the slot of this check for the next password. A second call does nothing.
func (g *guess) releaseTurn() { g.turn.Release() }

func (g *guess) noteRight() {
	g.noteUnseen()
	if g.who.name != "" {
		g.s.guard.people.Note(g.who, g.s.now())
	}
}

// noteUnseen ends a guess without an outcome: the master has not checked the password.
func (g *guess) noteUnseen() {
	g.releaseTurn()
	if g.counted {
		g.counted = false
		g.s.guard.forgive(g.from, g.s.now())
	}
}

// noteWrong counts a wrong password, and reports whether the address has now sent too many.
func (g *guess) noteWrong() (tooMany bool) {
	g.releaseTurn()
	g.s.count.wrong.Add(1)
	now := g.s.now()
	if g.counted {
		g.counted = false // so that noteUnseen does not refund the charge
		return true
	}
	tooMany = g.s.guard.exhausted(g.from, now)
	g.s.guard.noteWrong(g.from, now)
	return tooMany
}

// cookie returns the cookie of a session. Scripts cannot read it, requests of other sites do not
// contain it, and with TLS browsers never send it unencrypted.
func (s *Server) cookie(token string, age int, expires time.Time) *http.Cookie {
	return &http.Cookie{
		Name:     sessionCookie,
		Value:    token,
		Path:     "/",
		MaxAge:   age,
		Expires:  expires,
		HttpOnly: true,
		SameSite: http.SameSiteLaxMode,
		Secure:   s.opts.Cert != "",
	}
}

// mayLogIn reports whether api_acl permits a user to log in from an address
// (salt/netapi/rest_cherrypy/app.py salt_api_acl_tool).
func (s *Server) mayLogIn(user any, from string) bool {
	if !s.opts.HasACL {
		return true
	}

	users := s.opts.ACL.Map("users")
	name, _ := user.(string)
	may := false
	for _, ips := range entriesOf(users, name) {
		l, _ := ips.([]any)
		may = may || slices.Contains(l, any(from)) || slices.Contains(l, any("*"))
	}

	if !may {
		s.quiet.Warn("api_acl lets the user not log in from there", "user", name, "peer", from)
	}

	return may
}

// entriesOf returns the entries of api_acl for a user. It returns those under the user's name; if
// there are none, those under spellings that a directory treats as the same name; if there are none
// either, those under "*".
func entriesOf(users *value.Map, name string) (entries []any) {
	if ips, ok := users.Get(name); ok {
		return []any{ips}
	}
	for k, ips := range users.All() {
		if key, _ := k.(string); key != "*" && username.Same(key, name) {
			entries = append(entries, ips)
		}
	}
	if ips, ok := users.Get("*"); ok && len(entries) == 0 {
		entries = append(entries, ips)
	}
	return entries
}

// permissions returns the permissions that external_auth grants the owner of a token, sorted and
// without repetition. If the authentication system itself has decided the permissions, it returns
// those in the token (salt/netapi/rest_cherrypy/app.py Login.POST). Like Salt's sum_permissions, it
// includes the permissions under "*" even for a user who has a separate entry, although the master
// does not grant them.
func (s *Server) permissions(token *value.Map) any {
	if kept, ok := token.Get("auth_list"); ok && slices.Contains([]string{"rest", "django"}, token.Str("eauth")) {
		return kept
	}

	section := s.master.ExternalAuth.Map(token.Str("eauth"))
	all := slices.Concat(acl.Named(section, token.Str("name")), section.List("*"))
	for _, g := range token.Texts("groups") {
		all = append(all, section.List(g+"%")...)
	}

	var texts []string
	var others []any
	for _, p := range all {
		switch t, ok := p.(string); {
		case ok && !slices.Contains(texts, t):
			texts = append(texts, t)
		case !ok && !slices.ContainsFunc(others, func(o any) bool { return value.Equal(o, p) }):
			others = append(others, p)
		}
	}

	if len(texts)+len(others) == 0 {
		return value.NewMap()
	}

	slices.Sort(texts)
	sort.SliceStable(others,
		func(i, j int) bool { return strings.Compare(value.Repr(others[i]), value.Repr(others[j])) < 0 })
	return slices.Concat(value.List(texts), others)
}
