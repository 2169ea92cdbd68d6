// Package settings reads appliance.yaml, the one file that describes a node. It reads strictly: an
// unknown key, a wrong type or a value out of range is a fault. It reports all faults at once, with
// file and line.
//
// Every key has a default, see [Default]. A node without a cluster needs no key. The file is *not*
// the master's own configuration: the supervisor generates that from these settings. An
// administrator's Salt options are in <storage>/etc/master.d/*.conf, where no upgrade touches them.
package settings

import (
	"cmp"
	"net/netip"
	"path/filepath"
	"time"

	"saltern/internal/control"
)

// DefaultPath is the default path of the settings.
const DefaultPath = "/etc/saltern/appliance.yaml"

// Settings is the content of appliance.yaml.
type Settings struct {
	// Node is the name of this node: it is the master's id, and the node's name for peers and in
	// the status. Default: the host name.
	Node string `yaml:"node"`
	// Cluster is the cluster's name in status and logs.
	Cluster string `yaml:"cluster"`
	// DataDir holds everything that must survive a restart.
	DataDir string `yaml:"data_dir"`
	// RuntimeDir holds sockets and may be lost at a reboot.
	RuntimeDir string `yaml:"runtime_dir"`

	Front    Front    `yaml:"front"`
	Master   Master   `yaml:"master"`
	Peering  Peering  `yaml:"peering"`
	LB       LB       `yaml:"lb"`
	Storage  Storage  `yaml:"storage"`
	Users    Users    `yaml:"users"`
	Programs Programs `yaml:"programs"`
	Limits   Limits   `yaml:"limits"`
	// AllowInsecure lists options that the appliance refuses unless they are named here: open_mode,
	// auto_accept.
	AllowInsecure []string `yaml:"allow_insecure"`
	Log           Log      `yaml:"log"`
	Metrics       Metrics  `yaml:"metrics"`
	Webhook       Webhook  `yaml:"webhook"`
	API           API      `yaml:"api"`
	Backup        Backup   `yaml:"backup"`
	Upgrade       Upgrade  `yaml:"upgrade"`
	Console       Console  `yaml:"console"`
	// Members lists the nodes of the cluster, including this one. It comes from the table of nodes,
	// never from the file.
	Members []Member `yaml:"-"`
	// Founds reports whether this node's master must create the masters' record, because the
	// cluster has none yet.
	Founds bool `yaml:"-"`
	// Arbiter reports whether this node is its cluster's arbiter, which runs no master and no
	// load balancer. It comes from the table of nodes.
	Arbiter bool `yaml:"-"`
}

// Metrics configures the port for Prometheus. The same port answers /healthz and /readyz.
type Metrics struct {
	// Listen is an IP address with port. Empty: there is no such port.
	Listen string `yaml:"listen"`
}

// Webhook configures the port at which git servers report a push.
type Webhook struct {
	// Listen is an IP address with port. Empty: there is no such port.
	Listen string `yaml:"listen"`
	// SecretFile is the path of a file with the secret that signs these calls. Default:
	// <storage>/etc/webhook.secret.
	SecretFile string `yaml:"secret_file"`
}

// API configures Salt's API over HTTP, which the program salt-api serves. The load balancers
// forward requests from front.api_port to salt-api, unless the master's option rest_cherrypy names
// another host or port. rest_cherrypy also configures salt-api itself.
type API struct {
	// Enabled starts salt-api on this node.
	Enabled bool `yaml:"enabled"`
	// Names are further host names for salt-api's certificate, besides the node's own.
	Names []string `yaml:"names"`
}

// BackupRecord returns the path of the nodes' common record of their scheduled backups.
func (s *Settings) BackupRecord() string {
	if s.Peering.Enabled {
		return filepath.Join(s.SharedNodesDir(), "backup.json")
	}
	return filepath.Join(s.DataDir, "backup.json")
}

// APIDir returns the folder of this node's certificate for Salt's API, and of its authority's
// certificate.
func (s *Settings) APIDir() string { return filepath.Join(s.DataDir, "etc", "api") }

// APICert returns the path of the certificate with its key.
func (s *Settings) APICert() string { return filepath.Join(s.APIDir(), "server.pem") }

// APIAuthority returns the path of the authority's certificate, which programs that use the API
// must trust.
func (s *Settings) APIAuthority() string { return filepath.Join(s.APIDir(), "ca.pem") }

// SharedAPIAuthority returns the path of the cluster's authority with its key, on the shared
// storage.
func (s *Settings) SharedAPIAuthority() string {
	return filepath.Join(s.SharedNodesDir(), "api-authority.pem")
}

