// Package marks finds out if what a node has on its disk is older than the node was
// before: a machine that was put back to a snapshot, or restored from an image backup,
// has a copy of the shared volume that lacks what came later, and nothing in the copy
// says so.
//
// A node raises a count in each [Place] of its disk (a [History]), first there and then
// in what it tells the others. They remember it on their own disks ([Memory]). A node
// that starts asks them: whoever remembers more than the place has ([History.Behind])
// proves that the place is old. [Decide] says what follows for the node's copy.
//
// Nothing here touches a disk or a network.
package marks
