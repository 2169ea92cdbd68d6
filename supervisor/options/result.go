package options

// Code is the outcome of a rolling change, for programs.
type Code string

// Values of Code.
const (
	Applied     Code = "applied"     // all nodes except those left out run with the new options
	Unchanged   Code = "unchanged"   // all nodes ran with these options before
	Checked     Code = "checked"     // the nodes were only asked whether they accept the options
	Wrong       Code = "wrong"       // the options of a node are wrong; nothing was changed
	Differs     Code = "differs"     // the nodes do not see the same files; nothing was changed
	Away        Code = "away"        // a node does not answer or does not serve; nothing was changed
	Busy        Code = "busy"        // another node has the turn; nothing was changed
	Stopped     Code = "stopped"     // a node did not serve with the new options; all nodes returned to their old ones
	Lost        Code = "lost"        // the change stopped between two nodes; nodes that have the new options keep them
	Interrupted Code = "interrupted" // like Lost, but because the driving node was stopped
)

// Good reports whether nothing remains to be done.
func (c Code) Good() bool { return c == Applied || c == Unchanged || c == Checked }

// Force says with which options a node's master runs after a rolling change.
type Force string

// Values of Force.
const (
	New      Force = "new"       // the new options, through this rolling change
	Same     Force = "same"      // the same options before and after
	Before   Force = "before"    // the options from before the change
	LastGood Force = "last good" // like Before: the node has refused the new options
	Left     Force = "left out"  // like Before: the node loads the new options at its next start
	Unknown  Force = "unknown"
)

// NodeResult is the outcome of a rolling change at one node.
type NodeResult struct {
	Name  string `json:"name"`
	State Force  `json:"state"`
	Cause string `json:"cause,omitempty"`
	Findings
}

// Schema is the version of [Progress].
const Schema = 1

// Progress is the progress of a rolling change.
type Progress struct {
	Schema  int      `json:"schema"`
	Running bool     `json:"running"`
	Lines   []string `json:"lines"`            // the steps so far
	Result  *Result  `json:"result,omitempty"` // result of the last roll that has ended; nil: no roll has ended
}

// Result is the outcome of a rolling change.
type Result struct {
	Code  Code         `json:"code"`
	Cause string       `json:"cause,omitempty"`
	Nodes []NodeResult `json:"nodes"`
}

func (u *run) result(code Code, cause string) Result {
	out := Result{Code: code, Cause: cause}
	for _, n := range u.nodes {
		out.Nodes = append(out.Nodes, n.line)
	}
	return out
}

// Names returns the names of the nodes that ended in a state.
func (r Result) Names(state Force) (names []string) {
	for _, n := range r.Nodes {
		if n.State == state {
			names = append(names, n.Name)
		}
	}
	return names
}
