// Package jobs generates job ids, and stores the jobs that were published and the returns of
// minions.
//
// Cache is the interface of the master; Local keeps jobs on this machine in
// the layout of Salt's local_cache returner, so that Python's runners and
// tools read the same directory:
//
//	<dir>/<h[0:2]>/<h[2:]>/jid             h = hex hash of the job id
//	                       .load.p         the publish load
//	                       .minions.p      sorted list of expected minions
//	                       .minions.<syndic>.p
//	                       nocache         marker: returns are not kept
//	                       endtime         text
//	                       <minion>/return.p, out.p
//
// Thousands of minions return at once, and one return is two or three small files. So Local first
// appends each record to a journal and acknowledges it after one fdatasync for all records that
// have arrived since the previous fdatasync (group commit). A single background writer then makes
// the files, without syncing each; before a journal segment is removed the file system is synced
// once. Reads also look at the records that are not yet files, so nobody sees the difference.
//
//	SaveReturn → reserve (jid, id) → journal, fdatasync → acknowledged
//	                                      ↓ bounded queue
//	                                 background writer → Salt's files
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
