package restapi

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"saltern/internal/audit"
	"saltern/internal/ratelimit"
	"saltern/master/internal/source"
	"saltern/master/restapi/internal/console"
	"saltern/master/value"
)

// request is one HTTP request and its state.
type request struct {
	http   *http.Request
	w      http.ResponseWriter
	from   netip.Addr
	args   []string // parts of the path after the endpoint's name
	token  string   // token of the session, which is proven; "" for none
	data   any      // decoded body
	raw    []byte   // bytes of the body
	whole  bool     // all bytes of the body were read
	format string   // content type that the answer gets
	code   int      // status that was sent; 0: nothing was sent yet
	sent   int      // bytes that were sent
	status int      // status to send with a result; 0: 200

	class     ratelimit.Class // class of the sender, see recognize
	holder    holder          // address or user whose shares the request uses
	shares    []*share        // shares of pools that the request holds until it is answered
	memory    *share          // the share in shares that counts the body's memory; nil: none yet
	hasWorker bool            // the request holds a worker
	page      bool            // it asks for a page of the console
	worked    func()          // ends [httpserver.Working]; nil: the request has not arrived completely
}

// lowData returns the body as low data: a list of commands. If the body is a map, the list has that
// map as its only command.
func (q *request) lowData() any {
	if m, ok := q.data.(*value.Map); ok && m.Len() > 0 {
		return []any{m}
	}
	return q.data
}

// handler answers a request and returns the result to send.
type handler func(s *Server, ctx context.Context, q *request) (v any, err error)

// endpoint describes one path.
type endpoint struct {
	get, post handler
	// auth names the requests that need a log-in: "all", "post", or "" for none. If auth is "read",
	// a GET uses the token of the request if the token is valid.
	auth  string
	parts int      // parts of the path that may follow the endpoint, -1 for any number
	names []string // fields that the query of a GET may contain
	raw   bool     // the handlers send the answer themselves, with status and headers
	stays bool     // answers are streams that last for hours
	csv   bool     // a GET answers with CSV, too
	works bool     // a POST takes a worker before its handler is called; handlers of commands take theirs later
	most  int64    // most bytes of the body that an unknown sender may send
}

func (e endpoint) allowHeader() string {
	var a []string
	if e.get != nil {
		a = append(a, "GET", "HEAD")
	}
	if e.post != nil {
		a = append(a, "POST")
	}
	return strings.Join(a, ", ")
}

// routes returns the endpoints by the first part of their path. As in Salt, a GET of /run, /token
// or /index has the same answer as a GET of /.
func routes(o Options) map[string]endpoint {
	all := map[string]endpoint{
		"index":  {get: welcome, post: commands, auth: "post"},
		"login":  {get: askLogin, post: handleLogin, most: maxStranger},
		"logout": {post: logout, auth: "all", works: true},
		"token":  {get: welcome, post: makeToken, most: maxStranger},
		"minions": {
			get:   showMinions,
			post:  startJob,
			auth:  "all",
			parts: 1,
			names: []string{"mid"},
		},
		"run": {get: welcome, post: runCommands, most: o.MaxBody},
		"jobs": {
			get:   showJobs,
			post:  commands,
			auth:  "all",
			parts: 1,
			names: []string{"jid", "timeout"},
		},
		"keys": {
			get:   showKeys,
			post:  makeKeys,
			auth:  "read",
			parts: 1,
			names: []string{"mid"},
			raw:   true,
			most:  maxStranger,
		},
		"fleet": {
			get:   showFleet,
			auth:  "all",
			parts: 1,
			names: fleetNames,
			csv:   true,
		},
		"diff": {
			get:   showDiff,
			auth:  "all",
			parts: 1,
			names: diffNames,
		},
		"events": {get: streamEvents, raw: true, stays: true},
		"ws":     {get: streamSocket, raw: true, stays: true, parts: 1},
		"stats":  {get: showStats, auth: "all"},
	}

	if o.StatsOpen {
		all["stats"] = endpoint{get: showStats}
	}

	if o.NoSessions {
		for _, name := range []string{"login", "logout", "minions", "jobs", "fleet", "diff"} {
			delete(all, name)
		}
	}

	hook := endpoint{post: fireHook, auth: "all", works: true, parts: -1}
	if o.WebhookOpen {
		hook.auth, hook.most = "", o.MaxBody
	}

	all[o.WebhookPath] = hook
	return all
}

