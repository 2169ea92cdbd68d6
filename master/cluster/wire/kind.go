package wire

import (
	"errors"
	"fmt"
	"strings"
)

// Kind is the type of a message.
type Kind uint8

// The messages of Salt 3008.3, and KindOwn for those of Saltern's masters.
const (
	Unknown Kind = iota
	KindDiscover
	KindDiscoverReply
	KindJoin
	KindJoinReply
	KindJoinNotify
	KindAnnounce // session key: cluster/peer/<id>
	KindEvent    // cluster/event/<id>/<tag>
	KindRaft     // cluster/raft/<kind>
	KindState    // sharding and unshared file systems: not supported
	KindOwn      // cluster/saltern/<kind>
)

const (
	peerPrefix  = "cluster/peer/"
	eventPrefix = "cluster/event/"
	raftPrefix  = "cluster/raft/"
	// OwnPrefix is the beginning of the tags of Saltern's own messages.
	OwnPrefix = "cluster/saltern/"
)

var peerKinds = map[string]Kind{
	"discover": KindDiscover, "discover-reply": KindDiscoverReply, "join": KindJoin, "join-reply": KindJoinReply,
	"join-notify": KindJoinNotify, "state-sync-chunk": KindState, "sync-roots-begin": KindState, "delegate-write": KindState,
	"shed-request": KindState, "multi-ring-request": KindState, "collect-request": KindState,
}

// Classify returns the kind of a tag and the master that the tag names. rest is the tag of a
// forwarded event, or the kind of a Raft message or of a Saltern message.
func Classify(tag string) (kind Kind, peer, rest string) {
	if r, ok := strings.CutPrefix(tag, eventPrefix); ok {
		peer, rest, ok = strings.Cut(r, "/")
		if !ok || ValidPeer(peer) != nil || rest == "" {
			return Unknown, "", ""
		}
		return KindEvent, peer, rest
	}

	if r, ok := strings.CutPrefix(tag, peerPrefix); ok {
		if k := peerKinds[r]; k != Unknown {
			return k, "", ""
		}
		if ValidPeer(r) != nil {
			return Unknown, "", ""
		}
		return KindAnnounce, r, ""
	}

	if r, ok := strings.CutPrefix(tag, raftPrefix); ok && r != "" {
		return KindRaft, "", r
	}

	if r, ok := strings.CutPrefix(tag, OwnPrefix); ok && r != "" {
		return KindOwn, "", r
	}

	return Unknown, "", ""
}

// errPeer reports that a text cannot name a master of a cluster.
var errPeer = errors.New("invalid name of a master")

// maxPeer is the longest name of a master in bytes.
const maxPeer = 253

// ValidPeer returns an error unless id may be the name of a master: an address or host name that
// can be dialled and that is also safe as a file name. Salt does not check these names.
func ValidPeer(id string) error {
	if id == "" || len(id) > maxPeer {
		return fmt.Errorf("%w: %d bytes", errPeer, len(id))
	}

	for i := range len(id) {
		c := id[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case i > 0 && (c == '.' || c == '-' || c == '_'), c == ':':
		default:
			return fmt.Errorf("%w: character %d is not allowed", errPeer, i)
		}
	}

	if strings.Contains(id, "..") {
		return fmt.Errorf("%w: two dots", errPeer)
	}
	if peerKinds[id] != Unknown {
		return fmt.Errorf("%w: %q is the name of a message", errPeer, id)
	}

	return nil
}
