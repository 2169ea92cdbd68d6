// Package keys keeps the public keys of minions: which are accepted, pending,
// rejected and denied, in Salt's own folders (<pki_dir>/minions,
// minions_pre, minions_rejected, minions_denied; salt/cache/localfs_key.py),
// so that salt-key and other masters can share them.
//
// A Store holds all keys in memory. Requests look them up without touching
// the disk; Run follows what other programs do to the folders, by inotify for
// this machine and by a cheap periodic look for other machines (a network
// file system announces nothing). Refresh takes in what a peer has reported.
//
// On a volume a new key costs many calls to all its servers. There the keys of
// new minions that sign in at the same time are first written to one incoming
// file (incoming.go, claim.go), acknowledged, and made files of their own a
// little later (filing.go):
//
//	Swap → batch → <pki>/incoming_<master>_<time>_<token>, fsync
//	                   ↓ other masters' incoming files are read
//	             same id, other key there: this one is withdrawn
//	                   ↓ acknowledged             ↓ after a quiet moment
//	             index of all masters       minions/<id>, minions_pre/<id>
//
// The volume alone holds the truth: every master and salt-key read those files,
// any of them files a key whose master is gone, and Delete leaves a mark
// (removed_<token>_<hash>) so that nobody makes the file again.
//
// ValidID is the one gate for minion ids. An id that has not passed it must
// never become part of a path.
//
// Autosign decides which new keys need no administrator.
package keys
