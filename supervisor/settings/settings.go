// Package settings reads appliance.yaml, the one file that describes a node. It reads strictly:
// an unknown key, a wrong type or a value out of range is a fault, and it reports all faults at
// once with file and line.
//
// Every key has a default, see [Default]. A node that is alone needs none of them. The file is
// *not* the master's own configuration. The supervisor generates that from these settings, and an
// administrator's Salt options live in <storage>/etc/master.d/*.conf, where no upgrade touches
// them.
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
	// Node is the identity of this node: one string for the master's id, the
	// peers and the status. Default: the host name.
	Node string `yaml:"node"`
	// Cluster names the cluster in status and logs.
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
	// AllowInsecure lists options that the appliance refuses otherwise:
	// open_mode, auto_accept.
	AllowInsecure []string `yaml:"allow_insecure"`
	Log           Log      `yaml:"log"`
	Metrics       Metrics  `yaml:"metrics"`
	Webhook       Webhook  `yaml:"webhook"`
	API           API      `yaml:"api"`
	Backup        Backup   `yaml:"backup"`
	Upgrade       Upgrade  `yaml:"upgrade"`
	Console       Console  `yaml:"console"`
	// Members are the nodes of the cluster, this one among them. They come from
	// the table of nodes, never from the file.
	Members []Member `yaml:"-"`
	// Founds reports whether the masters of the cluster have no record of it yet, so that this
	// node's master creates it.
	Founds bool `yaml:"-"`
	// Arbiter reports whether this node is its cluster's arbiter, which runs no master and no
	// load balancer. It comes from the table of nodes.
	Arbiter bool `yaml:"-"`
}

// Metrics are for Prometheus; the same port answers /healthz and /readyz.
type Metrics struct {
	// Listen is an IP address with port; empty: none.
	Listen string `yaml:"listen"`
}

// Webhook takes the calls of git servers after a push.
type Webhook struct {
	// Listen is an IP address with port; empty: none.
	Listen string `yaml:"listen"`
	// SecretFile holds the secret with which calls are signed; default
	// <storage>/etc/webhook.secret.
	SecretFile string `yaml:"secret_file"`
}

// API is Salt's API over HTTP, by the program salt-api. The load balancers lead to it
// from front.api_port, unless the master's option rest_cherrypy, which says what it
// does, names another host or port.
type API struct {
	// Enabled has this node serve it.
	Enabled bool `yaml:"enabled"`
	// Names are host names besides the node's own that its certificate is for.
	Names []string `yaml:"names"`
}

// BackupRecord returns the path of the nodes' common record of their scheduled backups.
func (s *Settings) BackupRecord() string {
	if s.Peering.Enabled {
		return filepath.Join(s.SharedNodesDir(), "backup.json")
	}
	return filepath.Join(s.DataDir, "backup.json")
}

// APIDir holds this node's certificate for Salt's API, and that of who signed it.
func (s *Settings) APIDir() string { return filepath.Join(s.DataDir, "etc", "api") }

// APICert is the certificate with its key.
func (s *Settings) APICert() string { return filepath.Join(s.APIDir(), "server.pem") }

// APIAuthority is the certificate that programs which use the API trust.
func (s *Settings) APIAuthority() string { return filepath.Join(s.APIDir(), "ca.pem") }

// SharedAPIAuthority is the cluster's authority with its key, on the storage.
func (s *Settings) SharedAPIAuthority() string {
	return filepath.Join(s.SharedNodesDir(), "api-authority.pem")
}

// WebhookSecret is the path of the file with the secret of web hooks.
func (s *Settings) WebhookSecret() string {
	return cmp.Or(s.Webhook.SecretFile, filepath.Join(s.StorageDir(), "etc/webhook.secret"))
}

// Member is a node of the cluster.
type Member struct {
	Name, Address string
	Draining      bool // gets no new minions
}

// Front has the addresses and ports for minions. The load balancer listens there.
type Front struct {
	Addresses   []string `yaml:"addresses"`    // IP addresses without port
	PublishPort int      `yaml:"publish_port"` // 4505
	RequestPort int      `yaml:"request_port"` // 4506
	APIPort     int      `yaml:"api_port"`     // 8000; 0: salt-api listens there itself
}

