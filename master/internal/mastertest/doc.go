// Package mastertest runs whole masters in the process of a test, together with their surroundings:
// scripted minions, a reader of the event bus, salt-api and a browser at its console, a cluster, a
// supervisor.
//
// Most of the master is tested in the packages of its parts. The folders below this one hold the
// scenarios that need a whole master, sorted by who acts in them. Each is a package, so that they run
// in parallel.
package mastertest
