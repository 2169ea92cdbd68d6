// Package restapi implements Salt's API over HTTP as rest_cherrypy does (salt/netapi/rest_cherrypy/app.py of 3008.3):
// log-ins, commands as low data, minions, jobs, keys, hooks and the event bus.
//
//	client ── HTTPS ── (load balancer ── PROXY header ──) Server.ServeHTTP ── recognize (whose share) ── guard (token) ── readBody
//	  ├─ endpoint ── execute ── runCommand (netapi_enable_clients, credentials) ── takeWorker ── client.Client ── 4506 of the master, its event socket
//	  ├─ /hook ── client.Shared.Fire                              (the right of the process, after the check)
//	  └─ /events, /ws ── hub ── one reader of the event socket for all
//
// salt-api is a separate program beside the master and has no rights: its client sends no key of a system user, so the
// master decides each command by the token or password in it. A session is a token of the master.
//
// # Bounds and what happens beyond them
//
// Requests share pools (shares.go). Unauthenticated senders have a part of each pool, and no address or user gets so
// much that others get nothing. See docs/architecture.md#bounds.
//
//	connections            1,024; then another connection is closed
//	header, body           32 KiB and 10 s; max_request_body_size, at a minimum rate; 431, 413
//	memory of bodies       includes their decoded form; a body waits, then 503; 413
//	commands at work       thread_pool; socket_queue_size wait 30 s at most; 503
//	log-ins, tokens        the master checks 32 at once; others wait; 503
//	wrong log-ins          20 from one address at once, then one in 2 s; 429
//	readers of events      512, then 503; 4,096 events and 8 MiB wait for each, then it is cut
//	messages by /ws        1 KiB; 20 at once, then one a second; then the client is cut
//	answer                 30 s, plus a second for each 64 KiB; then the client is cut
//
// /stats shows counters for all of them.
package restapi
