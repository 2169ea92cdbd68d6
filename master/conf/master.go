package conf

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"saltern/master/internal/merge/options"
	"saltern/master/internal/notify/rules"
	"saltern/master/internal/postgres/settings"
	"saltern/master/internal/schedule/plan"
	"saltern/master/value"
)

// Master is the configuration of a master. The tag of a field contains the name of its option. The
// files contain durations in seconds unless the tag names another unit. A Master must not be
// changed after Load, so goroutines may share it.
type Master struct {
	// Raw holds every option, including defaults, under Salt's names. It is used for config.get,
	// for the master's options in pillars, and for the renderers.
	Raw *value.Map
	// Path is the main file, whether it exists or not.
	Path string
	// Sources lists the files that were read. The main file (Path) comes first, unless it does not
	// exist.
	Sources []string
	// PillarEnvs lists the environments of PillarRoots in the order of the files.
	PillarEnvs []string
	// Notes lists remarks that are not errors, in the order of files and lines.
	Notes []Note
	// Set lists the options that the files set, in the order of files and lines. If an option is
	// set several times, its entry names the file and line of the last setting.
	Set []Setting
	// Plan holds the jobs of the option schedule that this master runs. PlanProblems lists the
	// parts of the schedule that it does not support.
	Plan         *plan.Plan
	PlanProblems []plan.Problem
	// Postgres is the option saltern_postgres. It may be nil: the option is
	// empty, or cannot be obeyed.
	Postgres *settings.Settings
	// NotifyRules are the rules of the option saltern_notify that can be obeyed.
	NotifyRules rules.Rules
	// MergeReports are the entries of the option saltern_merge_reports that can be obeyed.
	MergeReports []options.Report

	Identity
	Paths
	Network
	Logs
	Keys
	Security
	Jobs
	Files
	Gitfs
	Pillar
	GitPillar
	States
	Access
	LDAP
	OIDC
	Cluster
	Saltern
}

// Setting is an option that a file sets.
type Setting struct {
	Option      string
	Path        string
	Line        int    // line in Path; 0 when not known
	Use, Remark string // result of [Use] for the option
}

// Note is a remark about the configuration.
type Note struct {
	Level  slog.Level
	Option string // "" for a note that is about no single option
	Path   string // file in which the option is set; "" if no file sets it
	Line   int    // line in Path; 0 when not known
	Text   string
}

// String returns the note in the form path:line: option name: text.
func (n Note) String() string {
	text := n.Text
	switch {
	case n.Option != "" && text == "":
		text = "option " + n.Option
	case n.Option != "":
		text = "option " + n.Option + ": " + text
	}
	return placeOf(n.Path, n.Line) + text
}

// Report writes the notes to a log.
func (m *Master) Report(ctx context.Context, log *slog.Logger) {
	for _, n := range m.Notes {
		args := make([]any, 0, 4)
		if n.Option != "" {
			args = append(args, "option", n.Option)
		}
		if n.Path != "" {
			args = append(args, "path", n.Path)
		}
		if n.Line > 0 {
			args = append(args, "line", n.Line)
		}
		log.Log(ctx, n.Level, n.Text, args...)
	}
}

// Identity holds the names of this master.
type Identity struct {
	ID   string `conf:"id"`
	User string `conf:"user"`
	// MasterID is sent to minions with each job. It may be nil: no id is sent.
	MasterID any `conf:"master_id"`
}

// Paths are absolute, except Log and KeyLog, which may be a URL of a syslog.
type Paths struct {
	PKIDir           string   `conf:"pki_dir"`
	CacheDir         string   `conf:"cachedir"`
	SockDir          string   `conf:"sock_dir"`
	PidFile          string   `conf:"pidfile"`
	TokenDir         string   `conf:"token_dir"`
	ExtensionModules string   `conf:"extension_modules"`
	ModuleDirs       []string `conf:"module_dirs"`
	OutputterDirs    []string `conf:"outputter_dirs"`
	AuthDirs         []string `conf:"auth_dirs"`
	TokenFile        string   `conf:"token_file"` // "" means a file in the user's home
	DefaultInclude   string   `conf:"default_include"`
}