// routeRequest passes a request to its endpoint.
func (s *Server) routeRequest(q *request) error {
	r, h := q.http, q.w.Header()
	path, ok := s.stripPrefix(r.URL.Path)
	if !ok {
		return s.noPath(r)
	}
	if s.console != nil && isBelow(path, console.Dir) {
		return s.serveConsole(q, strings.TrimPrefix(path, console.Dir))
	}
	if s.console != nil && s.opts.ConsoleFirst && path == "/" && wantsPage(r) {
		return s.serveConsole(q, "")
	}

	s.setCORS(q)
	if s.opts.App != "" && wantsPage(r) && !isBelow(path, s.opts.AppPath) && !isBelow(path, s.opts.StaticPath) {
		return s.sendPath(q, s.opts.App)
	}

	switch {
	case s.opts.MinionConf != "" && path == minionConfPath:
		return s.sendPath(q, s.opts.MinionConf)
	case s.opts.App != "" && isBelow(path, s.opts.AppPath):
		return s.sendPath(q, s.opts.App)
	case s.static != nil && isBelow(path, s.opts.StaticPath):
		return s.staticFile(q, strings.TrimPrefix(strings.TrimPrefix(path, s.opts.StaticPath), "/"))
	case s.opts.Favicon != "" && path == "/favicon.ico":
		return s.sendPath(q, s.opts.Favicon)
	}

	name, args := splitPath(path)
	e, ok := s.routes[name]
	if !ok {
		return s.noPath(r)
	}

	q.args = args
	if name == "ws" {
		withoutToken(r, args)
	}

	h.Set("Allow", e.allowHeader())
	if r.Method == http.MethodOptions {
		s.sendText(q, http.StatusOK, "")
		return nil
	}

	if err := s.mayAsk(q); err != nil {
		return err
	}

	open := name == s.opts.WebhookPath && s.opts.WebhookOpen // anybody may fire such a hook, even a page of any site
	if !open && s.lendsItself(r) {
		s.quiet.Warn("a page of another site asks for something; cors_origin does not name it", "origin",
			r.Header.Get("Origin"), "peer", q.from)
		return &failure{http.StatusForbidden, "Pages of this site may not ask here; cors_origin names those that may."}
	}

	return s.serveEndpoint(q, e)
}

// mayAsk returns a refusal if the sender's address is not in authorized_ips.
func (s *Server) mayAsk(q *request) error {
	if len(s.opts.IPs) > 0 && !slices.Contains(s.opts.IPs, clientHost(q.http)) {
		s.quiet.Warn("address is not one of authorized_ips", "peer", q.from)
		return &failure{http.StatusForbidden, "Bad IP"}
	}
	return nil
}

// serveEndpoint checks the sender and the request, and calls the handler.
func (s *Server) serveEndpoint(q *request, e endpoint) error {
	r := q.http
	if err := s.loggedIn(q, e); err != nil {
		return err
	}

	handle := e.get
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		handle = e.post
	default:
		handle = nil
	}

	if handle == nil {
		return &failure{code: http.StatusMethodNotAllowed}
	}

	ctx := withClientHost(r)
	if e.parts >= 0 && len(q.args) > e.parts || r.Method != http.MethodPost && !e.stays && !knowsNames(r, e.names) {
		return &failure{code: http.StatusNotFound}
	}

	maxBytes := e.most
	if q.class == ratelimit.Proven {
		maxBytes = s.opts.MaxBody
	}

	if err := s.readBody(ctx, q, maxBytes); err != nil {
		return err
	}

	q.noteWorking()
	if e.works && r.Method == http.MethodPost {
		if err := s.takeWorker(ctx, q); err != nil {
			return err
		}
	}

	switch {
	case e.csv && wantsCSV(r):
		q.format = typeCSV
	case !e.raw || r.Method != http.MethodPost && !e.stays:
		var err error
		if q.format, err = negotiate(r.Header.Get("Accept")); err != nil {
			return err
		}
	}

	v, err := handle(s, ctx, q)
	if err != nil || q.code != 0 {
		return err
	}

	s.sendAnswer(q, max(q.status, http.StatusOK), v)
	return nil
}

// loggedIn verifies the token of a request if the endpoint needs one.
func (s *Server) loggedIn(q *request, e endpoint) error {
	token := shownToken(q.http)
	switch {
	case e.auth == "read" && q.http.Method == http.MethodGet && isToken(token):
	case e.auth == "all", e.auth == "post" && q.http.Method == http.MethodPost:
	default:
		return nil
	}
	if err := s.proveToken(withClientHost(q.http), token, q); err != nil {
		return err
	}
	q.token = token
	q.w.Header().Set("Cache-Control", "private")
	return nil
}

// stripPrefix removes root_prefix from a path. It returns false if the path does not begin with
// that prefix.
func (s *Server) stripPrefix(path string) (string, bool) {
	prefix := s.opts.RootPrefix
	if prefix == "/" {
		return path, true
	}
	if !isBelow(path, prefix) {
		return "", false
	}
	return path[len(prefix):], true
}

