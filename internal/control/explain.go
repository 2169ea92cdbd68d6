package control

import (
	"context"
	"time"
)

// ExplainQuestion asks a master what it knows of a minion, and why the minion does not answer.
type ExplainQuestion struct {
	Minion string `json:"minion"`
	Key    string `json:"key,omitempty"` // of the pillar, with colons; "": all keys of the first level
	// User and Function ask which rule lets a user run a function on the minion. Both may be "".
	User     string `json:"user,omitempty"`
	Function string `json:"function,omitempty"`
	// Silent means that the minion is not asked whether it answers.
	Silent bool `json:"silent,omitempty"`
}

// Explanation contains the facts that a master has about a minion. It has no values of pillars and no arguments of jobs.
type Explanation struct {
	Minion string    `json:"minion"`
	Node   string    `json:"node"` // whose master explains
	Time   time.Time `json:"time"`
	// Answers reports whether the minion has answered a question of now.
	Answers bool `json:"answers"`
	// Causes say why the minion does not answer, the most likely one first. If it answers, they say
	// what it does.
	Causes []Cause `json:"causes"`

	Key        ExplainedKey        `json:"key"`
	Connection ExplainedConnection `json:"connection"`
	Answer     *ExplainedRun       `json:"last_answer,omitempty"` // nil: none is known
	Run        *ExplainedRun       `json:"last_run,omitempty"`    // of states; nil: none is known
	// Unanswered are jobs that the minion has not answered, since the master began to count.
	Unanswered      []ExplainedJob   `json:"unanswered,omitempty"`
	UnansweredSince time.Time        `json:"unanswered_since,omitzero"`
	Running         []ExplainedJob   `json:"running,omitempty"` // what the minion runs now, by its own answer
	States          ExplainedTop     `json:"states"`
	Pillar          ExplainedPillar  `json:"pillar"`
	GrainsChanged   time.Time        `json:"grains_changed,omitzero"`
	Groups          []string         `json:"nodegroups,omitempty"` // and saved targets that hold the minion
	Rights          *ExplainedRights `json:"rights,omitempty"`     // nil: not asked for
	Silences        []string         `json:"silences,omitempty"`
}

// NotAsked is the Code of the cause if the minion is connected, and was not asked whether it answers.
const NotAsked = "not asked"

// Cause is a reason why a minion does not answer, or a fact that matters.
type Cause struct {
	Code string `json:"code"`
	Text string `json:"text"`
	Next string `json:"next,omitempty"` // what to do
}

// ExplainedKey describes the keys of a minion.
type ExplainedKey struct {
	State       string `json:"state"` // accepted, pending, rejected, denied, or none
	Fingerprint string `json:"fingerprint,omitempty"`
	// Denied is the fingerprint of another key that was offered under this id.
	Denied string    `json:"denied,omitempty"`
	Since  time.Time `json:"since,omitzero"` // of the last change, by the audit record
	By     string    `json:"by,omitempty"`
	Action string    `json:"action,omitempty"`
	Near   []string  `json:"near,omitempty"` // ids that look alike, if there is no such minion
}

// ExplainedConnection describes the connection of a minion.
type ExplainedConnection struct {
	Connected bool      `json:"connected"`
	Node      string    `json:"node,omitempty"`
	Address   string    `json:"address,omitempty"`
	Seen      time.Time `json:"seen,omitzero"`
	SignIn    time.Time `json:"sign_in,omitzero"` // the last one at this master, whatever came of it
	Version   string    `json:"version,omitempty"`
	// Unasked are the nodes that did not answer, each with the reason.
	Unasked map[string]string `json:"unasked,omitempty"`
}

// ExplainedRun is a return of a minion.
type ExplainedRun struct {
	JID      string    `json:"jid"`
	Function string    `json:"function"`
	User     string    `json:"user,omitempty"`
	Time     time.Time `json:"time"`
	Result   string    `json:"result"`
	Failed   []string  `json:"failed,omitempty"`  // states
	Drifted  []string  `json:"drifted,omitempty"` // states
}

// ExplainedJob is a job of a minion.
type ExplainedJob struct {
	JID      string    `json:"jid"`
	Function string    `json:"function"`
	User     string    `json:"user,omitempty"`
	Start    time.Time `json:"start,omitzero"`
}

// ExplainedTop has the lines of top files.
type ExplainedTop struct {
	Matches []ExplainedLine `json:"matches,omitempty"`
	// Others are the first lines that do not select the minion.
	Others []ExplainedLine `json:"others,omitempty"`
	More   int             `json:"more,omitempty"` // further lines that do not select it
	Note   string          `json:"note,omitempty"`
}

// ExplainedLine is a line of a top file.
type ExplainedLine struct {
	Top    string   `json:"top"` // environment of the top file
	Env    string   `json:"env"`
	Target string   `json:"target"`
	Type   string   `json:"type"`
	SLS    []string `json:"sls,omitempty"`
	Why    string   `json:"why,omitempty"` // why it does not select the minion
}

// ExplainedPillar has the keys of a minion's pillar, without their values.
type ExplainedPillar struct {
	Top     ExplainedTop        `json:"top"`
	Keys    []ExplainedPillarOf `json:"keys,omitempty"`
	Faults  int                 `json:"faults,omitempty"`
	Problem string              `json:"problem,omitempty"` // why it is not known
}

// ExplainedPillarOf is a key and a file, or an external pillar, that has it. For a key of the option
// pillar_opts both are "".
type ExplainedPillarOf struct {
	Key      string `json:"key"`
	SLS      string `json:"sls"`
	Env      string `json:"env"`
	File     string `json:"file"`
	External string `json:"external,omitempty"`
	Replaced bool   `json:"replaced,omitempty"` // another one has replaced its value
}

// ExplainedRights says whether a user may run a function on the minion.
type ExplainedRights struct {
	Allowed bool     `json:"allowed"`
	Rules   []string `json:"rules,omitempty"` // that allow it
	Note    string   `json:"note,omitempty"`
}

// MinionQuestion asks where a minion is.
type MinionQuestion struct {
	Minion string `json:"minion"`
}

// MinionPlaces says where the masters of all nodes have seen a minion.
type MinionPlaces struct {
	Connected bool              `json:"connected"`
	Node      string            `json:"node,omitempty"` // to which it is connected; "": not known
	Address   string            `json:"address,omitempty"`
	Seen      time.Time         `json:"seen,omitzero"`
	Unasked   map[string]string `json:"unasked,omitempty"`
	// Refused is the last that any of these masters has refused. It may be nil: nothing.
	Refused *Refused `json:"refused,omitempty"`
}

// Explain asks the master about a minion.
func (c *Client) Explain(ctx context.Context, q ExplainQuestion) (Explanation, error) {
	return ask(ctx, &c.rpc, explainMinion, q)
}

// Minion asks the masters of all nodes where a minion is.
func (d *Door) Minion(ctx context.Context, q MinionQuestion) (MinionPlaces, error) {
	return ask(ctx, &d.rpc, findMinion, q)
}
