package raft

import (
	"slices"
	"time"

	"saltern/master/cluster/wire"
)

// Times of the group. Salt's own masters use 750 to 1500 ms for an election and 50 ms between
// heartbeats.
const (
	// Beat is the interval at which the caller should call Tick, and at which a leader sends
	// heartbeats.
	Beat = 100 * time.Millisecond
	// lease is how long after a leader's message this master denies pre-votes.
	lease = 750 * time.Millisecond
	// patience is the shortest time for which a Saltern master waits for another leader. A random
	// time of up to patience is added.
	patience = 40 * Beat
	// candidacy is how long a candidate waits for votes.
	candidacy = 10 * Beat
)

// Limits of the memory that messages of other masters can take on this master.
const (
	maxEntries = 1 << 14 // entries of the log; an entry is a change of the group
	maxBatch   = 64      // entries in a message
	maxGroup   = 64      // masters in a configuration
	maxTerm    = 1 << 53 // a group cannot reach this term however long it exists
)

// typeConfig is the type of entries with a configuration (salt/cluster/consensus/raft/log.py
// LogEntryType). Saltern's masters interpret only these; they store and pass on entries of other
// types.
const typeConfig = 1

// Entry is an entry of the log. Its index in the log is its position in State.Log.
type Entry struct {
	Term, Type int64
	Cmd        any // decoded value
}

// State is the part of a Node that survives a restart. The caller must write it to disk before a
// message is sent.
type State struct {
	Term  int64  // current term
	Voted string // candidate that got this master's vote in this term; "" for none
	Log   []Entry
}

// Member is a master of the cluster.
type Member struct {
	ID  string
	Own bool // the member is Saltern's
}

// Config configures a Node. All fields but State are required.
type Config struct {
	ID    string
	State State // the State that was saved last; the zero State if none was saved
	// Token returns a new text at each call, for the ids of messages.
	Token func() string
	// Jitter returns a random duration below d.
	Jitter func(d time.Duration) time.Duration
}

// Out is a message for the caller to send.
type Out struct {
	To  string
	Msg wire.Raft
}

type role uint8

const (
	follower role = iota
	asking        // asks for pre-votes
	candidate
	leader
)

func (r role) String() string { return [...]string{"follower", "asking", "candidate", "leader"}[r] }

// Node is one master's part in the consensus. Only one goroutine may use it.
type Node struct {
	cfg     Config
	state   State
	dirty   bool
	out     []Out
	members []Member
	owner   bool

	role       role
	leader     string
	lastHeard  time.Time // time of the last message of a leader, or of a candidate that got this master's vote
	commit     int64     // index of the last committed entry; -1 for none
	stuckSince time.Time // time since which the leader's commit has been behind our log; zero: the commit is not behind
	electionAt time.Time // when this master stands for election, or gives up its candidacy

	votes     map[string]bool
	founding  bool // this candidacy would found the group
	next      map[string]int64
	match     map[string]int64
	installed bool // the configuration was proposed in this term
}

// New returns a Node.
func New(cfg Config) *Node { return &Node{cfg: cfg, state: cfg.State, commit: -1} }

// Dirty returns the State, and reports whether the caller must save it before sending messages.
// Dirty assumes that the caller saves it: it does not report the same change twice.
func (n *Node) Dirty() (State, bool) {
	d := n.dirty
	n.dirty = false
	return n.state, d
}

// Status is the state of a Node for administrators.
type Status struct {
	Role, Leader  string
	Term          int64
	Index, Commit int64
	Voters        []string
	Learners      []string
}

// Status returns the state of the node for administrators.
func (n *Node) Status() Status {
	v, l := n.groupMembers()
	return Status{
		Role:     n.role.String(),
		Leader:   n.leader,
		Term:     n.state.Term,
		Index:    n.lastIndex(),
		Commit:   n.commit,
		Voters:   v,
		Learners: l,
	}
}

// lastIndex returns the index of the last entry, or -1 for none.
func (n *Node) lastIndex() int64 { return int64(len(n.state.Log)) - 1 }

// termAt returns the term of the entry at an index, or 0 if there is no entry at that index.
func (n *Node) termAt(i int64) int64 {
	if i < 0 || i > n.lastIndex() {
		return 0
	}
	return n.state.Log[i].Term
}

