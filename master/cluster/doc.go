// Package cluster connects several masters to one cluster: the pool port (4520), the links to the other
// masters, and the folder that all of them share.
//
//	peers ──4520── inbox ─ wire (bounds, proofs) ─┬─ node.Node (logic)  ── folder (record, keys)
//	                                              ├─ Handler.Event, .Publish, .Return
//	bus ─ forward ─ link per peer ─ queue per duty ─── 4520 ── peers
//
// Between Saltern's masters everything runs inside TLS 1.3, in which both ends show their master
// keys; these are pinned to the members' keys in the record. Frames of a duty are numbered,
// acknowledged when they have been handled, and sent again after a break; the receiver handles none
// twice. With Salt's masters, when they are permitted, the same port speaks Salt's plain protocol,
// in which a message that was under way at a break is lost.
//
// # Duties and what happens when a queue is full
//
//	control  messages of package node   newest lost; all are repeated or read from the folder
//	jobs     publishes, key changes     oldest lost: an old job is worth least; none is older than 30 s
//	returns  returns of jobs            oldest lost: the job cache of the receiving master keeps it
//	events   everything else            newest lost, as with a slow reader of the bus
//
// Every loss is counted in Status. No duty waits for another: each has its
// own queue, window and, at the receiver, its own goroutine.
//
// # A cut network between two masters
//
// Two masters that cannot reach each other are connected through a third one that reaches both: it
// relays the bytes of their TLS connection, which it cannot read. Status reports such a relay, and
// the master that dialled retries the direct path every ten seconds.
//
// # The folder
//
// cluster_pki_dir holds what Salt puts there (cluster.pem, cluster.pub, .aes, peers/<id>.pub,
// minions…) and one more file, .saltern_cluster: the record of package node. Masters replace it by
// link(2), without a lock; a folder that hangs stops changes of the cluster, but neither jobs nor
// returns.
package cluster
