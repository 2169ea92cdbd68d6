// Package rpc defines how the programs of a node call each other: JSON over HTTP, on a unix socket
// or inside TLS.
//
// A [Table] has a row for each [Method]: its route, its types, the limit of its request, how long
// it may take, who may call it, and what the audit record says. A server registers functions with
// [Handle]. If a method has no function, the server answers with the row's Needs. A client calls a
// method with [Call]. Both sides use the same row. A refusal is an [Error], and both sides decide
// by its code.
package rpc
