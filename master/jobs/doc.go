// Package jobs generates job ids, and stores the jobs that were published and the returns of
// minions.
//
// Cache is the interface of the master; Local keeps jobs on this machine. It first appends each record
// to a journal and acknowledges it after one fdatasync for all records that have arrived since the
// previous fdatasync (group commit).
//
// # Segments
//
// The segments of the journal are the first home of jobs and returns. They stay until the jobs are old:
//
//	SaveReturn → reserve (jid, id) → journal, fdatasync → index in memory (home.go) → acknowledged
//	                                      ↓ bounded queue
//	                                 background writer → Archive
//
//	0000000000000001.log    records that the Archive may lack: Open replays them
//	0000000000000001.kept   the Archive has them; behind them is an index (homefile.go)
//
// A return whose job has no durable load yet names the load that it needs (record.needs), and fails with it: the
// Archive takes a return once, and would not know what was run.
//
// A crash between two of these steps leaves a segment that Open replays or scans. A return that the
// Archive has already changes nothing there. Clean hides what is old, and removes segments with
// nothing else.
//
// # Files
//
// With Config.Files, and when too many records are in segments, records become files instead, in the layout
// of Salt's local_cache returner:
//
//	<dir>/<h[0:2]>/<h[2:]>/jid             h = hex hash of the job id
//	                       .load.p         the publish load
//	                       .minions.p      sorted list of expected minions
//	                       .minions.<syndic>.p
//	                       nocache         marker: returns are not kept
//	                       endtime         text
//	                       <minion>/return.p, out.p
//
// The background writer makes the files, without syncing each; before a journal segment is removed
// the file system is synced once. Reads look at segments, at files, and at the records that are neither yet,
// so nobody sees the difference. Otherwise only the job that this master publishes has files, without returns:
// Python's LocalClient looks for them at once.
//
// The background writer also passes each return to the Archive, if there is one, which keeps it when
// the job cache has removed it. The journal keeps a segment until the Archive has its returns durably.
//
// After a crash Open replays the journal. A torn tail ends the replay of a segment; Open skips
// damaged records and keeps their segment in quarantine.
//
// Bounds: bytes in the queue (Config.QueueBytes; a full queue makes callers
// wait until their context ends), bytes of one return (Config.MaxReturn),
// file sizes and msgpack limits on reading. Job ids and minion ids are checked
// before they become part of a path.
package jobs
