// Package status is a node's report about itself: one document, printed as text for people or as
// JSON for machines, and an exit code that sums it up. The package does not know how the facts were
// gathered.
//
// The JSON form is stable: while Schema stays the same, fields are added, never renamed or removed.
// Problem codes (SCA-nnn) never change their meaning.
package status

import (
	"saltern/internal/control"
	"slices"
	"time"
)

// Schema is the version of the document's JSON form.
const Schema = 1

// Health sums up the state of a node in a word.
type Health string

// Values of Health, from good to bad.
const (
	Healthy      Health = "healthy"
	Degraded     Health = "degraded"       // serving, but something needs attention
	NotServing   Health = "not serving"    // minions cannot work with this node
	Unconfigured Health = "not configured" // the set-up has not been done yet
	Unasked      Health = "unknown"        // the supervisor did not answer
)

// Exit codes of `applianced status`.
const (
	ExitHealthy      = 0
	ExitUnknown      = 1 // the supervisor did not answer
	ExitDegraded     = 2
	ExitNotServing   = 3
	ExitUnconfigured = 4
)

// Exit returns the exit code of `applianced status` for a health.
func (h Health) Exit() int {
	switch h {
	case Healthy:
		return ExitHealthy
	case Degraded:
		return ExitDegraded
	case NotServing:
		return ExitNotServing
	case Unconfigured:
		return ExitUnconfigured
	}
	return ExitUnknown
}

// Setup is the state of the set-up.
type Setup string

// Values of Setup. A node without a cluster uses only New, Waiting, Ready and Failed.
const (
	SetupNew       Setup = "new"
	SetupPreflight Setup = "preflight" // the set-up checks the answers against the machine, the network and the cluster
	SetupForming   Setup = "forming"
	SetupJoining   Setup = "joining"
	SetupWaiting   Setup = "waiting" // configured, not serving yet
	SetupReady     Setup = "ready"
	SetupDegraded  Setup = "degraded" // the node was ready and is not now
	SetupDraining  Setup = "draining"
	SetupRemoved   Setup = "removed" // the cluster has removed this node
	SetupFailed    Setup = "failed"  // the configuration is wrong, or a step of the set-up failed
)

// Document is the whole status of a node.
type Document struct {
	Schema       int        `json:"schema"`
	Time         time.Time  `json:"time"`
	Health       Health     `json:"health"`
	Exit         int        `json:"exit"`
	Setup        Setup      `json:"setup"`
	SetupStep    *SetupStep `json:"setupStep,omitempty"` // nil: no step of the set-up is under way
	Version      string     `json:"version"`
	Cluster      string     `json:"cluster"`
	Node         string     `json:"node"`
	Started      time.Time  `json:"started"`                // when the supervisor started
	ServingSince *time.Time `json:"servingSince,omitempty"` // nil: the node does not serve
	Front        Front      `json:"front"`
	Virtual      *Virtual   `json:"virtual,omitempty"` // nil: the cluster has no virtual address
	Console      string     `json:"console,omitempty"` // address of the console for browsers; empty: there is none
	Nodes        []Node     `json:"nodes"`
	Services     []Service  `json:"services"`
	Minions      Minions    `json:"minions"`
	Master       *Master    `json:"master,omitempty"` // nil: the master does not report
	Storage      Storage    `json:"storage"`
	// Backup is nil if this node makes no backups, or if their state is not known yet
	Backup   *Backup   `json:"backup,omitempty"`
	Upgrade  *Upgrade  `json:"upgrade,omitempty"` // nil: this node has no upgrade window
	Clock    Clock     `json:"clock"`
	Problems []Problem `json:"problems"`
	// Next is what the administrator can do next, besides solving problems. It may be empty.
	Next string `json:"next,omitempty"`
}

// Arbiter reports whether the node is its cluster's arbiter. An arbiter serves no minions; its
// ServingSince is when it began to work for the shared volume.
func (d Document) Arbiter() bool {
	return slices.ContainsFunc(d.Nodes, func(n Node) bool { return n.This && n.Role == RoleArbiter })
}

// SetupStep is the step of the set-up that is under way.
type SetupStep struct {
	Number  int    `json:"number"` // counted from 1
	Of      int    `json:"of"`
	Name    string `json:"name"`
	Message string `json:"message,omitempty"` // what the step waits for
}

// Front holds the addresses and ports for minions on this node.
type Front struct {
	Addresses   []string `json:"addresses"` // IP addresses
	PublishPort int      `json:"publishPort"`
	RequestPort int      `json:"requestPort"`
	// API is the front of Salt's API. It may be nil: this node has none.
	API *FrontAPI `json:"api,omitempty"`
}

// FrontAPI describes the front of Salt's API at the load balancer.
type FrontAPI struct {
	Port  int      `json:"port"`
	Nodes []string `json:"nodes"` // names of the nodes whose salt-api answers now
	// Starting reports whether this node's salt-api is still starting, and therefore no salt-api
	// answers.
	Starting bool `json:"starting,omitempty"`
}

// Virtual describes the virtual address, which moves between the nodes.
type Virtual struct {
	Address string   `json:"address"`
	Nodes   []string `json:"nodes"` // nodes that have the address now; normally one
}

// Values of Node.Role.
const (
	RoleVoter   = "voter"   // keeps a copy of the shared data and counts for the quorum
	RoleArbiter = "arbiter" // counts for the quorum, and keeps the names of files only
	RoleClient  = "client"  // uses the copies of other nodes
	RoleSingle  = "single"  // belongs to no cluster
)

