package control

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"saltern/internal/rpc"
)

// Bounds of requests and of their work.
const (
	maxRequest  = 64 << 10 // largest request to a master, in bytes
	doorRequest = 8 << 10  // largest request at a door, in bytes
	// verbTakes bounds the time in which a master handles one request.
	verbTakes = 40 * time.Second
	// DoorTakes bounds the time in which a supervisor handles one request at its door.
	DoorTakes = 60 * time.Second
)

// Reasons why a method has no audit record, or no command.
const (
	onlyLooks      = "it changes nothing"
	supervisorDoes = "the supervisor writes down what it was asked for"
	doorDoes       = "the supervisor writes it down for the user for whom the master asks"
	forSupervisor  = "the supervisor asks"
	forUsers       = "users of the master ask by its runners, its wheel and the console"
)

// masterTable holds the methods that a master offers to its supervisor.
var masterTable = &rpc.Table{}

var (
	listMinions = rpc.Add(masterTable, rpc.Method[bool, Minions]{
		Row: rpc.Row{
			Route:     "GET /v1/minions",
			Takes:     verbTakes,
			Unaudited: onlyLooks,
			NoCommand: forSupervisor,
		},
		Form: &rpc.Form[bool]{
			Write: func(finger bool) url.Values {
				if finger {
					return url.Values{"finger": {"true"}}
				}
				return url.Values{"finger": {"false"}}
			},
			Read: func(v url.Values) (bool, error) { return v.Get("finger") == "true", nil },
		},
	})

	removeMember = rpc.Add(masterTable, rpc.Method[Removal, rpc.None]{Row: rpc.Row{
		Route:     "POST /v1/cluster/remove",
		Bound:     maxRequest,
		Takes:     verbTakes,
		Unaudited: supervisorDoes,
		NoCommand: forSupervisor,
	}})

	stageSecret = rpc.Add(masterTable, rpc.Method[rpc.None, rpc.None]{Row: rpc.Row{
		Route:     "POST /v1/cluster/secret_next",
		Takes:     verbTakes,
		Unaudited: supervisorDoes,
		NoCommand: forSupervisor,
	}})

	commitSecret = rpc.Add(masterTable, rpc.Method[commitRequest, rpc.None]{Row: rpc.Row{
		Route:     "POST /v1/cluster/secret_commit",
		Bound:     maxRequest,
		Takes:     verbTakes,
		Unaudited: supervisorDoes,
		NoCommand: forSupervisor,
	}})

	syncHistory = rpc.Add(masterTable, rpc.Method[rpc.None, rpc.None]{Row: rpc.Row{
		Route:     "POST /v1/history/sync",
		Takes:     verbTakes,
		Unaudited: onlyLooks,
		NoCommand: "applianced backup asks",
	}})

	readGit = rpc.Add(masterTable, rpc.Method[rpc.None, Git]{Row: rpc.Row{
		Route:     "GET /v1/git",
		Takes:     verbTakes,
		Unaudited: onlyLooks,
		NoCommand: forSupervisor,
	}})

	fetchGit = rpc.Add(masterTable, rpc.Method[gitRequest, Git]{Row: rpc.Row{
		Route:     "POST /v1/git/fetch",
		Bound:     maxRequest,
		Takes:     verbTakes,
		Unaudited: supervisorDoes,
		NoCommand: forSupervisor,
	}})

	explainMinion = rpc.Add(masterTable, rpc.Method[ExplainQuestion, Explanation]{Row: rpc.Row{
		Route:     "POST /v1/explain",
		Bound:     maxRequest,
		Takes:     verbTakes,
		Unaudited: onlyLooks,
		NoCommand: forSupervisor,
	}})

	readSchedule = rpc.Add(masterTable, rpc.Method[rpc.None, Schedule]{Row: rpc.Row{
		Route:     "GET /v1/schedule",
		Takes:     verbTakes,
		Unaudited: onlyLooks,
		NoCommand: forSupervisor,
	}})

	listTokens = rpc.Add(masterTable, rpc.Method[rpc.None, Tokens]{Row: rpc.Row{
		Route:     "GET /v1/tokens",
		Takes:     verbTakes,
		Unaudited: onlyLooks,
		NoCommand: forSupervisor,
	}})

	revokeTokens = rpc.Add(masterTable, rpc.Method[Revocation, Revoked]{Row: rpc.Row{
		Route:     "POST /v1/tokens/revoke",
		Bound:     maxRequest,
		Takes:     verbTakes,
		Unaudited: supervisorDoes,
		NoCommand: forSupervisor,
	}})
)

// layOutJob is asked by Python's functions and by Salt's tools on this host, for jobs that are no files.
var layOutJob = rpc.Add(masterTable, rpc.Method[JobFiles, rpc.None]{Row: rpc.Row{
	Route:     "POST /v1/jobs/files",
	Bound:     maxRequest,
	Takes:     verbTakes,
	Unaudited: onlyLooks,
	NoCommand: "programs of this host ask that read Salt's layout of jobs",
}})

