// Package gitremote reads the remotes of gitfs and git_pillar from a master's configuration. An entry
// is a URL, or a URL with options that override the role's defaults.
//
// Sources: salt/utils/gitfs.py (GitProvider.__init__, GitBase.init_remotes, enforce_types),
// salt/fileserver/gitfs.py, salt/pillar/git_pillar.py. Errors name the remote and what may be written
// instead, without passwords.
package gitremote
