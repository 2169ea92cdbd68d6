package api

import (
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/internal/control/toolrun"
	"saltern/internal/rpc"
	"saltern/supervisor/history"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// Table holds every method of the local API.
var Table = &rpc.Table{}

// Bounds of requests, and time limits for different kinds of work.
const (
	maxBody     = 1 << 20
	answerTakes = 10 * time.Second // for requests that need no other machine
	asksOthers  = 60 * time.Second // for requests to all nodes, about all minions, or about many keys
	changeTakes = 75 * time.Second // for changes of the cluster
	setupTakes  = 60 * time.Second // for a step of the set-up, which may wait for other machines
	toolTakes   = 90 * time.Second // for finding a node that runs a tool
)

// onlyRoot is the role for methods that use all rights of the master's account on another node.
const onlyRoot rpc.Role = "root"

// Reasons why a method has no audit record of its own, or no command.
const (
	onlyLooks   = "it changes nothing"
	onlyTries   = "it changes nothing: it checks what it is given"
	forConsole  = "the console page uses it"
	forWizard   = "the wizard uses it"
	partOfOther = "it belongs to the set-up that was recorded"
)

// The node and its configuration.

// ReadStatus returns the status document.
var ReadStatus = rpc.Add(Table, rpc.Method[rpc.None, status.Document]{Row: rpc.Row{
	Route:     "GET /v1/status",
	Takes:     answerTakes,
	Unaudited: onlyLooks,
	Command:   "applianced status",
}})

// ReadConfig returns the text of the configuration file.
var ReadConfig = rpc.Add(Table, rpc.Method[rpc.None, ConfigText]{Row: rpc.Row{
	Route:     "GET /v1/config",
	Takes:     answerTakes,
	Unaudited: onlyLooks,
	NoCommand: "the file can be read",
}})

// SetConfig checks a configuration and replaces the file. The node then restarts its services with
// the new configuration.
var SetConfig = rpc.Add(Table, rpc.Method[[]byte, rpc.None]{
	Row: rpc.Row{
		Route:     "PUT /v1/config",
		Bound:     maxBody,
		Takes:     answerTakes,
		Audit:     "config.set",
		GoesOn:    true,
		NoCommand: "the file can be changed; applianced reload follows it",
	},
	Body: configText,
})

// CheckConfig checks a configuration without using it.
var CheckConfig = rpc.Add(Table, rpc.Method[[]byte, rpc.None]{
	Row: rpc.Row{
		Route:     "POST /v1/config/check",
		Bound:     maxBody,
		Takes:     answerTakes,
		Unaudited: onlyTries,
		NoCommand: "applianced config check needs no supervisor",
	},
	Body: configText,
})

// Reload restarts the node's services with the present configuration file.
var Reload = rpc.Add(Table, rpc.Method[rpc.None, rpc.None]{Row: rpc.Row{
	Route:   "POST /v1/reload",
	Takes:   answerTakes,
	Audit:   "node.reload",
	GoesOn:  true,
	Command: "applianced reload",
}})

// Services of the node.

// ReadOutput returns the last lines that a service wrote.
var ReadOutput = rpc.Add(Table, rpc.Method[OutputRequest, OutputLines]{
	Row: rpc.Row{
		Route:     "GET /v1/services/{name}/log",
		Takes:     answerTakes,
		Unaudited: onlyLooks,
		NoCommand: forConsole,
	},
	Form:   outputForm,
	Absent: noOutput,
})

// ReadLog returns a page of what a service wrote.
var ReadLog = rpc.Add(Table, rpc.Method[LogRequest, LogPage]{
	Row: rpc.Row{
		Route:     "GET /v1/services/{name}/log/page",
		Takes:     answerTakes,
		Unaudited: onlyLooks,
		Command:   "applianced logs",
	},
	Form:   logForm,
	Absent: noLog,
})

// RestartService restarts the service that the request names.
var RestartService = rpc.Add(Table, rpc.Method[string, rpc.None]{
	Row: rpc.Row{
		Route:   "POST /v1/services/{name}/restart",
		Takes:   answerTakes,
		Audit:   "service.restart",
		GoesOn:  true,
		Command: "applianced restart",
	},
	Form:    serviceForm,
	Subject: func(service string) rpc.Subject { return rpc.Subject{Object: service} },
	Absent:  noRestart,
})

// ReadStorage returns the state of the shared volume as this node sees it.
var ReadStorage = rpc.Add(Table, rpc.Method[rpc.None, storage.State]{Row: rpc.Row{
	Route:     "GET /v1/storage",
	Takes:     answerTakes,
	Needs:     errNoVolume,
	Unaudited: onlyLooks,
	Command:   "applianced storage status",
}})

// Events and audit records.

// ListEvents returns the events that this node saw.
var ListEvents = rpc.Add(Table, rpc.Method[history.Query, EventList]{
	Row: rpc.Row{
		Route:     "GET /v1/events",
		Takes:     answerTakes,
		Needs:     errNew,
		Unaudited: onlyLooks,
		Command:   "applianced events",
	},
	Form: historyForm,
})

// ListHistory returns the events that all nodes saw.
var ListHistory = rpc.Add(Table, rpc.Method[history.Query, history.List]{
	Row: rpc.Row{
		Route:     "GET /v1/history",
		Takes:     asksOthers,
		Needs:     errNew,
		Unaudited: onlyLooks,
		Command:   "applianced history",
	},
	Form: historyForm,
})

// ListRecords returns the audit records of all nodes.
var ListRecords = rpc.Add(Table, rpc.Method[audit.Query, audit.List]{
	Row: rpc.Row{
		Route:     "GET /v1/audit",
		Takes:     asksOthers,
		Needs:     errNew,
		Unaudited: onlyLooks,
		Command:   "applianced audit",
	},
	Form: auditForm,
})

// Backups.

// ListBackups returns the state of the scheduled backups.
var ListBackups = rpc.Add(Table, rpc.Method[rpc.None, status.BackupList]{Row: rpc.Row{
	Route:     "GET /v1/backup",
	Takes:     answerTakes,
	Needs:     errNoBackups,
	Unaudited: onlyLooks,
	Command:   "applianced backup list",
}})

// MakeBackup starts a backup on this node. It is refused while the node is making another backup.
var MakeBackup = rpc.Add(Table, rpc.Method[rpc.None, rpc.None]{Row: rpc.Row{
	Route:   "POST /v1/backup",
	Takes:   answerTakes,
	Needs:   errNoBackups,
	Audit:   "backup.make",
	GoesOn:  true,
	Command: "applianced backup now",
}})

// Minions, and what the masters know.

// ListMinions returns what all nodes know of their minions.
var ListMinions = rpc.Add(Table, rpc.Method[MinionsRequest, status.MinionList]{
	Row: rpc.Row{
		Route:     "GET /v1/minions",
		Takes:     asksOthers,
		Needs:     errNew,
		Unaudited: onlyLooks,
		Command:   "applianced minions",
	},
	Form: minionsForm,
})

// ChangeKeys accepts, rejects or deletes keys.
var ChangeKeys = rpc.Add(Table, rpc.Method[KeyChange, rpc.None]{Row: rpc.Row{
	Route:     "POST /v1/keys",
	Bound:     maxBody,
	Takes:     asksOthers,
	Needs:     errNew,
	Unaudited: "salt-key, which changes the keys, writes it down",
	Command:   "applianced keys accept",
}})

// ListTokens returns the log-ins of users to the API, according to the tokens of all masters.
var ListTokens = rpc.Add(Table, rpc.Method[rpc.None, control.Tokens]{Row: rpc.Row{
	Route:     "GET /v1/tokens",
	Takes:     answerTakes,
	Needs:     errNew,
	Unaudited: onlyLooks,
	Command:   "applianced tokens",
}})

// RevokeTokens revokes the tokens that the request selects.
var RevokeTokens = rpc.Add(Table, rpc.Method[control.Revocation, control.Revoked]{
	Row: rpc.Row{
		Route:   "POST /v1/tokens/revoke",
		Bound:   maxBody,
		Takes:   answerTakes,
		Needs:   errNew,
		Audit:   "token.revoke",
		Command: "applianced tokens revoke",
	},
	Subject: func(q control.Revocation) rpc.Subject { return rpc.Subject{Object: q.User + q.Name} },
})

// ReadGit returns the git remotes of all nodes.
var ReadGit = rpc.Add(Table, rpc.Method[rpc.None, status.GitList]{Row: rpc.Row{
	Route:     "GET /v1/git",
	Takes:     asksOthers,
	Needs:     errNew,
	Unaudited: onlyLooks,
	Command:   "applianced git",
}})

// FetchGit asks all nodes' masters to fetch, and returns the state of their remotes when that is
// done, or after [control.GitTakes].
var FetchGit = rpc.Add(Table, rpc.Method[GitRequest, status.GitList]{
	Row: rpc.Row{
		Route:   "POST /v1/git/fetch",
		Bound:   maxBody,
		Takes:   asksOthers,
		Needs:   errNew,
		Audit:   "git.fetch",
		Command: "applianced git fetch",
	},
	Subject: func(q GitRequest) rpc.Subject { return rpc.Subject{Object: q.Remote} },
})

// ExplainMinion returns what this node's master knows of a minion, and why the minion does not answer.
var ExplainMinion = rpc.Add(Table, rpc.Method[control.ExplainQuestion, control.Explanation]{
	Row: rpc.Row{
		Route:     "GET /v1/explain",
		Takes:     asksOthers,
		Needs:     errNew,
		Unaudited: onlyLooks,
		Command:   "applianced explain",
	},
	Form: explainForm,
})

// ReadSchedule returns the entries of the masters' schedule and their next runs.
var ReadSchedule = rpc.Add(Table, rpc.Method[rpc.None, status.Schedule]{Row: rpc.Row{
	Route:     "GET /v1/schedule",
	Takes:     asksOthers,
	Needs:     errNew,
	Unaudited: onlyLooks,
	Command:   "applianced schedule",
}})

// RunTool runs one of Salt's tools on another node, when this node's master does not answer. On the
// other node the tool has all rights of the master's account. The answer is a stream of frames. A
// refusal with [rpc.CodeState] means that no node has run the tool. After any other error nobody
// knows whether a node has run it.
var RunTool = rpc.Add(Table, rpc.Method[toolrun.Request, rpc.Stream]{
	Row: rpc.Row{
		Route:     "POST " + toolrun.Path,
		Bound:     toolrun.MaxBytes + 1,
		Takes:     toolTakes,
		AtOnce:    toolrun.MaxRuns,
		Busy:      "too many tools of this node ask other nodes already",
		Role:      onlyRoot,
		Needs:     errAlone,
		Audit:     "tool.run",
		NoCommand: "Salt's tools ask by themselves",
	},
	Body: &rpc.Body[toolrun.Request]{Read: toolrun.Read},
})

// A reset of the machine.

// PlanReset returns what a reset would remove.
var PlanReset = rpc.Add(Table, rpc.Method[rpc.None, ResetPlan]{Row: rpc.Row{
	Route:     "GET /v1/reset/plan",
	Takes:     answerTakes,
	Needs:     errNew,
	Unaudited: onlyLooks,
	Command:   "applianced reset",
}})

// ResetNode starts to remove everything that the node has created on this machine.
var ResetNode = rpc.Add(Table, rpc.Method[rpc.None, rpc.None]{Row: rpc.Row{
	Route:   "POST /v1/reset",
	Takes:   answerTakes,
	Needs:   errNew,
	Audit:   "node.reset",
	GoesOn:  true,
	Command: "applianced reset",
}})

// ReadReset returns the progress of a reset.
var ReadReset = rpc.Add(Table, rpc.Method[rpc.None, Resetting]{Row: rpc.Row{
	Route:     "GET /v1/reset",
	Takes:     answerTakes,
	Needs:     errNew,
	Unaudited: onlyLooks,
	Command:   "applianced reset",
}})
