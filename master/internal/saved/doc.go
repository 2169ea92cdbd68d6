// Package saved keeps targets, jobs and schedules that administrators save under a name, for all
// masters of a cluster, and runs the jobs.
//
// All objects are in one file on the shared folder. Each master reads it every [lookEvery]. A change
// replaces the file by compare and swap (package versioned), so that no change of another master is
// lost. A master that cannot read an object, because a newer release has written it, keeps the
// object in the file and does not use it.
//
// A saved job is also a right: whoever it names in may_run runs exactly this function with these
// arguments on this target, without a permission in external_auth. Each field that he fills in stays
// one value of one argument: see [Job.Fill].
package saved
