package rpc

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Role names the callers who may call a method. The server defines its roles, see [Server.Permit].
// The empty role is everybody who may connect.
type Role string

// Row holds the properties of a method that do not depend on its types.
type Row struct {
	// Route is the HTTP verb and the path. A {name} in the path stands for a value of [Method.Form].
	Route string
	// Bound limits the body of a request in bytes. 0 means that a request has no body.
	Bound int64
	// Takes limits the time that the server works on a call. The client waits [Slack] longer.
	Takes time.Duration
	// AtOnce limits concurrent calls. The server refuses calls above the limit with the text in
	// Busy. 0 means no limit besides the server's limit of connections.
	AtOnce int
	Busy   string
	Role   Role
	// Needs is the answer of a server that has no function for this method. It may be nil if
	// [Method.Absent] is set, or if every server of the table has a function for the method.
	Needs error
	// Audit is the action in the audit record. If it is empty, Unaudited says why there is no record.
	Audit     string
	Unaudited string
	// GoesOn means that the work continues after the answer. The answer says only that the work has
	// begun.
	GoesOn bool
	// Command is the command line that calls the method. If it is empty, NoCommand says why there is
	// none.
	Command   string
	NoCommand string
}

// Verb returns the HTTP verb.
func (r *Row) Verb() string {
	verb, _, _ := strings.Cut(r.Route, " ")
	return verb
}

func (r *Row) path() string {
	_, path, _ := strings.Cut(r.Route, " ")
	return path
}

// None is the type of an empty request, and of an answer that says only that the call succeeded.
type None struct{}

// Method is one method: its row and its codecs. In is the type of the request, Out the type of the
// answer.
type Method[In, Out any] struct {
	Row
	// Form encodes a request in path and query. It may be nil: then the request is JSON in the body.
	Form *Form[In]
	// Body encodes a request in the body instead of JSON. It may be nil.
	Body *Body[In]
	// Subject returns what the audit record says about a request. It may be nil: then the record
	// names only the action.
	Subject func(In) Subject
	// Absent answers on a server that has no function for this method. It may be nil: then the
	// server answers with Needs.
	Absent func(In) (Out, error)
}

// Form is a codec for requests in path and query.
type Form[In any] struct {
	Write func(In) url.Values
	// Read must check the values, because they are untrusted.
	Read func(url.Values) (In, error)
}

// Body is a codec for a request body that is not JSON.
type Body[In any] struct {
	Write func(In) []byte
	// Read gets a reader that ends at [Row.Bound].
	Read func(io.Reader) (In, error)
}

// Subject is the object of one request and its details, for the audit record.
type Subject struct {
	Action string // replaces [Row.Audit] unless empty
	Object string
	Detail string
	// Dry marks a request that changes nothing. The audit log gets no record of it.
	Dry bool
}

// Stream is an answer that is not JSON. It may last longer than [Row.Takes], which then limits only
// the time until the answer begins.
type Stream struct {
	Header http.Header
	Body   io.ReadCloser // reading ends when the context of the call ends; the server closes the body
	// Stall limits how long one write may wait for the reader.
	Stall time.Duration
}

// Table lists the methods of one API.
type Table struct {
	rows []entry
}

// entry is a method of a table.
type entry struct {
	row    *Row
	absent endpoint
}

// Rows returns the rows in the order in which they were added.
func (t *Table) Rows() []*Row {
	var rows []*Row
	for _, e := range t.rows {
		rows = append(rows, e.row)
	}
	return rows
}

// Add adds a method to a table and returns it. It panics if the table already has the route.
func Add[In, Out any](t *Table, m Method[In, Out]) *Method[In, Out] {
	if slices.ContainsFunc(t.rows, func(e entry) bool { return e.row.Route == m.Route }) {
		panic(fmt.Sprintf("rpc: two methods of the route %q", m.Route))
	}

	added := &m
	absent := func(_ context.Context, in In) (out Out, err error) {
		if added.Absent != nil {
			return added.Absent(in)
		}
		if added.Needs == nil {
			return out, fmt.Errorf("this program has no function for %s", added.Route)
		}
		return out, added.Needs
	}
	t.rows = append(t.rows, entry{&added.Row, added.endpoint(absent)})
	return added
}

// Handlers are the functions that one process has registered for the methods of a table.
type Handlers struct {
	byRoute map[string]endpoint
}

// Handle registers the function of a method. Several goroutines may call the function at once. Its
// context ends with the request, or after [Row.Takes].
func Handle[In, Out any](h *Handlers, m *Method[In, Out], call func(context.Context, In) (Out, error)) {
	if h.byRoute == nil {
		h.byRoute = map[string]endpoint{}
	}
	h.byRoute[m.Route] = m.endpoint(call)
}

// Missing returns the routes of a table for which h has no function, in the order of the table.
func (h *Handlers) Missing(t *Table) (routes []string) {
	for _, e := range t.rows {
		if h.byRoute[e.row.Route] == nil {
			routes = append(routes, e.row.Route)
		}
	}
	return routes
}

// Order converts a function that returns only an error to a function that [Handle] accepts.
func Order[In any](call func(context.Context, In) error) func(context.Context, In) (None, error) {
	return func(ctx context.Context, in In) (None, error) { return None{}, call(ctx, in) }
}

// Question converts a function without a request to one that [Handle] accepts.
func Question[Out any](call func(context.Context) (Out, error)) func(context.Context, None) (Out, error) {
	return func(ctx context.Context, _ None) (Out, error) { return call(ctx) }
}
