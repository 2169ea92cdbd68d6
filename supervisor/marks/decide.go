package marks

import "time"

const (
	// lonelyFor is how long one of two nodes waits for the other. Then it continues alone: of two
	// nodes, the remaining one must be able to serve after a restart.
	lonelyFor = time.Minute
)

// Verdict is the decision about a node's copy of the shared volume.
type Verdict string

// The verdicts.
const (
	Ask   Verdict = "ask"   // not known yet: the copy must not be served
	Serve Verdict = "serve" // the copy may be served
	Aside Verdict = "aside" // the copy is old: it is set aside, and filled from the others
	Only  Verdict = "only"  // the copy is old, and nobody has another one: it is served
	Hold  Verdict = "hold"  // it cannot be told which copy counts: a person has to choose
)

// Other is another member of the cluster.
type Other struct {
	Copy     bool // it holds a copy of the volume, or its arbiter's names
	Answered bool // since this node has started
	Serving  bool // its copy is being served
	Behind   bool // more is remembered of its copy than the copy has
}

// Situation is a node's knowledge at its decision.
type Situation struct {
	// Copy reports whether this node has a copy. Without one there is nothing to decide.
	Copy bool
	// Behind reports whether others remember more of the copy than it has.
	Behind bool
	// Serving reports whether the copy is already being served.
	Serving bool
	// Twin reports whether another machine answers as this node. This node cannot tell which of
	// the two is old.
	Twin bool
	// Stale reports whether this node lacks the newest table of nodes.
	Stale bool
	// Waited is how long this node has been asking. WaitedForRest is how long a majority has
	// answered.
	Waited, WaitedForRest time.Duration
	Others                []Other
}

// Peer is another member, as the table of nodes and its own answer have it.
type Peer struct {
	Certificate string
	// Copy reports whether the table gives the node a directory for a copy.
	Copy bool
	// Report is the node's newest answer. It may be nil: it has not answered since this node's
	// start.
	Report *Report
}

// Look returns a node's situation. own is its own report, memory the knowledge of the node and of
// those that answered. The caller adds how long the node has waited.
func Look(certificate string, own Report, memory Memory, peers []Peer) Situation {
	s := Situation{
		Copy:    own.Copy,
		Behind:  own.Marks[Bricks].Behind(memory.Of(certificate, Bricks)),
		Serving: own.Serving,
	}

	for _, p := range peers {
		other := Other{Copy: p.Copy, Answered: p.Report != nil}
		if p.Report != nil {
			s.Twin = s.Twin || p.Report.Twin(own.Start)
			s.Stale = s.Stale || p.Report.Table > own.Table
		}

		if p.Report != nil && p.Report.Start != "" { // its version knows of marks
			other.Copy, other.Serving = p.Report.Copy, p.Report.Serving
			other.Behind = p.Report.Marks[Bricks].Behind(memory.Of(p.Certificate, Bricks))
		}

		s.Others = append(s.Others, other)
	}

	return s
}

// Majority reports whether this node and those that answered are most of the cluster.
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

// copiesElsewhere returns how many other nodes are known to hold a copy.
func (s Situation) copiesElsewhere() int { return s.countOthers(func(o Other) bool { return o.Copy }) }

// goodElsewhere returns how many of them are known not to be old.
func (s Situation) goodElsewhere() int {
	return s.countOthers(func(o Other) bool { return o.Copy && o.Answered && !o.Behind })
}

// oldServed reports whether another node serves an old copy. It must not meet ours: deleted files
// would come back in both.
func (s Situation) oldServed() bool {
	return s.countOthers(func(o Other) bool { return o.Copy && o.Answered && o.Serving && o.Behind }) > 0
}

// Decide returns the decision about this node's copy.
//
// An old copy is never served beside others: a single answer that remembers more is enough.
// Otherwise the copy is served when all nodes have answered, or when a majority has and the rest
// stayed away. One of two nodes may decide alone after a longer wait.
func Decide(s Situation) Verdict {
	// The rest may just be starting too.
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

// decideOld decides about an old copy. The node gives it up only if the volume works without it:
// most copies, or the other one of two, must be known to be good.
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
