package api

import (
	"saltern/internal/rpc"
	"saltern/supervisor/setup"
)

// The set-up. The token of a client shows which wizard calls, see [ClientToken]. While one wizard
// holds the claim, methods that change something refuse all others.

// ReadSetup returns the progress of the set-up.
var ReadSetup = rpc.Add(Table, rpc.Method[rpc.None, setup.Progress]{Row: rpc.Row{
	Route:     "GET /v1/setup",
	Takes:     setupTakes,
	Needs:     errNew,
	Unaudited: onlyLooks,
	Command:   "applianced setup progress",
}})

// ReadFacts returns the facts of the machine.
var ReadFacts = rpc.Add(Table, rpc.Method[rpc.None, setup.Facts]{Row: rpc.Row{
	Route:     "GET /v1/setup/facts",
	Takes:     setupTakes,
	Needs:     errNew,
	Unaudited: onlyLooks,
	NoCommand: forWizard,
}})

// CheckAnswers checks answers without changing anything.
var CheckAnswers = rpc.Add(Table, rpc.Method[setup.Answers, setup.Validation]{Row: rpc.Row{
	Route:     "POST /v1/setup/validate",
	Bound:     maxBody,
	Takes:     setupTakes,
	Needs:     errNew,
	Unaudited: onlyTries,
	NoCommand: forWizard,
}})

// RunPreflight checks answers against the machine, the network and the cluster.
var RunPreflight = rpc.Add(Table, rpc.Method[setup.Answers, []setup.Check]{Row: rpc.Row{
	Route:     "POST /v1/setup/preflight",
	Bound:     maxBody,
	Takes:     setupTakes,
	Needs:     errNew,
	Unaudited: onlyTries,
	NoCommand: forWizard,
}})

// StartSetup begins the set-up.
var StartSetup = rpc.Add(Table, rpc.Method[setup.Answers, rpc.None]{Row: rpc.Row{
	Route:   "POST /v1/setup/start",
	Bound:   maxBody,
	Takes:   setupTakes,
	Needs:   errNew,
	Audit:   "node.setup",
	GoesOn:  true,
	Command: "applianced setup start",
}})

// RetrySetup repeats the step that failed.
var RetrySetup = rpc.Add(Table, rpc.Method[rpc.None, rpc.None]{Row: rpc.Row{
	Route:     "POST /v1/setup/retry",
	Takes:     setupTakes,
	Needs:     errNew,
	Unaudited: partOfOther,
	Command:   "applianced setup retry",
}})

// LeaveSetup abandons a set-up before this machine becomes part of a cluster.
var LeaveSetup = rpc.Add(Table, rpc.Method[rpc.None, rpc.None]{Row: rpc.Row{
	Route:   "POST /v1/setup/back",
	Takes:   setupTakes,
	Needs:   errNew,
	Audit:   "setup.back",
	Command: "applianced setup back",
}})

// TryNetwork tries, shows, keeps or reverts a network configuration.
var TryNetwork = rpc.Add(Table, rpc.Method[NetworkRequest, setup.Trial]{
	Row: rpc.Row{
		Route:     "POST /v1/setup/network",
		Bound:     maxBody,
		Takes:     setupTakes,
		Needs:     errNew,
		Audit:     "setup.network",
		NoCommand: forWizard,
	},
	Subject: func(q NetworkRequest) rpc.Subject {
		return rpc.Subject{Object: q.Action, Dry: q.Action == "look"}
	},
})

// ClaimSetup returns which wizard leads the set-up, or requests the lead.
var ClaimSetup = rpc.Add(Table, rpc.Method[setup.ClaimRequest, setup.Claim]{Row: rpc.Row{
	Route:     "POST /v1/setup/claim",
	Bound:     maxBody,
	Takes:     setupTakes,
	Needs:     errNew,
	Unaudited: "it changes only who leads the wizard",
	NoCommand: forWizard,
}})
