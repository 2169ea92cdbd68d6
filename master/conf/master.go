package conf

import (
	"context"
	"log/slog"
	"net/netip"
	"time"

	"saltern/master/msgpack"
)

// Master is the configuration of a master. Fields carry the name of their
// option; durations are written in seconds in the file unless said
// otherwise. A Master is not changed after Load and may be shared.
type Master struct {
	// Raw holds every option, defaults included, under Salt's names: for
	// config.get, the pillar's master options and the renderers.
	Raw *msgpack.Map
	// Path is the main file, whether it exists or not.
	Path string
	// Sources are all files that were read, Path first unless it does not exist.
	Sources []string
	// Notes are remarks that are no errors, in the order of the files and their lines.
	Notes []Note

	Identity
	Paths
	Network
	Logs
	Keys
	Security
	Jobs
	Files
	Pillar
	States
	Access
	Cluster
	Saltern
}

// Note is a remark about the configuration.
type Note struct {
	Level  slog.Level
	Option string // may be empty
	Path   string // may be empty
	Line   int    // 0 when not known
	Text   string
}

// String gives the note in the form path:line: option name: text.
func (n Note) String() string {
	text := n.Text
	if n.Option != "" {
		text = "option " + n.Option + ": " + text
	}
	return place(n.Path, n.Line) + text
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
		log.Log(ctx, n.Level, n.Text, args...)
	}
}

// Identity says who this master is.
type Identity struct {
	ID   string `conf:"id"`
	User string `conf:"user"`
}

// Paths are absolute, except Log and KeyLog, which may be a URL of a syslog.
type Paths struct {
	RootDir          string   `conf:"root_dir"`
	PKIDir           string   `conf:"pki_dir"`
	CacheDir         string   `conf:"cachedir"`
	SockDir          string   `conf:"sock_dir"`
	PidFile          string   `conf:"pidfile"`
	TokenDir         string   `conf:"token_dir"`
	ExtensionModules string   `conf:"extension_modules"`
	ModuleDirs       []string `conf:"module_dirs"`
	RunnerDirs       []string `conf:"runner_dirs"`
	UtilsDirs        []string `conf:"utils_dirs"`
	OutputterDirs    []string `conf:"outputter_dirs"`
}

// Network is what the master listens on.
type Network struct {
	Interface             string        `conf:"interface"`
	IPv6                  bool          `conf:"ipv6"`
	PublishPort           int           `conf:"publish_port"`
	RetPort               int           `conf:"ret_port"`
	Transport             string        `conf:"transport"`
	PubHWM                int           `conf:"pub_hwm"`
	ZMQBacklog            int           `conf:"zmq_backlog"`
	ZMQFiltering          bool          `conf:"zmq_filtering"`
	TCPKeepalive          bool          `conf:"tcp_keepalive"`
	TCPKeepaliveIdle      int           `conf:"tcp_keepalive_idle"`
	TCPKeepaliveCnt       int           `conf:"tcp_keepalive_cnt"`
	TCPKeepaliveIntvl     int           `conf:"tcp_keepalive_intvl"`
	MaxOpenFiles          int           `conf:"max_open_files"`
	IPCMode               string        `conf:"ipc_mode"`
	IPCWriteBuffer        int           `conf:"ipc_write_buffer"` // bytes; 0: no limit of Salt's own
	MaxEventSize          int           `conf:"max_event_size"`   // bytes
	PublishDrainTimeout   time.Duration `conf:"publish_drain_timeout"`
	OrderMasters          bool          `conf:"order_masters"`
	DetectRemoteMinions   bool          `conf:"detect_remote_minions"`
	PresenceEvents        bool          `conf:"presence_events"`
	WorkerThreads         int           `conf:"worker_threads"` // read and not used
	LoopInterval          time.Duration `conf:"loop_interval"`
	MaintenanceInterval   time.Duration `conf:"maintenance_interval"`
	FileserverInterval    time.Duration `conf:"fileserver_interval"`
	AuthEvents            bool          `conf:"auth_events"`
	MinionDataCacheEvents bool          `conf:"minion_data_cache_events"`
}

