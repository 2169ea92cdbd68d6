// Package gitfs serves files from git repositories: branches and tags are environments
// (salt/utils/gitfs.py GitFS and GitProvider, as of 3008.3).
//
// Each request is answered from the snapshots that are served when the request arrives. The name of
// an environment in a request is only compared with names of refs. A commit id must be hexadecimal
// and already fetched. As in Salt, the ignore options of roots do not apply.
package gitfs
