package control

import "time"

// Bounds of a supervisor's report about the nodes.
const (
	maxNodes    = 64
	maxServices = 16
	maxFindings = 50
	// MaxPoints is how many points of a series are kept and reported: one day's.
	MaxPoints = 288
	// PointEvery is the time from one point to the next.
	PointEvery = 5 * time.Minute
)

// Appliance is the part of a node's status that the supervisor passes to the master. It contains
// nothing that only root may see.
type Appliance struct {
	Time     time.Time     `json:"time"`
	Health   string        `json:"health"`
	Cluster  string        `json:"cluster"`
	Node     string        `json:"node"` // name of the node that reports
	Address  string        `json:"address,omitempty"`
	Holders  []string      `json:"holders,omitempty"` // nodes that hold the virtual Address now
	Nodes    []NodeState   `json:"nodes"`
	Services []Service     `json:"services"` // services of Node
	Storage  Space         `json:"storage"`
	Findings []NodeProblem `json:"problems"`
}

// NodeState is the state of a node, as seen by the node that reports.
type NodeState struct {
	Name     string    `json:"name"`
	This     bool      `json:"this,omitempty"`
	Address  string    `json:"address,omitempty"`
	Version  string    `json:"version,omitempty"`
	Role     string    `json:"role"`
	State    string    `json:"state"`
	Drained  bool      `json:"drained,omitempty"`
	Master   string    `json:"master"`
	Proxy    string    `json:"proxy"`
	Storage  string    `json:"storage"`
	Minions  *int      `json:"minions"` // nil: unknown
	LastSeen time.Time `json:"lastSeen,omitzero"`
}

// Service is the state of one program of a node.
type Service struct {
	Name     string    `json:"name"`
	State    string    `json:"state"`
	Message  string    `json:"message"`
	Since    time.Time `json:"since"`
	Restarts int       `json:"restarts"`
}

// Space is the size and free room of the file system that holds keys and files.
type Space struct {
	Kind  string `json:"kind"`
	Total uint64 `json:"total"`
	Free  uint64 `json:"free"`
}

// NodeProblem is a problem that the node's status lists.
type NodeProblem struct {
	Code     string    `json:"code"`
	Severity string    `json:"severity"`
	Title    string    `json:"title"`
	Subject  string    `json:"subject,omitempty"`
	Cause    string    `json:"cause,omitempty"`
	Next     string    `json:"next,omitempty"`
	Since    time.Time `json:"since"`
}

// Course is the history of the nodes over the last day.
type Course struct {
	Nodes []Series `json:"nodes"`
	// Unasked are the nodes that gave no answer, each with the reason.
	Unasked map[string]string `json:"unasked,omitempty"`
}

// Series are the points of a node, the oldest first.
type Series struct {
	Node   string  `json:"node"`
	Points []Point `json:"points"`
}

// Point summarises the state of a node over the time [PointEvery] up to At. A nil value is unknown.
type Point struct {
	At      time.Time `json:"at"`
	Minions *float64  `json:"minions,omitempty"` // minions connected to the node's front
	Returns *float64  `json:"returns,omitempty"` // returns that the node's master accepted, per second
	Latency *float64  `json:"latency,omitempty"` // slowest ping through the node's front, in milliseconds
	Memory  *float64  `json:"memory,omitempty"`  // memory of the node's programs, in bytes
}

// Clean returns a with its lists cut to their bounds and each text made safe for one line.
func (a Appliance) Clean() Appliance {
	cleanLines(&a.Health, &a.Cluster, &a.Node, &a.Address, &a.Storage.Kind)
	a.Holders = a.Holders[:min(len(a.Holders), maxNodes)]
	for i := range a.Holders {
		cleanLines(&a.Holders[i])
	}

	a.Nodes = a.Nodes[:min(len(a.Nodes), maxNodes)]
	for i := range a.Nodes {
		n := &a.Nodes[i]
		cleanLines(&n.Name, &n.Address, &n.Version, &n.Role, &n.State, &n.Master, &n.Proxy, &n.Storage)
	}

	a.Services = a.Services[:min(len(a.Services), maxServices)]
	for i := range a.Services {
		cleanLines(&a.Services[i].Name, &a.Services[i].State, &a.Services[i].Message)
	}

	a.Findings = a.Findings[:min(len(a.Findings), maxFindings)]
	for i := range a.Findings {
		p := &a.Findings[i]
		cleanLines(&p.Code, &p.Severity, &p.Title, &p.Subject, &p.Cause, &p.Next)
	}

	return a
}

// Clean returns c with its lists cut to their bounds and each text made safe for one line.
func (c Course) Clean() Course {
	c.Nodes = c.Nodes[:min(len(c.Nodes), maxNodes)]
	for i := range c.Nodes {
		s := &c.Nodes[i]
		cleanLines(&s.Node)
		s.Points = s.Points[max(0, len(s.Points)-MaxPoints):]
	}

	unasked := map[string]string{}
	for name, why := range c.Unasked {
		if len(unasked) < maxNodes {
			unasked[oneLine(name)] = oneLine(why)
		}
	}

	c.Unasked = unasked
	return c
}

func cleanLines(texts ...*string) {
	for _, t := range texts {
		*t = oneLine(*t)
	}
}
