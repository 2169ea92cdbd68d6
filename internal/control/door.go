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

// Supervisor carries out what users of its master request. Its methods are the only requests that
// the master's account may make. Refusals are *[rpc.Error]; other errors get [rpc.CodeFailed].
type Supervisor interface {
	Appliance(ctx context.Context) (Appliance, error)
	Course(ctx context.Context) (Course, error)
	// Records returns the audit records of all nodes, as JSON of package audit.
	Records(ctx context.Context, q Question) (json.RawMessage, error)
	// Minion asks the masters of all nodes where a minion is.
	Minion(ctx context.Context, q MinionQuestion) (MinionPlaces, error)
	DrainNode(ctx context.Context, d Drain) error
	Restart(ctx context.Context, r Restart) error
	// Newest copies the newest files from the shared volume to this node, so that the master serves
	// them.
	Newest(ctx context.Context, q NewestQuestion) (Newest, error)
}

// By names the user on whose behalf a master sends a request. The master has already checked that
// the user may make the request.
type By struct {
	User  string `json:"user"`
	Proof string `json:"proof"` // how the user authenticated to the master, see package audit
	Eauth string `json:"eauth,omitempty"`
	From  string `json:"from"` // IP address
	Via   string `json:"via,omitempty"`
	// Limited means that the user does not have all rights.
	Limited bool `json:"limited,omitempty"`
}

// Drain is a request that a node take no new minions or, if End is set, that it take new minions
// again.
type Drain struct {
	By   By     `json:"by"`
	Node string `json:"node"`
	End  bool   `json:"end,omitempty"`
}

// Restart asks a node to restart a service.
type Restart struct {
	By      By     `json:"by"`
	Node    string `json:"node"`
	Service string `json:"service"`
}

// Question is a request for audit records, see package audit.
type Question struct {
	Since   time.Time `json:"since,omitzero"`
	User    string    `json:"user,omitempty"`
	Action  string    `json:"action,omitempty"`
	Last    int       `json:"last"` // number of records, [MaxRecords] at most
	Acts    bool      `json:"acts,omitempty"`
	Refused bool      `json:"refused,omitempty"`
}

// MaxRecords bounds the records of one answer.
const MaxRecords = 500

// ServeDoor starts to serve the supervisor's admin socket (door) on ln, for root and the account
// uid. It serves until [Server.Close].
func ServeDoor(ln net.Listener, uid int, s Supervisor, log *slog.Logger) *Server {
	return serve(ln, doorHandler(s), doorConns, []int{0, uid}, log)
}

// Door is a client of a supervisor's door. It is safe for concurrent use.
type Door struct{ rpc rpc.Client }

// NewDoor returns a client for the supervisor's admin socket at path. It accepts only a supervisor
// that runs as root or as the user uid. The client connects when a method is called.
func NewDoor(path string, uid int) *Door { return &Door{newClient(supervisor, path, uid, doorAnswer)} }

// Appliance returns the state of all nodes.
func (d *Door) Appliance(ctx context.Context) (Appliance, error) {
	a, err := ask(ctx, &d.rpc, readAppliance, rpc.None{})
	return a.Clean(), err
}

// Course returns the history of all nodes over the last day.
func (d *Door) Course(ctx context.Context) (Course, error) {
	c, err := ask(ctx, &d.rpc, readCourse, rpc.None{})
	return c.Clean(), err
}

// Records returns the audit records of all nodes.
func (d *Door) Records(ctx context.Context, q Question) (json.RawMessage, error) {
	return ask(ctx, &d.rpc, listRecords, q)
}

// DrainNode drains a node, or undrains it when q.End is set.
func (d *Door) DrainNode(ctx context.Context, q Drain) error {
	_, err := ask(ctx, &d.rpc, drainNode, q)
	return err
}

// Restart restarts a service soon after the answer.
func (d *Door) Restart(ctx context.Context, q Restart) error {
	_, err := ask(ctx, &d.rpc, restartService, q)
	return err
}