// isBelow reports whether path is dir or below it.
func isBelow(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

// splitPath splits a path into the endpoint's name and the parts after it, without empty parts. The
// name for an empty path is "index".
func splitPath(path string) (name string, args []string) {
	for part := range strings.SplitSeq(path, "/") {
		if part != "" {
			args = append(args, part)
		}
	}
	if len(args) == 0 {
		return "index", nil
	}
	return args[0], args[1:]
}

func (s *Server) noPath(r *http.Request) error {
	return &failure{http.StatusNotFound, fmt.Sprintf("The path '%s' was not found.", r.URL.Path)}
}

// knowsNames reports whether a query contains no names other than these.
func knowsNames(r *http.Request, names []string) bool {
	for k := range r.URL.Query() {
		if !slices.Contains(names, k) {
			return false
		}
	}
	return true
}

// clientHost returns the address of the client without the port, or "" if it cannot be read.
func clientHost(r *http.Request) string {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	return ap.Addr().Unmap().WithZone("").String()
}

// withClientHost returns the context of a request with the client's address added; the master's
// audit record contains that address.
func withClientHost(r *http.Request) context.Context {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return r.Context()
	}
	return source.With(r.Context(), ap.Addr().Unmap().WithZone(""))
}

// clientHostOf returns the client's address in a context, or "" if there is none.
func clientHostOf(ctx context.Context) string {
	if a := source.Of(ctx); a.IsValid() {
		return a.String()
	}
	return ""
}

// loginRefused writes an audit record of a log-in that salt-api refused without asking the master.
func (s *Server) loginRefused(ctx context.Context, user, why string) {
	s.audit.Note(audit.Record{
		Actor:    audit.Actor{User: user, Proof: audit.Unproven, From: clientHostOf(ctx)},
		Action:   "login",
		Result:   audit.Refused,
		Detail:   why,
		Stranger: true,
	})
}

// wantsPage reports whether a browser requests a page to display. It returns false for programs
// that send no Accept header and for WebSockets (salt/netapi/rest_cherrypy/app.py
// html_override_tool sends the page to every client that does not refuse it).
func wantsPage(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || r.Header.Get("Upgrade") != "" {
		return false
	}
	wants := ranges(r.Header.Get("Accept"))
	return slices.Contains(wants, "text/html") || slices.Contains(wants, "application/xhtml+xml")
}

// setCORS sets the headers that permit scripts of this site, and of sites in cors_origin, to read
// the answer in a browser. Salt sets them for every site unless cors_origin names some.
func (s *Server) setCORS(q *request) {
	h, origin := q.w.Header(), q.http.Header.Get("Origin")
	h.Add("Vary", "Origin")
	if origin == "" || !s.mayRead(q.http) {
		return
	}

	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "GET, POST")
	h.Set("Access-Control-Allow-Credentials", "true")
	if q.http.Method != http.MethodOptions {
		return
	}

	if m := q.http.Header.Get("Access-Control-Request-Method"); m == http.MethodGet || m == http.MethodPost {
		h.Set("Access-Control-Allow-Methods", "GET, POST")
		h.Set("Access-Control-Allow-Headers", "Content-Type, X-Auth-Token, X-Requested-With")
		h.Set("Access-Control-Max-Age", "1400")
	}
}

// mayRead reports whether the page that sent a request may read the answer: a page of this site or
// of a site in cors_origin may. Browsers name the page's site in a header; other programs send no
// such header, and mayRead returns true for them. If a proxy has changed the host's name, present
// browsers still send that the page has the same origin.
func (s *Server) mayRead(r *http.Request) bool {
	return s.ofThisSite(r) || r.Header.Get("Sec-Fetch-Site") == "same-origin"
}

// lendsItself reports whether a browser sends the request with its user's session on behalf of a
// page of another site that cors_origin does not name (cross-site request forgery). Browsers treat
// a page of a sibling host as a page of the same site: the page's scripts send the session's cookie
// along, and a body of text/plain needs no preflight. Two kinds of request are harmless: a client
// that sends a token in the header did not get the token from the browser's cookies, and a user
// follows a link deliberately.
func (s *Server) lendsItself(r *http.Request) bool {
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	_, err := r.Cookie(sessionCookie)
	if r.Header.Get("X-Auth-Token") != "" || reads && err != nil {
		return false
	}
	if r.Header.Get("Origin") != "" {
		return !s.mayRead(r)
	}
	site := r.Header.Get("Sec-Fetch-Site") // header that browsers send even without Origin, as for an image or a link
	elsewhere := site != "" && site != "same-origin" && site != "none"
	return elsewhere && !(reads && r.Header.Get("Sec-Fetch-Mode") == "navigate")
}
