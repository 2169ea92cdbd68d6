// Package node decides for a master of a cluster: who belongs to the cluster, which keys are in
// force, which master owns the duties that only one may do, and which master gets which message. It
// performs no input or output.
//
// A Node takes inputs (messages whose proofs have been verified, results of the shared store, the
// passing of time) and returns outputs (messages to send, records to store, states to apply). It
// reads no clock, starts no goroutine and draws no random numbers itself, so that any order of
// events can be replayed from a seed; see the simulation in the tests.
//
// # The record
//
// The masters share one Record in one file of the shared folder. It changes only by
// compare-and-swap of its version, so its versions form one history, whoever writes. The master
// that changes it sends the new record to all peers at once; a master that misses it reads the
// folder. Key rotation, removal and joining are single steps of that history, so nobody ever sees
// half of such a step.
//
// # Joining
//
// The messages are Salt's (discover, discover-reply, join, join-reply). The cluster proves its
// identity first: a reply counts only if it contains the token of this master's request and is
// signed by the key in the shared folder, or by the pinned key. A joining master sends the secret
// only to a master that has proven its identity. It retries until it is admitted or refused for
// good.
//
// # The owner
//
// The lease is part of the record: a name, an incarnation, a token that only grows, and a beat. The
// owner raises the beat to renew the lease, and counts the lease's time from before that write; the
// others count the time from after they read the new beat, each by its own clock. So two masters
// can both believe that they are the owner only if the speeds of their clocks differ by more than a
// tenth.
//
// An owner that ends in good order gives the lease back: the record names no owner, and another
// master takes the lease at once. The owner must have ended its duties before that.
package node
