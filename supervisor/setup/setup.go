// Package setup turns a machine into a serving node. The answers come from a person or from
// user-data. The set-up validates them. Before it changes anything, it checks them against the
// machine, the network and the cluster (preflight). Then it carries them out step by step. It saves
// its state on disk, so that it continues after a power cut at any point. The status shows that
// state by the same names.
package setup

import (
	"time"

	"saltern/supervisor/status"
)

// Mode is the kind of node that the machine becomes: first node, member or arbiter.
type Mode string

// The modes.
const (
	Form Mode = "form" // the first node of a new cluster
	Join Mode = "join" // a node of a cluster that exists
	// JoinAsArbiter is short for Join with the storage's role [RoleArbiter]; [Validate] replaces
	// JoinAsArbiter by these two answers.
	JoinAsArbiter Mode = "arbiter"
)

// Answers holds all input of the set-up. The wizard, user-data and a file of answers fill in the
// same type. Keys are the YAML names. A zero value means that the answer was not given: the default
// applies, if there is one.
type Answers struct {
	Mode    Mode   `yaml:"mode" json:"mode"`
	Cluster string `yaml:"cluster_id" json:"cluster_id"`
	// Node is the name of this machine. The default is [NodeName].
	Node string `yaml:"node" json:"node"`
	// Address is the IP address for peers. The default is the address of the interface with the
	// default route, else the machine's only address.
	Address string `yaml:"address" json:"address"`
	// Front lists the addresses at which minions connect. The default is all addresses of the
	// machine.
	Front []string `yaml:"front" json:"front,omitempty"`
	// Peers lists nodes to join through, by address or name. One of them suffices.
	Peers []string `yaml:"peers" json:"peers,omitempty"`
	// Secret is the cluster's secret. If it is empty and a new cluster is formed, the set-up
	// generates one.
	Secret string `yaml:"secret" json:"secret,omitempty"`
	// JoinString is "sca2.CHECK.HASH.SECRET@HOST,HOST". It replaces Peers and Secret. With the hash
	// in it this machine can authenticate the cluster.
	JoinString string `yaml:"join" json:"join,omitempty"`
	// DataDisk is a block device for the copy of the shared volume, or "auto" for the only empty
	// disk. If it is empty, the copy goes into a directory on the state partition.
	DataDisk string `yaml:"data_disk" json:"data_disk,omitempty"`
	// EraseDisk permits formatting a data disk that is not empty.
	EraseDisk bool `yaml:"erase_data_disk" json:"erase_data_disk,omitempty"`
	// Storage says where keys and files are shared. If it is empty, the set-up chooses a volume on
	// the nodes' own disks if possible, otherwise a local directory.
	Storage Storage `yaml:"storage" json:"storage"`
	// Virtual is an address for minions that moves between the nodes. The first node of a cluster
	// sets it. A joining node gets it from the cluster.
	Virtual string `yaml:"virtual_address" json:"virtual_address,omitempty"`
	// API turns on Salt's API over HTTP on this node.
	API     bool    `yaml:"api" json:"api,omitempty"`
	Network Network `yaml:"network" json:"network"`
	Admin   Admin   `yaml:"admin" json:"admin"`
	// Settings holds further keys of appliance.yaml, in the form of appliance.yaml.
	Settings Tree `yaml:"settings" json:"settings,omitempty"`
}

// Storage is where the nodes of a cluster share keys and files.
type Storage struct {
	// Kind is volume (copies on the nodes), directory (shared by the administrator, for example
	// by NFS) or local (this machine alone: no other node can join).
	Kind string `yaml:"kind" json:"kind,omitempty"`
	// Path is the directory. For the kinds volume and local the default is below the data
	// directory.
	Path string `yaml:"path" json:"path,omitempty"`
	// TLS encrypts the connections of a new cluster's volume. It may be nil: they are encrypted. A
	// joining node ignores TLS and uses the setting of its cluster.
	TLS *bool `yaml:"tls" json:"tls,omitempty"`
	// Role is the role of a machine that joins a cluster with a volume: [RoleData], the default, or
	// [RoleArbiter].
	Role string `yaml:"role" json:"role,omitempty"`
}

// Network is the machine's own network configuration. The zero value keeps the present
// configuration.
type Network struct {
	Interface string   `yaml:"interface" json:"interface,omitempty"`
	Method    string   `yaml:"method" json:"method,omitempty"`   // dhcp or static; empty: leave the network as it is
	Address   string   `yaml:"address" json:"address,omitempty"` // IP address with prefix length; for static only
	Gateway   string   `yaml:"gateway" json:"gateway,omitempty"`
	DNS       []string `yaml:"dns" json:"dns,omitempty"`
	Search    []string `yaml:"search" json:"search,omitempty"` // domains that are appended to names without dots
	NTP       []string `yaml:"ntp" json:"ntp,omitempty"`
	Hostname  string   `yaml:"hostname" json:"hostname,omitempty"`
}

