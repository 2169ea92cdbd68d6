// Package storage keeps a cluster's shared volume: it turns the table of
// nodes into what [saltern/glusterctl] understands, decides who may change the
// pool, keeps the mount of this node, and reports the state in plain words.
//
// The way in: [New], [Manager.SetTable] whenever the table of nodes changes,
// and [Manager.Run]. Every node runs a Manager. Each observes the pool and
// keeps its own daemon and mount; only one changes the pool (lease.go): the
// node that forms the cluster until the volume is mounted there, then the
// holder of a lock on the volume. A step that takes a copy of the data away is
// made only by that holder, and only when the table says that a node leaves or
// has a new brick.
//
// This process never touches the volume. Its children do (helper.go), because a
// call on a volume whose servers are gone can hang for ever. Files for minions are copied to this node (mirror.go), so that a
// volume that hangs does not stop state runs.
package storage
