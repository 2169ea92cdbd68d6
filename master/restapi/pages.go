package restapi

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/internal/ratelimit"
	"saltern/internal/release"
	"saltern/master/conf"
	"saltern/master/internal/acl"
	"saltern/master/pattern"
	"saltern/master/restapi/internal/console"
	"saltern/master/value"
)

const (
	maxForm      = 256 << 10 // bytes of a form that a page of the console sends
	maxPageEvent = 64 << 10  // size in bytes up to which a page gets an event's data; of larger events it gets tag and size
)

func (s *Server) newConsole() (*console.Console, error) {
	cfg := console.Config{
		Prefix:       strings.TrimSuffix(s.opts.RootPrefix, "/"),
		Secure:       s.opts.Cert != "",
		Version:      release.Version(),
		Cluster:      s.master.ClusterID != "",
		Name:         s.master.ClusterID,
		LowerMasters: s.master.OrderMasters,
		Nodes:        s.master.Door != "",
		Systems:      slices.Sorted(slices.Values(s.master.ExternalAuth.Keys())),
		Log:          s.quiet,
		Now:          s.now,
	}

	if o, asks := s.master.OIDCOptions(); asks {
		// Users of oidc do not enter a password on the console.
		cfg.Systems = slices.DeleteFunc(cfg.Systems, func(name string) bool { return name == "oidc" })
		if err := s.openOIDC(o, &cfg); err != nil {
			return nil, err
		}
	}

	return console.New(cfg)
}

// serveConsole answers a request for the console. path is the part of the URL's path after
// /console.
func (s *Server) serveConsole(q *request, path string) error {
	if err := s.mayAsk(q); err != nil {
		return err
	}

	ctx := withClientHost(q.http)
	q.page = true
	if q.http.ContentLength == 0 {
		q.noteWorking()
	}

	a := s.console.Serve(ctx, console.Request{
		HTTP:   q.http,
		Path:   path,
		Master: &pages{s: s, q: q, stays: console.IsStream(path)},
		Form:   func() (url.Values, error) { return s.readForm(ctx, q) },
	})

	maps.Copy(q.w.Header(), a.Header)
	if a.Events != nil {
		reader := audience{token: a.Events.Token, job: cmp.Or(a.Events.JID, a.Events.Run)}
		return s.listen(ctx, q, reader, func(frame string) string { return pickFrame(frame, a.Events) })
	}

	s.sendText(q, a.Code, a.Body)
	return nil
}

// readForm reads and decodes the body of a form. It can be called only once for a request.
func (s *Server) readForm(ctx context.Context, q *request) (url.Values, error) {
	if form, ok := q.data.(url.Values); ok {
		return form, nil
	}

	media, _, err := mime.ParseMediaType(q.http.Header.Get("Content-Type"))
	if err != nil || media != "application/x-www-form-urlencoded" {
		return nil, &console.Refusal{Code: http.StatusUnsupportedMediaType, Text: "That is not a form of the console."}
	}

	maxBytes := int64(maxStranger)
	if q.class == ratelimit.Proven {
		maxBytes = maxForm
	}

	if q.raw, err = s.receiveBody(ctx, q, maxBytes); err != nil {
		return nil, refusal(err)
	}

	if err := s.setAside(ctx, q, bodyKinds()[media].memoryCost(q.raw)); err != nil {
		return nil, refusal(err)
	}

	form, err := url.ParseQuery(string(q.raw))
	if err != nil {
		return nil, &console.Refusal{Code: http.StatusBadRequest, Text: "The form cannot be read."}
	}

	q.data = form
	return form, nil
}

// pages is the console's access to the master for one request.
type pages struct {
	s     *Server
	q     *request
	stays bool // the answer is a stream that lasts for hours
}

// refusal converts an error into an error for the console. A refusal keeps its status and text.
func refusal(err error) error {
	err = refused(err)
	if f, ok := errors.AsType[*failure](err); ok {
		return &console.Refusal{Code: f.code, Text: f.Error()}
	}
	return err
}

// LogIn implements [console.Master].
func (p *pages) LogIn(ctx context.Context, user, password, system string) (console.Login, error) {
	s := p.s
	if !s.masterIsUp(ctx) {
		return console.Login{}, &console.Refusal{
			Code: http.StatusServiceUnavailable,
			Text: "Salt Master is not available.",
		}
	}

	if !s.mayLogIn(user, clientHost(p.q.http)) {
		s.loginRefused(ctx, user, "api_acl")
		return console.Login{}, &console.Refusal{Code: http.StatusUnauthorized}
	}

	token, expires, err := s.logIn(ctx, p.q, value.NewMap("username", user, "password", password, "eauth", system))
	if err != nil {
		return console.Login{}, refusal(err)
	}

	return s.consoleLogin(token.Str("token"), ownerOf(token), expires), nil
}

