// Package marks finds out whether a node's disk is older than the node was before. A machine that
// was put back to a snapshot, or restored from an image backup, has a copy of the shared volume
// without the later changes, and nothing in the copy shows that.
//
// A node raises a count in each [Place] of its disk (a [History]), first on the disk and then in
// its reports to the other nodes. They remember the count on their own disks ([Memory]). A node
// that starts asks them. If one of them remembers more than the place has ([History.Behind]), the
// place is old. [Decide] says what follows for the node's copy.
//
// The package touches no disk and no network.
package marks
