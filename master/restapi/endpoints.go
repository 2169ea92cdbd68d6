package restapi

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"mime"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"saltern/internal/audit"
	"saltern/internal/ratelimit"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/internal/eauth"
	"saltern/master/keys"
	"saltern/master/value"
)

func result(v any) *value.Map { return value.NewMap("return", v) }

func welcome(*Server, context.Context, *request) (any, error) {
	return value.NewMap("return", "Welcome", "clients", value.List(clientNames())), nil
}

// commands runs commands with the session's token.
func commands(s *Server, ctx context.Context, q *request) (any, error) {
	got, err := s.execute(ctx, q, q.lowData(), "", q.token)
	return result(got), err
}

// runCommands runs commands that contain their own credentials (/run).
func runCommands(s *Server, ctx context.Context, q *request) (any, error) {
	got, err := s.execute(ctx, q, q.lowData(), "", "")
	return result(got), err
}

func showMinions(s *Server, ctx context.Context, q *request) (any, error) {
	got, err := s.execute(ctx, q,
		[]any{value.NewMap("client", "local", "tgt", cmp.Or(q.argNamed("mid"), "*"), "fun", "grains.items")}, "",
		q.token)
	return result(got), err
}

// argNamed returns the part of the path after the endpoint. If there is none, it returns the value
// of the field called name in the query.
func (q *request) argNamed(name string) string {
	if len(q.args) > 0 {
		return q.args[0]
	}
	return q.http.URL.Query().Get(name)
}

// startJob starts jobs and returns their ids with the paths at which their returns can be read.
func startJob(s *Server, ctx context.Context, q *request) (any, error) {
	got, err := s.execute(ctx, q, q.lowData(), "local_async", q.token)
	if err != nil {
		return nil, err
	}
	links := []any{}
	for _, g := range got {
		if jid := g.(*value.Map).Str("jid"); jid != "" {
			links = append(links, value.NewMap("href", "/jobs/"+jid))
		}
	}
	q.status = http.StatusAccepted
	return value.NewMap("return", got, "_links", value.NewMap("jobs", links)), nil
}

func showJobs(s *Server, ctx context.Context, q *request) (any, error) {
	low := value.NewMap("client", "runner", "fun", "jobs.list_jobs")
	jid := q.argNamed("jid")
	if jid != "" {
		low.Set("fun", "jobs.list_job")
		low.Set("jid", jid)
	}

	got, err := s.execute(ctx, q, []any{low}, "", q.token)
	if err != nil || jid == "" {
		return result(got), err
	}

	info, ok := got[0].(*value.Map)
	if !ok || info.Map("Result") == nil {
		return nil, fmt.Errorf("the master does not describe the job: %s", value.StrMax(got[0], 200))
	}

	returns := value.NewMap()
	for id, r := range info.Map("Result").All() {
		m, _ := r.(*value.Map)
		returns.Set(id, m.Value("return"))
	}

	return value.NewMap("info", got, "return", []any{returns}), nil
}

// wheelResult returns the result of a wheel function from the master's answer.
func wheelResult(answer []any) any {
	if len(answer) == 0 {
		return value.NewMap()
	}
	m, _ := answer[0].(*value.Map)
	return cmp.Or(m.Map("data"), value.NewMap()).Value("return")
}

func showKeys(s *Server, ctx context.Context, q *request) (any, error) {
	low := value.NewMap("client", "wheel", "fun", "key.list_all")
	if id := q.argNamed("mid"); id != "" {
		low = value.NewMap("client", "wheel", "fun", "key.finger", "match", id)
	}
	q.w.Header().Del("Cache-Control")
	got, err := s.execute(ctx, q, []any{low}, "", q.token)
	return result(wheelResult(got)), err
}

// makeKeys asks the master to generate and accept a key pair for a minion, and sends the pair as an
// archive. The request's body contains the credentials. Unlike Salt, makeKeys refuses an id that
// has a key already: the archive would contain two empty files.
func makeKeys(s *Server, ctx context.Context, q *request) (any, error) {
	l, _ := q.lowData().([]any)
	if len(l) != 1 {
		return nil, &failure{http.StatusBadRequest,
			"Send the parameters of one key: mid, and username, password and eauth, or token."}
	}

	low, _ := l[0].(*value.Map)
	if low == nil {
		return nil, &failure{http.StatusBadRequest, "The parameters of a key must be a map."}
	}

	if v, ok := low.Get("mid"); ok {
		low.Delete("mid")
		low.Set("id_", v)
	}

	id := low.Str("id_")
	if keys.ValidID(id) != nil {
		return nil, &failure{http.StatusBadRequest, "mid must be the id of a minion"}
	}

	low.Set("fun", "key.gen_accept")
	got, err := s.execute(ctx, q, l, "wheel", "")
	if err != nil {
		return nil, err
	}

	pair, _ := wheelResult(got).(*value.Map)
	pub, priv := pair.Str("pub"), pair.Str("priv")
	if pub == "" || priv == "" {
		return nil, &failure{http.StatusConflict,
			"No key was made: there is one for " + id +
				" already, or the master could not make it. Delete the old one, or send force."}
	}

	b, err := archive(map[string]string{"minion.pub": pub, "minion.pem": priv})
	if err != nil {
		return nil, err
	}

	h := q.w.Header()
	h.Set("Content-Disposition",
		mime.FormatMediaType("attachment", map[string]string{"filename": "saltkeys-" + id + ".tar"}))
	h.Set("Content-Type", "application/x-tar")
	h.Set("Cache-Control", "no-cache")
	s.sendText(q, http.StatusOK, string(b))

	return nil, nil
}