// Logs says what is logged where and how.
type Logs struct {
	LogFile           string       `conf:"log_file"`
	LogLevel          string       `conf:"log_level"`
	LogLevelLogfile   string       `conf:"log_level_logfile"` // "" means LogLevel
	LogDatefmt        string       `conf:"log_datefmt"`
	LogDatefmtLogfile string       `conf:"log_datefmt_logfile"`
	LogFmtConsole     string       `conf:"log_fmt_console"`
	LogFmtLogfile     string       `conf:"log_fmt_logfile"`
	LogFmtJID         string       `conf:"log_fmt_jid"`
	LogFmtMinionID    string       `conf:"log_fmt_minion_id"`
	LogGranularLevels *msgpack.Map `conf:"log_granular_levels"`
	KeyLogFile        string       `conf:"key_logfile"`
}

// Keys says how minion keys are accepted and how the master's are made.
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
	KeyCache             string        `conf:"key_cache"`
}

// Security says which messages are accepted and how ours are signed.
type Security struct {
	AuthMode                   int           `conf:"auth_mode"`
	MinimumAuthVersion         int           `conf:"minimum_auth_version"`
	HashType                   string        `conf:"hash_type"`
	PublishSigningAlgorithm    string        `conf:"publish_signing_algorithm"`
	SignPubMessages            bool          `conf:"sign_pub_messages"`
	RequireMinionSignMessages  bool          `conf:"require_minion_sign_messages"`
	DropMessagesSignatureFail  bool          `conf:"drop_messages_signature_fail"`
	RequestServerTTL           time.Duration `conf:"request_server_ttl"` // 0: no limit
	RequestServerAESSession    int           `conf:"request_server_aes_session"`
	FIPSMode                   bool          `conf:"fips_mode"`
	NetapiAllowRawShell        bool          `conf:"netapi_allow_raw_shell"`
	ClusterEncryptionAlgorithm string        `conf:"cluster_encryption_algorithm"`
	ClientACLVerify            bool          `conf:"client_acl_verify"`
	AuthEventsAutosignGrains   []string      `conf:"auth_events_autosign_grains"`
}

// Jobs says how long to wait for jobs and where to keep their returns.
type Jobs struct {
	Timeout              time.Duration `conf:"timeout"`
	PublishTimeout       time.Duration `conf:"publish_timeout"`
	GatherJobTimeout     time.Duration `conf:"gather_job_timeout"`
	KeepJobs             time.Duration `conf:"keep_jobs_seconds"`
	JobCache             bool          `conf:"job_cache"`
	ExtJobCache          string        `conf:"ext_job_cache"`
	MasterJobCache       string        `conf:"master_job_cache"`
	JobCacheStoreEndtime bool          `conf:"job_cache_store_endtime"`
	UniqueJID            bool          `conf:"unique_jid"`
	ShowTimeout          bool          `conf:"show_timeout"`
	ShowJID              bool          `conf:"show_jid"`
	CLISummary           bool          `conf:"cli_summary"`
	ArchiveJobs          bool          `conf:"archive_jobs"`
	EventReturn          []string      `conf:"event_return"`
	EventReturnQueue     int           `conf:"event_return_queue"`
	EventReturnWhitelist []string      `conf:"event_return_whitelist"`
	EventReturnBlacklist []string      `conf:"event_return_blacklist"`
	EventMatchType       string        `conf:"event_match_type"`
	RunnerReturns        bool          `conf:"runner_returns"`
	MinionDataCache      bool          `conf:"minion_data_cache"`
	EnforceMineCache     bool          `conf:"enforce_mine_cache"`
	Cache                string        `conf:"cache"`
	Reactor              []any         `conf:"reactor"`
	ReactorWorkerThreads int           `conf:"reactor_worker_threads"`
	ReactorWorkerHWM     int           `conf:"reactor_worker_hwm"`
	ReactorRefresh       time.Duration `conf:"reactor_refresh_interval"`
	Schedule             *msgpack.Map  `conf:"schedule"`
	Engines              []any         `conf:"engines"`
}