// Master has the addresses of this node's master, and extra Salt options.
type Master struct {
	Address     string         `yaml:"address"`
	PublishPort int            `yaml:"publish_port"` // 14505
	RequestPort int            `yaml:"request_port"` // 14506
	APIPort     int            `yaml:"api_port"`     // 14507, of salt-api behind the load balancers
	Options     map[string]any `yaml:"options"`      // Salt's master options, written after ours
}

// Peering makes this node part of a cluster. The set-up writes it; who else is
// in the cluster is in the table of nodes, not here.
type Peering struct {
	Enabled bool `yaml:"enabled"`
	// Address is this node's address for the other nodes; master.address must
	// be the same.
	Address string `yaml:"address"`
	// NodePort is the port of the node API (4521), PoolPort that of the masters' pool (4520).
	// They are the same on all nodes.
	NodePort int `yaml:"node_port"`
	PoolPort int `yaml:"pool_port"`
}

// LB tunes the load balancer of this node.
type LB struct {
	// Enabled false leaves it out; minions must then reach the master itself.
	Enabled bool `yaml:"enabled"`
	// ProxyProtocol sends the true address of a minion to the masters (PROXY v2).
	ProxyProtocol bool `yaml:"proxy_protocol"`
	// Balance of the publish port: leastconn or roundrobin.
	Balance string `yaml:"balance"`
}

// Storage says where keys, files and pillars are kept.
type Storage struct {
	Kind string `yaml:"kind"` // local, directory, volume
	// Path is the directory itself; default <data_dir>/cluster, and for a
	// volume, where it is mounted, /srv/cluster.
	Path string `yaml:"path"`
	// Volume is the name of the shared volume. Bricks is the directory for this
	// node's copy of it, on a file system that is not the root; default
	// <data_dir>/bricks.
	Volume string `yaml:"volume"`
	Bricks string `yaml:"bricks"`
	// TwoCopies allows two nodes to hold two copies without an arbiter. The volume then stops
	// with the first of them.
	TwoCopies bool `yaml:"two_copies"`
	// TLS encrypts the connections of a volume that is formed from now on, and
	// wants a certificate of the cluster's own from whoever uses it.
	TLS bool `yaml:"tls"`
}

// The kinds of storage.
const (
	LocalStorage     = "local"     // a directory of this node alone
	DirectoryStorage = "directory" // one that the administrator shares between the nodes
	VolumeStorage    = "volume"    // the shared volume of the cluster
)

// Users are the accounts the children run as when the supervisor is root and
// the account exists.
type Users struct {
	Master string `yaml:"master"`
	LB     string `yaml:"lb"`
	// Admin is the group that may use the local API beside root.
	Admin string `yaml:"admin_group"`
}

// Programs are looked for beside the supervisor's own executable by default.
type Programs struct {
	Master string `yaml:"master"`
	LB     string `yaml:"lb"` // default: the supervisor's own executable
}

// Limits are the marks at which status complains.
type Limits struct {
	DiskLowPercent  float64       `yaml:"disk_low_percent"`  // free space under which a warning is shown
	DiskFullPercent float64       `yaml:"disk_full_percent"` // free space under which the node is not fit
	StopTimeout     time.Duration `yaml:"stop_timeout"`      // for one child
	// MasterMemory and LBMemory bound the memory of the master with its renderers, and of the
	// load balancer, in percent of the machine's. 0 means no bound. They hold where systemd runs
	// the supervisor.
	MasterMemory int `yaml:"master_memory"`
	LBMemory     int `yaml:"lb_memory"`
}

// Console is the page on the machine's own screen and serial line.
type Console struct {
	// Login wants the administrator's login before a restart, a shutdown, a
	// change of the network or a support bundle.
	Login bool `yaml:"login"`
}

