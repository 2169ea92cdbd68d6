// Package raft is the part in the consensus of Salt's masters (3008.3,
// salt/cluster/consensus) that a Saltern master plays as long as Salt's
// masters belong to the cluster. It has no input or output of its own.
//
// Salt's masters serve minions only once a committed configuration of this
// group names them, and count every master of the cluster as a voter. So ours
// must vote, keep the log and acknowledge; they decide nothing by it, and
// leave the group when the last of Salt's masters has left.
//
// Ours follow. They stand for election in three cases only:
//
//   - no leader has been heard for several seconds, which Salt's masters end
//     within two when one of them can;
//   - there is no group yet, because a Salt master joins a cluster of ours
//     and waits to be led;
//   - a leader cannot commit its own log. Salt's leaders propose nothing when
//     they come to office and may commit entries of their own term only, so
//     that after a restart of all masters none ever serves.
//
// Whoever of ours leads proposes the configuration anew in its own term, lets
// masters in that have caught up, and drops those that were removed.
package raft
