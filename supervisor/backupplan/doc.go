// Package backupplan makes the scheduled backups of a cluster, as appliance.yaml wants them
// (settings.Backup). One node at a time makes them. When it is lost, the next one continues.
//
// The nodes share a small [record] on the shared storage and change it without locks (package
// versioned): the newest backup, the last failure, and the node that makes one now. The claim of
// that node holds for a few minutes, and the node renews it. A node that has lost its claim
// publishes no file.
//
// A [catalogue] in each directory for backups names the files that this cluster has made, in
// their order. Only those files are ever removed. The times in their names do not count, because
// they may come from a wrong clock.
//
// Storage and directory may hang. So a child of the supervisor touches them ([Main]), one at a
// time, which a lock on this node's own disk ensures. The supervisor's side ([Keeper]) gives the
// child up when it makes no progress.
package backupplan
