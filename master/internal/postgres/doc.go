// Package postgres writes jobs and returns into a PostgreSQL database (saltern_postgres): into the
// tables of Salt's returner pgjsonb (salt/returners/pgjsonb.py), which Salt's tools read, and
// summaries into tables of our own.
//
//	jobs.Local, its background writer ── load, return ──> Journal.AddJob, Journal.Add
//	                                                        lane "own": loads, returns this master took
//	                                                        lane "copied": all other returns
//	                                                          a spool on this node's disk each
//	Sink.Run, a goroutine a lane ── batch ──> database.write, one transaction:
//	                                            COPY into temporary tables
//	                                            INSERT … ON CONFLICT DO NOTHING into saltern_runs
//	                                            those that are new: salt_returns, saltern_states
//	then the place in the spool moves on
//
//	event.Bus ── event ──> Events.Run: a spool of its own, a connection of its own, salt_events
//
//	jobs.lookup_jid, fleet.runs ──> Lookups.Job, Lookups.Runs: what this node does not have any more,
//	                                by connections of their own, within lookupTimeout
//
// Promises:
//   - A return that the job cache has acknowledged is in the spool before its record leaves the
//     journal of the job cache, and stays there until the database has committed it. After a crash
//     it may come again.
//   - Each return is once in the tables: the primary key of saltern_runs (jid, minion) decides, also
//     between masters.
//   - Every master of a cluster has every return. The master that took it writes it at once. The
//     others wait takeOver (again after an outage), ask the database which of the returns it lacks, and write those. So the
//     returns of a master that was lost are written by the others.
//   - A return that the database cannot hold as it is, is written with a mark (column adapted), and
//     stops no other: a batch that the database refuses is divided until the return is found, as
//     long as the database takes a return like the last one.
//   - An event that is in its spool is once in salt_events: a transaction notes the last number of each writer, which is
//     a run of a master (saltern_event_writers).
//
// Bounds: each spool has a size in bytes. Overflow policy: the oldest returns are dropped and counted.
// A batch has at most batchRecords records and about batchBytes bytes; one return is at most 64 MiB.
package postgres
