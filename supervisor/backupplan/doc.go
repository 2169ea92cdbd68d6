// Package backupplan makes the scheduled backups of a cluster, as appliance.yaml requests them
// (settings.Backup). One node at a time makes a backup. If that node is lost, another one takes
// over.
//
// The nodes share a small [record] on the shared storage and change it without locks (package
// versioned): the newest backup, the last failure, and the node that is making a backup now. The
// claim of that node holds for a few minutes, and the node renews it. A node that has lost its
// claim publishes no file.
//
// A [catalogue] in each directory for backups names the files that this cluster has made, in their
// order. Only those files are ever removed. The times in their names do not count, because they may
// come from a wrong clock.
//
// Storage and directory may hang. So only a child of the supervisor touches them ([Main]). Only one
// child runs at a time, because each holds the same lock on this node's own disk. The supervisor's
// side ([Keeper]) stops waiting for a child that makes no progress.
package backupplan
