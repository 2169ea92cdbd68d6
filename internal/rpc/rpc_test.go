package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/internal/localsock"
)

// errAway is what the methods of the tests need.
var errAway = &Kind{Code: CodeState, Text: "this node is alone"}

type greeting struct {
	Name string `json:"name"`
}

var (
	table = &Table{}

	greet = Add(table, Method[greeting, greeting]{Row: Row{
		Route: "POST /v1/greet",
		Bound: 100,
		Takes: time.Minute,
		Needs: errAway,
	}})

	order = Add(table, Method[None, None]{Row: Row{Route: "POST /v1/order", Takes: 30 * time.Millisecond, Needs: errAway}})

	find = Add(table, Method[string, greeting]{
		Row: Row{Route: "GET /v1/people/{name}/card", Takes: time.Minute, Needs: errAway},
		Form: &Form[string]{
			Write: func(name string) url.Values { return url.Values{"name": {name}, "full": {"yes & no"}} },
			Read: func(v url.Values) (string, error) {
				if v.Get("full") != "yes & no" {
					return "", fmt.Errorf("full is %q", v.Get("full"))
				}
				return v.Get("name"), nil
			},
		},
	})

	rare = Add(table, Method[None, greeting]{Row: Row{
		Route:  "GET /v1/rare",
		Takes:  time.Minute,
		AtOnce: 1,
		Busy:   "one at a time",
		Role:   "root",
	}})

	watch = Add(table, Method[None, Stream]{Row: Row{Route: "GET /v1/watch", Takes: time.Minute, Needs: errAway}})
)

// start serves handlers, and returns a client. edit changes the servers; it may be nil.
func start(t *testing.T, h *Handlers, edit func(*Server, *http.Server)) *Client {
	t.Helper()
	s := &Server{Table: table, Handlers: h, Unreadable: "unreadable: ", Log: slog.New(slog.DiscardHandler)}
	web := httptest.NewUnstartedServer(nil)
	if edit != nil {
		edit(s, web.Config)
	}
	web.Config.Handler = s.Handler()
	web.Start()
	t.Cleanup(web.Close)
	return &Client{
		Socket: localsock.Client{HTTP: web.Client(), MaxAnswer: 1 << 20},
		Host:   web.Listener.Addr().String(),
	}
}

func TestCall(t *testing.T) {
	h := &Handlers{}
	Handle(h, greet, func(_ context.Context, q greeting) (greeting, error) {
		if q.Name == "nobody" {
			return q, fmt.Errorf("%w: nobody has no card", errAway)
		}
		return greeting{"hello " + q.Name}, nil
	})
	Handle(h, find, func(_ context.Context, name string) (greeting, error) { return greeting{name}, nil })
	c := start(t, h, nil)

	got, err := Call(t.Context(), c, greet, greeting{"anna"})
	if err != nil || got.Name != "hello anna" {
		t.Errorf("%+v %v", got, err)
	}

	_, err = Call(t.Context(), c, greet, greeting{"nobody"})
	if !errors.Is(err, errAway) || err.Error() != "this node is alone: nobody has no card" {
		t.Errorf("a refusal with a code: %v", err)
	}

	_, err = Call(t.Context(), c, greet, greeting{strings.Repeat("x", 100)})
	if !errors.Is(err, &Error{Code: CodeTooLarge}) || !strings.HasPrefix(err.Error(), "unreadable: ") {
		t.Errorf("a body above the bound: %v", err)
	}

	_, err = Call(t.Context(), c, order, None{})
	if !errors.Is(err, errAway) {
		t.Errorf("a method that is not registered: %v", err)
	}
}

// FuzzPlaces: whatever a value in the path is, the handler gets it as it is.
func FuzzPlaces(f *testing.F) {
	h := &Handlers{}
	Handle(h, find, func(_ context.Context, name string) (greeting, error) {
		return greeting{fmt.Sprintf("%x", name)}, nil
	})
	s := &Server{Table: table, Handlers: h, Log: slog.New(slog.DiscardHandler)}
	for _, name := range []string{"lb", "../x", "a/b?c=d#e", "%2F", "/", "{name}", "ä ", "x\x00y"} {
		f.Add(name)
	}

	f.Fuzz(func(t *testing.T, name string) {
		target, _, err := find.request(name)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "http://node"+target, nil))
		if name == "" || name == "." || name == ".." || name == "/" {
			return // no name of anything: the router refuses it
		}
		if want := fmt.Sprintf(`{"name":"%x"}`, name); strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("%q became %s at %s", name, w.Body, target)
		}
	})
}

