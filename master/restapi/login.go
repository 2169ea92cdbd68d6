package restapi

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"saltern/master/internal/acl"
	"saltern/master/internal/username"
	"saltern/master/value"
)

func askLogin(_ *Server, _ context.Context, q *request) (any, error) {
	q.w.Header().Set("WWW-Authenticate", "Session")
	return value.NewMap("status", nil, "return", "Please log in"), nil
}

// login gets a token from the master for a name and a password.
func login(s *Server, ctx context.Context, q *request) (any, error) {
	if !s.masterIsUp() {
		return nil, &failure{http.StatusServiceUnavailable, "Salt Master is not available."}
	}
	low := q.low()
	if l, ok := low.([]any); ok && len(l) > 0 {
		low = l[0]
	}
	creds, ok := low.(*value.Map)
	if m, isMap := q.data.(*value.Map); isMap {
		creds, ok = m, true
	}
	if !ok {
		return nil, errors.New("the body holds no username, password and eauth")
	}
	if !s.mayLogIn(creds.Value("username"), host(q.http)) {
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

// logIn gets a token for somebody who may log in, and notes it.
func (s *Server) logIn(ctx context.Context, q *request, creds *value.Map) (token *value.Map, expires time.Time, err error) {
	if token, err = s.mint(ctx, q, creds); err != nil {
		return nil, expires, err
	}
	expires, ok := when(token.Value("expire"))
	if t := token.Str("token"); !ok || t == "" {
		s.count.wrong.Add(1)
		return nil, expires, &failure{http.StatusUnauthorized, "Could not authenticate using provided credentials"}
	}
	now := s.now()
	s.guard.right(q.from, now)
	s.guard.learn(token.Str("token"), ownerOf(token), expires, now)
	return token, expires, nil
}

// mint asks the master for a token; the answer is empty when it gives none.
func (s *Server) mint(ctx context.Context, q *request, creds *value.Map) (*value.Map, error) {
	leave, err := s.enterLogin(q.from)
	if err != nil {
		return nil, err
	}
	defer leave()
	load := creds.Clone()
	for _, k := range []string{"key", "user", "token"} {
		load.Delete(k)
	}
	load.Set("cmd", "mk_token")
	c := s.client()
	defer c.Close()
	v, err := c.Ask(ctx, load)
	if err != nil {
		return nil, err
	}
	m, _ := v.(*value.Map)
	return m, nil
}

// enterLogin takes one of the log-ins that may be under way, and counts it as wrong until
// it proves right.
func (s *Server) enterLogin(from netip.Addr) (leave func(), err error) {
	if !s.guard.mayTry(from, s.now()) {
		return nil, s.tooMany(from)
	}
	select {
	case s.logins <- struct{}{}:
		return func() { <-s.logins }, nil
	default:
		s.count.busy.Add(1)
		return nil, &failure{code: http.StatusServiceUnavailable}
	}
}

// cookie is the session's: scripts cannot read it, other sites cannot send it, and
// with TLS nobody sends it in the clear.
func (s *Server) cookie(token string, age int, expires time.Time) *http.Cookie {
	return &http.Cookie{Name: sessionCookie, Value: token, Path: "/", MaxAge: age, Expires: expires, HttpOnly: true,
		SameSite: http.SameSiteLaxMode, Secure: s.opts.Cert != ""}
}

// mayLogIn reports whether api_acl lets a user log in from an address
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

// entriesOf are the entries of a user in api_acl: by his name, by other spellings of it,
// which a directory takes for the same user, or for everybody else.
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

// permissions are what external_auth grants the owner of a token, sorted and once each, or
// what the token holds of the systems that say it themselves (salt/netapi/rest_cherrypy/app.py
// Login.POST). As Salt's sum_permissions does they hold those of "*" also for a user with an
// entry of his own, for whom the master does not go by them.
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
	sort.SliceStable(others, func(i, j int) bool { return strings.Compare(value.Repr(others[i]), value.Repr(others[j])) < 0 })
	return slices.Concat(value.List(texts), others)
}
