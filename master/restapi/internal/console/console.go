package console

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

//go:embed templates/*.html static/*
var files embed.FS

// Dir is the path at which the console is served, below root_prefix.
const Dir = "/console"

// Config configures a Console.
type Config struct {
	Prefix  string // root_prefix without a slash at its end; "" without a prefix
	Secure  bool   // browsers reach the console by TLS
	Version string // version of the program
	Cluster bool   // the master is one of several in a cluster
	Name    string // of the cluster; "" without one
	// LowerMasters means that minions below syndics, which this master does not list, get jobs, too.
	LowerMasters bool
	Nodes        bool     // a supervisor monitors the master and reports the state of the nodes
	Systems      []string // names of the systems in external_auth that the log-in page offers
	SignIn       SignIn   // log-in by an OpenID provider, besides passwords
	Log          *slog.Logger
	Now          func() time.Time
}

// Console creates the pages. Its methods may be called concurrently.
type Console struct {
	cfg    Config
	base   string // URL path of the console, without a slash at its end
	pages  map[string]*template.Template
	static map[string]asset
	style  string // URL path of the style sheet
	script string // URL path of the script
	origin *http.CrossOriginProtection
	// lists holds the functions that minions have listed.
	lists  functionLists
	routes map[string]route
}

// asset is a static file; mark changes with its content, so that browsers may cache the file.
type asset struct{ kind, text, mark string }

// Login is a user who is logged in.
type Login struct {
	Token, User, System string
	Expires             time.Time
	// May reports whether the master would probably permit a command of this client and function;
	// with fun "", whether it would permit any command of the client. The answer only decides which
	// buttons a page shows: the master decides about each command.
	May func(client, fun string) bool
	// Clients are the clients that salt-api serves (netapi_enable_clients).
	Clients []string
	// AllEvents means that the user may read all events of the master, not only those of his own
	// jobs.
	AllEvents bool
}

// Refusal is an error that is not a fault of the program: its HTTP status, and a text for people.
type Refusal struct {
	Code int
	Text string
}

func (r *Refusal) Error() string { return r.Text }

// Master is the console's access to the master for one request. An error is a [*Refusal] if the
// console may show its text to the user.
type Master interface {
	LogIn(ctx context.Context, user, password, system string) (Login, error)
	Session(ctx context.Context, token string) (Login, error)
	// BeginSignIn returns the URL at the provider to which a browser with this secret must go.
	// SignIn logs the browser's user in by the provider's answer.
	BeginSignIn(ctx context.Context, secret string) (string, error)
	SignIn(ctx context.Context, secret string, answer url.Values) (Login, error)
	LogOut(ctx context.Context, token string) error
	// Do runs the command that the low data describe, with the rights of the token.
	Do(ctx context.Context, token string, low *value.Map) (any, error)
	// Status returns the status that the master writes. It is nil for a master that writes none.
	Status() *control.Status
}

// Request is one request for the console.
type Request struct {
	HTTP   *http.Request
	Path   string // path below [Dir]; "/" for the first page
	Master Master
	Form   func() (url.Values, error) // reads and parses the body
}

// Answer is the answer to send.
type Answer struct {
	Code   int
	Header http.Header
	Body   string
	Events *Events // if not nil, the server sends the stream of these events and not Body
}

// Events selects the events that the server sends to a page.
type Events struct {
	Token string
	JID   string // job id: send only the returns of that job; "" means no such restriction
	Run   string // job id of a run on the master: send only its events; "" means no such restriction
	Tag   string // glob for tags; "" for all
}