// WebhookSecret returns the path of the file with the secret of web hooks.
func (s *Settings) WebhookSecret() string {
	return cmp.Or(s.Webhook.SecretFile, filepath.Join(s.StorageDir(), "etc/webhook.secret"))
}

// Member describes a node of the cluster.
type Member struct {
	Name, Address string
	Draining      bool // the node gets no new minions
}

// Front holds the addresses and ports for minions, at which the load balancer listens.
type Front struct {
	Addresses   []string `yaml:"addresses"`    // IP addresses without port
	PublishPort int      `yaml:"publish_port"` // default 4505
	RequestPort int      `yaml:"request_port"` // default 4506
	APIPort     int      `yaml:"api_port"`     // default 8000; 0: salt-api itself listens at the front
}

// Master holds the addresses of this node's master, and further Salt options.
type Master struct {
	Address     string         `yaml:"address"`
	PublishPort int            `yaml:"publish_port"` // default 14505
	RequestPort int            `yaml:"request_port"` // default 14506
	APIPort     int            `yaml:"api_port"`     // default 14507; salt-api's own port, behind the load balancers
	Options     map[string]any `yaml:"options"`      // Salt's master options, which follow the generated options
}

// Peering makes this node part of a cluster. The set-up writes it. The other nodes are named in the
// table of nodes, not here.
type Peering struct {
	Enabled bool `yaml:"enabled"`
	// Address is this node's address for the other nodes. master.address must be the same.
	Address string `yaml:"address"`
	// NodePort is the port of the node API (default 4521), PoolPort the port of the masters' pool
	// (default 4520). Both must be the same on all nodes.
	NodePort int `yaml:"node_port"`
	PoolPort int `yaml:"pool_port"`
}

// LB configures the load balancer of this node.
type LB struct {
	// Enabled starts the load balancer. Without it, minions must connect to the master itself.
	Enabled bool `yaml:"enabled"`
	// ProxyProtocol sends the true address of a minion to the masters (PROXY v2).
	ProxyProtocol bool `yaml:"proxy_protocol"`
	// Balance says how the publish port distributes minions: leastconn or roundrobin.
	Balance string `yaml:"balance"`
}

// Storage says where keys, files and pillars are kept.
type Storage struct {
	Kind string `yaml:"kind"` // local, directory, volume
	// Path is the directory, or the mount point of the volume. Default: <data_dir>/cluster, and for
	// a volume /srv/cluster.
	Path string `yaml:"path"`
	// Volume is the name of the shared volume. Bricks is the directory for this node's copy of the
	// volume, which must not be on the root file system. The default of Bricks is
	// <data_dir>/bricks.
	Volume string `yaml:"volume"`
	Bricks string `yaml:"bricks"`
	// TwoCopies permits two nodes to hold two copies without an arbiter. The volume then stops when
	// the first of these nodes is lost.
	TwoCopies bool `yaml:"two_copies"`
	// TLS encrypts the connections of a volume that is created from now on. Every client must then
	// have a certificate of the cluster's own authority.
	TLS bool `yaml:"tls"`
}

// Values of Storage.Kind.
const (
	LocalStorage     = "local"     // a directory of this node alone
	DirectoryStorage = "directory" // a directory that the administrator shares between the nodes
	VolumeStorage    = "volume"    // the shared volume of the cluster
)

// Users names the accounts of the children. It takes effect if the supervisor is root and the
// account exists.
type Users struct {
	Master string `yaml:"master"`
	LB     string `yaml:"lb"`
	// Admin is the group that may use the local API besides root.
	Admin string `yaml:"admin_group"`
}

// Programs names the programs of the children. By default they are in the folder of the
// supervisor's own executable.
type Programs struct {
	Master string `yaml:"master"`
	LB     string `yaml:"lb"` // default: the supervisor's own executable
}

// Limits holds the thresholds at which the status reports a problem, and limits of the children.
type Limits struct {
	DiskLowPercent float64 `yaml:"disk_low_percent"` // free space, in percent, below which the status warns
	// DiskFullPercent is the free space, in percent, below which the node cannot serve.
	DiskFullPercent float64       `yaml:"disk_full_percent"`
	StopTimeout     time.Duration `yaml:"stop_timeout"` // how long one child may take to stop
	// MasterMemory limits the memory of the master with its renderers, LBMemory that of the load
	// balancer, in percent of the machine's memory. 0: no limit. Both take effect only if systemd
	// runs the supervisor.
	MasterMemory int `yaml:"master_memory"`
	LBMemory     int `yaml:"lb_memory"`
}

// Console configures the page on the machine's own screen and serial line.
type Console struct {
	// Login requires the administrator to log in before a restart, a shutdown, a change of the
	// network or a support bundle.
	Login bool `yaml:"login"`
}

