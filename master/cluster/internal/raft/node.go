package raft

import (
	"slices"
	"time"

	"saltern/master/cluster/wire"
)

// Times of the group. Salt's are 750 to 1500 ms for an election and 50 ms
// between heartbeats.
const (
	// Beat is how often Tick should be called; a leader sends that often.
	Beat = 100 * time.Millisecond
	// lease is how long after a leader's message a pre-vote is denied.
	lease = 750 * time.Millisecond
	// patience is the least time that a Saltern master waits for another leader; up to the same
	// time is added at random.
	patience = 40 * Beat
	// candidacy is how long a candidate waits for votes.
	candidacy = 10 * Beat
)

// Bounds of what other masters can make us store.
const (
	maxEntries = 1 << 14 // of the log; an entry is a change of the group
	maxBatch   = 64      // entries in a message
	maxGroup   = 64
	maxTerm    = 1 << 53 // no group gets there in its life
)

// Types of entries (salt/cluster/consensus/raft/log.py LogEntryType). Saltern's masters interpret
// only configurations; they store and pass on all others.
const typeConfig = 1

// Entry is an entry of the log. Its index is its place.
type Entry struct {
	Term, Type int64
	Cmd        any // decoded
}

// State must be on disk before a message is sent.
type State struct {
	Term  int64
	Voted string
	Log   []Entry
}

// Member is a master of the cluster.
type Member struct {
	ID  string
	Own bool // Saltern's
}

// Config of a Node. All fields but State are required.
type Config struct {
	ID    string
	State State // as saved
	// Token returns a new text at each call, for the ids of messages.
	Token func() string
	// Jitter returns a duration below d.
	Jitter func(d time.Duration) time.Duration
}

// Out is a message to be sent.
type Out struct {
	To  string
	Msg wire.Raft
}

type role uint8

const (
	follower role = iota
	asking        // for pre-votes
	candidate
	leader
)

func (r role) String() string { return [...]string{"follower", "asking", "candidate", "leader"}[r] }

// Node is one master's part in the consensus. It is for one goroutine.
type Node struct {
	cfg     Config
	state   State
	dirty   bool
	out     []Out
	members []Member
	owner   bool

	role       role
	leader     string
	lastHeard  time.Time // last message of a leader, or of a candidate that got our vote
	commit     int64     // index, -1 for none
	stuckSince time.Time // since when the leader's commit has been behind our log
	electionAt time.Time // when to stand for election, or to give up a candidacy

	votes     map[string]bool
	founding  bool // the candidacy founds the group
	next      map[string]int64
	match     map[string]int64
	installed bool // the configuration of this term is proposed
}

// New returns a Node.
func New(cfg Config) *Node { return &Node{cfg: cfg, state: cfg.State, commit: -1} }

// Dirty reports whether State must be saved before messages are sent, and
// counts it as saved.
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

// Status returns the state for administrators.
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

// lastIndex returns the index of the last entry, -1 for none.
func (n *Node) lastIndex() int64 { return int64(len(n.state.Log)) - 1 }

// termAt returns the term of an entry, 0 for none.
func (n *Node) termAt(i int64) int64 {
	if i < 0 || i > n.lastIndex() {
		return 0
	}
	return n.state.Log[i].Term
}

// groupMembers returns the members in the newest configuration of the log, committed or not, as in
// Salt (raft/node.py on_config_change).
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

// Tick passes in the time, the members of the cluster, and whether this master owns the duties that
// only one Saltern master may do.
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
			n.startElection(now) // the followers of that leader would say no
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

// resetElectionTimer sets the time at which this master may stand for election.
func (n *Node) resetElectionTimer(now time.Time) {
	n.electionAt = now.Add(patience + n.cfg.Jitter(patience))
}

// mayStand reports whether the group needs a leader and this master may become it.
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

// startPreVote asks whether others would vote for this master.
func (n *Node) startPreVote(now time.Time) {
	n.role, n.votes = asking, map[string]bool{}
	n.electionAt = now.Add(candidacy)
	n.toVoters("pre-request-vote", n.state.Term+1)
	n.countVotes(now)
}

// startElection asks for votes.
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

// countVotes checks whether a majority has voted for this master.
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

// setTerm enters a higher term; the vote of the former term does not count any more.
func (n *Node) setTerm(t int64) {
	if t > n.state.Term {
		n.state.Term = t
		n.state.Voted = ""
		n.dirty = true
	}
}

// follow makes this master a follower of a leader that it does not know yet.
func (n *Node) follow(now time.Time, term int64) {
	n.setTerm(term)
	if n.role != follower {
		n.role = follower
		n.resetElectionTimer(now)
	}
}