// Network holds the addresses and bounds of the listeners.
type Network struct {
	Interface             string        `conf:"interface"`
	PublishPort           int           `conf:"publish_port"`
	RetPort               int           `conf:"ret_port"`
	Transport             string        `conf:"transport"`
	PubHWM                int           `conf:"pub_hwm"`
	ZMQFiltering          bool          `conf:"zmq_filtering"`
	IPCWriteBuffer        int           `conf:"ipc_write_buffer"` // bytes; 0 means no limit in Salt
	MaxEventSize          int           `conf:"max_event_size"`   // bytes
	OrderMasters          bool          `conf:"order_masters"`
	SyndicWait            time.Duration `conf:"syndic_wait"`
	PresenceEvents        bool          `conf:"presence_events"`
	LoopInterval          time.Duration `conf:"loop_interval"`
	AuthEvents            bool          `conf:"auth_events"`
	MinionDataCacheEvents bool          `conf:"minion_data_cache_events"`
}

// Logs holds the options of the logs.
type Logs struct {
	LogFile           string `conf:"log_file"`
	KeyLogFile        string `conf:"key_logfile"` // log of salt-key
	LogLevel          string `conf:"log_level"`
	LogLevelLogfile   string `conf:"log_level_logfile"` // "" means LogLevel
	LogDatefmt        string `conf:"log_datefmt"`
	LogDatefmtLogfile string `conf:"log_datefmt_logfile"`
	LogFmtConsole     string `conf:"log_fmt_console"`
	LogFmtLogfile     string `conf:"log_fmt_logfile"`
	LogFmtJID         string `conf:"log_fmt_jid"`
	LogFmtMinionID    string `conf:"log_fmt_minion_id"`
	// LogGranular maps names of loggers to levels.
	LogGranular *value.Map `conf:"log_granular_levels"`
}

// Keys holds the options for accepting minion keys and for creating the master's keys.
type Keys struct {
	OpenMode             bool          `conf:"open_mode"`
	AutoAccept           bool          `conf:"auto_accept"`
	AutosignFile         string        `conf:"autosign_file"`
	AutorejectFile       string        `conf:"autoreject_file"`
	AutosignGrainsDir    string        `conf:"autosign_grains_dir"`
	AutosignTimeout      time.Duration `conf:"autosign_timeout,m"`
	PermissivePKIAccess  bool          `conf:"permissive_pki_access"`
	MaxMinions           int           `conf:"max_minions"`
	KeySize              int           `conf:"keysize"` // bits
	KeyPass              string        `conf:"key_pass"`
	SigningKeyPass       string        `conf:"signing_key_pass"`
	MasterSignPubkey     bool          `conf:"master_sign_pubkey"`
	MasterSignKeyName    string        `conf:"master_sign_key_name"`
	MasterPubkeySig      string        `conf:"master_pubkey_signature"`
	UsePubkeySignature   bool          `conf:"master_use_pubkey_signature"`
	AllowMinionKeyRevoke bool          `conf:"allow_minion_key_revoke"`
	PreserveMinionCache  bool          `conf:"preserve_minion_cache"`
	RotateAESKey         bool          `conf:"rotate_aes_key"`
	PingOnRotate         bool          `conf:"ping_on_rotate"`
	PublishSession       time.Duration `conf:"publish_session"`
}

// Security holds the options for accepting messages and for signing.
type Security struct {
	MinimumAuthVersion         int           `conf:"minimum_auth_version"`
	HashType                   string        `conf:"hash_type"`
	PublishSigningAlgorithm    string        `conf:"publish_signing_algorithm"`
	SignPubMessages            bool          `conf:"sign_pub_messages"`
	RequireMinionSignMessages  bool          `conf:"require_minion_sign_messages"`
	DropMessagesSignatureFail  bool          `conf:"drop_messages_signature_fail"`
	RequestServerTTL           time.Duration `conf:"request_server_ttl"` // 0: no limit
	ClusterEncryptionAlgorithm string        `conf:"cluster_encryption_algorithm"`
	ClientACLVerify            bool          `conf:"client_acl_verify"`
	AuthEventsAutosignGrains   []string      `conf:"auth_events_autosign_grains"`
}