// Log of the supervisor and, in memory and on disk, of its children.
type Log struct {
	Level  string `yaml:"level"`  // debug, info, warn, error
	Format string `yaml:"format"` // text or json
}

// Default returns the settings of a node without a file. hostname is used for the node's
// identity.
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
			StopTimeout:     20 * time.Second,
			MasterMemory:    75,
			LBMemory:        40,
		},
		Log:     Log{Level: "info", Format: "text"},
		Metrics: Metrics{Listen: "127.0.0.1:4522"},
		Backup:  Backup{Keep: 14},
	}
}

// The paths inside a node follow from the settings and are not configured one
// by one.

// StorageDir is the root of what is shared by a cluster's nodes.
func (s *Settings) StorageDir() string { return s.Storage.Path }

// OnVolume reports whether keys, files and pillars are on the shared volume.
func (s *Settings) OnVolume() bool { return s.Storage.Kind == VolumeStorage }

// PKIDir holds the master's own keys, and the minions' as well unless they are
// shared; see SharedPKIDir.
func (s *Settings) PKIDir() string {
	if s.Peering.Enabled {
		return filepath.Join(s.DataDir, "pki") // each master's own; has to be there while the volume hangs
	}
	return s.SharedPKIDir()
}

// SharedPKIDir holds the minions' keys and the cluster's.
func (s *Settings) SharedPKIDir() string { return filepath.Join(s.Storage.Path, "pki") }

// ClusterRecord is the masters' record of their cluster: members, and the keys
// and secrets that they have together (master/cluster/node.Record). Strings at
// its top level are secret, all of them.
func (s *Settings) ClusterRecord() string { return filepath.Join(s.SharedPKIDir(), control.RecordFile) }

// MirrorDir is this node's copy of what the volume holds for minions.
func (s *Settings) MirrorDir() string { return filepath.Join(s.DataDir, "mirror") }

// served is where the master reads what an administrator writes into the
// storage: for a volume this node's copy of it.
func (s *Settings) served() string {
	if s.OnVolume() {
		return s.MirrorDir()
	}
	return s.Storage.Path
}

// FileRoot is the base environment's file root, as the master reads it.
func (s *Settings) FileRoot() string { return filepath.Join(s.served(), "srv", "salt") }

// PillarRoot is the base environment's pillar root, as the master reads it.
func (s *Settings) PillarRoot() string { return filepath.Join(s.served(), "srv", "pillar") }

// UserConfDir holds the administrator's own master options, *.conf, as the
// master reads them; they are written in EditConfDir.
func (s *Settings) UserConfDir() string { return filepath.Join(s.served(), "etc", "master.d") }

// EditConfDir is where an administrator writes master options.
func (s *Settings) EditConfDir() string { return filepath.Join(s.Storage.Path, "etc", "master.d") }

// GPGDir is the keyring of gpg that opens secrets in pillars, as the master reads
// it; keys are imported into SharedGPGDir.
func (s *Settings) GPGDir() string { return filepath.Join(s.served(), "etc", "gpgkeys") }

// SharedGPGDir is the keyring on the storage.
func (s *Settings) SharedGPGDir() string { return filepath.Join(s.Storage.Path, "etc", "gpgkeys") }

// PythonDir holds the Python packages of the cluster, as this node reads them; they
// are changed in SharedPythonDir.
func (s *Settings) PythonDir() string { return filepath.Join(s.served(), "etc", "python") }

// SharedPythonDir holds the Python packages on the storage.
func (s *Settings) SharedPythonDir() string { return filepath.Join(s.Storage.Path, "etc", "python") }

// LayersDir holds the packages as this node's Python imports them.
func (s *Settings) LayersDir() string { return filepath.Join(s.DataDir, "python") }

// MasterConf is the generated configuration directory of the master.
func (s *Settings) MasterConf() string { return filepath.Join(s.DataDir, "etc", "salt") }

// LBConf is the generated configuration file of the load balancer.
func (s *Settings) LBConf() string { return filepath.Join(s.DataDir, "etc", "lb.yaml") }

