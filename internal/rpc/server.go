package rpc

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/internal/httpserver"
)

const (
	// Slack is how much longer than [Row.Takes] a client waits, so that it still receives the
	// server's reason for giving up.
	Slack = 5 * time.Second
)

// Server answers the methods of a table.
type Server struct {
	Table    *Table
	Handlers *Handlers
	// Whole means that this server has all methods of the table. [Server.Handler] then panics if
	// Handlers lacks one.
	Whole bool
	// Strict refuses requests with unknown fields.
	Strict bool
	// Unreadable begins the error text for a body that cannot be read.
	Unreadable string
	// Explain converts an error of a handler to a refusal. It may be nil: then the function
	// [Explain] converts it.
	Explain func(error) *Error
	// Permit returns a refusal if the caller does not have the role, otherwise nil. It may be nil
	// if no row has a role.
	Permit func(*http.Request, Role) *Error
	// Context returns the handler's context, to which it may add facts about the request. It may be
	// nil: the handler gets the request's own context.
	Context func(*http.Request) context.Context
	// Actor returns the actor who sent a request. It may be nil: then this server records nothing.
	Actor func(*http.Request) audit.Actor
	// Record is the audit log. It may be nil: then this server records nothing.
	Record *audit.Log
	Log    *slog.Logger
}

// endpoint answers one request. slots limits concurrent calls to [Row.AtOnce]; it may be nil: there
// is no limit.
type endpoint func(s *Server, slots chan struct{}, w http.ResponseWriter, r *http.Request)

// Handler returns the HTTP handler for all routes of the table.
func (s *Server) Handler() http.Handler {
	if missing := s.Handlers.Missing(s.Table); s.Whole && len(missing) > 0 {
		panic(fmt.Sprintf("rpc: no function for %s", strings.Join(missing, ", ")))
	}

	mux := http.NewServeMux()
	for _, e := range s.Table.rows {
		answer := e.absent
		if own := s.Handlers.byRoute[e.row.Route]; own != nil {
			answer = own
		}

		var slots chan struct{}
		if e.row.AtOnce > 0 {
			slots = make(chan struct{}, e.row.AtOnce)
		}

		mux.HandleFunc(e.row.Route, func(w http.ResponseWriter, r *http.Request) { answer(s, slots, w, r) })
	}
	return mux
}

func (m *Method[In, Out]) endpoint(call func(context.Context, In) (Out, error)) endpoint {
	return func(s *Server, slots chan struct{}, w http.ResponseWriter, r *http.Request) {
		refusal := s.admitCall(&m.Row, slots, r)
		if refusal == nil && slots != nil {
			defer func() { <-slots }()
		}

		var in In
		if refusal == nil {
			in, refusal = m.read(s, w, r)
		}

		ctx := r.Context()
		if s.Context != nil {
			ctx = s.Context(r)
		}
		ctx, record := m.begin(ctx, s, in, r)

		var out Out
		if refusal == nil {
			m.extendAnswer(w)
			ctx, begun, cancel := m.bounded(ctx)
			defer cancel()

			var err error
			out, err = call(ctx, in)
			begun()
			if err != nil {
				refusal = s.explain(err)
			}
		}

		s.writeAnswer(w, out, refusal)
		if record != nil {
			s.Record.Note(outcome(*record, refusal, m.GoesOn))
		}
	}
}

// admitCall refuses callers without the method's role, and calls above its limit. If it returns
// nil, the call occupies a slot.
func (s *Server) admitCall(row *Row, slots chan struct{}, r *http.Request) *Error {
	if row.Role != "" {
		refusal := s.Permit(r, row.Role)
		if refusal != nil {
			return refusal
		}
	}

	if slots == nil {
		return nil
	}
	select {
	case slots <- struct{}{}:
		return nil
	default:
		return &Error{Code: CodeBusy, Text: row.Busy}
	}
}

// read decodes the request. refusal is nil if the request is valid.
func (m *Method[In, Out]) read(s *Server, w http.ResponseWriter, r *http.Request) (in In, refusal *Error) {
	body := http.MaxBytesReader(w, r.Body, m.Bound)
	var err error
	switch {
	case m.Form != nil:
		in, err = m.Form.Read(m.values(r))
	case m.Body != nil:
		in, err = m.Body.Read(body)
	case m.Bound > 0:
		in, err = decode[In](body, s.Strict)
		if err != nil {
			err = fmt.Errorf("%s%w", s.Unreadable, err)
		}
	}

	if err == nil {
		return in, nil
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return in, e
	}
	code := CodeBadRequest
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		code = CodeTooLarge
	}
	return in, &Error{Code: code, Text: err.Error()}
}

