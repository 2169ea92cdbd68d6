package conf

import "time"

// GitRemotes holds the options that the remotes of gitfs and of git_pillar have alike.
type GitRemotes struct {
	Base           string        `conf:"base"`
	Fallback       string        `conf:"fallback"`
	Root           string        `conf:"root"`
	RefTypes       []string      `conf:"ref_types"`
	Refspecs       []string      `conf:"refspecs"`
	Depth          int           `conf:"depth"` // commits of each branch that are fetched; 0: all
	UpdateInterval time.Duration `conf:"update_interval"`
	SSLVerify      bool          `conf:"ssl_verify"`
	Proxy          string        `conf:"proxy"`
	User           string        `conf:"user"`
	Password       string        `conf:"password"`
	InsecureAuth   bool          `conf:"insecure_auth"`
	Privkey        string        `conf:"privkey"`
	Passphrase     string        `conf:"passphrase"`
}

// Gitfs holds the options of the file server's git backend.
type Gitfs struct {
	GitfsShared      GitRemotes `conf:"gitfs_"` // each option begins with gitfs_
	GitfsRemotes     []any      `conf:"gitfs_remotes"`
	GitfsMountpoint  string     `conf:"gitfs_mountpoint"`
	GitfsSaltenv     []any      `conf:"gitfs_saltenv"`
	GitfsWhitelist   []string   `conf:"gitfs_saltenv_whitelist"`
	GitfsBlacklist   []string   `conf:"gitfs_saltenv_blacklist"`
	GitfsNoMapping   bool       `conf:"gitfs_disable_saltenv_mapping"`
	FileserverEvents bool       `conf:"fileserver_events"`
	GitMaxSize       int        `conf:"saltern_git_max_size"` // MiB
	GitKnownHosts    string     `conf:"saltern_git_known_hosts"`
}

// GitPillar holds the options of pillars that come from git.
type GitPillar struct {
	GitPillarShared       GitRemotes `conf:"git_pillar_"` // each option begins with git_pillar_
	GitPillarVerifyConfig bool       `conf:"git_pillar_verify_config"`
	GitPillarIncludes     bool       `conf:"git_pillar_includes"`
	GitPillarBranch       string     `conf:"git_pillar_branch"`
	GitPillarEnv          string     `conf:"git_pillar_env"`
}
