package conf

import "time"

// Gitfs holds the options of the file server's git backend.
type Gitfs struct {
	GitfsRemotes        []any         `conf:"gitfs_remotes"`
	GitfsBase           string        `conf:"gitfs_base"`
	GitfsFallback       string        `conf:"gitfs_fallback"`
	GitfsRoot           string        `conf:"gitfs_root"`
	GitfsMountpoint     string        `conf:"gitfs_mountpoint"`
	GitfsSaltenv        []any         `conf:"gitfs_saltenv"`
	GitfsWhitelist      []string      `conf:"gitfs_saltenv_whitelist"`
	GitfsBlacklist      []string      `conf:"gitfs_saltenv_blacklist"`
	GitfsRefTypes       []string      `conf:"gitfs_ref_types"`
	GitfsRefspecs       []string      `conf:"gitfs_refspecs"`
	GitfsDepth          int           `conf:"gitfs_depth"` // commits
	GitfsNoMapping      bool          `conf:"gitfs_disable_saltenv_mapping"`
	GitfsUpdateInterval time.Duration `conf:"gitfs_update_interval"`
	GitfsSSLVerify      bool          `conf:"gitfs_ssl_verify"`
	GitfsProxy          string        `conf:"gitfs_proxy"`
	GitfsUser           string        `conf:"gitfs_user"`
	GitfsPassword       string        `conf:"gitfs_password"`
	GitfsInsecureAuth   bool          `conf:"gitfs_insecure_auth"`
	GitfsPrivkey        string        `conf:"gitfs_privkey"`
	GitfsPassphrase     string        `conf:"gitfs_passphrase"`
	FileserverEvents    bool          `conf:"fileserver_events"`
	GitMaxSize          int           `conf:"saltern_git_max_size"` // MiB
	GitKnownHosts       string        `conf:"saltern_git_known_hosts"`
}

// GitPillar holds the options of pillars that come from git.
type GitPillar struct {
	GitPillarUpdateInterval time.Duration `conf:"git_pillar_update_interval"`
	GitPillarVerifyConfig   bool          `conf:"git_pillar_verify_config"`
	GitPillarIncludes       bool          `conf:"git_pillar_includes"`
	GitPillarBase           string        `conf:"git_pillar_base"`
	GitPillarBranch         string        `conf:"git_pillar_branch"`
	GitPillarEnv            string        `conf:"git_pillar_env"`
	GitPillarFallback       string        `conf:"git_pillar_fallback"`
	GitPillarRoot           string        `conf:"git_pillar_root"`
	GitPillarRefTypes       []string      `conf:"git_pillar_ref_types"`
	GitPillarRefspecs       []string      `conf:"git_pillar_refspecs"`
	GitPillarDepth          int           `conf:"git_pillar_depth"` // commits
	GitPillarSSLVerify      bool          `conf:"git_pillar_ssl_verify"`
	GitPillarProxy          string        `conf:"git_pillar_proxy"`
	GitPillarUser           string        `conf:"git_pillar_user"`
	GitPillarPassword       string        `conf:"git_pillar_password"`
	GitPillarInsecureAuth   bool          `conf:"git_pillar_insecure_auth"`
	GitPillarPrivkey        string        `conf:"git_pillar_privkey"`
	GitPillarPassphrase     string        `conf:"git_pillar_passphrase"`
}
