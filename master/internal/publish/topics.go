package publish

import (
	"crypto/sha1"
	"encoding/hex"

	"saltern/master/value"
)

// Topics that are not a minion's own (salt/transport/zeromq.py,
// PublishServer.publish_payload).
const (
	topicBroadcast = "broadcast"
	topicSyndic    = "syndic"
)

// topicOf returns the topic of a minion with zmq_filtering besides "broadcast": the SHA-1 of its id
// in hexadecimal. Topics match by prefix; the hash keeps apart ids that begin alike.
func topicOf(id string) string {
	sum := sha1.Sum([]byte(id))
	return hex.EncodeToString(sum[:])
}

// topicsOf returns the topics of a load, chosen as in Salt: the ids of a list target, the matched
// ids of a glob or pcre, and "broadcast" for everything else and for an empty list.
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
