package repos

import (
	"fmt"

	"saltern/master/conf"
	"saltern/master/internal/gitremote"
)

// filesDefaults reads the options gitfs_….
func filesDefaults(c *conf.Master) (*gitremote.Defaults, error) {
	d := &gitremote.Defaults{}
	d.Base = c.GitfsBase
	d.Fallback = c.GitfsFallback
	d.Root = c.GitfsRoot
	d.Mountpoint = c.GitfsMountpoint
	d.DisableMapping = c.GitfsNoMapping
	d.RefTypes = c.GitfsRefTypes
	d.Whitelist = c.GitfsWhitelist
	d.Blacklist = c.GitfsBlacklist
	d.Refspecs = c.GitfsRefspecs
	d.Depth = c.GitfsDepth
	d.Interval = c.GitfsUpdateInterval
	d.SkipVerify = !c.GitfsSSLVerify
	d.Proxy = c.GitfsProxy
	d.User = c.GitfsUser
	d.Password = c.GitfsPassword
	d.InsecureAuth = c.GitfsInsecureAuth
	d.PrivKey = c.GitfsPrivkey
	d.Passphrase = c.GitfsPassphrase
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
	d := &gitremote.Defaults{}
	d.Base = c.GitPillarBase
	d.Branch = c.GitPillarBranch
	d.Env = c.GitPillarEnv
	d.Fallback = c.GitPillarFallback
	d.Root = c.GitPillarRoot
	d.RefTypes = c.GitPillarRefTypes
	d.Refspecs = c.GitPillarRefspecs
	d.Depth = c.GitPillarDepth
	d.Interval = c.GitPillarUpdateInterval
	d.SkipVerify = !c.GitPillarSSLVerify
	d.Proxy = c.GitPillarProxy
	d.User = c.GitPillarUser
	d.Password = c.GitPillarPassword
	d.InsecureAuth = c.GitPillarInsecureAuth
	d.PrivKey = c.GitPillarPrivkey
	d.Passphrase = c.GitPillarPassphrase

	return d
}
