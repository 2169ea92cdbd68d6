// Package setup turns a machine into a serving node. A person or user-data gives the answers. The
// set-up validates them, checks them against the machine, the network and the cluster (preflight)
// before it changes anything, and then carries them out step by step. Its state is kept on disk,
// so that it continues after a power cut at any point, and is shown in the words of the status.
package setup

import (
	"time"

	"saltern/supervisor/status"
)

// Mode is the future role of the machine: first node, member or arbiter.
type Mode string

// The modes.
const (
	Form Mode = "form" // the first node of a new cluster
	Join Mode = "join" // a node of a cluster that exists
	// JoinAsArbiter stands for Join with the storage's role [RoleArbiter];
	// [Validate] replaces it.
	JoinAsArbiter Mode = "arbiter"
)

// Answers are all that the set-up needs to know. The wizard, user-data and a file fill in the
// same type. Keys are the YAML names. A zero value means "not said": the default applies, if
// there is one.
type Answers struct {
	Mode    Mode   `yaml:"mode" json:"mode"`
	Cluster string `yaml:"cluster_id" json:"cluster_id"`
	// Node is the name of this machine. The default is [NodeName].
	Node string `yaml:"node" json:"node"`
	// Address is the IP address for peers. By default it is the address of the default route,
	// else the only address.
	Address string `yaml:"address" json:"address"`
	// Front are the addresses for minions. The default is all addresses of the machine.
	Front []string `yaml:"front" json:"front,omitempty"`
	// Peers are nodes to join through: addresses or names, one is enough.
	Peers []string `yaml:"peers" json:"peers,omitempty"`
	// Secret of the cluster. If it is empty when forming, the set-up generates one.
	Secret string `yaml:"secret" json:"secret,omitempty"`
	// JoinString is "sca2.CHECK.HASH.SECRET@HOST,HOST". It replaces Peers and Secret, and also
	// proves the cluster.
	JoinString string `yaml:"join" json:"join,omitempty"`
	// DataDisk is a block device for the copy of the shared volume, or "auto" for the only empty
	// disk. If it is empty, the copy goes into a directory on the state partition.
	DataDisk string `yaml:"data_disk" json:"data_disk,omitempty"`
	// EraseDisk allows a data disk that is not empty to be formatted.
	EraseDisk bool `yaml:"erase_data_disk" json:"erase_data_disk,omitempty"`
	// Storage says where keys and files are shared. If it is empty, that is a volume on the
	// nodes' own disks where possible, else a local directory.
	Storage Storage `yaml:"storage" json:"storage"`
	// Virtual is an address for minions that moves between the nodes. The first node sets it. A
	// node that joins learns it.
	Virtual string `yaml:"virtual_address" json:"virtual_address,omitempty"`
	// API makes this node serve Salt's API over HTTP.
	API     bool    `yaml:"api" json:"api,omitempty"`
	Network Network `yaml:"network" json:"network"`
	Admin   Admin   `yaml:"admin" json:"admin"`
	// Settings are further keys of appliance.yaml, as in that file.
	Settings Tree `yaml:"settings" json:"settings,omitempty"`
}

// Storage is where the nodes of a cluster share keys and files.
type Storage struct {
	// Kind is volume (copies on the nodes), directory (shared by the administrator, for example
	// by NFS) or local (this machine alone: no other node can join).
	Kind string `yaml:"kind" json:"kind,omitempty"`
	// Path of the directory. For the other kinds the default is below the data directory.
	Path string `yaml:"path" json:"path,omitempty"`
	// TLS encrypts the connections of a new cluster's volume. It may be nil: yes. A node that
	// joins follows its cluster.
	TLS *bool `yaml:"tls" json:"tls,omitempty"`
	// Role of a machine that joins a cluster with a volume: [RoleData], the default,
	// or [RoleArbiter].
	Role string `yaml:"role" json:"role,omitempty"`
}

// Network is the machine's own network configuration. A zero value leaves the present one as it
// is.
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

// Admin is how the administrator logs in.
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

// Validation is the outcome of [Validate].
type Validation struct {
	// Answers are complete: defaults are filled in, and a join string is split. A secret that is
	// still to be generated is empty.
	Answers Answers `json:"answers"`
	// Faults is empty when the set-up could start with these answers.
	Faults []Fault `json:"faults"`
}

// Claim names the wizard that leads: the one where somebody types first. Others follow. The
// leader renews its claim every few seconds and loses it after claimLasts.
type Claim struct {
	Mine  bool      `json:"mine"`  // this wizard leads, or may begin to
	Owner string    `json:"owner"` // how the owner called itself: "tty1"; empty: nobody leads
	Since time.Time `json:"since"`
	// Draft holds the answers of the former leader, for a wizard that has just taken over,
	// without secrets. It may be nil: there is none.
	Draft Draft `json:"draft,omitempty"`
}