// commitRequest names the secret that becomes the present one.
type commitRequest struct {
	Finger string `json:"finger,omitempty"`
}

// handler returns the handler of a master's control socket.
func handler(m Master) http.Handler {
	h := &rpc.Handlers{}
	rpc.Handle(h, listMinions, func(_ context.Context, finger bool) (Minions, error) { return m.Minions(finger), nil })
	rpc.Handle(h, removeMember, rpc.Order(m.RemoveMember))
	rpc.Handle(h, stageSecret, rpc.Order(func(ctx context.Context, _ rpc.None) error { return m.StageSecret(ctx) }))
	rpc.Handle(h, commitSecret, rpc.Order(func(ctx context.Context, q commitRequest) error {
		return m.CommitSecret(ctx, q.Finger)
	}))
	rpc.Handle(h, syncHistory, rpc.Order(func(_ context.Context, _ rpc.None) error { return m.SyncHistory() }))
	rpc.Handle(h, readGit, func(context.Context, rpc.None) (Git, error) { return m.Git(), nil })
	rpc.Handle(h, fetchGit, func(ctx context.Context, q gitRequest) (Git, error) { return m.FetchGit(ctx, q.Remote) })
	rpc.Handle(h, explainMinion, m.Explain)
	rpc.Handle(h, layOutJob, rpc.Order(m.LayOutJob))
	rpc.Handle(h, readSchedule, func(context.Context, rpc.None) (Schedule, error) { return m.Schedule() })
	rpc.Handle(h, listTokens, func(context.Context, rpc.None) (Tokens, error) { return m.LogIns() })
	rpc.Handle(h, revokeTokens, func(_ context.Context, r Revocation) (Revoked, error) { return m.EndLogIns(r) })
	return methods(masterTable, h)
}

// doorTable holds the methods that a supervisor offers to its master.
var doorTable = &rpc.Table{}

var (
	readAppliance = rpc.Add(doorTable, rpc.Method[rpc.None, Appliance]{Row: rpc.Row{
		Route:     "GET /v1/appliance",
		Takes:     DoorTakes,
		Unaudited: onlyLooks,
		NoCommand: forUsers,
	}})

	readCourse = rpc.Add(doorTable, rpc.Method[rpc.None, Course]{Row: rpc.Row{
		Route:     "GET /v1/course",
		Takes:     DoorTakes,
		Unaudited: onlyLooks,
		NoCommand: forUsers,
	}})

	listRecords = rpc.Add(doorTable, rpc.Method[Question, json.RawMessage]{Row: rpc.Row{
		Route:     "POST /v1/records",
		Bound:     doorRequest,
		Takes:     DoorTakes,
		Unaudited: onlyLooks,
		NoCommand: forUsers,
	}})

	findMinion = rpc.Add(doorTable, rpc.Method[MinionQuestion, MinionPlaces]{Row: rpc.Row{
		Route:     "POST /v1/minion",
		Bound:     doorRequest,
		Takes:     DoorTakes,
		Unaudited: onlyLooks,
		NoCommand: forUsers,
	}})

	drainNode = rpc.Add(doorTable, rpc.Method[Drain, rpc.None]{Row: rpc.Row{
		Route:     "POST /v1/drain",
		Bound:     doorRequest,
		Takes:     DoorTakes,
		Unaudited: doorDoes,
		NoCommand: forUsers,
	}})

	restartService = rpc.Add(doorTable, rpc.Method[Restart, rpc.None]{Row: rpc.Row{
		Route:     "POST /v1/restart",
		Bound:     doorRequest,
		Takes:     DoorTakes,
		Unaudited: doorDoes,
		NoCommand: forUsers,
	}})

	copyNewest = rpc.Add(doorTable, rpc.Method[NewestQuestion, Newest]{Row: rpc.Row{
		Route:     "POST /v1/files/newest",
		Bound:     doorRequest,
		Takes:     NewestTakes,
		Unaudited: "it only copies what is on the shared volume already",
		NoCommand: "Salt's tools and the reactor ask before they read files",
	}})
)

// doorHandler returns the handler of a supervisor's door.
func doorHandler(s Supervisor) http.Handler {
	h := &rpc.Handlers{}
	rpc.Handle(h, readAppliance, rpc.Question(s.Appliance))
	rpc.Handle(h, readCourse, rpc.Question(s.Course))
	rpc.Handle(h, listRecords, func(ctx context.Context, q Question) (json.RawMessage, error) {
		q.Last = min(max(q.Last, 1), MaxRecords)
		return s.Records(ctx, q)
	})
	rpc.Handle(h, findMinion, s.Minion)
	rpc.Handle(h, drainNode, rpc.Order(s.DrainNode))
	rpc.Handle(h, restartService, rpc.Order(s.Restart))
	rpc.Handle(h, copyNewest, s.Newest)
	return methods(doorTable, h)
}
