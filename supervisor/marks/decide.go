package marks

import "time"

const (
	// lonelyFor is how long, in a cluster of two nodes, one node waits for the other. After that it
	// continues alone: the remaining node must be able to serve after a restart.
	lonelyFor = time.Minute
)

// Verdict is the decision about a node's copy of the shared volume.
type Verdict string

// Values of Verdict.
const (
	Ask   Verdict = "ask"   // not decided yet: the copy must not be served
	Serve Verdict = "serve" // the copy may be served
	Aside Verdict = "aside" // the copy is old: set it aside, and fill a new one from the other nodes
	Only  Verdict = "only"  // the copy is old, and no other node has one: serve it
	Hold  Verdict = "hold"  // it is unknown which copy is right: an administrator must choose
)

// Other describes another member of the cluster.
type Other struct {
	Copy     bool // the member holds a copy of the volume or, as an arbiter, the names of files
	Answered bool // the member has answered since this node started
	Serving  bool // the member serves its copy
	Behind   bool // nodes remember a higher mark of the member's copy than the copy has
}

// Situation holds what a node knows when it decides.
type Situation struct {
	// Copy reports whether this node has a copy of the volume. A node without a copy has nothing to
	// decide.
	Copy bool
	// Behind reports whether other nodes remember a higher mark of the copy than the copy has.
	Behind bool
	// Serving reports whether this node already serves the copy.
	Serving bool
	// Twin reports whether another machine answers as this node. This node cannot determine which
	// of the two is old.
	Twin bool
	// Stale reports whether this node lacks the newest table of nodes.
	Stale bool
	// Waited is how long this node has been asking the others. WaitedForRest is how long a majority
	// of them has been answering.
	Waited, WaitedForRest time.Duration
	Others                []Other
}

// Peer is another member, as the table of nodes and the member's own answer describe it.
type Peer struct {
	Certificate string
	// Copy reports whether the table names a directory for a copy on the node.
	Copy bool
	// Report is the node's newest answer. It may be nil: the node has not answered since this node
	// started.
	Report *Report
}

// Look returns the situation of a node. ownReport is the node's own report. memory holds the counts
// that the node and the answering nodes remember. The caller sets how long the node has waited.
func Look(certificate string, ownReport Report, memory Memory, peers []Peer) Situation {
	s := Situation{
		Copy:    ownReport.Copy,
		Behind:  ownReport.Marks[Bricks].Behind(memory.Of(certificate, Bricks)),
		Serving: ownReport.Serving,
	}

	for _, p := range peers {
		other := Other{Copy: p.Copy, Answered: p.Report != nil}
		if p.Report != nil {
			s.Twin = s.Twin || p.Report.Twin(ownReport.Start)
			s.Stale = s.Stale || p.Report.Table > ownReport.Table
		}

		if p.Report != nil && p.Report.Start != "" { // the node's version supports marks
			other.Copy, other.Serving = p.Report.Copy, p.Report.Serving
			other.Behind = p.Report.Marks[Bricks].Behind(memory.Of(p.Certificate, Bricks))
		}

		s.Others = append(s.Others, other)
	}

	return s
}

// Majority reports whether this node and the nodes that answered are more than half of the cluster.
func (s Situation) Majority() bool { return 2*(s.answered()+1) > len(s.Others)+1 }

func (s Situation) answered() int { return s.countOthers(func(o Other) bool { return o.Answered }) }

func (s Situation) allAnswered() bool { return s.answered() == len(s.Others) }

func (s Situation) countOthers(is func(Other) bool) (n int) {
	for _, o := range s.Others {
		if is(o) {
			n++
		}
	}
	return n
}

// copiesElsewhere returns how many other nodes hold a copy.
func (s Situation) copiesElsewhere() int { return s.countOthers(func(o Other) bool { return o.Copy }) }

// goodElsewhere returns how many other nodes hold a copy that is known not to be old.
func (s Situation) goodElsewhere() int {
	return s.countOthers(func(o Other) bool { return o.Copy && o.Answered && !o.Behind })
}

// oldServed reports whether another node serves an old copy. Our copy must not join the volume
// then, because deleted files would reappear in both copies.
func (s Situation) oldServed() bool {
	return s.countOthers(func(o Other) bool { return o.Copy && o.Answered && o.Serving && o.Behind }) > 0
}

// Decide returns the verdict about this node's copy.
//
// An old copy is never served together with others: a single answer with a higher count is enough
// to call it old. A copy that is not old is served when all nodes have answered, or when a majority
// has answered and the others have stayed silent for a while. In a cluster of two nodes one node
// may decide alone after a longer wait.
func Decide(s Situation) Verdict {
	// The nodes that have not answered may be starting.
	waitedLong := s.Majority() && s.WaitedForRest >= 15*time.Second
	waitedAlone := len(s.Others) == 1 && s.Waited >= lonelyFor

	switch {
	case !s.Copy, len(s.Others) == 0:
		return Serve
	case s.Behind:
		return s.decideOld()
	case s.Serving:
		return Serve
	case s.Stale:
		return Ask
	case s.copiesElsewhere() == 0:
		return Serve
	case s.oldServed():
		return Hold
	case s.allAnswered(), waitedLong, waitedAlone:
		return Serve
	}

	return Ask
}

// decideOld returns the verdict about an old copy. The node sets the copy aside only if the volume
// works without it: most of the copies, or in a volume of two copies the other one, must be known
// to be good.
func (s Situation) decideOld() Verdict {
	elsewhere, good := s.copiesElsewhere(), s.goodElsewhere()
	enough := 2*good > elsewhere+1 || elsewhere == 1 && good == 1

	switch {
	case s.Twin, s.Stale:
		return Ask
	case elsewhere == 0:
		return Only
	case enough:
		return Aside
	case s.allAnswered():
		return Hold
	}

	return Ask
}