// Jobs holds the options for timeouts of jobs and for storing returns.
type Jobs struct {
	Timeout              time.Duration `conf:"timeout"`
	PublishTimeout       time.Duration `conf:"publish_timeout"`
	GatherJobTimeout     time.Duration `conf:"gather_job_timeout"`
	KeepJobs             time.Duration `conf:"keep_jobs_seconds"`
	RunnerReturns        bool          `conf:"runner_returns"`
	JobCache             bool          `conf:"job_cache"`
	ExtJobCache          string        `conf:"ext_job_cache"`
	MasterJobCache       string        `conf:"master_job_cache"`
	JobCacheStoreEndtime bool          `conf:"job_cache_store_endtime"`
	MinionDataCache      bool          `conf:"minion_data_cache"`
	EnforceMineCache     bool          `conf:"enforce_mine_cache"`
	Reactor              ReactorRules  `conf:"reactor"`
	ReactorWorkerHWM     int           `conf:"reactor_worker_hwm"`
	ReactorThreads       int           `conf:"reactor_worker_threads"`
	ReactorRefresh       time.Duration `conf:"reactor_refresh_interval"`
	Schedule             *value.Map    `conf:"schedule"`
	Engines              any           `conf:"engines"`

	EventReturn                []string `conf:"event_return"`
	EventReturnQueue           int      `conf:"event_return_queue"`
	EventReturnQueueMaxSeconds int      `conf:"event_return_queue_max_seconds"`
	EventReturnWhitelist       []string `conf:"event_return_whitelist"`
	EventReturnBlacklist       []string `conf:"event_return_blacklist"`
}

// ReactorRules holds the rules of the reactor, or the path of the file that contains them.
type ReactorRules struct {
	Rules []any
	File  string
}

// Files holds the options of the file server.
type Files struct {
	FileRoots             map[string][]string `conf:"file_roots"`
	FileIgnoreRegex       []string            `conf:"file_ignore_regex"`
	FileIgnoreGlob        []string            `conf:"file_ignore_glob"`
	FileserverBackend     []string            `conf:"fileserver_backend"`
	FileserverFollowLinks bool                `conf:"fileserver_followsymlinks"`
	FileserverIgnoreLinks bool                `conf:"fileserver_ignoresymlinks"`
	FileBufferSize        int                 `conf:"file_buffer_size"` // bytes
	FileRecv              bool                `conf:"file_recv"`
	FileRecvMaxSize       int                 `conf:"file_recv_max_size"` // MB
	SaltCPChunkSize       int                 `conf:"salt_cp_chunk_size"` // bytes
	MasterTops            *value.Map          `conf:"master_tops"`
	MinionFSEnv           string              `conf:"minionfs_env"`
	MinionFSMountpoint    string              `conf:"minionfs_mountpoint"`
	MinionFSWhitelist     []string            `conf:"minionfs_whitelist"`
	MinionFSBlacklist     []string            `conf:"minionfs_blacklist"`
}

// Pillar holds the options for compiling pillars.
type Pillar struct {
	PillarRoots            map[string][]string `conf:"pillar_roots"`
	ExtPillar              []any               `conf:"ext_pillar"`
	ExtPillarFirst         bool                `conf:"ext_pillar_first"`
	PillarOpts             bool                `conf:"pillar_opts"`
	PillarSafeRenderError  bool                `conf:"pillar_safe_render_error"`
	PillarMergeStrategy    string              `conf:"pillar_source_merging_strategy"`
	PillarMergeLists       bool                `conf:"pillar_merge_lists"`
	PillarIncludesOverride bool                `conf:"pillar_includes_override_sls"`
	PillarCache            bool                `conf:"pillar_cache"`
	PillarCacheTTL         time.Duration       `conf:"pillar_cache_ttl"`
	PillarCacheBackend     string              `conf:"pillar_cache_backend"`
	PillarEnv              string              `conf:"pillarenv"`
	DecryptPillar          []any               `conf:"decrypt_pillar"`
	GPGKeydir              string              `conf:"gpg_keydir"`
	GPGCache               bool                `conf:"gpg_cache"`
	GPGCacheTTL            time.Duration       `conf:"gpg_cache_ttl"`
	GPGMustSucceed         bool                `conf:"gpg_decrypt_must_succeed"`
	PillarenvFromSaltenv   bool                `conf:"pillarenv_from_saltenv"`
}

