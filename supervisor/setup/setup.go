// Package setup takes a machine from nothing to a serving node. Answers are
// what a person or user-data says; they are validated and checked against the
// world (preflight) before anything is changed, and then carried out step by
// step. Where it stands is kept on disk, so that a power cut at any point is
// followed by going on, and told in the words of the status.
package setup

import (
	"time"

	"saltern/supervisor/status"
)

// Mode says what the machine becomes.
type Mode string

// The modes.
const (
	Form Mode = "form" // the first node of a new cluster
	Join Mode = "join" // a node of a cluster that exists
	// JoinAsArbiter stands for Join with the storage's role [RoleArbiter];
	// [Validate] replaces it.
	JoinAsArbiter Mode = "arbiter"
)

// Answers are everything that the set-up needs to know. The same type is
// filled by the wizard, by user-data and by a file; keys are the YAML names.
// A zero value means "not said": the default is taken where there is one.
type Answers struct {
	Mode    Mode   `yaml:"mode" json:"mode"`
	Cluster string `yaml:"cluster_id" json:"cluster_id"`
	// Node is the name of this machine; default: [NodeName].
	Node string `yaml:"node" json:"node"`
	// Address is the IP address for peers; default: that of the
	// default route, else the only one.
	Address string `yaml:"address" json:"address"`
	// Front are the addresses for minions; default: all of the machine.
	Front []string `yaml:"front" json:"front,omitempty"`
	// Peers are nodes to join through: addresses or names, one is enough.
	Peers []string `yaml:"peers" json:"peers,omitempty"`
	// Secret of the cluster. Forming without one makes one.
	Secret string `yaml:"secret" json:"secret,omitempty"`
	// JoinString is "sca2.HASH.SECRET@HOST,HOST" and stands for Peers, Secret
	// and the cluster's proof.
	JoinString string `yaml:"join" json:"join,omitempty"`
	// DataDisk is a block device for the shared volume's copy, or AutoDisk;
	// empty: a directory on the state partition.
	DataDisk string `yaml:"data_disk" json:"data_disk,omitempty"`
	// EraseDisk allows a data disk that is not empty to be formatted.
	EraseDisk bool `yaml:"erase_data_disk" json:"erase_data_disk,omitempty"`
	// Storage says where keys and files are shared; empty: a volume on the
	// nodes' own disks where that is possible, else a local directory.
	Storage Storage `yaml:"storage" json:"storage"`
	// Virtual is an address that moves between the nodes, for minions. The first
	// node says it; one that joins learns it.
	Virtual string `yaml:"virtual_address" json:"virtual_address,omitempty"`
	// API has this node serve Salt's API over HTTP.
	API     bool    `yaml:"api" json:"api,omitempty"`
	Network Network `yaml:"network" json:"network"`
	Admin   Admin   `yaml:"admin" json:"admin"`
	// Settings are further keys of appliance.yaml, as they stand there.
	Settings Tree `yaml:"settings" json:"settings,omitempty"`
}

// Storage is where the nodes of a cluster share keys and files.
type Storage struct {
	// Kind is volume (copies on the nodes), directory (one that the
	// administrator shares himself, for example by NFS) or local (this machine
	// alone: no other node can join).
	Kind string `yaml:"kind" json:"kind,omitempty"`
	// Path of the directory; default for the other kinds: below the data
	// directory.
	Path string `yaml:"path" json:"path,omitempty"`
	// TLS encrypts the connections of a new cluster's volume; nil: yes. A node
	// that joins does as its cluster.
	TLS *bool `yaml:"tls" json:"tls,omitempty"`
	// Role of a machine that joins a cluster with a volume: [RoleData], the default,
	// or [RoleArbiter].
	Role string `yaml:"role" json:"role,omitempty"`
}

// Network is the machine's own configuration; a zero value leaves it alone.
type Network struct {
	Interface string   `yaml:"interface" json:"interface,omitempty"`
	Method    string   `yaml:"method" json:"method,omitempty"`   // dhcp, static, or empty: as it is
	Address   string   `yaml:"address" json:"address,omitempty"` // with prefix length, for static
	Gateway   string   `yaml:"gateway" json:"gateway,omitempty"`
	DNS       []string `yaml:"dns" json:"dns,omitempty"`
	Search    []string `yaml:"search" json:"search,omitempty"` // domains for names without dots
	NTP       []string `yaml:"ntp" json:"ntp,omitempty"`
	Hostname  string   `yaml:"hostname" json:"hostname,omitempty"`
}