// New returns a Console.
func New(cfg Config) (*Console, error) {
	c := &Console{
		cfg:    cfg,
		base:   cfg.Prefix + Dir,
		pages:  map[string]*template.Template{},
		static: map[string]asset{},
		origin: http.NewCrossOriginProtection(),
		routes: routes(),
	}

	if cfg.SignIn.Provider != "" {
		c.routes[signInPath] = route{get: beginSignIn, open: true}
		c.routes[signInPath+"/done"] = route{get: endSignIn, open: true}
	}

	shared, err := template.New("console").Funcs(c.functions()).ParseFS(files, "templates/layout.html",
		"templates/parts.html", "templates/machines.html")
	if err != nil {
		return nil, fmt.Errorf("read what the console's pages share: %w", err)
	}

	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("read the console's pages: %w", err)
	}

	for _, n := range names {
		if n = path.Base(n); shared.Lookup(n) != nil {
			continue
		}

		t, err := shared.Clone()
		if err == nil {
			t, err = t.ParseFS(files, "templates/"+n)
		}

		if err != nil {
			return nil, fmt.Errorf("read the console's page %s: %w", n, err)
		}

		c.pages[strings.TrimSuffix(n, ".html")] = t
	}

	for n, kind := range map[string]string{
		"console.css": "text/css; charset=utf-8",
		"console.js":  "text/javascript; charset=utf-8",
		"icon.svg":    "image/svg+xml",
	} {
		b, err := files.ReadFile("static/" + n)
		if err != nil {
			return nil, fmt.Errorf("read the console's file %s: %w", n, err)
		}
		sum := sha256.Sum256(b)
		c.static["/"+n] = asset{kind, string(b), hex.EncodeToString(sum[:6])}
	}

	c.style = c.base + "/console.css?v=" + c.static["/console.css"].mark
	c.script = c.base + "/console.js?v=" + c.static["/console.js"].mark
	return c, nil
}

// functions returns the template functions that combine several values into the one argument of a
// partial template.
func (c *Console) functions() template.FuncMap {
	type tab struct {
		Base, Path, Word string
		Here             bool
	}
	type rows struct {
		Base string
		Rows []jobRow
	}
	type faultRow struct {
		Base  string
		Fault fault
	}
	return template.FuncMap{
		"tab":       func(p page, section, path, word string) tab { return tab{p.Base, path, word, p.Section == section} },
		"clock":     c.moment,
		"octets":    octetGroups,
		"capital":   capital,
		"pieces":    c.pieces,
		"withcodes": c.withCodes,
		"commands":  commands,
		"program":   programWord,
		"fault":     func(base string, f fault) faultRow { return faultRow{base, f} },
		"rows":      func(base string, list []jobRow) rows { return rows{base, list} },
		"hint":      func(text, word, url string) hint { return hint{text, word, url} },
	}
}

// route describes one path.
type route struct {
	get, post func(*Console, context.Context, *visit) (Answer, error)
	open      bool // the path may be used without a log-in
	section   string
}

func routes() map[string]route {
	return map[string]route{
		"/":               {get: overview, section: "overview"},
		"/login":          {get: askLogIn, post: logIn, open: true},
		"/logout":         {post: logOut},
		"/nodes":          {post: changeNode, section: "overview"},
		"/nodes/confirm":  {get: confirmNode, section: "overview"},
		"/keys":           {get: showKeys, post: changeKeys, section: "keys"},
		"/keys/confirm":   {get: confirmKeys, section: "keys"},
		"/fleet":          {get: showFleet, section: "fleet"},
		"/minions":        {get: showMinions, section: "minions"},
		"/minions.csv":    {get: showMinions, section: "minions"},
		"/minion":         {get: showMinion, section: "minions"},
		"/jobs":           {get: showJobs, section: "jobs"},
		"/job":            {get: showJob, section: "jobs"},
		"/job/stop":       {get: confirmStop, post: stopJob, section: "jobs"},
		"/run":            {get: prepareRun, post: startJob, section: "run"},
		"/task":           {get: showTask, section: "run"},
		"/schedule":       {get: showSchedule, post: switchSchedule, section: "schedule"},
		"/schedule/edit":  {get: editSchedule, post: saveSchedule, section: "schedule"},
		"/saved":          {get: showSaved, section: "saved"},
		"/saved/job":      {get: editJob, post: saveJob, section: "saved"},
		"/saved/target":   {get: editTarget, post: saveTarget, section: "saved"},
		"/saved/delete":   {get: confirmDeletion, post: deleteObject, section: "saved"},
		"/saved/run":      {get: prepareSavedRun, post: startSavedRun, section: "saved"},
		"/events":         {get: showEvents, section: "events"},
		"/files":          {get: showFiles, section: "files"},
		"/file":           {get: showFile, section: "files"},
		"/pillar":         {get: showPillar, section: "files"},
		"/codes":          {get: showCodes, section: "overview"},
		"/diff":           {get: showDiff, post: compareBranches, section: "files"},
		"/audit":          {get: showAudit, section: "audit"},
		"/tokens":         {get: showTokens, post: endTokens, section: "tokens"},
		"/tokens/confirm": {get: confirmTokens, section: "tokens"},
		"/stream":         {get: streamEvents},
	}
}

// visit is one request and its state.
type visit struct {
	Request
	query   url.Values
	now     time.Time
	login   Login
	section string
	partial bool // an answer about runs lacked some that are still to come
}

