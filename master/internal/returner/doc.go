// Package returner hands events to returners: modules of Salt, or an administrator's own, that run
// in Python and write to a database, a file or a service.
//
// Events wait in a spool on this node's disk, with a place for each returner, so a returner that is
// away or slow delays neither the master nor another returner. Each returner has a worker of its
// own ([saltern/master/internal/pyhost.Session]), which gets one order after the other. The place
// moves when the call has returned. So a call is made once, and once more when its process, or the
// master, ends in between.
//
// A call that raises is repeated, with a growing pause, as long as the spool has room. An order
// that fails repeatedly while a later one succeeds is refused, counted and skipped.
package returner