func archive(files map[string]string) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(files))) {
		err := w.WriteHeader(&tar.Header{
			Typeflag: tar.TypeReg,
			Name:     name,
			Mode:     0o600,
			Size:     int64(len(files[name])),
			Format:   tar.FormatUSTAR,
		})
		if err == nil {
			_, err = w.Write([]byte(files[name]))
		}

		if err != nil {
			return nil, fmt.Errorf("pack the keys: %w", err)
		}
	}

	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("pack the keys: %w", err)
	}

	return b.Bytes(), nil
}

func logout(s *Server, ctx context.Context, q *request) (any, error) {
	if err := s.revoke(ctx, q.token); err != nil {
		return nil, err
	}
	http.SetCookie(q.w, s.cookie("", -1, s.now()))
	return result("Your token has been cleared"), nil
}

// revoke removes a token from the folder of tokens that all masters of a cluster share.
func (s *Server) revoke(ctx context.Context, token string) error {
	s.guard.forget(token)
	tokens, err := eauth.OpenTokens(s.master.TokenDir, "")
	if err == nil {
		t, _ := tokens.Get(token, s.now()) // on an error, t is zero; that is rare: the master has just known the token
		err = tokens.Remove(token)
		r := audit.Record{
			Actor:  audit.Actor{User: t.Name, Proof: audit.Token, Eauth: t.Eauth, From: clientHostOf(ctx)},
			Action: "token.delete",
			Object: t.Name,
		}

		s.audit.Note(r.Ended(err))
	}

	if err != nil {
		return fmt.Errorf("take the token back: %w", err)
	}

	return nil
}

// makeToken logs users in as /login does, and returns their tokens as a list. For the same request
// Salt runs auth.mk_token, which writes name, password and token to events and the job cache.
func makeToken(s *Server, ctx context.Context, q *request) (any, error) {
	l, ok := q.lowData().([]any)
	if !ok {
		return nil, &failure{http.StatusBadRequest, "The body is no list of credentials."}
	}

	var all []*value.Map
	for _, e := range l {
		m, _ := e.(*value.Map)
		creds := value.NewMap()
		for _, k := range []string{"username", "password", "eauth"} {
			v, ok := m.Get(k)
			if !ok {
				return nil, &failure{http.StatusBadRequest, `Require "username", "password", and "eauth" params`}
			}
			creds.Set(k, v)
		}

		all = append(all, creds)
	}

	if !s.masterIsUp(ctx) {
		return nil, &failure{http.StatusServiceUnavailable, "Salt Master is not available."}
	}

	q.w.Header().Set("Cache-Control", "no-store")
	tokens := []any{}
	for _, creds := range all {
		if !s.mayLogIn(creds.Value("username"), clientHost(q.http)) {
			s.loginRefused(ctx, value.StrMax(creds.Value("username"), 256), "api_acl")
			return nil, &failure{code: http.StatusUnauthorized}
		}

		token, _, err := s.logIn(ctx, q, creds)
		if f, refused := errors.AsType[*failure](err); refused && f.code == http.StatusUnauthorized {
			user := value.StrMax(creds.Value("username"), 256) // the text below has the form of Salt's /token
			return nil, &failure{f.code, `Authentication failure of type "eauth" occurred for user ` + user + "."}
		}
		if err != nil {
			return nil, err
		}

		token.Delete(eauth.RightsField) // only the master and salt-api exchange this field
		tokens = append(tokens, token)
	}

	return tokens, nil
}