// ClaimRequest is the request of a wizard.
type ClaimRequest struct {
	Name string `json:"name"` // how it calls itself: "tty1"
	Lead Lead   `json:"lead"`
	// Draft holds the answers so far, from the leader. It may be nil: the one before stays.
	Draft Draft `json:"draft,omitempty"`
}

// Draft holds the answers so far, by names that only the wizard knows. It goes from one wizard to
// another through the memory of the supervisor. The wizard leaves secrets out.
type Draft map[string]string

// maxDraft bounds a draft in bytes. A larger one is dropped.
const maxDraft = 32 << 10

// isBounded reports whether a draft is small enough to be kept.
func (d Draft) isBounded() bool {
	size := 0
	for name, value := range d {
		size += len(name) + len(value) + 8
	}
	return size <= maxDraft
}

// Lead is a wizard's request for the lead.
type Lead string

// The requests of a wizard.
const (
	Watch Lead = ""      // who leads; the leader's own claim is renewed
	Begin Lead = "begin" // to lead, if nobody does
	Take  Lead = "take"  // to lead, even if another wizard leads
)

// claimLasts is how long a claim holds without being renewed.
const claimLasts = 15 * time.Second

// TrialLasts is how long a new network configuration is tried before it is reverted, unless
// somebody confirms it.
const TrialLasts = 60 * time.Second

// Trial is a network configuration that is being tried.
type Trial struct {
	Active    bool      `json:"active"`
	Until     time.Time `json:"until"`     // taken back then
	Addresses []string  `json:"addresses"` // what the interface has now
	Message   string    `json:"message,omitempty"`
	// Reach reports which parts of the network answer. It may be nil: they were not tried yet.
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

// fail marks the check as failed. detail says what was seen, hint what to do.
func (c *Check) fail(detail, hint string) {
	c.Result = Fail
	c.Detail = detail
	c.Hint = hint
}

// Result of a check.
type Result string

// The results. A failed check stops the set-up, a warning does not.
const (
	Pass Result = "pass"
	Warn Result = "warn"
	Fail Result = "fail"
	Skip Result = "skip" // could not be tried, Detail says why
	// Later marks a check that can pass only once the machine is admitted.
	Later Result = "later"
)

// Facts describe the machine, so that the wizard can offer choices.
type Facts struct {
	Hostname   string      `json:"hostname"`
	Version    string      `json:"version"`
	Interfaces []Interface `json:"interfaces"`
	Disks      []Disk      `json:"disks"`
	// DNS and Search are the name servers and search domains in use.
	DNS    []string `json:"dns"`
	Search []string `json:"search"`
	// Managed is false where we may not change the machine's network (no systemd-networkd of
	// ours). The wizard then leaves out the network page.
	Managed bool `json:"managed"`
	// Volume reports whether the machine can hold a copy of a shared volume.
	Volume bool `json:"volume"`
	// NoBricks says why a machine without a data disk cannot keep that copy beside the system. It
	// is empty when it can.
	NoBricks string `json:"noBricks,omitempty"`
	// LockedOut reports whether nobody can log in to this machine yet.
	LockedOut bool `json:"lockedOut,omitempty"`
	// Appliance is true on a machine made from the image. Its host name is the name of its node,
	// unless the answers give another one.
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

// Progress is the state of the set-up. `applianced status` shows the same words.
type Progress struct {
	State status.Setup `json:"state"`
	// Steps are in their order. The first that is not done is under way or has failed.
	Steps []Step    `json:"steps"`
	Since time.Time `json:"since"` // of State
	// Failure is set while State is failed.
	Failure *Failure `json:"failure,omitempty"`
	// Done is set when State is ready.
	Done *Done `json:"done,omitempty"`
	// Unused lists, in a sentence each, what was given with this machine and is not used, and
	// why.
	Unused []string `json:"unused,omitempty"`
}

// Given is the outcome of the search for answers given with the machine.
type Given struct {
	Answers *Answers // nil: none
	// From says where the answers were, or where the fault was.
	From string
	// Unused lists, in a sentence each, what else was found, and why it is not used.
	Unused []string
}

// Step is one action of the set-up.
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
	// Back reports whether the answers can still be changed: this machine is part of no cluster
	// yet, or of one of its own that no other machine knows. Retry is always possible.
	Back bool `json:"back"`
}

// Done is the content of the last page.
type Done struct {
	Addresses  []string `json:"addresses"`         // for minions
	MinionConf string   `json:"minionConf"`        // the lines for /etc/salt/minion.d
	Finger     string   `json:"finger,omitempty"`  // of the masters' key
	States     string   `json:"states,omitempty"`  // the folder of states
	Pillars    string   `json:"pillars,omitempty"` // the folder of pillars
	JoinString string   `json:"joinString"`        // for the next node; secret. Empty: none can join
	BackUp     []string `json:"backUp"`            // what to keep elsewhere
	Console    string   `json:"console,omitempty"` // address of the pages for browsers; empty: there are none
	// Arbiter reports whether this node serves no minions. Addresses, MinionConf, States and
	// Pillars are empty then.
	Arbiter bool `json:"arbiter,omitempty"`
}