// Admin is how the administrator gets in.
type Admin struct {
	SSHKeys []string `yaml:"ssh_keys" json:"ssh_keys,omitempty"`
	// Password of the account admin, in clear text; it is kept as a hash only.
	Password string `yaml:"password" json:"password,omitempty"`
}

// Fault is one wrong answer. Field is the YAML name of the answer, with a dot
// for nested ones ("network.address"), so that a form can show it in place.
type Fault struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Validation is what is thought of answers before anything is tried.
type Validation struct {
	// Answers are completed: defaults are filled in, a join string is taken
	// apart. A secret that would be made is still empty.
	Answers Answers `json:"answers"`
	// Faults is empty when the set-up could start with these answers.
	Faults []Fault `json:"faults"`
}

// Claim says which wizard leads: the first that is typed at owns the set-up,
// others follow. An owner renews its claim every few seconds and loses it after
// ClaimLasts.
type Claim struct {
	Mine  bool      `json:"mine"`  // this wizard leads, or may begin to
	Owner string    `json:"owner"` // how the owner called itself: "tty1"; empty: nobody leads
	Since time.Time `json:"since"`
	// Draft is what the one before has answered, for who has taken over just now; nil:
	// nothing. Secrets are not in it.
	Draft Draft `json:"draft,omitempty"`
}

// ClaimRequest is what a wizard asks for.
type ClaimRequest struct {
	Name string `json:"name"` // how it calls itself: "tty1"
	Lead Lead   `json:"lead"`
	// Draft is what was answered there, from the one that leads; nil: as before.
	Draft Draft `json:"draft,omitempty"`
}

// Draft is what was answered so far, by names that only the wizard knows. It goes from
// one wizard to another by the memory of the supervisor; the wizard leaves secrets out.
type Draft map[string]string

// maxDraft bounds a draft in bytes; a larger one is not kept.
const maxDraft = 32 << 10

// fits reports whether a draft is small enough to be kept.
func (d Draft) fits() bool {
	size := 0
	for name, value := range d {
		size += len(name) + len(value) + 8
	}
	return size <= maxDraft
}

// Lead says what a wizard asks for.
type Lead string

// What a wizard may ask for.
const (
	Watch Lead = ""      // who leads; the leader's own claim is renewed
	Begin Lead = "begin" // to lead, if nobody does
	Take  Lead = "take"  // to lead, whoever does
)

// claimLasts is how long a claim holds without being renewed.
const claimLasts = 15 * time.Second

// TrialLasts is how long a new network configuration is tried before it is
// taken back, unless it is confirmed.
const TrialLasts = 60 * time.Second

// Trial is a network configuration that is being tried.
type Trial struct {
	Active    bool      `json:"active"`
	Until     time.Time `json:"until"`     // taken back then
	Addresses []string  `json:"addresses"` // what the interface has now
	Message   string    `json:"message,omitempty"`
	// Reach is what of the network answers; nil: it has not been looked at yet.
	Reach []Reach `json:"reach,omitempty"`
}

// Check is one line of the preflight.
type Check struct {
	Name   string `json:"name"` // clock, name, address, port, mtu, version, disk, cluster, memory, virtual
	What   string `json:"what"` // what was looked at: "port 4521/tcp of 10.0.0.2"
	Result Result `json:"result"`
	Detail string `json:"detail,omitempty"` // what was seen
	Hint   string `json:"hint,omitempty"`   // what to check, for warn and fail

	passing bool // a failure that may go away by itself: another node is not there yet
}

// Result of a check.
type Result string

// The results. A failed check stops the set-up, a warning does not.
const (
	Pass Result = "pass"
	Warn Result = "warn"
	Fail Result = "fail"
	Skip Result = "skip" // could not be tried, Detail says why
	// Later is for what can only be right when the machine has been admitted.
	Later Result = "later"
)

