package vip

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"text/template"
	"time"
)

// Times of VRRP and of the check. The other nodes take over from a vanished node after three missed
// announcements, and from a node that reports itself unfit after two checks.
const (
	// CheckEvery is the interval at which keepalived asks whether this node is fit. After Fall
	// negative answers in a row the node gives up the address.
	CheckEvery = 2 * time.Second
	Fall       = 2

	checkTakes = 5 * time.Second

	// announceEvery is the interval at which the node with the virtual address announces it to the
	// network. A node whose packets nobody receives continues to announce until it gives up the
	// address. So announcements of two nodes may alternate, and other machines may learn the wrong
	// node. Repeated announcements correct that: without them a machine would send to the wrong
	// node until it checks the address again.
	announceEvery = 2 * time.Second
)

// Config holds the values for keepalived's configuration on one node.
type Config struct {
	Node    string       // the node's name, for the log
	Cluster string       // hash of the cluster's key, from which router ID and password are derived
	Virtual netip.Addr   // the virtual address
	Where   Where        // the interfaces of this node
	Own     netip.Addr   // this node's address for the other nodes
	Peers   []netip.Addr // the other nodes' addresses; empty: announcements go to VRRP's multicast group
	// Rank is this node's place in the table of nodes, counted from 0. If several nodes claim the
	// address at the same time, the first in the table gets it.
	Rank int
	// Check is the command that exits with 0 if this node is fit.
	Check []string
}

// routerID returns the VRRP ID of a cluster, 1 to 255. Two clusters on one network may have the
// same ID, because nodes send announcements only to their peers.
func routerID(cluster string) int { return int(deriveSum("router id", cluster)[0])%255 + 1 }

// password returns the VRRP password of a cluster, 8 characters. VRRP sends it in clear text. The
// password only separates clusters that meet by mistake; the firewall and the list of peers keep
// attackers out. It is derived from the cluster's public key, which all nodes have, and not from
// the secret, which the nodes change one after the other.
func password(cluster string) string { return hex.EncodeToString(deriveSum("password", cluster))[:8] }

func deriveSum(purpose, cluster string) []byte {
	s := sha256.Sum256([]byte("saltern virtual address, " + purpose + ": " + cluster))
	return s[:]
}

// priority returns a node's VRRP priority. The priorities of two ranks differ by three, so that
// nodes do not take over at the same moment (RFC 3768, 5.3.4: the owner of the address sends 255,
// and a node that gives up the address sends 0).
func priority(rank int) int { return max(250-3*rank, 1) }

var page = template.Must(template.New("keepalived").Parse(`# Written by applianced; do not edit.
global_defs {
    router_id {{.Node}}
    script_user root
    enable_script_security
    vrrp_check_unicast_src
    vrrp_garp_master_delay 1
    vrrp_garp_master_refresh {{.Announce}}
}

vrrp_script fit {
    script "{{.Check}}"
    interval {{.Every}}
    timeout {{.Takes}}
    fall {{.Fall}}
    rise 1
    init_fail
}

vrrp_instance saltern {
    version {{.Version}}
    state BACKUP
    nopreempt
    interface {{.Interface}}
    virtual_router_id {{.ID}}
    priority {{.Priority}}
    advert_int 1
{{- if .Peers}}
    unicast_src_ip {{.Own}}
    unicast_peer {
{{- range .Peers}}
        {{.}}
{{- end}}
    }
{{- else}}
    mcast_src_ip {{.Own}}
{{- end}}
{{- if .Password}}
    authentication {
        auth_type PASS
        auth_pass {{.Password}}
    }
{{- end}}
    virtual_ipaddress {
        {{.Virtual}}/{{.Bits}} dev {{.Device}}
    }
{{- if ne .Device .Interface}}
    track_interface {
        {{.Device}}
    }
{{- end}}
    track_script {
        fit
    }
}
`))

// Render returns the text of keepalived's configuration. The text contains the password.
func Render(c Config) ([]byte, error) {
	if len(c.Check) == 0 {
		return nil, errors.New("virtual address: no check is given")
	}
	if c.Virtual.Is4() != c.Own.Is4() {
		return nil, fmt.Errorf("virtual address: %s and the address of this node, %s, are not of the same kind",
			c.Virtual, c.Own)
	}

	// In the configuration, blanks separate words, and quotes and braces are special.
	for _, w := range append([]string{c.Node, c.Where.Interface, c.Where.Device}, c.Check...) {
		if w == "" || strings.ContainsAny(w, " \t\r\n\"'{}!#\\$@~") {
			return nil, fmt.Errorf("virtual address: %q cannot be written into keepalived's configuration", w)
		}
	}

	d := map[string]any{
		"Node":      c.Node,
		"Check":     strings.Join(c.Check, " "),
		"Announce":  int(announceEvery.Seconds()),
		"Every":     int(CheckEvery.Seconds()),
		"Fall":      Fall,
		"Takes":     int(checkTakes.Seconds()),
		"Interface": c.Where.Interface,
		"Device":    c.Where.Device,
		"ID":        routerID(c.Cluster),
		"Priority":  priority(c.Rank),
		"Own":       c.Own,
		"Peers":     c.Peers,
		"Virtual":   c.Virtual,
		"Bits":      c.Virtual.BitLen(),
		"Version":   2,
		"Password":  password(c.Cluster),
	}

	if c.Virtual.Is6() { // VRRP for IPv6 (RFC 5798) has no passwords
		d["Version"], d["Password"] = 3, ""
	}

	var b bytes.Buffer
	if err := page.Execute(&b, d); err != nil {
		return nil, fmt.Errorf("virtual address: %w", err)
	}

	return b.Bytes(), nil
}
