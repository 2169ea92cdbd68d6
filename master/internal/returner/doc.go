// Package returner hands events to returners: modules of Salt, or an administrator's
// own, that run in Python and write to a database, a file or a service.
//
// What is to be handed over waits in a spool on this node's disk, with a place for each
// returner: one that is away or slow keeps neither the master nor another returner waiting.
// Each returner has a worker of its own ([saltern/master/internal/pyhost.Session]), which gets one order
// after the other; the place moves when the call has returned. So a call is made once, and once
// more when its process, or the master, ends between the two.
//
// A call that raises is made again, with a growing pause, as long as the spool has room. What
// fails again and again while the order after it succeeds is refused, counted and left out.
package returner
