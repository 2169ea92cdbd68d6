package options

// Code is the outcome of a roll, for programs.
type Code string

// The codes.
const (
	Applied     Code = "applied"     // all nodes that take part run with the new options
	Unchanged   Code = "unchanged"   // they did before
	Checked     Code = "checked"     // the call only asked whether the nodes may take the options
	Wrong       Code = "wrong"       // the options of a node are wrong; nothing was changed
	Differs     Code = "differs"     // the nodes do not see the same files; nothing was changed
	Away        Code = "away"        // a node cannot be asked or does not serve; nothing was changed
	Busy        Code = "busy"        // another one has the turn; nothing was changed
	Stopped     Code = "stopped"     // a node did not serve with them; all went back
	Lost        Code = "lost"        // the roll ended between two nodes; those that have taken them keep them
	Interrupted Code = "interrupted" // as Lost: who drove it was stopped
)

// Good reports whether nothing has to be done any more.
func (c Code) Good() bool { return c == Applied || c == Unchanged || c == Checked }

// Force says which options are in force at a node.
type Force string

// The states.
const (
	New      Force = "new"       // the new ones, since this roll
	Same     Force = "same"      // those of now, since before
	Before   Force = "before"    // those of before
	LastGood Force = "last good" // those of before, and the node has refused the new ones
	Left     Force = "left out"  // those of before: it takes the new ones at its next start
	Unknown  Force = "unknown"
)

// NodeResult is the outcome of a roll at one node.
type NodeResult struct {
	Name  string `json:"name"`
	State Force  `json:"state"`
	Cause string `json:"cause,omitempty"`
	Findings
}

// Schema is the version of [Progress].
const Schema = 1

// Progress is how far a roll is.
type Progress struct {
	Schema  int      `json:"schema"`
	Running bool     `json:"running"`
	Lines   []string `json:"lines"`            // the steps so far
	Result  *Result  `json:"result,omitempty"` // when it does not run; nil: there was none
}

// Result is the outcome of a roll.
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

// Names are the nodes in a state.
func (r Result) Names(state Force) (names []string) {
	for _, n := range r.Nodes {
		if n.State == state {
			names = append(names, n.Name)
		}
	}
	return names
}
