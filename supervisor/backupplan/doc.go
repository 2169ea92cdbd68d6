// Package backupplan has the nodes of a cluster make backups by themselves, as
// appliance.yaml says (settings.Backup): one node at a time, and the next one goes on
// when it is lost.
//
// What the nodes know together is a small [record] on the shared storage, changed
// without locks (package versioned): the newest backup, the last failure, and who
// makes one now. That claim is good for a few minutes and taken again and again; a
// node that has lost it puts no file in place.
//
// What lies in a directory for backups is said by a [catalogue] there, which names the
// files that were made by this cluster, in their order. Only those are ever removed;
// the times in their names may be those of a wrong clock.
//
// Storage and directory may hang. A child of the supervisor touches them ([Main]), one
// at a time, by a lock on this node's own disk; the supervisor's side ([Keeper]) gives
// it up when it makes no progress.
package backupplan
