// Package storage keeps a cluster's shared volume: it converts the table of nodes to the input of
// [saltern/glusterctl], decides who may change the pool, keeps the mount of this node, and reports
// the state.
//
// Callers use [New], [Manager.SetTable] whenever the table of nodes changes, and [Manager.Run].
// Every node runs a Manager. Each Manager observes the pool and keeps its own daemon and mount.
// Only one of them changes the pool (lease.go): until the volume is mounted, the Manager of the
// node that forms the cluster; later, the Manager with a lock on the volume. Only a Manager with
// the lock removes a copy of the data, and only if the table says that a node leaves or has a new
// brick.
//
// This process never touches the volume. Its children do (helper.go), because a call on a volume
// whose servers are lost can hang for ever. The package also copies the files for minions to this
// node's disk (mirror.go), so that a volume that hangs does not stop state runs.
package storage
