package control

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"time"

	"saltern/internal/localsock"
)

const (
	doorConns   = 8
	doorRequest = 8 << 10
	doorAnswer  = 16 << 20
	// DoorTakes bounds what a door does for one request.
	DoorTakes = 60 * time.Second
)

// Supervisor is what a supervisor does for users of its master, and all that it does
// for the master's account. Refusals are *[Error]; other errors get [CodeFailed].
type Supervisor interface {
	Appliance(ctx context.Context) (Appliance, error)
	Course(ctx context.Context) (Course, error)
	// Records gives what all nodes have written down, as JSON of package audit.
	Records(ctx context.Context, q Question) (json.RawMessage, error)
	Drain(ctx context.Context, d Drain) error
	Restart(ctx context.Context, r Restart) error
	// Newest makes the files from which the master serves as they are now.
	Newest(ctx context.Context, q NewestQuestion) (Newest, error)
}

// By is for whom a master asks. The master has decided that he may.
type By struct {
	User  string `json:"user"`
	Proof string `json:"proof"` // how the master knows it, see package audit
	Eauth string `json:"eauth,omitempty"`
	From  string `json:"from"` // address
	Via   string `json:"via,omitempty"`
	// Limited: he has not all rights.
	Limited bool `json:"limited,omitempty"`
}

// Drain asks that a node gets no new minions; End, that it gets them again.
type Drain struct {
	By   By     `json:"by"`
	Node string `json:"node"`
	End  bool   `json:"end,omitempty"`
}

// Restart asks that a service of a node is restarted.
type Restart struct {
	By      By     `json:"by"`
	Node    string `json:"node"`
	Service string `json:"service"`
}

// Question asks for records of who did what; see package audit.
type Question struct {
	Since  time.Time `json:"since,omitzero"`
	User   string    `json:"user,omitempty"`
	Action string    `json:"action,omitempty"`
	Last   int       `json:"last"` // [MaxRecords] at most
}

// MaxRecords bounds what is told of them at the door.
const MaxRecords = 500

// doorHandler is the protocol: GET /v1/appliance and /v1/course, POST /v1/records,
// /v1/drain, /v1/restart and /v1/files/newest.
func doorHandler(s Supervisor) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/appliance", giving(s.Appliance))
	mux.HandleFunc("GET /v1/course", giving(s.Course))
	mux.HandleFunc("POST /v1/records",
		taking(doorRequest, DoorTakes, func(ctx context.Context, q Question) (any, error) {
			q.Last = min(max(q.Last, 1), MaxRecords)
			return s.Records(ctx, q)
		}))

	mux.HandleFunc("POST /v1/drain",
		taking(doorRequest, DoorTakes,
			func(ctx context.Context, d Drain) (any, error) { return struct{}{}, s.Drain(ctx, d) }))
	mux.HandleFunc("POST /v1/restart",
		taking(doorRequest, DoorTakes,
			func(ctx context.Context, r Restart) (any, error) { return struct{}{}, s.Restart(ctx, r) }))
	mux.HandleFunc("POST /v1/files/newest",
		taking(doorRequest, NewestTakes,
			func(ctx context.Context, q NewestQuestion) (any, error) { return s.Newest(ctx, q) }))

	return mux
}

// giving answers with what f gives.
func giving[T any](f func(context.Context) (T, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), DoorTakes)
		defer cancel()
		v, err := f(ctx)
		conclude(w, v, err)
	}
}

// ServeDoor answers on ln for root and the account uid, until Close.
func ServeDoor(ln *net.UnixListener, uid int, s Supervisor, log *slog.Logger) *Server {
	return serve(ln, doorHandler(s), doorConns, DoorTakes, []int{0, uid}, log)
}

// Door asks a supervisor at its door. It is safe for concurrent use.
type Door struct{ socket localsock.Client }

// NewDoor prepares a client for the door at path, where root must listen, or this
// process's own user. Nothing is opened until a method is called.
func NewDoor(path string, own int) *Door { return &Door{newSocket(path, own, doorAnswer)} }

// Appliance returns how the nodes are.
func (d *Door) Appliance(ctx context.Context) (Appliance, error) {
	var a Appliance
	err := ask(ctx, d.socket, supervisor, http.MethodGet, "appliance", nil, &a)
	return a.Clean(), err
}

// Course returns how the nodes did in the last day.
func (d *Door) Course(ctx context.Context) (Course, error) {
	var c Course
	err := ask(ctx, d.socket, supervisor, http.MethodGet, "course", nil, &c)
	return c.Clean(), err
}

// Records returns what all nodes have written down of who did what.
func (d *Door) Records(ctx context.Context, q Question) (list json.RawMessage, err error) {
	return list, ask(ctx, d.socket, supervisor, http.MethodPost, "records", q, &list)
}

// Drain gives a node no new minions, or again.
func (d *Door) Drain(ctx context.Context, q Drain) error {
	return ask(ctx, d.socket, supervisor, http.MethodPost, "drain", q, &struct{}{})
}

// Restart has a service restarted, soon after the answer.
func (d *Door) Restart(ctx context.Context, q Restart) error {
	return ask(ctx, d.socket, supervisor, http.MethodPost, "restart", q, &struct{}{})
}
