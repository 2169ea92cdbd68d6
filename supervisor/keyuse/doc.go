// Package keyuse finds out which machines use the key of a node, and which of them may act for it.
// A key is a file: a clone of a virtual machine has it too.
//
// With every request a machine sends which start of its supervisor asks, whether the machine has
// the node's address, and some facts about its hardware ([Speaker]). The node that gets the request
// records this ([Ledger]). A start that has ended never sends again. So if requests of two starts
// alternate, two machines run. Then the node's address decides which one may act. Of two machines
// with that address the hardware facts decide, compared with those of the machine that has used the
// key for long.
//
// One machine alone with the node's address is the node, whatever its hardware: a node that was
// restored, moved to another hypervisor or given another network card continues.
//
// The package touches no disk and no network.
package keyuse
