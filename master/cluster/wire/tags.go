package wire

// Tags of the messages of the joining protocol.
const (
	TagDiscover      = peerPrefix + "discover"
	TagDiscoverReply = peerPrefix + "discover-reply"
	TagJoin          = peerPrefix + "join"
	TagJoinReply     = peerPrefix + "join-reply"
	TagJoinNotify    = peerPrefix + "join-notify"
)

// AnnounceTag returns the tag of an Announce that the master id sends.
func AnnounceTag(id string) string { return peerPrefix + id }