// Facts are what the machine has, for the wizard to offer.
type Facts struct {
	Hostname   string      `json:"hostname"`
	Version    string      `json:"version"`
	Interfaces []Interface `json:"interfaces"`
	Disks      []Disk      `json:"disks"`
	// DNS and Search are the name servers and search domains in use.
	DNS    []string `json:"dns"`
	Search []string `json:"search"`
	// Managed is false where the machine's network is not ours to change (no
	// systemd-networkd of ours): the network page is then left out.
	Managed bool `json:"managed"`
	// Volume reports whether the machine can hold a copy of a shared volume.
	Volume bool `json:"volume"`
	// NoBricks says why that copy cannot be kept beside the system, on a machine
	// without a data disk; empty when it can.
	NoBricks string `json:"noBricks,omitempty"`
	// LockedOut tells that nobody can log in to this machine yet.
	LockedOut bool `json:"lockedOut,omitempty"`
	// Appliance is true on a machine that was made from the image: it is called as its
	// node is, unless the answers give it a host name.
	Appliance bool `json:"appliance,omitempty"`
	// EC2 is true on Amazon's machines, where a virtual address has no effect.
	EC2 bool `json:"ec2,omitempty"`
}

// Interface is one network interface.
type Interface struct {
	Name      string   `json:"name"`
	MAC       string   `json:"mac"`
	Up        bool     `json:"up"`        // switched on, with a cable
	Addresses []string `json:"addresses"` // with prefix length
	DHCP      bool     `json:"dhcp"`      // its IPv4 address is one of a DHCP server
	Gateway   string   `json:"gateway,omitempty"`
	Default   bool     `json:"default"` // has the default route
	MTU       int      `json:"mtu"`
}

// Disk is one block device that could hold data.
type Disk struct {
	Path  string `json:"path"`
	Size  uint64 `json:"size"` // bytes
	Model string `json:"model"`
	Empty bool   `json:"empty"`
	Why   string `json:"why,omitempty"` // what is on it when it is not empty
}

// Progress is where the set-up stands; `applianced status` shows the same
// words.
type Progress struct {
	State status.Setup `json:"state"`
	// Steps in their order; the first that is not done is under way or failed.
	Steps []Step    `json:"steps"`
	Since time.Time `json:"since"` // of State
	// Failure is set while State is failed.
	Failure *Failure `json:"failure,omitempty"`
	// Done is set when State is ready.
	Done *Done `json:"done,omitempty"`
	// Unused says what was given with this machine and is not used, and why: a
	// sentence each.
	Unused []string `json:"unused,omitempty"`
}

// Given is what was found with the machine.
type Given struct {
	Answers *Answers // nil: none
	// From is where they were, or where what is wrong was; in words.
	From string
	// Unused says what else was found, and why it is not used: a sentence each.
	Unused []string
}

// Step is one thing that is done.
type Step struct {
	Name    string `json:"name"`    // in words: "make the shared volume"
	State   string `json:"state"`   // todo, doing, done, failed
	Message string `json:"message"` // what it waits for, or did
}

// Failure says why the set-up stopped.
type Failure struct {
	Tried string   `json:"tried"` // what was being done
	Cause string   `json:"cause"`
	Check []string `json:"check"` // what to look at
	// Back is true when answers can be changed: this machine is part of no cluster
	// yet, or of its own that no other knows of. Retry is always possible.
	Back bool `json:"back"`
}

// Done is what the last page shows.
type Done struct {
	Addresses  []string `json:"addresses"`         // for minions
	MinionConf string   `json:"minionConf"`        // the lines for /etc/salt/minion.d
	Finger     string   `json:"finger,omitempty"`  // of the masters' key
	States     string   `json:"states,omitempty"`  // the folder of states
	Pillars    string   `json:"pillars,omitempty"` // the folder of pillars
	JoinString string   `json:"joinString"`        // for the next node; secret. Empty: none can join
	BackUp     []string `json:"backUp"`            // what to keep elsewhere
	Console    string   `json:"console,omitempty"` // address of the pages for browsers; empty: there are none
	// Arbiter: this node serves no minions, so that Addresses, MinionConf, States and Pillars are empty.
	Arbiter bool `json:"arbiter,omitempty"`
}
