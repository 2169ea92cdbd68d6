// Package returner hands events and jobs to returners: modules of Salt, or an administrator's own,
// that run in Python and write to a database, a file or a service.
//
// Events wait in a spool on this node's disk. Each returner reads it at its own place, so one that is
// unreachable or slow delays neither the master nor another returner. Each returner also has a worker
// of its own ([saltern/master/internal/pyhost.Session]), which gets one order after the other. When
// the call has returned, the returner's place moves on. So each event is handed over once, or twice
// if the worker's process or the master ends during the call. A returner that keeps jobs (see [Jobs])
// has a spool of its own.
//
// If a call raises an exception, it is repeated, with growing pauses, as long as the spool has room.
// If an order keeps failing while a later one succeeds, the returner refuses it: it is counted and
// skipped.
package returner
