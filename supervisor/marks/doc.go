// Package marks detects whether a node's disk holds an earlier state than the node already had. A
// machine may be put back to a snapshot, or restored from an image backup. Its copy of the shared
// volume then lacks the later changes, and nothing in the copy shows that.
//
// A node raises a count in each [Place] of its disk (a [History]), first on the disk and then in
// its reports to the other nodes. The other nodes store the count on their own disks ([Memory]).
// When a node starts, it asks the others. If one of them remembers a higher count than the place
// has ([History.Behind]), the place is old. [Decide] returns what the node must do with its copy.
//
// The package touches no disk and no network.
package marks