// States holds the options for rendering and naming states. Minions request some of them from the
// master.
type States struct {
	TopFileMergingStrategy string     `conf:"top_file_merging_strategy"`
	EnvOrder               []string   `conf:"env_order"`
	SaltEnv                string     `conf:"saltenv"`
	StateTop               string     `conf:"state_top"`
	Renderer               string     `conf:"renderer"`
	RendererWhitelist      []string   `conf:"renderer_whitelist"`
	RendererBlacklist      []string   `conf:"renderer_blacklist"`
	JinjaEnv               *value.Map `conf:"jinja_env"`
	JinjaSLSEnv            *value.Map `conf:"jinja_sls_env"`
	Nodegroups             *value.Map `conf:"nodegroups"`
}

// Access holds the options for permissions and log-ins.
type Access struct {
	Peer                    *value.Map    `conf:"peer"`
	PeerRun                 *value.Map    `conf:"peer_run"`
	MineGet                 *value.Map    `conf:"mine_get"`
	PublisherACL            *value.Map    `conf:"publisher_acl"`
	PublisherACLBlacklist   *value.Map    `conf:"publisher_acl_blacklist"`
	SudoACL                 bool          `conf:"sudo_acl"`
	ExternalAuth            *value.Map    `conf:"external_auth"`
	SharedSecret            string        `conf:"sharedsecret"`
	TokenExpire             time.Duration `conf:"token_expire"`
	TokenExpireUserOverride any           `conf:"token_expire_user_override"`
	PermissiveACL           bool          `conf:"permissive_acl"`
	KeepACLInToken          bool          `conf:"keep_acl_in_token"`
	EauthACLModule          string        `conf:"eauth_acl_module"`
	// EventReaders controls who may read events. If it is "all", every logged-in user may read all
	// events and fire hooks; see [Master.Rights].
	EventReaders string `conf:"saltern_event_readers"`
	// LoginFailures is the number of wrong passwords after which a user is locked out at one
	// address for the time LoginLock. If it is 0, the default applies; a negative number turns the
	// lock off.
	LoginFailures int           `conf:"saltern_login_failures"`
	LoginLock     time.Duration `conf:"saltern_login_lock"`
	// UserSessions is how many tokens each user may have at once. If it is 0, the default applies;
	// a negative number means no limit.
	UserSessions int `conf:"saltern_user_sessions"`
	// UserFields lists the fields, and UserReturners the returners, that a caller without full
	// rights may use in a job, besides function, arguments and target.
	UserFields    []string `conf:"saltern_user_publish_fields"`
	UserReturners []string `conf:"saltern_user_returners"`
	// PAMSocket is the socket of the helper that runs as root; see [Master.PAMHelper].
	PAMSocket string `conf:"saltern_pam"`
}