// decode parses the JSON of a request. The body must hold exactly one value, which is not null:
// otherwise the server would ignore a part of the request.
func decode[In any](body io.Reader, strict bool) (in In, err error) {
	decoder := json.NewDecoder(body)
	if strict {
		decoder.DisallowUnknownFields()
	}

	var value *In
	err = decoder.Decode(&value)
	if err != nil {
		return in, err
	}
	if value == nil {
		return in, errors.New("the JSON value is null")
	}

	_, err = decoder.Token()
	switch {
	case errors.Is(err, io.EOF):
		return *value, nil
	case err == nil:
		err = errors.New("something follows the JSON value")
	}
	return in, err
}

// values returns the query of a request together with the values in its path.
func (m *Method[In, Out]) values(r *http.Request) map[string][]string {
	values := r.URL.Query()
	for _, name := range places(m.path()) {
		values.Set(name, r.PathValue(name))
	}
	return values
}

// places returns the names in braces in a path.
func places(path string) (names []string) {
	for part := range strings.SplitSeq(path, "/") {
		if strings.HasPrefix(part, "{") {
			names = append(names, strings.Trim(part, "{}"))
		}
	}
	return names
}

// begin adds the caller to the context and writes the audit record that the work begins. For a
// method that only reads it does neither. The returned record is nil if begin wrote none.
func (m *Method[In, Out]) begin(
	ctx context.Context,
	s *Server,
	in In,
	r *http.Request,
) (context.Context, *audit.Record) {
	if s.Actor == nil || m.Audit == "" && r.Method == http.MethodGet {
		return ctx, nil
	}

	actor := s.Actor(r)
	ctx = audit.WithActor(ctx, actor)

	var subject Subject
	if m.Subject != nil {
		subject = m.Subject(in)
	}
	if m.Audit == "" || subject.Dry {
		return ctx, nil
	}

	record := audit.Record{
		Actor:  actor,
		Action: m.Audit,
		Object: subject.Object,
		Detail: subject.Detail,
		Op:     audit.NewOp(),
		Result: audit.Asked,
	}
	if subject.Action != "" {
		record.Action = subject.Action
	}

	s.Record.Write(ctx, record)
	return ctx, &record
}

// outcome returns the audit record of a call's end.
func outcome(record audit.Record, refusal *Error, goesOn bool) audit.Record {
	record.Time = time.Time{}
	switch {
	case refusal != nil && refusal.Code.Status() >= http.StatusInternalServerError:
		record.Result = audit.Failed
	case refusal != nil:
		record.Result = audit.Refused
	case goesOn:
		record.Result = audit.Started
	default:
		record.Result = audit.OK
	}

	if refusal != nil {
		record.Detail = refusal.Text
	}
	return record
}

// extendAnswer extends the connection's write deadline to the time that the work and its answer may
// take, in place of the server's limit.
func (m *Method[In, Out]) extendAnswer(w http.ResponseWriter) {
	// The client has 20 seconds more to take the answer.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(m.Takes + 20*time.Second))
}

// bounded returns the context of the work, limited to [Row.Takes]. For a stream, begun removes the
// limit: the stream lasts while the caller reads it. cancel ends the context.
func (m *Method[In, Out]) bounded(ctx context.Context) (_ context.Context, begun, cancel func()) {
	var out Out
	if _, streams := any(out).(Stream); !streams {
		ctx, cancel := context.WithTimeout(ctx, m.Takes)
		return ctx, func() {}, cancel
	}

	ctx, end := context.WithCancelCause(ctx)
	limit := time.AfterFunc(m.Takes, func() { end(context.DeadlineExceeded) })
	return ctx, func() { limit.Stop() }, func() { limit.Stop(); end(nil) }
}

func (s *Server) explain(err error) *Error {
	if s.Explain != nil {
		return s.Explain(err)
	}
	return Explain(err)
}

// writeAnswer sends the answer, or the refusal if it is not nil.
func (s *Server) writeAnswer(w http.ResponseWriter, answer any, refusal *Error) {
	if refusal != nil {
		Refuse(w, refusal)
		return
	}
	if stream, ok := answer.(Stream); ok {
		s.stream(w, stream)
		return
	}

	w.Header().Set("Content-Type", "application/json")
	err := json.NewEncoder(w).Encode(answer)
	if err != nil { // the client may have disconnected
		s.Log.Debug("an answer was not sent", "error", err)
	}
}

// Refuse answers a request with a refusal.
func Refuse(w http.ResponseWriter, refusal *Error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(refusal.Code.Status())
	_ = json.NewEncoder(w).Encode(refusal) // the client may have disconnected
}

func (s *Server) stream(w http.ResponseWriter, stream Stream) {
	defer stream.Body.Close()
	maps.Copy(w.Header(), stream.Header)
	_, err := io.Copy(httpserver.Stream(w, stream.Stall), stream.Body)
	if err != nil {
		s.Log.Debug("an answer was cut", "error", err)
	}
}
