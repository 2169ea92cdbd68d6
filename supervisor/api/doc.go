// Package api is the supervisor's local API: HTTP and JSON over a unix socket. The command
// line, the console page and the set-up wizard use it and nothing else.
//
// methods.go has a row for each method: its route and types, its bounds, who may call it, and
// what the audit record says. Whoever has the function registers it, see [rpc.Handle]. A
// method that nobody has registered answers with what it needs: a node that belongs to a
// cluster, or one that is set up.
//
// The kernel names every caller (SO_PEERCRED): root, the supervisor's own user, and members of
// the admin group may call. A refusal is an [rpc.Error].
package api
