package raft

import (
	"saltern/master/cluster/wire"
	"saltern/master/value"
)

// groupName is the name of the group of all masters. Salt uses other groups for its rings, in which
// Saltern's masters take no part.
const groupName = "cluster"

func (n *Node) queueMessage(to, kind string, payload *value.Map) {
	n.out = append(n.out, Out{To: to, Msg: wire.Raft{
		Kind:    kind,
		Src:     n.cfg.ID,
		RPCID:   n.cfg.Token(),
		Group:   groupName,
		Payload: payload,
	}})
}

// The functions below create payloads in the form of salt/cluster/consensus/peer.py.

func voteRequest(id string, term, lastTerm, lastIndex int64) *value.Map {
	return value.NewMap("callback_node", id, "candidate_id", id, "term", term, "last_log_term", lastTerm,
		"last_log_index", lastIndex)
}

func appendRequest(id string, term, prevTerm, prevIndex, commit int64, entries []Entry) *value.Map {
	list := make([]any, len(entries))
	for i, e := range entries {
		list[i] = value.NewMap("term", e.Term, "index", prevIndex+1+
			int64(i), "cmd", e.Cmd, "node_id", nil, "type", e.Type,
			"client_id", nil, "sequence_num", nil)
	}
	return value.NewMap("callback_node", id, "leader_id", id, "term", term, "prev_log_term", prevTerm, "prev_log_index", prevIndex,
		"leader_commit", commit, "entries", list, "leader_client_address", nil)
}

func config(voters, learners []string) *value.Map {
	return value.NewMap("voters", value.List(voters), "learners", value.List(learners))
}

// configOf returns the voters and the learners of the configuration in an entry. ok is false if the
// entry contains no configuration. Salt permits a bare list of voters.
func configOf(e Entry) (voters, learners []string, ok bool) {
	if e.Type != typeConfig {
		return nil, nil, false
	}
	switch c := e.Cmd.(type) {
	case *value.Map:
		voters, learners = peerNames(c.List("voters")), peerNames(c.List("learners"))
	case []any:
		voters = peerNames(c)
	}
	return voters, learners, len(voters) > 0 && len(voters)+len(learners) <= maxGroup
}

func peerNames(l []any) (out []string) {
	for _, v := range l {
		if s, ok := v.(string); ok && wire.ValidPeer(s) == nil {
			out = append(out, s)
		}
	}
	return out
}

// integer returns the number under key, or fallback if the message lacks the key.
func integer(m *value.Map, key string, fallback int64) int64 {
	if v, ok := m.Int(key); ok {
		return v
	}
	return fallback
}

// entriesOf returns the entries of a message append-entries. ok is false when they are malformed.
func entriesOf(m *value.Map, term int64) (out []Entry, ok bool) {
	for _, v := range m.List("entries") {
		e, isMap := v.(*value.Map)
		if !isMap {
			return nil, false
		}
		cmd, _ := e.Get("cmd")
		entry := Entry{Term: integer(e, "term", term), Type: integer(e, "type", 0), Cmd: cmd}
		if entry.Term < 0 || entry.Term > term {
			return nil, false
		}
		out = append(out, entry)
	}
	return out, true
}