// runCommand runs a command with the session's token; kv holds its fields as pairs of name and
// value.
func (v *visit) runCommand(ctx context.Context, client, fun string, kv ...any) (any, error) {
	low := value.NewMap("client", client, "fun", fun)
	for i := 0; i < len(kv); i += 2 {
		low.Set(kv[i], kv[i+1])
	}
	got, err := v.Master.Do(ctx, v.login.Token, low)
	if m, ok := got.(*value.Map); ok && strings.HasPrefix(fun, "fleet.") && m.Bool("partial") {
		v.partial = true
	}
	return got, err
}

// mayCall reports whether the master would probably permit a command; see Login.May.
func (v *visit) mayCall(client, fun string) bool {
	return v.login.May != nil && v.login.May(client, fun)
}

// hasClient reports whether salt-api serves a client.
func (v *visit) hasClient(client string) bool { return slices.Contains(v.login.Clients, client) }

// IsStream reports whether the answer at a path lasts for as long as the browser listens.
func IsStream(path string) bool { return path == "/stream" }

// Serve returns the answer to a request.
func (c *Console) Serve(ctx context.Context, r Request) Answer {
	v := &visit{Request: r, query: r.HTTP.URL.Query(), now: c.cfg.Now()}
	a, err := c.answer(ctx, v)
	if err != nil {
		a = c.failed(v, err)
	}

	if a.Header == nil {
		a.Header = http.Header{}
	}

	for k, text := range guards() {
		a.Header.Set(k, text)
	}

	if a.Header.Get("Cache-Control") == "" {
		a.Header.Set("Cache-Control", "no-store")
	}

	return a
}

// guards returns the headers of every answer: with them the browser loads and runs nothing from
// other sites and sends nothing to them, and no page of another site can embed a page of the
// console.
func guards() map[string]string {
	return map[string]string{
		"Content-Security-Policy": "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; img-src 'self' data:; " +
			"form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
		"X-Frame-Options":              "DENY",
		"X-Content-Type-Options":       "nosniff",
		"Referrer-Policy":              "same-origin",
		"Cross-Origin-Opener-Policy":   "same-origin",
		"Cross-Origin-Resource-Policy": "same-origin",
	}
}

func (c *Console) answer(ctx context.Context, v *visit) (Answer, error) {
	method := v.HTTP.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}

	if s, ok := c.static[v.Path]; ok && method == http.MethodGet {
		return Answer{
			Code:   http.StatusOK,
			Body:   s.text,
			Header: http.Header{"Content-Type": {s.kind}, "Cache-Control": {"public, max-age=86400"}},
		}, nil
	}

	if v.Path == "" {
		return c.redirect("/", nil), nil
	}

	r, ok := c.routes[v.Path]
	v.section = r.section
	handler := r.get
	if method == http.MethodPost {
		handler = r.post
	}

	switch {
	case !ok:
		return Answer{}, &Refusal{http.StatusNotFound, "There is no such page."}
	case handler == nil || method != http.MethodGet && method != http.MethodPost:
		return Answer{}, &Refusal{http.StatusMethodNotAllowed, "This page is not for that."}
	case method == http.MethodPost && c.origin.Check(v.HTTP) != nil:
		return Answer{}, &Refusal{http.StatusForbidden, "The form was sent by another site. Nothing was done."}
	}

	if !r.open {
		if err := c.session(ctx, v); err != nil {
			return Answer{}, err
		}

		if method == http.MethodPost {
			if err := checkForm(v); err != nil {
				return Answer{}, err
			}
		}
	}

	return handler(c, ctx, v)
}

// redirect returns an answer that sends the browser to a page of the console.
func (c *Console) redirect(page string, q url.Values) Answer {
	at := c.base + page
	if len(q) > 0 {
		at += "?" + q.Encode()
	}
	return Answer{
		Code:   http.StatusSeeOther,
		Header: http.Header{"Location": {at}, "Content-Type": {"text/plain; charset=utf-8"}},
		Body:   "See " + at + "\n",
	}
}

// page is the data of a template.
type page struct {
	Base, Style, Script string
	Title, Section      string
	Tab                 string // title for the browser's tab and history, if Title may hold a secret; "": Title
	Version             string
	Cluster             string // name of the cluster; "" without one
	Now, AsOf           string // time of the answer, by which the script tells ages, and as the page names it
	User, Role          string // "" when nobody is logged in
	Token               string // token that the page's forms must contain
	May                 rights
	Refresh             int    // seconds after which a browser without scripts reloads the page; 0: never
	Next                string // URL to which the browser is redirected; "" for none
	Notice, Problem     string
	Partial             bool // runs are missing that are still to come
	Data                any
}

