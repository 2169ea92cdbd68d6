// Package api is the supervisor's local API: HTTP and JSON over a unix socket. The command line,
// the console page and the set-up wizard use nothing else.
//
// methods.go has a row for each method: its route and types, its bounds, who may call it, and what
// the audit record says. The part of the supervisor that carries out a method registers its
// function, see [rpc.Handle]. A method without a function answers with what the node lacks for it:
// a cluster, or a finished set-up.
//
// The kernel tells the server who calls (SO_PEERCRED): root, the supervisor's own user, and members
// of the admin group may call. A refusal is an [rpc.Error].
package api
