package main

import "golang.org/x/sys/unix"

// noCores forbids core dumps of this process and its children: the memory of a node holds the keys
// of a master and the pillars of its minions.
func noCores() error { return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{}) }
