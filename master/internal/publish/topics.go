package publish

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"

	"saltern/master/value"
)

// Topics that do not belong to single minions (salt/transport/zeromq.py,
// PublishServer.publish_payload).
const (
	topicBroadcast = "broadcast"
	topicSyndic    = "syndic"
)

// topicOf returns the topic to which a minion with zmq_filtering subscribes in addition to
// "broadcast": the hexadecimal SHA-1 of its id. Subscriptions match topics by prefix, so plain ids
// would not do: one id may be the beginning of another.
func topicOf(id string) string {
	sum := sha1.Sum([]byte(id))
	return hex.EncodeToString(sum[:])
}

// topicsOf returns the topics of a load, chosen as in Salt: for a list target the topics of its
// ids, for a glob or pcre target the topics of the matched ids. In all other cases, and for an
// empty list, it returns "broadcast".
func (p *Publisher) topicsOf(load *value.Map, matched []string) [][]byte {
	if !p.cfg.Filtering {
		return nil
	}

	var ids []string
	switch load.Str("tgt_type") {
	case "glob", "pcre":
		ids = matched
	case "list":
		ids = matched
		if load.List("tgt") != nil {
			ids = load.Texts("tgt")
		}
	}

	if len(ids) == 0 {
		return [][]byte{[]byte(topicBroadcast)}
	}

	topics := make([][]byte, 0, len(ids)+1)
	seen := make(map[string]bool, len(ids))
	for _, id := range ids {
		if p.cfg.Manager != nil {
			id = cmp.Or(p.cfg.Manager(id), id)
		}
		if !seen[id] {
			seen[id] = true
			topics = append(topics, []byte(topicOf(id)))
		}
	}

	if p.cfg.OrderMasters {
		topics = append(topics, []byte(topicSyndic))
	}

	return topics
}
