// Package lbproxy is the TCP proxy in front of the salt-masters of a cluster.
//
// It listens on the two ports that minions use (publish 4505, request 4506), and on the port of
// Salt's API if it is configured, and joins each connection to one of the masters behind it. It
// forwards bytes and never answers for a master: a ZeroMQ hop would break Salt's request routing.
// Its knowledge of Salt serves other tasks: health checks by Salt's ping, hedged connects, paced
// rebalancing of the publish port after a master returns, and sessions whose master is lost. Such a
// session is cut, or moved to another master without the client noticing (transfer.go).
//
// # Shape
//
// A [Proxy] owns
//
//   - one or more event loops (loop.go): a goroutine each, edge-triggered epoll,
//     parked in the runtime's poller. The sessions are here, without a
//     goroutine, timer or buffer of their own,
//   - one checker goroutine per backend and port (health.go),
//   - one manager goroutine (manager.go) that ticks once a second: drain,
//     rebalance, removal, number of loops,
//   - one session log writer (sessionlog.go), so that a slow log never blocks a loop,
//   - one watcher of this machine's addresses (leave.go), which cuts the sessions
//     on an address that this machine no longer has,
//   - the admin server on a unix socket (admin.go).
//
// # Locks
//
// frontend.mu guards a frontend's member list and round-robin state; Proxy.mu
// the list of backends. Proxy.mu is taken before frontend.mu and before
// checker.mu, never after; no lock is held across a blocking call. A session
// is touched by its own loop only; other goroutines post functions to it.
//
// # Bounds and what happens at them
//
//	sessions           descriptor budget   accept, close, count, log (rate limited)
//	  of a source      max_per_source      the same; the source is in the status
//	  unknown sources  3/4 of the budget   the same
//	known sources      65536               a random one is forgotten
//	pending bytes      limits.pending      peek mode: bytes stay in the kernel
//	pipes              64 per loop         plain copy instead of splice
//	kept requests      move.request, .total   not kept, counted: the session ends with its master
//	preludes           4 KiB, 16 MiB a loop   the session ends with its master
//	session log lines  8192                dropped and counted
//	rate table         65536 sources       further sources share one bucket
//	loop mailbox       by its callers      each caller waits or posts once per tick
package lbproxy
