package publish

import (
	"crypto/sha1"
	"encoding/hex"

	"saltern/master/value"
)

// Topics other than those of single minions (salt/transport/zeromq.py,
// PublishServer.publish_payload).
const (
	topicBroadcast = "broadcast"
	topicSyndic    = "syndic"
)

// topicOf returns the topic of a minion with zmq_filtering, besides "broadcast": the hexadecimal
// SHA-1 of its id. Topics match by prefix, so the hash separates ids that begin alike.
func topicOf(id string) string {
	sum := sha1.Sum([]byte(id))
	return hex.EncodeToString(sum[:])
}

// topicsOf returns the topics of a load, chosen as in Salt: the topics of the ids of a list target,
// or of the matched ids of a glob or pcre, and "broadcast" in all other cases and for an empty list.
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