// TestStrictServer: only a strict server refuses fields that it does not know.
func TestStrictServer(t *testing.T) {
	h := &Handlers{}
	Handle(h, greet, func(_ context.Context, q greeting) (greeting, error) { return q, nil })
	for strict, want := range map[bool]int{true: http.StatusBadRequest, false: http.StatusOK} {
		s := Server{Table: table, Handlers: h, Strict: strict, Log: slog.New(slog.DiscardHandler)}
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/greet", strings.NewReader(`{"nme":"x"}`)))
		if w.Code != want {
			t.Errorf("strict %v: status %d", strict, w.Code)
		}
	}
}

// TestBodyIsOneValue: a body whose value is null, or after which something follows, is refused by
// every server, strict or not.
func TestBodyIsOneValue(t *testing.T) {
	h := &Handlers{}
	Handle(h, greet, func(_ context.Context, q greeting) (greeting, error) { return q, nil })
	for body, want := range map[string]int{
		`{"name":"x"}`:                  http.StatusOK,
		" {} \n":                        http.StatusOK,
		``:                              http.StatusBadRequest,
		`null`:                          http.StatusBadRequest,
		`{"name":"x"`:                   http.StatusBadRequest,
		`{"name":"x"}{"name":"y"}`:      http.StatusBadRequest,
		`{"name":"x"} y`:                http.StatusBadRequest,
		`{"name":"x"}null`:              http.StatusBadRequest,
		`{"name":7}`:                    http.StatusBadRequest,
		`[]`:                            http.StatusBadRequest,
		`{}` + strings.Repeat(" ", 200): http.StatusRequestEntityTooLarge,
		strings.Repeat("[", 200):        http.StatusRequestEntityTooLarge,
		`"` + strings.Repeat("x", 200):  http.StatusRequestEntityTooLarge,
	} {
		for _, strict := range []bool{true, false} {
			s := Server{Table: table, Handlers: h, Strict: strict, Log: slog.New(slog.DiscardHandler)}
			w := httptest.NewRecorder()
			s.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/greet", strings.NewReader(body)))
			if w.Code != want {
				t.Errorf("%.30q, strict %v: status %d, not %d: %s", body, strict, w.Code, want, w.Body)
			}
		}
	}
}

// TestStreamBeginsInTime: the context of a stream ends if the stream has not begun when the time of
// its row is over, and does not end then if it has begun.
func TestStreamBeginsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, begun, cancel := watch.bounded(t.Context())
		time.Sleep(watch.Takes)
		<-ctx.Done()
		if !errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
			t.Errorf("too late: %v", context.Cause(ctx))
		}
		begun()
		cancel()

		ctx, begun, cancel = watch.bounded(t.Context())
		begun()
		time.Sleep(2 * watch.Takes)
		if ctx.Err() != nil {
			t.Errorf("a stream that has begun: %v", context.Cause(ctx))
		}
		cancel()
		<-ctx.Done()
	})
}

// TestWorkEndsWithItsBound: the context of a handler ends when the work has taken what its row
// says.
func TestWorkEndsWithItsBound(t *testing.T) {
	h := &Handlers{}
	Handle(h, order, Order(func(ctx context.Context, _ None) error {
		<-ctx.Done()
		return fmt.Errorf("took too long: %w", ctx.Err())
	}))
	_, err := Call(t.Context(), start(t, h, nil), order, None{})
	if err == nil || err.Error() != "took too long: context deadline exceeded" {
		t.Errorf("%v", err)
	}
}

// TestWorkOutlastsServer: the bounds of the server for reading a request and for writing an
// answer do not end the work, which may take as long as its row says.
func TestWorkOutlastsServer(t *testing.T) {
	const timeout = 30 * time.Millisecond
	h := &Handlers{}
	Handle(h, greet, func(ctx context.Context, q greeting) (greeting, error) {
		select {
		case <-ctx.Done():
			return q, ctx.Err()
		case <-time.After(4 * timeout):
			return q, nil
		}
	})
	c := start(t, h, func(_ *Server, web *http.Server) {
		web.ReadTimeout = timeout
		web.WriteTimeout = timeout
	})

	_, err := Call(t.Context(), c, greet, greeting{"anna"})
	if err != nil {
		t.Errorf("%v", err)
	}
}

// TestCallsAtOnceAreBounded: a call above the bound is refused, and so is one without the role.
func TestCallsAtOnceAreBounded(t *testing.T) {
	inside, leave := make(chan struct{}), make(chan struct{})
	h := &Handlers{}
	Handle(h, rare, Question(func(context.Context) (greeting, error) {
		inside <- struct{}{}
		<-leave
		return greeting{}, nil
	}))
	c := start(t, h, func(s *Server, _ *http.Server) {
		s.Permit = func(r *http.Request, role Role) *Error {
			if r.Header.Get("Role") != string(role) {
				return &Error{Code: CodeNotPermitted, Text: "only " + string(role)}
			}
			return nil
		}
	})

	_, err := Call(t.Context(), c, rare, None{})
	if !errors.Is(err, &Error{Code: CodeNotPermitted}) || err.Error() != "only root" {
		t.Errorf("without the role: %v", err)
	}

	c.Header = http.Header{"Role": {"root"}}
	first := make(chan error)
	go func() {
		_, err := Call(context.Background(), c, rare, None{})
		first <- err
	}()
	<-inside

	_, err = Call(t.Context(), c, rare, None{})
	if !errors.Is(err, &Error{Code: CodeBusy}) || err.Error() != "one at a time" {
		t.Errorf("a second call: %v", err)
	}
	close(leave)
	if err := <-first; err != nil {
		t.Error(err)
	}
}

