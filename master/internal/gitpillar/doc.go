// Package gitpillar is the source of git pillars (ext_pillar: git): which branch
// or tag of which repository is which environment, for the compiler of pillars
// (salt/pillar/git_pillar.py, salt/utils/gitfs.py GitPillar, as of 3008.3).
//
// A tree is checked out to a directory that never changes, since templates import
// from files. A pillar request never waits for a remote, except for the first
// fetch ever.
package gitpillar
