package raft

import "slices"

// sendHeartbeats sends every other master of the group the entries that it lacks, or an empty
// message.
func (n *Node) sendHeartbeats() {
	voters, learners := n.groupMembers()
	for _, id := range append(slices.Clone(voters), learners...) {
		if id != n.cfg.ID {
			n.appendTo(id)
		}
	}
}

func (n *Node) appendTo(id string) {
	next, ok := n.next[id]
	if !ok {
		next = n.lastIndex() + 1
		n.next[id], n.match[id] = next, -1
	}
	entries := n.state.Log[min(next, n.lastIndex()+1):]
	if len(entries) > maxBatch {
		entries = entries[:maxBatch]
	}
	n.queueMessage(id, "append-entries",
		appendRequest(n.cfg.ID, n.state.Term, n.termAt(next-1), next-1, n.commit, entries))
}

// acknowledged handles a master's reply to append-entries. lastSent is the index of the last entry
// that was sent to that master.
func (n *Node) acknowledged(id string, success bool, lastSent int64) {
	if _, ok := n.next[id]; !ok || lastSent > n.lastIndex() {
		return
	}
	if !success {
		n.next[id] = max(0, n.next[id]-1)
		return
	}
	n.match[id] = max(n.match[id], lastSent)
	n.next[id] = n.match[id] + 1
	n.advance()
	n.reconcile()
}

// advance commits the entries of this term that a majority of the voters has stored.
func (n *Node) advance() {
	voters, _ := n.groupMembers()
	have := make([]int64, 0, len(voters))
	for _, id := range voters {
		m, ok := n.match[id]
		switch {
		case id == n.cfg.ID:
			m = n.lastIndex()
		case !ok:
			m = -1
		}

		have = append(have, m)
	}

	if len(have) == 0 {
		return
	}

	slices.Sort(have)
	if i := have[(len(have)-1)/2]; i > n.commit && n.termAt(i) == n.state.Term {
		n.commit = i
	}
}

// reconcile proposes the next change that brings the group closer to the cluster. It adds or
// removes one voter at a time, and proposes a change only after the previous change is committed.
func (n *Node) reconcile() {
	if n.installed && n.commit < n.lastIndex() {
		return
	}

	voters, learners := n.groupMembers()
	switch {
	case voters == nil: // there is no configuration yet: propose the first one
		for _, m := range n.members {
			voters = append(voters, m.ID)
		}
	case n.installed:
		var changed bool
		if voters, learners, changed = n.change(voters, learners); !changed {
			return
		}
	}

	n.installed = true
	slices.Sort(voters)
	slices.Sort(learners)
	if len(n.state.Log) >= maxEntries {
		return
	}

	n.state.Log = append(n.state.Log, Entry{Term: n.state.Term, Type: typeConfig, Cmd: config(voters, learners)})
	n.dirty = true
	n.advance()
}

// change returns the voters and the learners of the configuration after the next change. changed is
// false if the group equals the cluster.
func (n *Node) change(voters, learners []string) (v, l []string, changed bool) {
	voters, learners = slices.Clone(voters), slices.Clone(learners)
	member := func(id string) bool {
		return slices.ContainsFunc(n.members, func(m Member) bool { return m.ID == id })
	}
	learners = slices.DeleteFunc(learners, func(id string) bool {
		gone := !member(id)
		changed = changed || gone
		return gone
	})

	for _, m := range n.members {
		if !slices.Contains(voters, m.ID) && !slices.Contains(learners, m.ID) {
			learners, changed = append(learners, m.ID), true
		}
	}

	for i, id := range voters {
		if !member(id) && id != n.cfg.ID {
			return slices.Delete(voters, i, i+1), learners, true
		}
	}

	for i, id := range learners {
		if m, ok := n.match[id]; id == n.cfg.ID || ok && m >= n.lastIndex() && m >= 0 {
			return append(voters, id), slices.Delete(learners, i, i+1), true
		}
	}

	return voters, learners, changed
}