// LDAP holds the options for log-ins with a directory; see [Master.LDAPOptions].
type LDAP struct {
	LDAPURI              string   `conf:"auth.ldap.uri"`
	LDAPServer           string   `conf:"auth.ldap.server"`
	LDAPPort             string   `conf:"auth.ldap.port"`
	LDAPTLS              bool     `conf:"auth.ldap.tls"`
	LDAPStartTLS         bool     `conf:"auth.ldap.starttls"`
	LDAPNoVerify         bool     `conf:"auth.ldap.no_verify"`
	LDAPCA               string   `conf:"saltern_ldap_ca"`
	LDAPBaseDN           string   `conf:"auth.ldap.basedn"`
	LDAPBindDN           string   `conf:"auth.ldap.binddn"`
	LDAPBindPassword     string   `conf:"auth.ldap.bindpw"`
	LDAPFilter           string   `conf:"auth.ldap.filter"`
	LDAPScope            any      `conf:"auth.ldap.scope"`
	LDAPAnonymous        bool     `conf:"auth.ldap.anonymous"`
	LDAPAccountAttribute string   `conf:"auth.ldap.accountattributename"`
	LDAPGroupClass       string   `conf:"auth.ldap.groupclass"`
	LDAPGroupOU          any      `conf:"auth.ldap.groupou"`
	LDAPGroupAttribute   string   `conf:"auth.ldap.groupattribute"`
	LDAPPersonType       string   `conf:"auth.ldap.persontype"`
	LDAPActiveDirectory  bool     `conf:"auth.ldap.activedirectory"`
	LDAPFreeIPA          bool     `conf:"auth.ldap.freeipa"`
	LDAPGroupBaseDN      string   `conf:"auth.ldap.group_basedn"`
	LDAPGroupFilter      string   `conf:"auth.ldap.group_filter"`
	LDAPStripDomains     []string `conf:"auth.ldap.minion_stripdomains"`
}

// OIDC holds the options for log-ins with an OpenID provider; see [Master.OIDCOptions].
type OIDC struct {
	OIDCIssuer      string   `conf:"auth.oidc.issuer"`
	OIDCClientID    string   `conf:"auth.oidc.client_id"`
	OIDCSecret      string   `conf:"auth.oidc.client_secret"`
	OIDCSecretFile  string   `conf:"auth.oidc.client_secret_file"`
	OIDCScopes      []string `conf:"auth.oidc.scopes"`
	OIDCUserClaim   string   `conf:"auth.oidc.username_claim"`
	OIDCGroupsClaim string   `conf:"auth.oidc.groups_claim"`
	OIDCCA          string   `conf:"auth.oidc.ca"`
	OIDCRedirect    string   `conf:"auth.oidc.redirect"`
}

// Cluster holds the options of a cluster of masters that share keys. If ClusterID is "", this
// master belongs to no cluster.
type Cluster struct {
	ClusterID             string   `conf:"cluster_id"`
	ClusterPeers          []string `conf:"cluster_peers"`
	ClusterPKIDir         string   `conf:"cluster_pki_dir"`
	ClusterPoolPort       int      `conf:"cluster_pool_port"`
	ClusterPubFingerprint string   `conf:"cluster_pub_fingerprint"`
	ClusterSecret         string   `conf:"cluster_secret"`
	ClusterKeyPass        string   `conf:"cluster_key_pass"`
	ClusterIsolatedFS     bool     `conf:"cluster_isolated_filesystem"`
	// ClusterPlainPeers admits Salt's own masters, which connect without TLS.
	ClusterPlainPeers bool `conf:"saltern_cluster_plain_peers"`
	// ClusterSessions is the folder of session keys that Salt's masters share (sessions in their
	// cachedir). If it is "", this master uses a private folder.
	ClusterSessions string `conf:"saltern_cluster_sessions"`
	// ClusterEmptySecret admits masters that show no secret.
	ClusterEmptySecret bool `conf:"saltern_cluster_empty_secret"`
	// ClusterJoinTimeout is how long a starting master may take to join; 0 means a minute.
	ClusterJoinTimeout time.Duration `conf:"saltern_cluster_join_timeout"`
}

