// Package keys keeps the accepted, pending, rejected and denied public keys of minions in Salt's
// own folders (<pki_dir>/minions, minions_pre, minions_rejected, minions_denied;
// salt/cache/localfs_key.py), so that salt-key and other masters can share them.
//
// A Store holds all keys in memory. Requests look them up without touching the disk; Run detects
// changes that other programs make in the folders: on this machine by inotify, on other machines by
// a cheap periodic check, because a network file system announces no changes. Refresh checks keys
// that a peer has reported.
//
// On a volume a new key costs many calls to all servers of the volume. So on a volume the master
// first writes the keys of new minions that sign in at the same time to one incoming file
// (incoming.go, claim.go), acknowledges them, and writes a file for each key a little later
// (filing.go):
//
//	Swap → batch → <pki>/incoming_<master>_<time>_<token>, fsync
//	                   ↓ other masters' incoming files are read
//	             same id, other key there: this claim is withdrawn
//	                   ↓ acknowledged             ↓ after a quiet moment
//	             index of all masters       minions/<id>, minions_pre/<id>
//
// The volume alone holds the truth. Every master and salt-key read the incoming files, and any
// master files a key whose own master is gone. Delete leaves a mark (removed_<token>_<hash>) so
// that nobody files the key again.
//
// ValidID is the one gate for minion ids. An id that has not passed it must
// never become part of a path.
//
// Autosign decides which new keys need no administrator.
package keys
