// Package wire is the language that the masters of a cluster speak on port
// 4520: Salt 3008.3's messages, read with bounds and verified before anybody
// sees their content, and Saltern's own, which go only inside TLS.
//
// A connection carries frames from the one who dialled:
//
//	uint32 big-endian length
//	msgpack map {"head": {}, "body": bin}     body = tag "\n\n" msgpack(data)
//
// (salt/transport/frame.py, salt/utils/event.py SaltEvent.pack; the messages
// are those of salt/channel/server.py MasterPubServerChannel.)
//
// Kind tells messages apart by their exact tag. Salt compares prefixes, so
// that there a master whose name begins with "join" breaks the cluster.
//
// The package does cryptography but keeps no state; everything may be called
// concurrently.
package wire
