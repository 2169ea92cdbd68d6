package tui

import (
	"strings"

	"saltern/supervisor/setup"
)

// The ways to join, and the kinds of storage besides disks.
const (
	byString = "string"
	byPeers  = "peers"

	joinAsArbiter = "arbiter" // a third mode, which only the wizard has

	methodKeep   = ""
	methodDHCP   = "dhcp"
	methodStatic = "static"

	systemDisk = "system"
	sharedDir  = "directory"
)

// draft holds the answers so far, field by field, as they were typed.
type draft struct {
	mode   string
	layout string // keyboard layout

	iface, method string
	fixed         fixedAddress
	offered       fixedAddress // the values that prefill has written to fixed

	sshKey, password, again string

	cluster, node, peerAddress string
	hostname                   string
	how, joinString            string
	peers, secret              string

	storage   string // a device, systemDisk or sharedDir
	sharedDir string
	erase     bool
	noBricks  bool // the system disk holds no copy of a shared volume

	virtual string
	api     bool
}

// fixedAddress is the page of a fixed address, as typed.
type fixedAddress struct{ address, gateway, dns, search, ntp string }

// newDraft returns a draft with the machine's present values.
func newDraft(f setup.Facts) draft {
	d := draft{
		mode:     string(setup.Form),
		how:      byString,
		node:     setup.NodeName(f),
		storage:  systemDisk,
		noBricks: f.NoBricks != "",
	}

	for _, i := range f.Interfaces {
		if i.Default || d.iface == "" {
			d.iface = i.Name
		}
	}

	for _, k := range f.Disks {
		if k.Empty {
			d.storage = k.Path
			break
		}
	}

	return d
}

// answers converts the draft for the supervisor. It omits fields that belong to choices that the
// user did not select.
func (d *draft) answers() setup.Answers {
	a := setup.Answers{Mode: setup.Join, Node: trimSpace(d.node), Address: trimSpace(d.peerAddress)}
	a.Admin.Password = d.password
	a.Admin.SSHKeys = setup.SplitKeys(d.sshKey)
	a.Network = d.network()
	a.Network.Hostname = trimSpace(d.hostname)

	switch {
	case d.mode == string(setup.Form):
		a.Mode = setup.Form
		a.Cluster = trimSpace(d.cluster)
		a.Secret = d.secret
		a.Virtual = trimSpace(d.virtual)
	case d.how == byString:
		a.JoinString = trimSpace(d.joinString)
	default:
		a.Cluster = trimSpace(d.cluster)
		a.Peers = setup.SplitWords(d.peers)
		a.Secret = d.secret
	}

	a.API = d.api && !d.arbiter()
	if d.arbiter() {
		a.Storage.Role = setup.RoleArbiter
	}

	switch d.storage {
	case systemDisk:
		if a.Mode == setup.Form && d.noBricks {
			a.Storage.Kind = "local"
		}
	case sharedDir:
		if !d.arbiter() { // an arbiter has no storage, even if the user had chosen one
			a.Storage = setup.Storage{Kind: "directory", Path: trimSpace(d.sharedDir)}
		}
	default:
		a.DataDisk, a.EraseDisk = d.storage, d.erase
	}

	return a
}

// arbiter reports whether the machine joins the cluster as its arbiter.
func (d *draft) arbiter() bool { return d.mode == joinAsArbiter }

func (d *draft) network() setup.Network {
	n := setup.Network{}
	if d.method == methodKeep {
		return n
	}
	n.Interface, n.Method = d.iface, d.method
	if d.method == methodStatic {
		n.Address, n.Gateway = trimSpace(d.fixed.address), trimSpace(d.fixed.gateway)
		n.DNS = setup.SplitWords(d.fixed.dns)
		n.Search = setup.SplitWords(d.fixed.search)
		n.NTP = setup.SplitWords(d.fixed.ntp)
	}
	return n
}

func trimSpace(s string) string { return strings.TrimSpace(s) }
