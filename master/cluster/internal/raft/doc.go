// Package raft implements a Saltern master's part in the consensus of Salt's masters (3008.3,
// salt/cluster/consensus), for as long as the cluster has Salt masters. It performs no input or
// output.
//
// Salt's masters serve minions only after a committed configuration of this group names them, and
// they count every master of the cluster as a voter. So Saltern's masters must vote, keep the log
// and acknowledge. Saltern's masters base no decision on this group, and leave it after the last
// Salt master has left.
//
// Saltern's masters stand for election in three cases only, and otherwise follow:
//
//   - No message of a leader has arrived for several seconds. Salt's masters elect a leader within two if
//     they can.
//   - There is no group yet, because a Salt master joins a cluster of Saltern masters and waits to
//     be led.
//   - A leader cannot commit its own log. Salt's leaders propose nothing when they are elected and
//     may commit only entries of their own term, so after a restart of all masters no master serves.
//
// A Saltern leader proposes the configuration again in its own term, admits masters that have
// caught up, and drops those that were removed.
package raft
