package lbproxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"saltern/internal/rpc"
)

const (
	// maxAdminBody bounds a request to the admin API in bytes.
	maxAdminBody = 64 << 10
	// adminTakes limits the work for a request, which waits only for the loops of the proxy.
	adminTakes = 25 * time.Second
)

// Why methods of the admin API have no audit record, and no command.
const (
	onlyLooks    = "it changes nothing"
	changesProxy = "it changes this proxy until its next start; the supervisor writes down what nodes are asked for"
	bySupervisor = "the supervisor asks"
)

// adminRequest is the body of every POST. The method's row in the table says which fields the
// method reads.
type adminRequest struct {
	Backend  string   `json:"backend,omitempty"`
	Frontend string   `json:"frontend,omitempty"`
	Weight   int      `json:"weight,omitempty"`
	Force    bool     `json:"force,omitempty"`
	Add      *Backend `json:"add,omitempty"`
}

// sessionsCut is the answer with the number of closed sessions.
type sessionsCut struct {
	Cut int `json:"cut,omitempty"`
}

// adminTable holds the methods of the admin API, except GET /metrics, whose answer is text.
var adminTable = &rpc.Table{}

var (
	readStatus = rpc.Add(adminTable, rpc.Method[rpc.None, Status]{Row: rpc.Row{
		Route:     "GET /v1/status",
		Takes:     adminTakes,
		Unaudited: onlyLooks,
		Command:   "applianced lb status",
	}})

	readKnown = rpc.Add(adminTable, rpc.Method[rpc.None, []knownSource]{Row: rpc.Row{
		Route:     "GET /v1/known",
		Takes:     adminTakes,
		Unaudited: onlyLooks,
		NoCommand: "the process that takes the load balancer over asks",
	}})

	drainBackend   = change("drain", "applianced lb drain", "")
	undrainBackend = change("undrain", "applianced lb undrain", "")
	maintBackend   = change("maint", "applianced lb maint", "")
	weighBackend   = change("weight", "applianced lb weight", "")
	addBackend     = change("add", "", bySupervisor)
	removeBackend  = change("remove", "", bySupervisor)

	cutSessions = rpc.Add(adminTable, rpc.Method[adminRequest, sessionsCut]{Row: rpc.Row{
		Route:     "POST /v1/cut",
		Bound:     maxAdminBody,
		Takes:     adminTakes,
		Unaudited: changesProxy,
		Command:   "applianced lb cut",
	}})
)

// change adds a method that changes the proxy to the admin table, and returns it. command is the
// command that calls it. noCommand is the reason why there is no such command.
func change(name, command, noCommand string) *rpc.Method[adminRequest, rpc.None] {
	return rpc.Add(adminTable, rpc.Method[adminRequest, rpc.None]{Row: rpc.Row{
		Route:     "POST /v1/" + name,
		Bound:     maxAdminBody,
		Takes:     adminTakes,
		Unaudited: changesProxy,
		Command:   command,
		NoCommand: noCommand,
	}})
}

// Handler returns the handler of the admin API. The caller that serves it must decide who may use
// it; the proxy's own socket checks peer credentials.
func (p *Proxy) Handler() http.Handler {
	h := &rpc.Handlers{}
	rpc.Handle(h, readStatus, func(context.Context, rpc.None) (Status, error) { return p.Status(), nil })
	rpc.Handle(h, readKnown, func(context.Context, rpc.None) ([]knownSource, error) { return p.known.entries(p.clock()), nil })
	rpc.Handle(h, cutSessions, func(_ context.Context, q adminRequest) (sessionsCut, error) {
		n, err := p.Cut(q.Backend, q.Frontend)
		return sessionsCut{n}, err
	})

	order := func(m *rpc.Method[adminRequest, rpc.None], do func(adminRequest) error) {
		rpc.Handle(h, m, rpc.Order(func(_ context.Context, q adminRequest) error { return do(q) }))
	}
	order(drainBackend, func(q adminRequest) error { return p.Drain(q.Backend) })
	order(undrainBackend, func(q adminRequest) error { return p.Undrain(q.Backend) })
	order(maintBackend, func(q adminRequest) error { return p.Maint(q.Backend) })
	order(weighBackend, func(q adminRequest) error { return p.Weight(q.Backend, q.Weight) })
	order(removeBackend, func(q adminRequest) error { return p.RemoveBackend(q.Backend, q.Force) })
	order(addBackend, func(q adminRequest) error {
		if q.Add == nil {
			return errors.New("add: no backend given")
		}
		return p.AddBackend(*q.Add)
	})

	methods := rpc.Server{
		Table:      adminTable,
		Handlers:   h,
		Whole:      true,
		Strict:     true,
		Unreadable: "read request: ",
		Explain:    explain,
		Log:        p.log,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /metrics", p.serveMetrics)
	mux.Handle("/", methods.Handler())
	return mux
}

// explain converts an error to a refusal, which is never nil. The refusal of an error without a
// code has the code for a bad request.
func explain(err error) *rpc.Error {
	refusal := rpc.Explain(err)
	if refusal.Code == rpc.CodeFailed {
		refusal.Code = rpc.CodeBadRequest
	}
	return refusal
}