// Files says what the file server serves.
type Files struct {
	FileRoots              map[string][]string `conf:"file_roots"`
	FileIgnoreRegex        []string            `conf:"file_ignore_regex"`
	FileIgnoreGlob         []string            `conf:"file_ignore_glob"`
	FileserverBackend      []string            `conf:"fileserver_backend"`
	FileserverFollowLinks  bool                `conf:"fileserver_followsymlinks"`
	FileserverIgnoreLinks  bool                `conf:"fileserver_ignoresymlinks"`
	RootsUpdateInterval    time.Duration       `conf:"roots_update_interval"`
	FileBufferSize         int                 `conf:"file_buffer_size"` // bytes
	FileRecv               bool                `conf:"file_recv"`
	FileRecvMaxSize        int                 `conf:"file_recv_max_size"` // MB
	SaltCPChunkSize        int                 `conf:"salt_cp_chunk_size"` // bytes
	GitfsRemotes           []any               `conf:"gitfs_remotes"`
	DisableSaltenvMapping  bool                `conf:"gitfs_disable_saltenv_mapping"`
	MasterRoots            map[string][]string `conf:"master_roots"`
	MasterTops             *msgpack.Map        `conf:"master_tops"`
	MasterTopsFirst        bool                `conf:"master_tops_first"`
	FileserverVerifyConfig bool                `conf:"fileserver_verify_config"`
	FileserverUpdateNice   int                 `conf:"fileserver_update_niceness"`
	HTTPMaxBody            int                 `conf:"http_max_body"` // bytes
	RangeServer            string              `conf:"range_server"`
	ThoriumRoots           map[string][]string `conf:"thorium_roots"`
	CleanDynamicModules    bool                `conf:"clean_dynamic_modules"`
}

// Pillar says how pillars are made.
type Pillar struct {
	PillarRoots             map[string][]string `conf:"pillar_roots"`
	ExtPillar               []any               `conf:"ext_pillar"`
	ExtPillarFirst          bool                `conf:"ext_pillar_first"`
	GitPillarUpdateInterval time.Duration       `conf:"git_pillar_update_interval"`
	OnDemandExtPillar       []string            `conf:"on_demand_ext_pillar"`
	PillarOpts              bool                `conf:"pillar_opts"`
	PillarSafeRenderError   bool                `conf:"pillar_safe_render_error"`
	PillarMergeStrategy     string              `conf:"pillar_source_merging_strategy"`
	PillarMergeLists        bool                `conf:"pillar_merge_lists"`
	PillarIncludesOverride  bool                `conf:"pillar_includes_override_sls"`
	PillarCache             bool                `conf:"pillar_cache"`
	PillarCacheTTL          time.Duration       `conf:"pillar_cache_ttl"`
	PillarEnv               string              `conf:"pillarenv"`
	PillarRaiseOnMissing    bool                `conf:"pillar_raise_on_missing"`
	PillarMaskOutput        bool                `conf:"pillar_mask_output"`
	DecryptPillar           []any               `conf:"decrypt_pillar"`
	DecryptPillarDefault    string              `conf:"decrypt_pillar_default"`
	DecryptPillarDelimiter  string              `conf:"decrypt_pillar_delimiter"`
	DecryptPillarRenderers  []string            `conf:"decrypt_pillar_renderers"`
	PillarenvFromSaltenv    bool                `conf:"pillarenv_from_saltenv"`
}

// States are options that minions ask for and the renderers use.
type States struct {
	TopFileMergingStrategy string       `conf:"top_file_merging_strategy"`
	EnvOrder               []string     `conf:"env_order"`
	DefaultTop             string       `conf:"default_top"`
	SaltEnv                string       `conf:"saltenv"`
	LockSaltEnv            bool         `conf:"lock_saltenv"`
	StateTop               string       `conf:"state_top"`
	StateTopSaltEnv        string       `conf:"state_top_saltenv"`
	StateAutoOrder         bool         `conf:"state_auto_order"`
	StateEvents            bool         `conf:"state_events"`
	StateAggregate         any          `conf:"state_aggregate"`
	StateVerbose           bool         `conf:"state_verbose"`
	StateOutput            string       `conf:"state_output"`
	StateOutputDiff        bool         `conf:"state_output_diff"`
	StateOutputProfile     bool         `conf:"state_output_profile"`
	Renderer               string       `conf:"renderer"`
	RendererWhitelist      []string     `conf:"renderer_whitelist"`
	RendererBlacklist      []string     `conf:"renderer_blacklist"`
	Failhard               bool         `conf:"failhard"`
	JinjaEnv               *msgpack.Map `conf:"jinja_env"`
	JinjaSLSEnv            *msgpack.Map `conf:"jinja_sls_env"`
	JinjaLstripBlocks      bool         `conf:"jinja_lstrip_blocks"`
	JinjaTrimBlocks        bool         `conf:"jinja_trim_blocks"`
	Nodegroups             *msgpack.Map `conf:"nodegroups"`
}

