// Command swarm plays many minions against a Salt master, ours or Python's, and
// measures how it serves them. Every answer is checked as a minion checks it:
// signatures, nonces, keys, hashes of files. What is wrong counts as failed.
//
// The minions share a few key pairs, which are slow to make; a master does not
// mind. See the README of the folder above for what each mode measures and for
// its limits.
package main