// groupMembers returns the members in the newest configuration of the log. As in Salt, that
// configuration need not be committed (raft/node.py on_config_change).
func (n *Node) groupMembers() (voters, learners []string) {
	for i := len(n.state.Log) - 1; i >= 0; i-- {
		if v, l, ok := configOf(n.state.Log[i]); ok {
			return v, l
		}
	}
	return nil, nil
}

// electorate returns the voters except this master.
func (n *Node) electorate() []string {
	voters, _ := n.groupMembers()
	if voters == nil {
		for _, m := range n.members {
			voters = append(voters, m.ID)
		}
	}
	var out []string
	for _, v := range voters {
		if v != n.cfg.ID {
			out = append(out, v)
		}
	}
	return out
}

// Tick does what is due at now, and returns the messages to send. owner reports whether this master
// owns the duties that only one Saltern master may do.
func (n *Node) Tick(now time.Time, members []Member, owner bool) []Out {
	n.members, n.owner = members, owner
	if n.electionAt.IsZero() {
		n.resetElectionTimer(now)
	}

	switch {
	case n.role == leader:
		n.reconcile()
		n.sendHeartbeats()
	case now.Before(n.electionAt):
	case n.role == candidate || n.role == asking:
		n.role = follower
		n.resetElectionTimer(now)
	case n.mayStand(now):
		if n.stuckSince.IsZero() {
			n.startPreVote(now)
		} else {
			n.startElection(now) // the leader is stuck; its followers, which still receive from it, would deny a pre-vote
		}
	default:
		n.resetElectionTimer(now)
	}

	return n.takeOutput()
}

func (n *Node) takeOutput() []Out {
	out := n.out
	n.out = nil
	return out
}

// resetElectionTimer sets the time at which this master may next stand for election.
func (n *Node) resetElectionTimer(now time.Time) {
	n.electionAt = now.Add(patience + n.cfg.Jitter(patience))
}

// mayStand reports whether the group needs a leader and this master may become that leader.
func (n *Node) mayStand(now time.Time) bool {
	led := now.Sub(n.lastHeard) < patience
	if !led {
		n.stuckSince = time.Time{}
	}
	if led && (n.stuckSince.IsZero() || now.Sub(n.stuckSince) < patience) {
		return false
	}
	voters, _ := n.groupMembers()
	n.founding = voters == nil
	if n.founding {
		return n.owner && !led && len(n.members) > 1
	}
	return slices.Contains(voters, n.cfg.ID)
}

// startPreVote asks the others whether they would vote for this master.
func (n *Node) startPreVote(now time.Time) {
	n.role, n.votes = asking, map[string]bool{}
	n.electionAt = now.Add(candidacy)
	n.toVoters("pre-request-vote", n.state.Term+1)
	n.countVotes(now)
}

// startElection begins a new term and asks the others for their votes.
func (n *Node) startElection(now time.Time) {
	n.role, n.votes = candidate, map[string]bool{}
	n.electionAt = now.Add(candidacy)
	n.setTerm(n.state.Term + 1)
	n.state.Voted, n.dirty = n.cfg.ID, true
	n.toVoters("request-vote", n.state.Term)
	n.countVotes(now)
}

func (n *Node) toVoters(kind string, term int64) {
	for _, id := range n.electorate() {
		n.queueMessage(id, kind, voteRequest(n.cfg.ID, term, n.termAt(n.lastIndex()), n.lastIndex()))
	}
}

// countVotes counts the votes for this master. With a majority, a candidate becomes the leader, and
// a prospective candidate becomes a candidate.
func (n *Node) countVotes(now time.Time) {
	yes, all := 1, len(n.electorate())+1
	for _, v := range n.votes {
		if v {
			yes++
		}
	}

	if 2*yes <= all {
		return
	}
	if n.role == asking {
		n.startElection(now)
		return
	}

	n.becomeLeader()
}

func (n *Node) becomeLeader() {
	n.role = leader
	n.leader = n.cfg.ID
	n.installed = false
	n.next, n.match = map[string]int64{}, map[string]int64{}
	n.stuckSince = time.Time{}
	n.reconcile()
	n.sendHeartbeats()
}

// setTerm enters a higher term, in which this master has not voted yet.
func (n *Node) setTerm(t int64) {
	if t > n.state.Term {
		n.state.Term = t
		n.state.Voted = ""
		n.dirty = true
	}
}

// follow enters the term and makes this master a follower, without a leader until a leader's first
// message arrives.
func (n *Node) follow(now time.Time, term int64) {
	n.setTerm(term)
	if n.role != follower {
		n.role = follower
		n.resetElectionTimer(now)
	}
}