// fireHook fires an event with the body of the request. The master decides whether the sender has
// the right to do so.
func fireHook(s *Server, ctx context.Context, q *request) (any, error) {
	if q.token != "" && !s.hasRight(s.guard.sessionOf(q.token).owner, conf.Hooks) {
		s.quiet.Warn("a hook is refused: external_auth does not grant @hook", "user",
			s.guard.sessionOf(q.token).owner.name, "peer", q.from)
		return nil, &failure{http.StatusForbidden,
			"This account may not fire events: external_auth must grant it '@hook', or all functions, '@runner' and '@wheel'."}
	}

	tag := strings.Join(append([]string{"salt", "netapi", "hook"}, q.args...), "/")
	if strings.ContainsFunc(tag, unicode.IsControl) || event.CheckTag(tag) != nil {
		return nil, &failure{http.StatusBadRequest, "The path makes no tag of an event."}
	}

	headers := value.NewMap("Remote-Addr", clientHost(q.http), "Host", q.http.Host)
	for _, k := range slices.Sorted(maps.Keys(q.http.Header)) {
		if k != "X-Auth-Token" && k != "Cookie" { // all readers of events would see these secrets
			headers.Set(k, strings.Join(q.http.Header[k], ", "))
		}
	}

	if q.http.ContentLength >= 0 && q.http.Header.Get("Content-Length") == "" {
		headers.Set("Content-Length", strconv.FormatInt(q.http.ContentLength, 10))
	}

	post := q.data
	if !value.Truth(post) {
		post = value.NewMap()
	}

	// A hook is answered only when the bus has its event, so hooks that a client sends one after
	// the other become events in that order.
	if err := s.shared.Fire(ctx, tag,
		value.NewMap("body", string(q.raw), "post", post, "headers", headers)); err != nil {
		s.quiet.Error("the event of a hook was not fired", "tag", tag, "error", err)
		return nil, &failure{http.StatusServiceUnavailable,
			"The master takes no events. Is it running, and does salt-api run as its user?"}
	}

	return value.NewMap("success", true), nil
}

func showStats(s *Server, _ context.Context, _ *request) (any, error) {
	n := func(v uint64) int64 { return int64(min(v, 1<<62)) }
	c := &s.count
	open, refused := s.places.Counted()
	return value.NewMap("salt-api", value.NewMap(
		"Start Time", float64(s.started.UnixMicro())/1e6,
		"Uptime", s.now().Sub(s.started).Seconds(),
		"Total Requests", n(c.requests.Load()),
		"Current Requests", s.pools.workers.Used(ratelimit.Proven),
		"Waiting Requests", int64(s.pools.workers.Waiting()),
		"Connections", int64(open),
		"Event Readers", s.pools.readers.Used(ratelimit.Proven),
		"Body Memory", s.pools.memory.Used(ratelimit.Proven),
		"Current Logins", s.pools.logins.Used(ratelimit.Proven),
		"Waiting Logins", int64(s.pools.logins.Waiting()),
		"Events Sent", n(c.events.Load()),
		"Wrong Logins", n(c.wrong.Load()),
		"Limited Logins", n(c.limited.Load()),
		"Refused Busy", n(c.busy.Load()),
		"Refused Connections", n(c.refused.Load()+refused),
		"Refused Bodies", n(c.large.Load()),
		"Cut Readers", n(c.cut.Load()),
	)), nil
}

// sendPath sends the file at path, which an option names.
func (s *Server) sendPath(q *request, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return s.noFile(q, err)
	}
	defer f.Close()
	return s.sendFile(q, f)
}

// staticFile sends a file below the folder static. Neither ".." nor links lead out of that folder.
func (s *Server) staticFile(q *request, name string) error {
	if slices.Contains(strings.Split(name, "/"), "..") || strings.ContainsAny(name, "\\\x00") {
		return &failure{code: http.StatusForbidden}
	}
	f, err := s.static.Open(filepath.Clean("./" + name))
	if err != nil {
		return s.noFile(q, err)
	}
	defer f.Close()
	return s.sendFile(q, f)
}

func (s *Server) noFile(q *request, err error) error {
	if !errors.Is(err, fs.ErrNotExist) {
		s.quiet.Warn("a file for browsers cannot be read", "path", q.http.URL.Path, "error", err)
	}
	return s.noPath(q.http)
}

func (s *Server) sendFile(q *request, f *os.File) error {
	if q.http.Method != http.MethodGet && q.http.Method != http.MethodHead {
		return &failure{code: http.StatusMethodNotAllowed}
	}

	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return s.noPath(q.http)
	}

	kind := mime.TypeByExtension(filepath.Ext(f.Name()))
	q.w.Header().Set("Content-Type", cmp.Or(kind, "application/octet-stream"))
	q.w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = http.NewResponseController(q.w).SetWriteDeadline(time.Now().Add(writeTime +
		time.Duration(info.Size()>>16)*time.Second))
	q.code, q.sent = http.StatusOK, int(info.Size())
	http.ServeContent(q.w, q.http, "", info.ModTime(), f)

	return nil
}
