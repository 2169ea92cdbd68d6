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

// Role says who may call a method. A server knows what its roles mean, see [Server.Permit].
// The empty role is everybody whom the server lets connect.
type Role string

// Row has the properties of a method that do not depend on its types.
type Row struct {
	// Route is the verb of HTTP and the path. A {name} in it is a value of [Method.Form].
	Route string
	// Bound limits the body of a request in bytes; 0: there is none.
	Bound int64
	// Takes bounds the work. A client waits [Slack] longer.
	Takes time.Duration
	// AtOnce bounds the calls under way; further ones are refused with Busy. 0: the bound of
	// the server's connections is enough.
	AtOnce int
	Busy   string
	Role   Role
	// Needs answers for a server without this method. It may be nil if [Method.Absent] is set,
	// or if every server of the table has the method.
	Needs error
	// Audit is the action in the audit record. Empty: Unaudited says why there is no record.
	Audit     string
	Unaudited string
	// GoesOn marks work that goes on after the answer, which says only that it has begun.
	GoesOn bool
	// Command is the command that calls the method. Empty: NoCommand says why there is none.
	Command   string
	NoCommand string
}

// Verb returns the verb of HTTP.
func (r *Row) Verb() string {
	verb, _, _ := strings.Cut(r.Route, " ")
	return verb
}

func (r *Row) path() string {
	_, path, _ := strings.Cut(r.Route, " ")
	return path
}

// None is the type of a request that says nothing, and of an answer that says only that all
// went well.
type None struct{}

// Method is one method: its row, and what depends on its types. In is the request, Out the
// answer.
type Method[In, Out any] struct {
	Row
	// Form writes a request into path and query, and reads it. It may be nil: then the body
	// is the request, as JSON.
	Form *Form[In]
	// Body replaces JSON in the body of a request. It may be nil.
	Body *Body[In]
	// Subject returns the words of the audit record about a request. It may be nil: then the
	// record has only the action.
	Subject func(In) Subject
	// Absent answers for a server without this method. It may be nil: then Needs does.
	Absent func(In) (Out, error)
}

// Form is the codec of requests in path and query.
type Form[In any] struct {
	Write func(In) url.Values
	// Read may get any values: they are foreign.
	Read func(url.Values) (In, error)
}

// Body is the codec of a body that is no JSON.
type Body[In any] struct {
	Write func(In) []byte
	// Read gets a reader that ends at [Row.Bound].
	Read func(io.Reader) (In, error)
}

// Subject has the words of the audit record about one request.
type Subject struct {
	Action string // instead of [Row.Audit]; empty: that
	Object string
	Detail string
	// Dry marks a request that changes nothing: there is no record.
	Dry bool
}

// Stream is the answer of a method whose answer is no JSON. It may last longer than
// [Row.Takes], which bounds only the time until it begins.
type Stream struct {
	Header http.Header
	Body   io.ReadCloser // ends with the context of the call; the server closes it
	// Stall bounds the time in which the reader takes one write.
	Stall time.Duration
}

// Table is the list of the methods of one API.
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

// Add puts a method into a table. It panics when the route is there already.
func Add[In, Out any](t *Table, m Method[In, Out]) *Method[In, Out] {
	if slices.ContainsFunc(t.rows, func(e entry) bool { return e.row.Route == m.Route }) {
		panic(fmt.Sprintf("rpc: two methods of the route %q", m.Route))
	}

	added := &m
	absent := func(_ context.Context, in In) (out Out, err error) {
		if added.Absent != nil {
			return added.Absent(in)
		}
		return out, added.Needs
	}
	t.rows = append(t.rows, entry{&added.Row, added.endpoint(absent)})
	return added
}

// Handlers are the functions that one process has for the methods of a table.
type Handlers struct {
	byRoute map[string]endpoint
}

// Handle registers the function of a method. do may be called at any time, by several
// goroutines at once; its context ends with the request, at [Row.Takes] at the latest.
func Handle[In, Out any](h *Handlers, m *Method[In, Out], do func(context.Context, In) (Out, error)) {
	if h.byRoute == nil {
		h.byRoute = map[string]endpoint{}
	}
	h.byRoute[m.Route] = m.endpoint(do)
}

// Order makes a function without an answer one for [Handle].
func Order[In any](do func(context.Context, In) error) func(context.Context, In) (None, error) {
	return func(ctx context.Context, in In) (None, error) { return None{}, do(ctx, in) }
}

// Question makes a function without a request one for [Handle].
func Question[Out any](do func(context.Context) (Out, error)) func(context.Context, None) (Out, error) {
	return func(ctx context.Context, _ None) (Out, error) { return do(ctx) }
}
