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
// ValidID is the one gate for minion ids. An id that has not passed it must
// never become part of a path.
//
// Autosign decides which new keys need no administrator.
package keys
