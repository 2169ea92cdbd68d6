// Package mastertest runs whole masters in the process of a test, with what stands around
// them: scripted minions, a reader of the event bus, salt-api and a browser at its console,
// a cluster, a supervisor.
//
// Most of the master is tested in the packages of its parts. The folders below this one hold
// the scenarios that need a whole master, by who acts in them: each is a package of its own,
// so that they run beside each other.
package mastertest
