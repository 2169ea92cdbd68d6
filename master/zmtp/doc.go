// Package zmtp implements ZMTP 3.0 and 3.1 (ZeroMQ's wire protocol, RFC 23 and RFC 37 of
// rfc.zeromq.org) with the NULL mechanism, as far as a Salt master needs it: a listener for
// requests (Router, port 4506), a listener that publishes (Pub, port 4505), and the two matching
// clients (Req, Sub).
//
// # Shape
//
// Every connection has exactly one goroutine that lives as long as the connection. It reads frames,
// answers PING, and holds no buffer while the peer is silent. Everything written goes through the
// connection's outbox: the writer first tries a non-blocking write; only what does not fit into the
// socket is queued, and only then a second, temporary goroutine flushes it. So a peer that does not
// read costs memory up to a limit, but delays nobody.
//
// Router runs its handler on a bounded pool of workers and sends the reply on
// the connection that asked. There is no table from identities to
// connections: two peers with the same identity cannot get each other's
// replies.
//
// Pub splits its subscribers over shards, one goroutine each. A message is
// framed once and its bytes are shared by all subscribers.
//
// # Hostile peers
//
// The package takes all bytes as hostile: the handshake has a deadline, lengths are checked before
// memory is set aside, the buffers of big messages grow as bytes arrive and count against a common
// budget, reserved flag bits and commands out of order end the connection. See Limits for every
// bound and Stats for every counter.
package zmtp