// Log configures the log of the supervisor.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error; the master and the load balancer have the same level
	Format string `yaml:"format"` // text or json
}

// defaultStopTimeout is how long a child may take to stop. A master of a cluster hands over in that time.
const defaultStopTimeout = 20 * time.Second

// Default returns the settings of a node without a file. hostname becomes the node's name.
func Default(hostname string) Settings {
	return Settings{
		Node:       hostname,
		Cluster:    "saltern",
		DataDir:    "/var/lib/saltern",
		RuntimeDir: "/run/saltern",
		Front:      Front{Addresses: []string{"0.0.0.0"}, PublishPort: 4505, RequestPort: 4506, APIPort: 8000},
		Master:     Master{Address: "127.0.0.1", PublishPort: 14505, RequestPort: 14506, APIPort: 14507},
		Peering:    Peering{NodePort: 4521, PoolPort: 4520},
		LB:         LB{Enabled: true, ProxyProtocol: true, Balance: "leastconn"},
		Storage:    Storage{Kind: LocalStorage, Volume: "cluster"},
		Users:      Users{Master: "saltern-master", LB: "saltern-lb", Admin: "saltern"},
		Limits: Limits{
			DiskLowPercent:  10,
			DiskFullPercent: 2,
			StopTimeout:     defaultStopTimeout,
			MasterMemory:    75,
			LBMemory:        40,
		},
		Log:     Log{Level: "info", Format: "text"},
		Metrics: Metrics{Listen: "127.0.0.1:4522"},
		Backup:  Backup{Keep: 14},
	}
}

// The paths inside a node follow from the settings. They cannot be configured one by one.

// StorageDir returns the root directory of the data that the nodes of a cluster share.
func (s *Settings) StorageDir() string { return s.Storage.Path }

// OnVolume reports whether keys, files and pillars are on the shared volume.
func (s *Settings) OnVolume() bool { return s.Storage.Kind == VolumeStorage }

// PKIDir returns the folder of the master's own keys. On a node without a cluster the minions' keys
// are there too; see SharedPKIDir.
func (s *Settings) PKIDir() string {
	if s.Peering.Enabled {
		return filepath.Join(s.DataDir, "pki") // on this node's disk: the volume may hang
	}
	return s.SharedPKIDir()
}

// SharedPKIDir returns the folder of the minions' keys and the cluster's key.
func (s *Settings) SharedPKIDir() string { return filepath.Join(s.Storage.Path, "pki") }

// ClusterRecord returns the path of the masters' record of their cluster: its members, and the keys
// and secrets that they share (master/cluster/node.Record). Every string at the top level of the
// record is secret.
func (s *Settings) ClusterRecord() string { return filepath.Join(s.SharedPKIDir(), control.RecordFile) }

// MirrorDir returns the folder of this node's copy of the volume's files for minions.
func (s *Settings) MirrorDir() string { return filepath.Join(s.DataDir, "mirror") }

// served returns the folder from which the master reads the administrator's files in the storage.
// If the storage is a volume, the folder is this node's copy.
func (s *Settings) served() string {
	if s.OnVolume() {
		return s.MirrorDir()
	}
	return s.Storage.Path
}

// FileRoot returns the base environment's file root, as the master reads it.
func (s *Settings) FileRoot() string { return filepath.Join(s.served(), "srv", "salt") }

// PillarRoot returns the base environment's pillar root, as the master reads it.
func (s *Settings) PillarRoot() string { return filepath.Join(s.served(), "srv", "pillar") }

// UserConfDir returns the folder from which the master reads the administrator's own options,
// *.conf. Administrators edit these files in EditConfDir.
func (s *Settings) UserConfDir() string { return filepath.Join(s.served(), "etc", "master.d") }

// EditConfDir returns the folder in which an administrator writes master options.
func (s *Settings) EditConfDir() string { return filepath.Join(s.Storage.Path, "etc", "master.d") }

// GPGDir returns the keyring from which the master decrypts secrets in pillars. It may be a copy of
// the shared keyring, so keys are imported into SharedGPGDir.
func (s *Settings) GPGDir() string { return filepath.Join(s.served(), "etc", "gpgkeys") }

// SharedGPGDir returns the keyring on the storage.
func (s *Settings) SharedGPGDir() string { return filepath.Join(s.Storage.Path, "etc", "gpgkeys") }

// PythonDir returns the folder from which this node reads the cluster's Python packages. Changes
// are made in SharedPythonDir.
func (s *Settings) PythonDir() string { return filepath.Join(s.served(), "etc", "python") }

// SharedPythonDir returns the folder of the Python packages on the storage.
func (s *Settings) SharedPythonDir() string { return filepath.Join(s.Storage.Path, "etc", "python") }

