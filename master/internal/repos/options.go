package repos

import (
	"fmt"

	"saltern/master/conf"
	"saltern/master/internal/gitremote"
)

// filesDefaults are the options gitfs_….
func filesDefaults(c *conf.Master) (*gitremote.Defaults, error) {
	d := &gitremote.Defaults{}
	d.Base, d.Fallback, d.Root, d.Mountpoint = c.GitfsBase, c.GitfsFallback, c.GitfsRoot, c.GitfsMountpoint
	d.DisableMapping, d.RefTypes, d.Whitelist, d.Blacklist = c.GitfsNoMapping, c.GitfsRefTypes, c.GitfsWhitelist, c.GitfsBlacklist
	d.Refspecs, d.Depth, d.Interval, d.SkipVerify, d.Proxy = c.GitfsRefspecs, c.GitfsDepth, c.GitfsUpdateInterval, !c.GitfsSSLVerify, c.GitfsProxy
	d.User, d.Password, d.InsecureAuth, d.PrivKey, d.Passphrase = c.GitfsUser, c.GitfsPassword, c.GitfsInsecureAuth, c.GitfsPrivkey, c.GitfsPassphrase
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

// pillarDefaults are the options git_pillar_….
func pillarDefaults(c *conf.Master) *gitremote.Defaults {
	d := &gitremote.Defaults{}
	d.Base, d.Branch, d.Env, d.Fallback, d.Root = c.GitPillarBase, c.GitPillarBranch, c.GitPillarEnv, c.GitPillarFallback, c.GitPillarRoot
	d.RefTypes, d.Refspecs, d.Depth, d.Interval = c.GitPillarRefTypes, c.GitPillarRefspecs, c.GitPillarDepth, c.GitPillarUpdateInterval
	d.SkipVerify, d.Proxy, d.User, d.Password = !c.GitPillarSSLVerify, c.GitPillarProxy, c.GitPillarUser, c.GitPillarPassword
	d.InsecureAuth, d.PrivKey, d.Passphrase = c.GitPillarInsecureAuth, c.GitPillarPrivkey, c.GitPillarPassphrase
	return d
}
