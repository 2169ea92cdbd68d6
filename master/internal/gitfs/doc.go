// Package gitfs serves files from git repositories: branches and tags are
// environments (salt/utils/gitfs.py GitFS and GitProvider, as of 3008.3).
//
// A request is answered from the snapshots that are in service when it comes. The
// name of an environment that a minion asks for is compared with names of refs; as
// a commit's id it must be hexadecimal and there already. The ignore options of
// roots do not apply, as in Salt.
package gitfs