// Admin is how the administrator logs in.
type Admin struct {
	SSHKeys []string `yaml:"ssh_keys" json:"ssh_keys,omitempty"`
	// Password is the password of the account admin, in clear text. The machine keeps only a hash of it.
	Password string `yaml:"password" json:"password,omitempty"`
}

// Fault describes one wrong answer. Field is the YAML name of the answer, with a dot for nested
// answers ("network.address"), so that a form can show the fault beside it.
type Fault struct {
	Field   string `json:"field"`
	Message string `json:"message"`
}

// Validation is the outcome of [Validate].
type Validation struct {
	// Answers is the complete set of answers: Validate has filled in defaults and split a join
	// string. A secret that the set-up will generate is still empty.
	Answers Answers `json:"answers"`
	// Faults is empty when the set-up could start with these answers.
	Faults []Fault `json:"faults"`
}

// Claim names the wizard that leads: the one in which somebody typed first. The other wizards only
// show what the leader does. The leader renews its claim every few seconds and loses it after
// claimLasts.
type Claim struct {
	Mine  bool      `json:"mine"`  // this wizard leads, or no other wizard does
	Owner string    `json:"owner"` // name of the wizard that leads, such as "tty1"; empty: none leads
	Since time.Time `json:"since"`
	// Draft holds the answers of the previous leader, without secrets, for a wizard that has just
	// become the leader. It may be nil: there are none.
	Draft Draft `json:"draft,omitempty"`
}

// ClaimRequest is the request that a wizard sends to [Machine.Claim].
type ClaimRequest struct {
	Name string `json:"name"` // name of the wizard, such as "tty1"
	Lead Lead   `json:"lead"`
	// Draft holds the leader's answers so far. It may be nil: the stored draft stays.
	Draft Draft `json:"draft,omitempty"`
}

// Draft holds answers by names that only wizards interpret. The supervisor keeps it in memory to
// pass it from one wizard to the next. Wizards omit secrets.
type Draft map[string]string

// maxDraft bounds a draft in bytes. A larger one is dropped.
const maxDraft = 32 << 10

// isBounded reports whether a draft is small enough to be stored.
func (d Draft) isBounded() bool {
	size := 0
	for name, value := range d {
		size += len(name) + len(value) + 8
	}
	return size <= maxDraft
}

// Lead is a wizard's request to lead the set-up.
type Lead string

// Values of Lead.
const (
	Watch Lead = ""      // only ask which wizard leads; a request of the leader renews its claim
	Begin Lead = "begin" // lead, if no other wizard does
	Take  Lead = "take"  // lead, even if another wizard does
)

// claimLasts is how long a wizard stays the leader without renewing its claim.
const claimLasts = 15 * time.Second

// TrialLasts is how long a new network configuration is tried. Unless somebody confirms it by then,
// it is reverted.
const TrialLasts = 60 * time.Second

// Trial describes a network configuration that is being tried.
type Trial struct {
	Active    bool      `json:"active"`
	Until     time.Time `json:"until"`     // when the trial configuration will be reverted
	Addresses []string  `json:"addresses"` // present addresses of the interface
	Message   string    `json:"message,omitempty"`
	// Reach reports which servers of the network answer. It may be nil: no check is complete yet.
	Reach []Reach `json:"reach,omitempty"`
}

// Check is one line of the preflight.
type Check struct {
	// Name is the kind of check: clock, name, address, port, mtu, version, disk, cluster, memory, virtual
	Name   string `json:"name"`
	What   string `json:"what"` // what was checked, such as "port 4521/tcp of 10.0.0.2"
	Result Result `json:"result"`
	Detail string `json:"detail,omitempty"` // result in words
	Hint   string `json:"hint,omitempty"`   // what to do; for warn and fail

	passing bool // the failure may pass by itself: another node is not there yet
}

// fail marks the check as failed. detail is the result in words. hint says what to do.
func (c *Check) fail(detail, hint string) {
	c.Result = Fail
	c.Detail = detail
	c.Hint = hint
}

// Result is the result of a check.
type Result string

// Values of Result. A failed check stops the set-up, a warning does not.
const (
	Pass Result = "pass"
	Warn Result = "warn"
	Fail Result = "fail"
	Skip Result = "skip" // the check could not be made; Detail says why
	// Later marks a check that can pass only once the machine is admitted.
	Later Result = "later"
)

