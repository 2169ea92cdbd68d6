// Package notify tells people what happened: it sends messages to web hooks, mail servers and
// syslogs, by the rules of the option saltern_notify.
//
//	returns, keys, connections, problems ──> alert ──> Outbox on this node's disk ──> peers
//	                                                     │
//	                            the cluster's owner: Next (silences, repetitions, hours, limit)
//	                                                     │
//	                                    sender ──> destination, then a mark ──> Outbox, peers
//
// An [alert.Alert] is what happened, with an id that every master derives from the same facts. Each master
// records it in its [Outbox], and tells the others of those that they do not see themselves. Only the
// owner of the cluster sends. After a message was accepted by its destination, the owner records a
// mark and tells the others. A new owner sends what has no mark.
//
// So a message is sent once, whichever node dies between the event and the message. If the owner
// dies after the destination accepted a message and before a mark is on another node, the new owner
// sends it a second time, with the same Idempotency-Key. A summary may then be composed anew, and have
// another one.
//
// # Bounds
//
// The outbox holds 20,000 alerts and 64 MiB, for two days; the oldest make room, and those without a
// mark are counted as lost. What could not be sent for a day is not sent any more, and is counted.
// The parts of an alert are bounded when it is made and when it comes from a peer.
package notify
