package control

import (
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"time"

	"saltern/internal/rpc"
)

const (
	doorConns  = 8
	doorAnswer = 16 << 20
)

// Supervisor does what users of its master ask for. The master's account may ask it for nothing
// else. Refusals are *[rpc.Error]; other errors get
// [rpc.CodeFailed].
type Supervisor interface {
	Appliance(ctx context.Context) (Appliance, error)
	Course(ctx context.Context) (Course, error)
	// Records returns the records of all nodes, as JSON of package audit.
	Records(ctx context.Context, q Question) (json.RawMessage, error)
	DrainNode(ctx context.Context, d Drain) error
	Restart(ctx context.Context, r Restart) error
	// Newest updates the files from which the master serves.
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

// MaxRecords bounds the records of one answer.
const MaxRecords = 500

// ServeDoor answers on ln for root and the account uid, until Close.
func ServeDoor(ln *net.UnixListener, uid int, s Supervisor, log *slog.Logger) *Server {
	return serve(ln, doorHandler(s), doorConns, []int{0, uid}, log)
}

// Door asks a supervisor at its door. It is safe for concurrent use.
type Door struct{ rpc rpc.Client }

// NewDoor prepares a client for the door at path, where root must listen, or this
// process's own user. Nothing is opened until a method is called.
func NewDoor(path string, own int) *Door { return &Door{newClient(supervisor, path, own, doorAnswer)} }

// Appliance returns how the nodes are.
func (d *Door) Appliance(ctx context.Context) (Appliance, error) {
	a, err := ask(ctx, &d.rpc, readAppliance, rpc.None{})
	return a.Clean(), err
}

// Course returns how the nodes did in the last day.
func (d *Door) Course(ctx context.Context) (Course, error) {
	c, err := ask(ctx, &d.rpc, readCourse, rpc.None{})
	return c.Clean(), err
}

// Records returns what all nodes have written down of who did what.
func (d *Door) Records(ctx context.Context, q Question) (json.RawMessage, error) {
	return ask(ctx, &d.rpc, listRecords, q)
}

// DrainNode gives a node no new minions, or again.
func (d *Door) DrainNode(ctx context.Context, q Drain) error {
	_, err := ask(ctx, &d.rpc, drainNode, q)
	return err
}

// Restart has a service restarted, soon after the answer.
func (d *Door) Restart(ctx context.Context, q Restart) error {
	_, err := ask(ctx, &d.rpc, restartService, q)
	return err
}
