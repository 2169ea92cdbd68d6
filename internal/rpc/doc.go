// Package rpc is the contract layer of the programs of a node: JSON over HTTP, on a unix
// socket or inside TLS.
//
// A [Table] has a row for each [Method]: its route, its types, the bound of its request, how
// long it may take, who may call it, and what the audit record says. A server registers
// functions with [Handle]; a method without one answers what its row says it needs. A client
// asks with [Call]. Both sides use the same row, and refusals are an [Error], whose code
// decides on both sides.
package rpc