// Session implements [console.Master].
func (p *pages) Session(ctx context.Context, token string) (console.Login, error) {
	if err := p.s.proveToken(ctx, token, p.q); err != nil {
		return console.Login{}, refusal(err)
	}
	if !p.stays {
		if err := p.s.takeWorker(ctx, p.q); err != nil {
			return console.Login{}, refusal(err)
		}
	}
	known := p.s.guard.sessionOf(token)
	if known.expires.IsZero() {
		return console.Login{}, &console.Refusal{Code: http.StatusUnauthorized}
	}
	return p.s.consoleLogin(token, known.owner, known.expires), nil
}

// LogOut implements [console.Master].
func (p *pages) LogOut(ctx context.Context, token string) error { return p.s.revoke(ctx, token) }

// Do implements [console.Master].
func (p *pages) Do(ctx context.Context, token string, low *value.Map) (any, error) {
	got, err := p.s.execute(ctx, p.q, []any{low}, "", token)
	if err != nil {
		return nil, refusal(err)
	}
	if len(got) == 0 {
		return nil, nil
	}
	return got[0], nil
}

// Status implements [console.Master].
func (p *pages) Status() *control.Status {
	st, err := control.ReadStatus(filepath.Join(p.s.master.CacheDir, control.StatusFile))
	if err != nil {
		return nil // a Salt master in Python writes no status
	}
	return st
}

// consoleLogin returns the owner of a token and the permissions that external_auth seems to grant
// to that owner, in the form that the console shows.
func (s *Server) consoleLogin(token string, user owner, expires time.Time) console.Login {
	perms := s.granted(user)
	all := s.hasRight(user, conf.AllEvents)
	return console.Login{
		Token:     token,
		User:      user.name,
		System:    user.system,
		Expires:   expires,
		AllEvents: all,
		Clients:   s.opts.Clients,
		May: func(client, fun string) bool {
			if !slices.Contains(s.opts.Clients, client) {
				return false
			}
			if form := strings.TrimSuffix(client, "_async"); form == "runner" || form == "wheel" {
				return acl.Special(perms, form, fun, nil, nil) || conditional(perms, form, fun)
			}
			return slices.ContainsFunc(perms, ofMinions)
		},
	}
}

// granted returns the permissions that external_auth seems to grant to a user, or those in the
// user's token.
func (s *Server) granted(user owner) []any {
	if user.permissions != nil {
		return user.permissions
	}
	return acl.FillAuthList(s.master.ExternalAuth.Map(user.system), user.name, user.groups, s.master.PermissiveACL)
}

// conditional reports whether the permissions allow a function of form (runner or wheel) only with
// certain arguments.
func conditional(perms []any, form, fun string) bool {
	mod, short, _ := strings.Cut(fun, ".")
	for _, p := range perms {
		m, _ := p.(*value.Map)
		for k, v := range m.All() {
			for _, e := range asList(v) {
				c, _ := e.(*value.Map)
				for expr := range c.All() {
					x, _ := expr.(string)
					if k == "@"+mod && pattern.Whole(x, short) ||
						(k == "@"+form || k == "@"+form+"s") && pattern.Whole(x, fun) {
						return true
					}
				}
			}
		}
	}

	return false
}

func asList(v any) []any {
	if l, ok := v.([]any); ok {
		return l
	}
	return []any{v}
}

// ofMinions reports whether a permission concerns jobs on minions.
func ofMinions(p any) bool {
	if s, ok := p.(string); ok {
		return !strings.HasPrefix(s, "@")
	}
	m, _ := p.(*value.Map)
	for k := range m.All() {
		if s, ok := k.(string); ok && !strings.HasPrefix(s, "@") {
			return true
		}
	}
	return false
}

// pickFrame returns the part of a frame that a page gets: the complete frame, a frame with tag and
// size if the frame is large, or "" if want does not select the event.
func pickFrame(frame string, want *console.Events) string {
	first, rest, ok := strings.Cut(frame, "\n")
	tag, isTag := strings.CutPrefix(first, "tag: ")
	if !ok || !isTag {
		return ""
	}
	if want.JID != "" && !strings.HasPrefix(tag, "salt/job/"+want.JID+"/") {
		return ""
	}
	if want.Run != "" && !isOfRun(tag, want.Run) {
		return ""
	}
	if want.JID == "" && !pattern.Glob(cmp.Or(want.Tag, "*"), tag) {
		return ""
	}
	if want.JID == "" && len(rest) <= maxPageEvent {
		return frame
	}

	b, err := json.Marshal(map[string]any{"tag": tag, "cut": len(rest)})
	if err != nil {
		return ""
	}

	return "data: " + string(b) + "\n\n"
}

// isOfRun reports whether a tag is one of a run on the master: of its start, of the steps of an
// orchestration, or of its end.
func isOfRun(tag, jid string) bool {
	for _, space := range []string{"salt/run/" + jid + "/", "salt/wheel/" + jid + "/", "salt/job/" + jid + "/prog/"} {
		if strings.HasPrefix(tag, space) {
			return true
		}
	}
	return false
}
