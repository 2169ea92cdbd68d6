package wire

import (
	"fmt"

	"saltern/master/value"
)

// Raft is a message of Salt's consensus (salt/cluster/consensus/rpc.py). Salt neither encrypts nor
// authenticates it.
type Raft struct {
	Kind    string // end of the tag after cluster/raft/
	Src     string
	RPCID   string
	Group   string
	Payload *value.Map
}

// Pack returns the data of the message; its tag is cluster/raft/<kind>.
func (r Raft) Pack() *value.Map {
	return value.NewMap("src", r.Src, "rpc_id", r.RPCID, "raft_group_id", r.Group, "payload", r.Payload)
}

// RaftTag returns the tag of messages of a kind.
func RaftTag(kind string) string { return raftPrefix + kind }

// ParseRaft reads a message of a kind from its data.
func ParseRaft(kind string, data []byte) (Raft, error) {
	m, err := decodeMap(data, strangerLimits)
	if err != nil {
		return Raft{}, err
	}

	r := Raft{
		Kind:    kind,
		Src:     m.Str("src"),
		RPCID:   m.Str("rpc_id"),
		Group:   m.Str("raft_group_id"),
		Payload: m.Map("payload"),
	}

	if err := ValidPeer(r.Src); err != nil {
		return Raft{}, fmt.Errorf("%w: src: %w", errField, err)
	}
	if r.Payload == nil || r.Group == "" {
		return Raft{}, fmt.Errorf("%w: payload or group", errField)
	}

	return r, nil
}
