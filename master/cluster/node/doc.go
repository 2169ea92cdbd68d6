// Package node is what a master of a cluster decides, without any input or
// output: who belongs to the cluster, which keys are in force, who owns the
// duties that only one may do, and who is told what.
//
// A Node takes inputs (messages whose proofs have been verified, results of
// the shared store, the passing of time) and returns outputs (messages to
// send, records to store, states to apply). It has no clock, no goroutine and
// no randomness of its own, so that any order of events can be replayed from
// a seed; see the simulation in the tests.
//
// # The record
//
// What the masters share is one Record in one file of the shared folder. It
// changes only by compare-and-swap of its version, so its versions form one
// history, whoever writes. A change is sent to all peers at once, and read
// from the folder by whoever missed it. Key rotation, removal and joining are
// single steps of that history: nobody ever sees half of one.
//
// # Joining
//
// The messages are Salt's (discover, discover-reply, join, join-reply). The
// cluster proves itself first: a reply counts only if it answers our token
// and is signed by the key that is on the shared folder or pinned. The secret
// goes only to the master that has proven itself. Whoever asks is tried again
// until he is let in or refused for good.
//
// # The owner
//
// The lease is part of the record: a name, an incarnation, a token that only
// grows, and a beat. The owner renews the beat and counts its time from before
// the write; others count theirs from after the read, each by his own clock.
// So two owners at once would take clocks that run at different speeds by more
// than a tenth.
package node
