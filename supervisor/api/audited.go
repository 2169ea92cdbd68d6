package api

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"path"
	"time"

	"saltern/internal/audit"
)

// act is what a route does, for the audit record.
type act struct {
	action string
	// goes on by itself after the answer, which says only that it was taken
	goesOn bool
}

// acts are the routes that are in the audit record: those that change something, or
// give away a secret. Keys are not among them: salt-key, which changes them, writes
// them down. What moves between the nodes is not either: they ask each other.
func acts() map[string]act {
	return map[string]act{
		"PUT /v1/config":                   {"config.set", true},
		"POST /v1/reload":                  {"node.reload", true},
		"POST /v1/services/{name}/restart": {"service.restart", true},
		"GET /v1/cluster/join-string":      {"secret.show", false},
		"POST /v1/cluster/drain":           {"node.drain", false},
		"POST /v1/cluster/leave":           {"node.leave", false},
		"POST /v1/cluster/remove":          {"node.remove", false},
		"POST /v1/cluster/recover":         {"cluster.recover", true},
		"POST /v1/cluster/rotate":          {"secret.rotate", false},
		"POST /v1/cluster/key":             {"cluster.key", false},
		"POST /v1/cluster/newkey":          {"cluster.newkey", false},
		"POST /v1/cluster/virtual":         {"address.set", false},
		"POST /v1/cluster/turn":            {"turn.take", false},
		"POST /v1/options/apply":           {"config.apply", true},
		"POST /v1/reset":                   {"node.reset", true},
		"POST /v1/upgrade":                 {"cluster.upgrade", true},
		"POST /v1/backup":                  {"backup.make", true},
		"POST /v1/git/fetch":               {"git.fetch", false},
		"POST /v1/tokens/revoke":           {"token.revoke", false},
		"POST /v1/tool":                    {"tool.run", false},
		"POST /v1/setup/start":             {"node.setup", true},
		"POST /v1/setup/back":              {"setup.back", false},
		"POST /v1/setup/network":           {"setup.network", false},
	}
}

// subject is what bodies say of the object of an act. Nothing else of a body is kept:
// there are secrets in some.
type subject struct {
	Node, Remote, Address, Action string
	User, Name                    string // of log-ins
	End, Force, Dry               bool
}

const maxSubject = 64 << 10 // of a body that is looked at

// look reads what a body says, and puts it back.
func look(r *http.Request, pattern string) (s subject) {
	if r.Method == http.MethodGet || pattern == "PUT /v1/config" || pattern == "POST /v1/tool" ||
		pattern == "POST /v1/setup/start" {
		return s // no JSON, or none of it is for the record
	}
	b, err := io.ReadAll(io.LimitReader(r.Body, maxSubject))
	if err == nil && len(b) < maxSubject {
		_ = json.Unmarshal(b, &s) // what cannot be read is refused later
	}
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(b), r.Body), r.Body}
	return s
}

// recordOf is the record of a request; ok is false for one that changes nothing.
func recordOf(r *http.Request, pattern string, who audit.Actor) (rec audit.Record, ok bool) {
	a, ok := acts()[pattern]
	if !ok {
		return rec, false
	}

	s := look(r, pattern)
	rec = audit.Record{
		Actor:  who,
		Action: a.action,
		Object: s.Node + s.Remote + s.Address,
		Op:     audit.NewOp(),
		Result: audit.Asked,
	}

	switch {
	case s.Dry:
		return rec, false
	case a.action == "node.drain" && s.End:
		rec.Action = "node.undrain"
	case a.action == "turn.take" && s.End:
		rec.Action = "turn.give"
	case a.action == "token.revoke":
		rec.Object = s.User + s.Name
	case a.action == "setup.network":
		rec.Object = s.Action
	case a.action == "service.restart":
		rec.Object = path.Base(path.Dir(r.URL.Path))
	}

	if s.Force {
		rec.Detail = "with force"
	}

	return rec, true
}

// audited writes down what permitted callers ask for, and how it ended.
func (s *Server) audited(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet && r.URL.Path != "/v1/cluster/join-string" {
			mux.ServeHTTP(w, r)
			return
		}

		p, _ := r.Context().Value(peerKey{}).(peer)
		who := audit.PeerProcess(int(p.cred.Pid), int(p.cred.Uid))
		r = r.WithContext(audit.WithActor(r.Context(), who))
		_, pattern := mux.Handler(r)
		rec, ok := recordOf(r, pattern, who)
		if !ok {
			mux.ServeHTTP(w, r)
			return
		}

		s.parts.Record.Write(r.Context(), rec)
		said := &outcome{ResponseWriter: w, code: http.StatusOK}
		defer func() { s.parts.Record.Note(said.of(rec, acts()[pattern].goesOn)) }()

		mux.ServeHTTP(said, r)
	})
}

// outcome sees how a request was answered.
type outcome struct {
	http.ResponseWriter
	code int
	text []byte // of an error, its beginning
}

// Unwrap is for [http.ResponseController].
func (o *outcome) Unwrap() http.ResponseWriter { return o.ResponseWriter }

func (o *outcome) WriteHeader(code int) {
	o.code = code
	o.ResponseWriter.WriteHeader(code)
}

func (o *outcome) Write(b []byte) (int, error) {
	if o.code >= http.StatusBadRequest && len(o.text) < 4096 {
		o.text = append(o.text, b[:min(len(b), 4096)]...)
	}
	return o.ResponseWriter.Write(b)
}

// of is the record of how what was asked for ended.
func (o *outcome) of(r audit.Record, goesOn bool) audit.Record {
	r.Time = time.Time{}
	switch {
	case o.code >= http.StatusInternalServerError:
		r.Result = audit.Failed
	case o.code >= http.StatusBadRequest:
		r.Result = audit.Refused
	case goesOn:
		r.Result = audit.Started
	default:
		r.Result = audit.OK
	}

	var e struct{ Error string }
	if json.Unmarshal(o.text, &e) == nil && e.Error != "" {
		r.Detail = e.Error
	}

	return r
}