// Node is one line of the table of nodes.
type Node struct {
	Name     string     `json:"name"`
	This     bool       `json:"this,omitempty"`    // whether the document describes this node
	Address  string     `json:"address,omitempty"` // IP address in the cluster's network
	Version  string     `json:"version,omitempty"` // the node's version at its last answer; empty: not known
	Role     string     `json:"role"`              // RoleVoter, RoleArbiter, RoleClient or RoleSingle
	State    string     `json:"state"`             // ready, starting, stopping, unreachable
	Master   string     `json:"master"`
	Proxy    string     `json:"proxy"`
	Storage  string     `json:"storage"`
	Minions  *int       `json:"minions"` // number of connected minions; null: not known
	Clock    string     `json:"clock"`
	LastSeen *time.Time `json:"lastSeen,omitempty"`
	Virtual  bool       `json:"virtual,omitempty"` // the node has the cluster's virtual address
}

// Service is one child of the supervisor.
type Service struct {
	Name     string    `json:"name"`
	State    string    `json:"state"`
	Message  string    `json:"message"`
	Since    time.Time `json:"since"`
	PID      int       `json:"pid,omitempty"`
	Restarts int       `json:"restarts"`
	LastExit string    `json:"lastExit,omitempty"`
	LastLine string    `json:"lastLine,omitempty"`
	Events   []Event   `json:"events,omitempty"`
}

// Event is one line of a service's history.
type Event struct {
	Time    time.Time `json:"time"`
	State   string    `json:"state"`
	Message string    `json:"message"`
}

// Minions counts keys and connections.
type Minions struct {
	Accepted  int  `json:"accepted"`
	Pending   int  `json:"pending"`
	Rejected  int  `json:"rejected"`
	Denied    int  `json:"denied"`
	Connected *int `json:"connected"` // sessions on the publish port of this node's front; null: not known
}

// Master is the newest report of this node's master. Its counters begin at the master's start.
type Master struct {
	Written  time.Time `json:"written"`
	Requests uint64    `json:"requests"`
	Returns  uint64    `json:"returns"`
	Jobs     uint64    `json:"jobs"`
	// OldestRequestMillis is the age of the longest running request. It is 0 if no request runs.
	OldestRequestMillis int64 `json:"oldestRequestMillis"`
	PillarErrorMinions  int   `json:"pillarErrorMinions"` // number of minions whose last pillar had errors
	// PillarsUnanswered counts the requests for pillars that the master could not answer. Minions
	// repeat such requests.
	PillarsUnanswered uint64  `json:"pillarsUnanswered"`
	Waiting           Waiting `json:"waiting"`
	// PillarMemo counts uses of cached pillar templates. It may be nil: saltern_pillar_memo is off.
	PillarMemo *control.PillarMemo `json:"pillarMemo,omitempty"`
	// Files describes the copy of the shared volume from which the master serves. It may be nil:
	// the master uses no such copy.
	Files *control.Files `json:"files,omitempty"`
	// Runners describes runner and wheel functions that run in Python. It may be nil: the master
	// runs no such functions.
	Runners *control.Runners `json:"runners,omitempty"`
	// Returners describes the returners of events, Engines the engines. Both may be empty.
	Returners []control.Returner `json:"returners,omitempty"`
	Engines   []control.Engine   `json:"engines,omitempty"`
	// Postgres describes what the master writes into PostgreSQL. It may be nil: it writes into none.
	Postgres *control.Postgres `json:"postgres,omitempty"`
	// Resources counts the resources of minions. It may be nil: no minion has registered any.
	Resources *control.Resources `json:"resources,omitempty"`
	// Fleet describes the last runs of all minions. It may be nil: an older master without a history.
	Fleet *control.Fleet `json:"fleet,omitempty"`
	// Notify describes the notifications. It may be nil: there are no rules.
	Notify *control.Notify `json:"notify,omitempty"`
}

// Waiting describes the master's queues of waiting work.
type Waiting struct {
	Pillars   Queue `json:"pillars"`   // requests of minions for pillars that need a renderer
	Runners   Queue `json:"runners"`   // calls of runners by minions
	Reactions Queue `json:"reactions"` // events that have reactions, and the runners that reactions start
	Scheduled Queue `json:"scheduled"` // runs of the master's schedule
}

// Queue describes the queue of one kind of work.
type Queue struct {
	Waiting      int     `json:"waiting"`
	Working      int     `json:"working"`
	OldestMillis int64   `json:"oldestMillis"`  // how long the oldest item in the queue has waited
	Begun        uint64  `json:"begun"`         // number of items begun; for reactions and runs of the schedule: done
	Waited       float64 `json:"waitedSeconds"` // total time for which all items begun so far waited
	// number of items that a full queue refused; minions repeat requests for pillars and runners
	Lost uint64 `json:"lost"`
	// Left is the number of items that were dropped because their minion disconnected while they
	// waited
	Left uint64 `json:"left"`
}

// Storage describes the file system that holds the keys and files.
type Storage struct {
	Kind        string  `json:"kind"`
	Path        string  `json:"path"`
	Total       uint64  `json:"totalBytes"`
	Free        uint64  `json:"freeBytes"` // without the part that only root can use
	FreePercent float64 `json:"freePercent"`
	InodesFree  float64 `json:"inodesFreePercent"`
}

// Clock reports whether the kernel's clock is synchronised.
type Clock struct {
	Synchronised *bool `json:"synchronised"` // null: not known
}

// Names of the services, as in [Service].
const (
	MasterService   = "master"
	BalancerService = "lb"
	VirtualService  = "vip"
	APIService      = "api"
)