// rights describes which parts of the console a user can use.
// Run is for functions on minions, RunAny for the page on which other things can be run as well.
type rights struct{ Fleet, Keys, Minions, Jobs, Run, RunAny, Schedule, Saved, Events, Files, Audit, Tokens bool }

func (v *visit) rights() rights {
	if v.login.Token == "" {
		return rights{}
	}
	return rights{
		Fleet:    v.mayCall("runner", "fleet.trend"),
		Keys:     v.mayCall("wheel", "key.list_all"),
		Minions:  v.mayCall("runner", "presence.minions"),
		Jobs:     v.mayCall("runner", "jobs.list_jobs_filter"),
		Run:      v.mayCall("local_async", ""),
		RunAny:   slices.ContainsFunc([]string{kindMinions, kindOrchestration, kindRunner, kindWheel}, v.mayRunKind),
		Saved:    v.hasClient("runner"),
		Schedule: v.mayCall("runner", "schedule.list"),
		Events:   true,
		Files:    v.mayCall("runner", "files.list") || v.mayCall("runner", "git.status"),
		Audit:    v.mayCall("runner", "audit.records") || v.mayCall("runner", "audit.all"),
		Tokens:   v.mayCall("wheel", "token.list"),
	}
}

// roleWord returns a name for the role of a user with the visit's rights.
func (v *visit) roleWord() string {
	switch {
	case v.login.Token == "":
		return ""
	case v.mayCall("wheel", "key.accept_dict"):
		return "admin"
	case v.mayCall("local_async", ""):
		return "operator"
	}
	return "viewer"
}

// render returns a page made by a template. The caller sets Title and Data of p.
func (c *Console) render(v *visit, template string, code int, p page) (Answer, error) {
	p.Base = c.base
	p.Style = c.style
	p.Script = c.script
	p.Version = c.cfg.Version
	p.Now = c.cfg.Now().UTC().Format(time.RFC3339)
	p.AsOf = clockWord(c.cfg.Now())
	p.Section = v.section
	p.Cluster = briefName(c.cfg.Name)
	p.Partial = v.partial
	if v.login.Token != "" {
		p.User = briefName(v.login.User)
		p.Role = v.roleWord()
		p.May = v.rights()
		p.Token = formToken(v.login.Token)
	}
	var b strings.Builder
	if err := c.pages[template].ExecuteTemplate(&b, "layout", p); err != nil {
		return Answer{}, fmt.Errorf("write the page %s: %w", template, err)
	}

	header := http.Header{"Content-Type": {"text/html; charset=utf-8"}}
	if code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable {
		header.Set("Retry-After", "5")
	}
	return Answer{Code: code, Body: b.String(), Header: header}, nil
}

// isUnauthorized reports whether the master has refused a command because the user may not call it.
func isUnauthorized(err error) bool {
	r, ok := errors.AsType[*Refusal](err)
	return ok && r.Code == http.StatusUnauthorized
}

// failed returns the page for an error.
func (c *Console) failed(v *visit, err error) Answer {
	r, ok := errors.AsType[*Refusal](err)
	switch {
	case !ok && v.HTTP.Context().Err() != nil:
		r = &Refusal{http.StatusServiceUnavailable, ""} // the browser has disconnected; nobody reads the answer
	case !ok:
		c.cfg.Log.Error("a page of the console failed", "path", v.Path, "error", err)
		r = &Refusal{http.StatusInternalServerError, "Something went wrong; the log of salt-api says what."}
	case r.Code == http.StatusUnauthorized && v.login.Token == "" && !IsStream(v.Path):
		a := c.redirect("/login", nil)
		if c.cookieOf(v, sessionCookie) != "" {
			// without this header, the browser would send the ended session with each request
			a.Header.Add("Set-Cookie", c.cookie(sessionCookie, "", 0))
		}
		return a
	}

	a, err := c.render(v, "error", r.Code, page{Title: http.StatusText(r.Code), Problem: r.Text})
	if err != nil {
		c.cfg.Log.Error("a page of the console failed", "path", v.Path, "error", err)
		return Answer{
			Code:   http.StatusInternalServerError,
			Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		}
	}

	return a
}
