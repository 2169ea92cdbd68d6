// Package keyuse finds out which machines use the key of a node, and which of them may act
// for it. A key is a file: a clone of a virtual machine has it too.
//
// Each machine says with every request which start of its supervisor asks, whether it has
// the node's address, and some facts about its hardware ([Speaker]). Whoever is asked notes
// that ([Ledger]). A start that is over never speaks again: when two starts take turns, two
// machines run. The node's address decides which one may act; of two machines with that
// address the facts do, compared with those of the machine that used the key for long.
//
// One machine alone with the node's address is the node, whatever its hardware: a node that
// was restored, moved to another hypervisor or given another network card goes on.
//
// Nothing here touches a disk or a network.
package keyuse
