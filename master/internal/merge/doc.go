// Package merge tells git servers what each new commit of a branch would change: as the status of
// the commit, and as a comment on its merge request (option saltern_merge_reports).
//
//	a push ──> the web hook, or the next fetch ──> package git fetches, within its bounds
//	                                                  │ tips of the branches (repos.Tips)
//	           the owner's worker of that remote ──> Record: what waits, what was told
//	                                                  │ one comparison at a time (package diff)
//	                                              ──> package forge ──> status, comment
//
// Nothing of a call of the web hook gets here but that a remote is to be fetched: which remotes and
// branches are compared, and which server is told, is only what the administrator has written. The
// worker sees commits that are there, and compares exactly the commit whose status it sets, also when
// a branch is named like a commit or moves meanwhile.
//
// # Who reports, and once
//
// Only the owner of the cluster reports. What it has taken is in a file that all masters share, and a
// change of it needs the version before (package versioned). A master that becomes the owner goes on
// with what is there: a commit with the status pending is compared again. A commit is in the
// file until its server has accepted the result, so a status may be set twice, with the same text.
//
// At the first look at a remote its commits are only noted. Commits that no branch has any more while
// they wait are not compared.
//
// # Bounds
//
// An entry has 100 commits that wait; further ones are taken when there is room, with the newest commit
// of each branch only. A comparison that has begun five times without an end, since the master died, is
// an error. A server that does not answer is asked again after a pause of two minutes, for as long as
// it takes. A commit that it refuses is given up after five times. One that it does not permit, or for
// which it has an error, waits for itself, and is given up too while the server takes others. These go on
// meanwhile.
package merge
