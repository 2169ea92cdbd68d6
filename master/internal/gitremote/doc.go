// Package gitremote reads the remotes of gitfs and git_pillar from a master's
// configuration: a URL, or a URL with options of its own, over the options of all.
//
// Sources: salt/utils/gitfs.py (GitProvider.__init__, GitBase.init_remotes,
// enforce_types), salt/fileserver/gitfs.py, salt/pillar/git_pillar.py. What is
// wrong is an error that names the remote and what may be written, without
// passwords.
package gitremote
