package wire

// Tags of the messages of joining.
const (
	TagDiscover      = peerPrefix + "discover"
	TagDiscoverReply = peerPrefix + "discover-reply"
	TagJoin          = peerPrefix + "join"
	TagJoinReply     = peerPrefix + "join-reply"
	TagJoinNotify    = peerPrefix + "join-notify"
)

// AnnounceTag returns the tag of an Announce of the master id.
func AnnounceTag(id string) string { return peerPrefix + id }
