// Package storage keeps a cluster's shared volume: it turns the table of nodes into what
// [saltern/glusterctl] understands, decides who may change the pool, keeps the mount of this node,
// and reports the state in plain words.
//
// Callers use [New], [Manager.SetTable] whenever the table of nodes changes, and [Manager.Run].
// Every node runs a Manager. Each observes the pool and keeps its own daemon and mount; only one
// changes the pool (lease.go): the node that forms the cluster until it has mounted the volume,
// then the holder of a lock on the volume. Only that holder makes a step that removes a copy of the
// data, and only when the table says that a node leaves or has a new brick.
//
// This process never touches the volume. Its children do (helper.go), because a call on a volume
// whose servers are gone can hang for ever. The package also copies the files for minions to this
// node's disk (mirror.go), so that a volume that hangs does not stop state runs.
package storage
