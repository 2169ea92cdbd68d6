// Package mastertest runs complete masters in the process of a test, or in processes of their own. It also provides the
// environment of a master: scripted minions, a reader of the event bus, salt-api and a browser at
// its console, a cluster, a supervisor.
//
// Most of the master is tested in the packages of its parts. The directories below this one contain
// the scenarios that need a complete master, sorted by who starts the action. Each directory is a
// package, so that the scenarios run in parallel.
package mastertest
