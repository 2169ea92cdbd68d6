package raft

import (
	"slices"
	"time"

	"saltern/master/cluster/wire"
	"saltern/master/value"
)

// Step handles a message of a member and returns the messages to send. The caller has checked that
// m.Src is the sender.
func (n *Node) Step(now time.Time, m wire.Raft) []Out {
	if m.Group != groupName || !slices.ContainsFunc(n.members, func(o Member) bool { return o.ID == m.Src }) {
		return nil
	}

	p := m.Payload
	term := integer(p, "term", 0)
	if term < 0 || term > maxTerm {
		return nil
	}

	switch m.Kind {
	case "pre-request-vote":
		n.onPreVote(now, m.Src, term, p)
	case "request-vote":
		n.onVote(now, m.Src, term, p)
	case "append-entries":
		n.onAppend(now, m.Src, term, p)
	case "install-snapshot":
		// Salt 3008.3 never sends a snapshot. Refuse a snapshot, since this master could not
		// replicate it further. The leader then sends entries instead.
		n.queueMessage(m.Src, "install-snapshot-reply", value.NewMap("our_term", n.state.Term, "peer_id", n.cfg.ID))
	case "pre-request-vote-reply", "request-vote-reply":
		n.onVoteReply(now, m, term)
	case "append-entries-reply":
		n.onAppendReply(now, m.Src, p)
	}

	return n.takeOutput()
}

// current reports whether a candidate's log is at least as new as this master's log.
func (n *Node) current(p *value.Map) bool {
	term, index := integer(p, "last_log_term", 0), integer(p, "last_log_index", -1)
	mine := n.termAt(n.lastIndex())
	return term > mine || term == mine && index >= n.lastIndex()
}

// onPreVote answers a pre-vote without changing the state (raft/node.py pre_request_vote).
func (n *Node) onPreVote(now time.Time, from string, term int64, p *value.Map) {
	granted := term > n.state.Term && n.current(p) && n.role != leader && now.Sub(n.lastHeard) >= lease
	n.queueMessage(from, "pre-request-vote-reply",
		value.NewMap("granted", granted, "term", n.state.Term, "voter_id", n.cfg.ID))
}

func (n *Node) onVote(now time.Time, from string, term int64, p *value.Map) {
	if term > n.state.Term {
		n.follow(now, term)
	}
	granted := term == n.state.Term && n.role == follower && (n.state.Voted == "" || n.state.Voted == from) &&
		n.current(p)
	if granted {
		n.state.Voted = from
		n.dirty = true
		n.lastHeard = now
	}
	n.queueMessage(from, "request-vote-reply",
		value.NewMap("granted", granted, "term", n.state.Term, "voter_id", n.cfg.ID))
}

func (n *Node) onVoteReply(now time.Time, m wire.Raft, term int64) {
	if term > n.state.Term {
		n.follow(now, term)
		return
	}

	pre := m.Kind == "pre-request-vote-reply"
	if pre && n.role != asking || !pre && (n.role != candidate || term != n.state.Term) ||
		!slices.Contains(n.electorate(), m.Src) {
		return
	}

	granted := m.Payload.Bool("granted")
	if n.founding && !granted {
		// the sender has a log or a leader, so the group exists
		n.role = follower
		n.resetElectionTimer(now)
		return
	}

	n.votes[m.Src] = granted
	n.countVotes(now)
}

// onAppend handles the entries or the heartbeat of a leader, and follows it (raft/node.py
// handle_append_entries).
func (n *Node) onAppend(now time.Time, from string, term int64, p *value.Map) {
	prevIndex, prevTerm := integer(p, "prev_log_index", -1), integer(p, "prev_log_term", 0)
	entries, ok := entriesOf(p, term)
	success := false
	if term >= n.state.Term && !(n.role == leader && term == n.state.Term) {
		n.follow(now, term)
		n.role = follower
		n.leader = from
		n.lastHeard = now
		success = ok && n.appendEntries(prevIndex, prevTerm, entries)
	}

	if success {
		n.commit = max(n.commit, min(integer(p, "leader_commit", -1), prevIndex+int64(len(entries))))
		switch {
		case n.commit >= n.lastIndex():
			n.stuckSince = time.Time{}
		case n.stuckSince.IsZero():
			n.stuckSince = now
		}
	}

	n.queueMessage(from, "append-entries-reply",
		value.NewMap("term", term, "prev_log_term", prevTerm, "prev_log_index", prevIndex,
			"sent_log_index", prevIndex+
				int64(len(entries)), "peer_id", n.cfg.ID, "our_term", n.state.Term, "success", success,
			"conflict_index", n.lastIndex(), "conflict_term", n.state.Term))
}

// appendEntries stores entries after the index prev. It returns false if our log does not contain
// prev.
func (n *Node) appendEntries(prev, prevTerm int64, entries []Entry) bool {
	if prev < -1 || prev > n.lastIndex() || prev >= 0 && n.termAt(prev) != prevTerm {
		return false
	}
	if prev+1+int64(len(entries)) > maxEntries {
		return false
	}

	for i, e := range entries {
		at := prev + 1 + int64(i)
		if at <= n.lastIndex() {
			if n.termAt(at) == e.Term {
				continue
			}
			n.state.Log = slices.Clone(n.state.Log[:at])
		}

		n.state.Log, n.dirty = append(n.state.Log, e), true
	}

	return true
}

func (n *Node) onAppendReply(now time.Time, from string, p *value.Map) {
	if t := integer(p, "our_term", 0); t > n.state.Term {
		if t <= maxTerm {
			n.follow(now, t)
		}
		return
	}
	if n.role != leader || integer(p, "term", 0) != n.state.Term {
		return
	}
	n.acknowledged(from, p.Bool("success"), integer(p, "sent_log_index", -1))
}