// LayersDir returns the folder of the packages that this node's Python imports.
func (s *Settings) LayersDir() string { return filepath.Join(s.DataDir, "python") }

// MasterConf returns the folder of the master's generated configuration.
func (s *Settings) MasterConf() string { return filepath.Join(s.DataDir, "etc", "salt") }

// LBConf returns the path of the load balancer's generated configuration.
func (s *Settings) LBConf() string { return filepath.Join(s.DataDir, "etc", "lb.yaml") }

// NodeDir returns the folder of the files that make this node a member of its cluster: its own key,
// the table of nodes, the cluster's secret. Its mode is 0700.
func (s *Settings) NodeDir() string { return filepath.Join(s.DataDir, "node") }

// SharedNodesDir returns the folder of the table of nodes on the shared storage.
func (s *Settings) SharedNodesDir() string { return filepath.Join(s.Storage.Path, "nodes") }

// ClusterConf returns the path of the part of the master's generated configuration that holds the
// cluster's secret.
func (s *Settings) ClusterConf() string { return filepath.Join(s.DataDir, "etc", "cluster.conf") }

// NodeAddress returns the address and port at which the node API listens.
func (s *Settings) NodeAddress() string { return joinHostPort(s.Peering.Address, s.Peering.NodePort) }

// CacheDir returns the master's cachedir, which only this node uses.
func (s *Settings) CacheDir() string { return filepath.Join(s.DataDir, "cache") }

// LogDir returns the folder of the children's output.
func (s *Settings) LogDir() string { return filepath.Join(s.DataDir, "log") }

// AuditDir returns the folder of the audit record of actions through the supervisor and its command
// line. The record of actions through the master is in the master's cachedir.
func (s *Settings) AuditDir() string { return filepath.Join(s.LogDir(), "audit") }

// MasterSockDir returns the master's sock_dir.
func (s *Settings) MasterSockDir() string { return filepath.Join(s.RuntimeDir, "master") }

// ConditionsFile returns the path of the file from which the master reads the faults of the
// storage.
func (s *Settings) ConditionsFile() string { return filepath.Join(s.RuntimeDir, "conditions.json") }

// LBSocket returns the path of the load balancer's admin socket.
func (s *Settings) LBSocket() string { return filepath.Join(s.RuntimeDir, "lb", "admin.sock") }

// DoorSocket returns the path of the socket at which the master's account may ask the supervisor
// for a few actions.
func (s *Settings) DoorSocket() string { return filepath.Join(s.RuntimeDir, "door.sock") }

// APISocket returns the path of the socket of the supervisor's local API.
func (s *Settings) APISocket() string { return filepath.Join(s.RuntimeDir, "applianced.sock") }

// MasterRequest returns the address of this node's master for requests, which minions send to the
// front's request port.
func (s *Settings) MasterRequest() string {
	return joinHostPort(s.Master.Address, s.Master.RequestPort)
}

// MasterPublish returns the address of this node's master for subscribers.
func (s *Settings) MasterPublish() string {
	return joinHostPort(s.Master.Address, s.Master.PublishPort)
}

// FrontRequest returns the addresses at which the front listens for requests.
func (s *Settings) FrontRequest() []string { return s.frontAddresses(s.Front.RequestPort) }

// FrontPublish returns the addresses at which the front listens for subscribers.
func (s *Settings) FrontPublish() []string { return s.frontAddresses(s.Front.PublishPort) }

// APIBehind reports whether the load balancers forward requests to this node's salt-api.
func (s *Settings) APIBehind() bool { return s.API.Enabled && s.LB.Enabled && s.Front.APIPort != 0 }

// FrontAPI returns the addresses at which the front listens for Salt's API.
func (s *Settings) FrontAPI() []string { return s.frontAddresses(s.Front.APIPort) }

// MasterAPI returns the address of this node's salt-api for the load balancers.
func (s *Settings) MasterAPI() string { return joinHostPort(s.Master.Address, s.Master.APIPort) }

// APIBalancers returns the path of the file that tells salt-api the addresses of the load
// balancers.
func (s *Settings) APIBalancers() string { return filepath.Join(s.APIDir(), "balancers") }

// APIMinionConf returns the path of the file with lines for minions, which salt-api serves to
// everybody.
func (s *Settings) APIMinionConf() string { return filepath.Join(s.APIDir(), "minion.conf") }

func (s *Settings) frontAddresses(port int) (out []string) {
	for _, a := range s.Front.Addresses {
		out = append(out, joinHostPort(a, port))
	}
	return out
}

func joinHostPort(address string, port int) string {
	ip, err := netip.ParseAddr(address)
	if err != nil { // Parse has checked the address
		return ""
	}
	return netip.AddrPortFrom(ip, uint16(port)).String()
}
