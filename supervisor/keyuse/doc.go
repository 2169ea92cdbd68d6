// Package keyuse finds out which machines use the key of a node, and which of them may act for the
// node. A key is a file: a clone of a virtual machine has it too.
//
// With every request a machine sends an ID of the present start of its supervisor, whether the
// machine has the node's address, and some facts about its hardware ([Speaker]). The node that
// receives the request records them ([Ledger]). A start that has ended never sends again. So if
// requests of two starts alternate, two machines run. Then only the machine with the node's address
// may act. If two machines have that address, their hardware facts decide: they are compared with
// those of the machine that has used the key for a long time.
//
// A single machine with the node's address is the node, whatever its hardware: a node that was
// restored, moved to another hypervisor or equipped with another network card continues.
//
// The package touches no disk and no network.
package keyuse
