// Package history keeps the returns of jobs for months on this node's disk, and finds them by job,
// minion, user, function, state, result and time.
//
// A return takes a few files in Salt's layout (package jobs), so the job cache keeps returns for a
// day only. Here a return is a row of a segment: one file for up to 100,000 runs. A run is a return
// with its summary.
//
//	Append → chunk in memory → frame at the end of the newest segment
//	                           full: an index is appended and the segment is sealed
//	Query  → segments of the time → index: which chunks? → rows → summaries, and returns on demand
//
// Files: 0000000000000001.seg, and so on; a higher number is newer. A segment consists of frames:
// chunks, and once it is sealed the blocks of its index (frame.go, index.go). A chunk has the rows
// of some hundred runs and, compressed separately, the content of their returns, so that a list of
// runs reads no returns.
//
// Promises:
//   - What was appended before Sync returned nil survives a power cut. What was appended later may
//     be lost; the caller's journal repeats it, and a run that is here already is not stored again.
//   - A run that is amended is a row again; readers take the row that was stored last.
//   - A torn end of the newest segment is cut off. Damage elsewhere is skipped, counted and logged.
//   - Readers do not lock out Append while they read the disk.
//
// Retention: segments whose runs are all older than Config.Keep are removed, and the oldest
// segments while all together are larger than Config.MaxBytes, or the disk is full. The newest
// segment is never removed. Each removal is counted and logged.
//
// Bounds: the sizes that a file states are checked before memory is allocated for them. In memory
// are the index of the newest segment (at most maxIndexBytes), hashes of the runs of the two newest
// segments, a cache of Config.CacheBytes, and some 300 bytes for each sealed segment.
package history