// Access says who may do what.
type Access struct {
	Peer                    *msgpack.Map  `conf:"peer"`
	PeerRun                 *msgpack.Map  `conf:"peer_run"`
	MineGet                 *msgpack.Map  `conf:"mine_get"`
	PublisherACL            *msgpack.Map  `conf:"publisher_acl"`
	PublisherACLBlacklist   *msgpack.Map  `conf:"publisher_acl_blacklist"`
	SudoACL                 bool          `conf:"sudo_acl"`
	ExternalAuth            *msgpack.Map  `conf:"external_auth"`
	TokenExpire             time.Duration `conf:"token_expire"`
	TokenExpireUserOverride any           `conf:"token_expire_user_override"`
	KeepACLInToken          bool          `conf:"keep_acl_in_token"`
	EauthACLModule          string        `conf:"eauth_acl_module"`
	EauthTokens             string        `conf:"eauth_tokens"`
	PermissiveACL           bool          `conf:"permissive_acl"`
	NetapiEnableClients     []string      `conf:"netapi_enable_clients"`
}

// Cluster is the pool of masters that share keys; ID "" means alone.
type Cluster struct {
	ClusterID             string   `conf:"cluster_id"`
	ClusterPeers          []string `conf:"cluster_peers"`
	ClusterPKIDir         string   `conf:"cluster_pki_dir"`
	ClusterPoolPort       int      `conf:"cluster_pool_port"`
	ClusterPubFingerprint string   `conf:"cluster_pub_fingerprint"`
	ClusterSecret         string   `conf:"cluster_secret"`
	ClusterKeyPass        string   `conf:"cluster_key_pass"`
	ClusterIsolatedFS     bool     `conf:"cluster_isolated_filesystem"`
	// ClusterPlainPeers permits Salt's own masters, which speak without TLS.
	ClusterPlainPeers bool `conf:"saltern_cluster_plain_peers"`
	// ClusterSessions is the folder of session keys that Salt's own masters
	// share: sessions in their cachedir. "" means that of this master.
	ClusterSessions string `conf:"saltern_cluster_sessions"`
	// ClusterEmptySecret lets masters join that show no secret.
	ClusterEmptySecret bool `conf:"saltern_cluster_empty_secret"`
	// ClusterJoinTimeout is how long a start may take to join; 0 for a minute.
	ClusterJoinTimeout   time.Duration `conf:"saltern_cluster_join_timeout"`
	TCPMasterPubPort     int           `conf:"tcp_master_pub_port"`
	TCPMasterPullPort    int           `conf:"tcp_master_pull_port"`
	TCPMasterPublishPull int           `conf:"tcp_master_publish_pull"`
	TCPMasterWorkers     int           `conf:"tcp_master_workers"`
}

// Saltern are the options of this master only.
type Saltern struct {
	// ProxyFrom are the networks whose connections may begin with a PROXY
	// header; none by default.
	ProxyFrom []netip.Prefix `conf:"saltern_proxy_from"`
	// FrontPublishPort is the publish port told to minions at sign-in; 0
	// means PublishPort.
	FrontPublishPort int `conf:"saltern_front_publish_port"`
	// JobCacheQuota is how many MiB of returns each minion may put into the
	// job cache per keep_jobs; 0 is the default, negative none.
	JobCacheQuota int `conf:"saltern_job_cache_quota"`
	// Conditions is a file that says what is wrong with the storage, written by
	// the program that watches over the machine; "" means none.
	Conditions string `conf:"saltern_conditions"`
	// RendererPython is the Python that has Salt and runs the renderers.
	RendererPython string `conf:"saltern_renderer_python"`
	// RendererMax is how many renderers may run; 0 lets the master choose.
	RendererMax int `conf:"saltern_renderer_max"`
	// RendererIdle is after how long an idle renderer is stopped; 0 lets the
	// master choose.
	RendererIdle time.Duration `conf:"saltern_renderer_idle"`
}
