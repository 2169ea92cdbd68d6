// Package gitpillar provides the directories of git pillars (ext_pillar: git) to the pillar
// compiler. It determines which branch or tag of which repository belongs to which environment
// (salt/pillar/git_pillar.py, salt/utils/gitfs.py GitPillar, as of 3008.3).
//
// A tree is checked out to a directory that never changes, because templates import from files. A
// pillar request never waits for a remote, except for the first fetch of a repository.
package gitpillar
