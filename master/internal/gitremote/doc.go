// Package gitremote parses the remotes of gitfs and git_pillar in a master's configuration. An
// entry is a URL, or a URL with options that override the defaults for its role.
//
// Sources: salt/utils/gitfs.py (GitProvider.__init__, GitBase.init_remotes, enforce_types),
// salt/fileserver/gitfs.py, salt/pillar/git_pillar.py. Errors name the remote without its password,
// and tell the administrator what to write in the option.
package gitremote