// closer notes that it was closed.
type closer struct {
	io.Reader
	closed chan struct{}
}

func (c closer) Close() error {
	close(c.closed)
	return nil
}

func TestStream(t *testing.T) {
	closed := make(chan struct{})
	h := &Handlers{}
	Handle(h, watch, func(context.Context, None) (Stream, error) {
		return Stream{
			Header: http.Header{"Asked": {"n2"}},
			Body:   closer{strings.NewReader("frames"), closed},
			Stall:  time.Second,
		}, nil
	})
	c := start(t, h, nil)

	resp, err := c.Socket.HTTP.Get("http://" + c.Host + "/v1/watch")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || string(b) != "frames" || resp.Header.Get("Asked") != "n2" {
		t.Errorf("%q %v %v", b, resp.Header, err)
	}
	<-closed
}

// TestRefusalsOfEarlierVersions: a program of an earlier version says no code, or no text.
func TestRefusalsOfEarlierVersions(t *testing.T) {
	for body, want := range map[string]Error{
		`{"error": "not now"}`:                     {CodeState, "not now"},
		`{"code": "last-member", "error": "last"}`: {CodeLastMember, "last"},
		`{}`:           {CodeState, "409 Conflict"},
		"<html>":       {CodeState, "409 Conflict"},
		`{"error": 1}`: {CodeState, "409 Conflict"},
		``:             {CodeState, "409 Conflict"},
	} {
		got := decodeError(&localsock.Refusal{Code: http.StatusConflict, Status: "409 Conflict", Body: []byte(body)})
		if *got != want {
			t.Errorf("%s: %+v", body, *got)
		}
	}

	if got := codeOf(http.StatusTeapot); got != CodeFailed {
		t.Errorf("an unknown status: %s", got)
	}
}

// TestMethodOfAnotherVersion: who calls a method that the server's version does not have is told so.
func TestMethodOfAnotherVersion(t *testing.T) {
	c := start(t, &Handlers{}, nil)
	newer := &Table{}
	for _, route := range []string{"POST /v1/newer", "DELETE /v1/greet"} { // no such path, no such verb
		m := Add(newer, Method[None, None]{Row: Row{Route: route, Takes: time.Minute}})
		_, err := Call(t.Context(), c, m, None{})
		if refusal, ok := errors.AsType[*Error](err); !ok || !strings.Contains(refusal.Text, "another version") {
			t.Errorf("%s: %v", route, err)
		}
	}
}

func TestUnreadableAnswer(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name": 7}`)
	}))
	defer web.Close()
	c := &Client{Socket: localsock.Client{HTTP: web.Client(), MaxAnswer: 100}, Host: web.Listener.Addr().String()}
	got, err := Call(t.Context(), c, greet, greeting{})
	if _, ok := errors.AsType[*AnswerError](err); !ok || got != (greeting{}) {
		t.Errorf("%+v %v", got, err)
	}

	web.Close()
	_, err = Call(t.Context(), c, greet, greeting{})
	if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != "dial" {
		t.Errorf("nobody listens: %v", err)
	}
}

func TestRoutesAreUnique(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("two methods have one route")
		}
	}()
	Add(table, Method[None, None]{Row: Row{Route: greet.Route}})
}

// TestRowWithoutFunction: a server that should have all methods cannot be built without one, and no server
// answers with success for a method that it does not have.
func TestRowWithoutFunction(t *testing.T) {
	h := &Handlers{}
	Handle(h, greet, func(_ context.Context, q greeting) (greeting, error) { return q, nil })
	if missing := h.Missing(table); len(missing) != len(table.Rows())-1 || slices.Contains(missing, greet.Route) {
		t.Errorf("missing are %q", missing)
	}

	c := start(t, h, func(s *Server, _ *http.Server) { s.Permit = func(*http.Request, Role) *Error { return nil } })
	got, err := Call(t.Context(), c, rare, None{})
	if err == nil || !strings.Contains(err.Error(), "no function for GET /v1/rare") {
		t.Errorf("a method without a function: %+v %v", got, err)
	}

	defer func() {
		if why, _ := recover().(string); !strings.Contains(why, "no function for POST /v1/order, ") {
			t.Errorf("a server that lacks methods was built: %q", why)
		}
	}()
	(&Server{Table: table, Handlers: h, Whole: true}).Handler()
}
