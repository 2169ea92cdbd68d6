package repos

import (
	"fmt"

	"saltern/master/conf"
	"saltern/master/internal/gitremote"
)

// sharedDefaults reads the options that exist both as gitfs_… and as git_pillar_….
func sharedDefaults(o conf.GitRemotes) *gitremote.Defaults {
	d := &gitremote.Defaults{}
	d.Base = o.Base
	d.Fallback = o.Fallback
	d.Root = o.Root
	d.RefTypes = o.RefTypes
	d.Refspecs = o.Refspecs
	d.Depth = o.Depth
	d.Interval = o.UpdateInterval
	d.SkipVerify = !o.SSLVerify
	d.Proxy = o.Proxy
	d.User = o.User
	d.Password = o.Password
	d.InsecureAuth = o.InsecureAuth
	d.PrivKey = o.Privkey
	d.Passphrase = o.Passphrase

	return d
}

// filesDefaults reads the options gitfs_….
func filesDefaults(c *conf.Master) (*gitremote.Defaults, error) {
	d := sharedDefaults(c.GitfsShared)
	d.Mountpoint = c.GitfsMountpoint
	d.DisableMapping = c.GitfsNoMapping
	d.Whitelist = c.GitfsWhitelist
	d.Blacklist = c.GitfsBlacklist

	var err error
	if d.Global, err = gitremote.Envs(c.GitfsSaltenv); err != nil {
		return nil, fmt.Errorf("option gitfs_saltenv: %w", err)
	}

	for _, e := range d.Global {
		if e.Ref != nil && gitremote.IsCommit(*e.Ref) {
			d.Commits = append(d.Commits, *e.Ref)
		}
	}

	return d, nil
}

// pillarDefaults reads the options git_pillar_….
func pillarDefaults(c *conf.Master) *gitremote.Defaults {
	d := sharedDefaults(c.GitPillarShared)
	d.Branch = c.GitPillarBranch
	d.Env = c.GitPillarEnv
	return d
}