// Facts describe the machine, so that the wizard can offer choices.
type Facts struct {
	Hostname   string      `json:"hostname"`
	Version    string      `json:"version"`
	Interfaces []Interface `json:"interfaces"`
	Disks      []Disk      `json:"disks"`
	// DNS and Search are the name servers and search domains that the machine uses.
	DNS    []string `json:"dns"`
	Search []string `json:"search"`
	// Managed reports whether the set-up may change the machine's network: only on an appliance,
	// whose image configures systemd-networkd. If it is false, the wizard omits the network page.
	Managed bool `json:"managed"`
	// Volume reports whether the machine can hold a copy of a shared volume.
	Volume bool `json:"volume"`
	// NoBricks is the reason why a machine without a data disk cannot store its copy of the volume
	// on its system disk. It is empty if the machine can.
	NoBricks string `json:"noBricks,omitempty"`
	// LockedOut reports whether nobody can log in to this machine, because its administrator has
	// neither password nor key.
	LockedOut bool `json:"lockedOut,omitempty"`
	// Appliance reports whether the machine was made from the image. If so, the node's name becomes
	// its host name, unless the answers give another host name.
	Appliance bool `json:"appliance,omitempty"`
	// EC2 reports whether the machine runs on Amazon EC2, where a virtual address has no effect.
	EC2 bool `json:"ec2,omitempty"`
}

// Interface describes one network interface.
type Interface struct {
	Name      string   `json:"name"`
	MAC       string   `json:"mac"`
	Up        bool     `json:"up"`        // enabled, and with a link
	Addresses []string `json:"addresses"` // IP addresses with prefix lengths
	DHCP      bool     `json:"dhcp"`      // whether a DHCP server assigned the IPv4 address
	Gateway   string   `json:"gateway,omitempty"`
	Default   bool     `json:"default"` // whether the default route uses the interface
	MTU       int      `json:"mtu"`
}

// Disk describes one block device that could hold data.
type Disk struct {
	Path  string `json:"path"`
	Size  uint64 `json:"size"` // size in bytes
	Model string `json:"model"`
	Empty bool   `json:"empty"`
	Why   string `json:"why,omitempty"` // what is on the disk; empty: the disk is empty
}

// Progress is the state of the set-up. `applianced status` shows the same texts.
type Progress struct {
	State status.Setup `json:"state"`
	// Steps are in the order in which they are made. The first step that is not done is running or
	// has failed.
	Steps []Step    `json:"steps"`
	Since time.Time `json:"since"` // since when the set-up has been in State
	// Failure is set while State is failed.
	Failure *Failure `json:"failure,omitempty"`
	// Done is set when State is ready.
	Done *Done `json:"done,omitempty"`
	// Unused lists input that was given with this machine and is not used: one sentence for each
	// input, with the reason.
	Unused []string `json:"unused,omitempty"`
}

// Given is the outcome of the search for answers given with the machine.
type Given struct {
	Answers *Answers // nil: none were found
	// From says where the answers, or the fault in them, were found.
	From string
	// Unused lists other input that was found and is not used: one sentence for each input, with
	// the reason.
	Unused []string
}

// Step is one action of the set-up.
type Step struct {
	Name    string `json:"name"`    // in words: "make the shared volume"
	State   string `json:"state"`   // todo, doing, done, failed
	Message string `json:"message"` // what the step waits for, or has done
}

// Failure says why the set-up stopped.
type Failure struct {
	Tried string   `json:"tried"` // description of the step that failed
	Cause string   `json:"cause"`
	Check []string `json:"check"` // things that the administrator should check, one sentence each
	// Back reports whether the answers can still be changed: this machine belongs to no cluster
	// yet, or to a cluster of its own that no other machine knows. A retry is always possible.
	Back bool `json:"back"`
}

// Done is the content of the wizard's last page.
type Done struct {
	Addresses  []string `json:"addresses"`         // addresses for minions
	MinionConf string   `json:"minionConf"`        // the lines for /etc/salt/minion.d
	Finger     string   `json:"finger,omitempty"`  // fingerprint of the masters' key; empty: not known
	States     string   `json:"states,omitempty"`  // the folder of states
	Pillars    string   `json:"pillars,omitempty"` // the folder of pillars
	JoinString string   `json:"joinString"`        // join string for the next node; secret. Empty: no node can join
	BackUp     []string `json:"backUp"`            // things to back up, one sentence each
	Console    string   `json:"console,omitempty"` // address of the console for browsers; empty: there is none
	// Arbiter reports whether this node is an arbiter, which serves no minions. Addresses,
	// MinionConf, States and Pillars are empty then.
	Arbiter bool `json:"arbiter,omitempty"`
}
