// Package api is the supervisor's local API: HTTP and JSON over a unix socket. The command line,
// the console page and the set-up wizard use no other interface.
//
// methods.go has a row for each method: its route and types, its bounds, who may call it, and what
// the audit record says. The part of the supervisor that carries out a method registers a function
// for it, see [rpc.Handle]. If a method has no function, the answer names what the node needs
// first: a cluster, or a finished set-up.
//
// The kernel tells the server who calls (SO_PEERCRED): root, the supervisor's own user, and members
// of the admin group may call. A refusal is an [rpc.Error].
package api
