// Package returner passes events and jobs to returners: modules of Salt, or an administrator's own,
// that run in Python and write to a database, a file or a service.
//
// Events wait in a spool on this node's disk. Each returner reads the spool at its own position, so
// a returner that is unreachable or slow delays neither the master nor another returner. Each
// returner also has its own worker ([saltern/master/internal/pyhost.Session]), which receives one
// order after the other. When the returner's call for an order has succeeded, the returner's
// position moves on. So each event reaches the returner once, or twice if the worker's process or
// the master ends during the call. A returner that stores jobs (see [Jobs]) has a separate spool.
//
// If a call raises an exception, it is repeated with growing pauses, as long as the spool is not
// full. If an order keeps failing while a later order succeeds, the returner has refused the
// failing order: its records are counted and skipped.
package returner