// Saltern holds the options that Salt does not have.
type Saltern struct {
	// ProxyFrom lists the networks from which connections may begin with a PROXY header. If it is
	// empty, no connection may.
	ProxyFrom []netip.Prefix `conf:"saltern_proxy_from"`
	// FrontPublishPort is the publish port that minions learn at sign-in; 0 means PublishPort.
	FrontPublishPort int `conf:"saltern_front_publish_port"`
	// JobCacheQuota is how many MiB of returns each minion may put into the job cache within
	// keep_jobs. 0 means the default; a negative number means no limit.
	JobCacheQuota int `conf:"saltern_job_cache_quota"`
	// JobSegments means that jobs and returns stay in segments and become files only on demand. The default is true.
	JobSegments bool `conf:"saltern_job_segments"`
	// UserJobQuota is how many MiB of jobs each caller without full rights may put into the job
	// cache within keep_jobs. 0 means the default; a negative number means no limit.
	UserJobQuota int `conf:"saltern_user_job_quota"`
	// Conditions is the file in which the program that monitors the machine reports faults of the
	// storage. "" means that there is no such file.
	Conditions string `conf:"saltern_conditions"`
	// Supervisor is the socket on which the tools ask for another master of the cluster when this
	// master does not answer. "" means that there is no such socket.
	Supervisor string `conf:"saltern_supervisor"`
	// Door is the admin socket, on which the master asks the supervisor to carry out its users'
	// orders about the machines. "" means that there is no such socket.
	Door string `conf:"saltern_door"`
	// Node is the name of this machine in the audit record; "" means the id.
	Node string `conf:"saltern_node"`
	// EventPrefixes lists the prefixes that the tags of minions' events may have outside of salt/;
	// an empty list permits any tag.
	EventPrefixes []string `conf:"saltern_minion_event_prefixes"`
	// SaltRun is the path of a salt-run program. Its Python runs the runners that are not built in.
	// If SaltRun is "", the Python of the renderers runs them.
	SaltRun string `conf:"saltern_salt_run"`
	// RendererPython is the path of a Python that has Salt's library and runs the renderers.
	RendererPython string `conf:"saltern_renderer_python"`
	// PythonLayer is a folder of packages, or a link to one, that is appended to Python's path. ""
	// means none.
	PythonLayer string `conf:"saltern_python_layer"`
	// RendererMax is how many renderers may run; 0 means the master's default.
	RendererMax int `conf:"saltern_renderer_max"`
	// RunnerMax is how many runner and wheel functions may run in Python at once; 0 means the
	// master's default.
	RunnerMax int `conf:"saltern_runner_max"`
	// RunnerComputing is how many of these functions may compute at once; 0 means the master's
	// default.
	RunnerComputing int   `conf:"saltern_runner_computing"`
	Notify          []any `conf:"saltern_notify"` // see NotifyRules
	// PostgresOption is saltern_postgres as it is written; see Postgres.
	PostgresOption *value.Map `conf:"saltern_postgres"`
	// HistoryDays is how many days the history of runs is kept; 0 means the master's default, a
	// negative number none.
	HistoryDays int `conf:"saltern_history_days"`
	// HistoryBytes is how many MiB the history of runs may take; 0 means the master's default.
	HistoryBytes int `conf:"saltern_history_bytes"`
	// ReturnerSpool is how many MiB of data may wait on the disk for returners; 0 means the default.
	ReturnerSpool int `conf:"saltern_returner_spool"`
	// RunnerMemory bounds the memory of each runner in Python, in MiB; 0 means the master's
	// default.
	RunnerMemory int `conf:"saltern_runner_memory"`
	// RendererIdle is how long a renderer may be idle before it is stopped; 0 means the master's
	// default.
	RendererIdle time.Duration `conf:"saltern_renderer_idle"`
	// PillarQueue is how many MiB of pillar requests may wait; 0 means the master's default.
	PillarQueue int `conf:"saltern_pillar_queue"`
	// PillarCheck is how many pillars are compiled for each one that is made once more as Salt
	// does, to compare; 0 means the master's default, a negative number none.
	PillarCheck int `conf:"saltern_pillar_check"`
	// DiffTrusted means that the refs that pillar.diff compares may run code on this master.
	DiffTrusted bool `conf:"saltern_diff_trusted"`
	// DiffFolders are the directories below which pillar.diff may compare a folder; nil means the
	// master's default.
	DiffFolders []string `conf:"saltern_diff_folders"`
	// DiffTimeout is how long a comparison may take; 0 means the master's default.
	DiffTimeout time.Duration `conf:"saltern_diff_timeout"`
	MergeOption []any         `conf:"saltern_merge_reports"` // see MergeReports
	// PillarMemo means that the master renders a pillar template once for all minions whose values
	// that the template reads are equal.
	PillarMemo bool `conf:"saltern_pillar_memo"`
}
