// Package wire implements the messages between the masters of a cluster on port 4520: Salt's
// messages (3008.3), which it bounds and verifies before any other code sees their content, and
// Saltern's own messages, which are sent only inside TLS.
//
// A connection carries frames from the master that dialled:
//
//	uint32 big-endian length
//	msgpack map {"head": {}, "body": bin}     body = tag "\n\n" msgpack(data)
//
// (salt/transport/frame.py, salt/utils/event.py SaltEvent.pack; the messages come from
// salt/channel/server.py MasterPubServerChannel.)
//
// Kind distinguishes messages by their exact tag. Salt compares prefixes of tags, so that a Salt
// master whose name begins with "join" breaks the cluster.
//
// The package does cryptography but keeps no state; everything may be called concurrently.
package wire