// NodeDir holds what makes this node a member of its cluster: its own key, the
// table of nodes, the cluster's secret. Mode 0700.
func (s *Settings) NodeDir() string { return filepath.Join(s.DataDir, "node") }

// SharedNodesDir holds the table of nodes on the shared storage.
func (s *Settings) SharedNodesDir() string { return filepath.Join(s.Storage.Path, "nodes") }

// ClusterConf is the part of the master's generated configuration that holds
// the cluster's secret.
func (s *Settings) ClusterConf() string { return filepath.Join(s.DataDir, "etc", "cluster.conf") }

// NodeAddress is where the node API listens.
func (s *Settings) NodeAddress() string { return joinHostPort(s.Peering.Address, s.Peering.NodePort) }

// CacheDir is the master's cachedir; it is this node's alone.
func (s *Settings) CacheDir() string { return filepath.Join(s.DataDir, "cache") }

// LogDir holds what the children wrote.
func (s *Settings) LogDir() string { return filepath.Join(s.DataDir, "log") }

// AuditDir holds the audit record of acts through the supervisor and its command line. The record
// of acts through the master is in its cachedir.
func (s *Settings) AuditDir() string { return filepath.Join(s.LogDir(), "audit") }

// MasterSockDir is the master's sock_dir.
func (s *Settings) MasterSockDir() string { return filepath.Join(s.RuntimeDir, "master") }

// ConditionsFile is the file from which the master learns what is wrong with the storage.
func (s *Settings) ConditionsFile() string { return filepath.Join(s.RuntimeDir, "conditions.json") }

// LBSocket is the load balancer's admin socket.
func (s *Settings) LBSocket() string { return filepath.Join(s.RuntimeDir, "lb", "admin.sock") }

// DoorSocket is the socket on which the master's account may ask the supervisor for a few
// actions.
func (s *Settings) DoorSocket() string { return filepath.Join(s.RuntimeDir, "door.sock") }

// APISocket is the supervisor's local API.
func (s *Settings) APISocket() string { return filepath.Join(s.RuntimeDir, "applianced.sock") }

// MasterRequest is the address of this node's master for requests (4506's
// duty behind the load balancer).
func (s *Settings) MasterRequest() string {
	return joinHostPort(s.Master.Address, s.Master.RequestPort)
}

// MasterPublish is the address of this node's master for subscribers.
func (s *Settings) MasterPublish() string {
	return joinHostPort(s.Master.Address, s.Master.PublishPort)
}

// FrontRequest and FrontPublish are the front's listening addresses.
func (s *Settings) FrontRequest() []string { return s.frontAddresses(s.Front.RequestPort) }

// FrontPublish is the counterpart of FrontRequest for subscribers.
func (s *Settings) FrontPublish() []string { return s.frontAddresses(s.Front.PublishPort) }

// APIBehind reports whether the load balancers lead to this node's salt-api.
func (s *Settings) APIBehind() bool { return s.API.Enabled && s.LB.Enabled && s.Front.APIPort != 0 }

// FrontAPI is the counterpart of FrontRequest for Salt's API.
func (s *Settings) FrontAPI() []string { return s.frontAddresses(s.Front.APIPort) }

// MasterAPI is the address of this node's salt-api for the load balancers.
func (s *Settings) MasterAPI() string { return joinHostPort(s.Master.Address, s.Master.APIPort) }

// APIBalancers is the file with the addresses of the load balancers, for salt-api.
func (s *Settings) APIBalancers() string { return filepath.Join(s.APIDir(), "balancers") }

// APIMinionConf is the file with the lines for minions, which salt-api serves to everybody.
func (s *Settings) APIMinionConf() string { return filepath.Join(s.APIDir(), "minion.conf") }

func (s *Settings) frontAddresses(port int) (out []string) {
	for _, a := range s.Front.Addresses {
		out = append(out, joinHostPort(a, port))
	}
	return out
}

func joinHostPort(address string, port int) string {
	ip, err := netip.ParseAddr(address)
	if err != nil { // validated before
		return ""
	}
	return netip.AddrPortFrom(ip, uint16(port)).String()
}
