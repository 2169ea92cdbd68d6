// Package node decides for a master of a cluster: who belongs to the cluster, which keys are in
// force, who owns the duties that only one may do, and who is told what. It performs no input or
// output.
//
// A Node takes inputs (messages whose proofs have been verified, results of the shared store, the
// passing of time) and returns outputs (messages to send, records to store, states to apply). It
// has no clock, no goroutine and no randomness of its own, so that any order of events can be
// replayed from a seed; see the simulation in the tests.
//
// # The record
//
// The masters share one Record in one file of the shared folder. It changes only by
// compare-and-swap of its version, so its versions form one history, whoever writes. A change is
// sent to all peers at once; a master that missed it reads it from the folder. Key rotation,
// removal and joining are single steps of that history: nobody ever sees half of one.
//
// # Joining
//
// The messages are Salt's (discover, discover-reply, join, join-reply). The cluster proves its
// identity first: a reply counts only if it answers our token and is signed by the key that is on
// the shared folder or pinned. The secret goes only to the master that has proven its identity. A
// joining master retries until it is admitted or refused for good.
//
// # The owner
//
// The lease is part of the record: a name, an incarnation, a token that only grows, and a beat. The
// owner renews the beat and counts its time from before the write; the others count from after the
// read, each by its own clock. So two owners at once are possible only if their clocks run at
// speeds that differ by more than a tenth.
package node
