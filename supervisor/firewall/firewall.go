// Package firewall fills the sets of nftables that hold the addresses of the cluster's nodes. The
// system has the rules themselves (/etc/nftables.conf in the image): they open ports for minions
// and administrators to everybody, and ports between nodes only to the addresses in the sets.
package firewall

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/command"
	"saltern/internal/durable"
	"saltern/supervisor/nodes"
)

// Names that /etc/nftables.conf uses.
const (
	Table = "saltern" // a table of the family inet
	set4  = "peers"
	set6  = "peers6"
	ports = "api"
)

// Peers returns the addresses of the nodes in the table, without those of removed nodes.
func Peers(t nodes.Table) (out []netip.Addr, err error) {
	for _, n := range t.Nodes {
		if n.State == nodes.Removed {
			continue
		}

		a, err := netip.ParseAddr(n.Address)
		if err != nil {
			return nil, fmt.Errorf("firewall: node %s: %w", n.Name, err)
		}

		if a = a.Unmap().WithZone(""); !slices.Contains(out, a) {
			out = append(out, a)
		}
	}

	slices.SortFunc(out, netip.Addr.Compare)
	return out, nil
}

// Script returns the commands after which the sets hold exactly the addresses in peers. nft carries
// them out as one change.
func Script(peers []netip.Addr) string {
	var four, six []string
	for _, a := range peers {
		if a.Is4() {
			four = append(four, a.String())
		} else {
			six = append(six, a.String())
		}
	}

	var b strings.Builder
	for _, s := range []struct {
		name string
		list []string
	}{{set4, four}, {set6, six}} {
		fmt.Fprintf(&b, "flush set inet %s %s\n", Table, s.name)
		if len(s.list) > 0 {
			fmt.Fprintf(&b, "add element inet %s %s { %s }\n", Table, s.name, strings.Join(s.list, ", "))
		}
	}

	return b.String()
}

// nftTakes bounds a run of nft.
const nftTakes = 30 * time.Second

// Apply fills the sets. It needs CAP_NET_ADMIN and the program nft.
func Apply(ctx context.Context, peers []netip.Addr) error {
	return runNft(ctx, Script(peers))
}

// runNft passes commands to nft, which carries them out as one change.
func runNft(ctx context.Context, script string) error {
	_, err := command.Do(ctx, command.Exec{Limit: nftTakes, Cut: true, Stdin: script}, "nft", "-f", "-")
	if errors.Is(err, exec.ErrNotFound) {
		return fmt.Errorf("firewall: %w (install nftables)", err)
	}
	if err != nil {
		return fmt.Errorf("firewall: nft: %w", err)
	}
	return nil
}

// Open opens the port of Salt's API to everybody, and closes the port that was open before. If port
// is 0, Open only closes that port. It needs the same rights as Apply.
func Open(ctx context.Context, port uint16) error { return runNft(ctx, PortScript(port)) }

// PortFile is a file in a node's data directory with the port for Open. A supervisor without the
// rights for Open writes the file and marks the table of nodes as changed ([nodes.Mark]).
const PortFile = "nodes.api"

// ReadPort reads PortFile. If the file is missing or has no port, it returns 0.
func ReadPort(dir string) uint16 {
	b, err := durable.Read(filepath.Join(dir, PortFile), 16)
	if err != nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(b)), 10, 16)
	if err != nil {
		return 0
	}
	return uint16(n)
}

// PortScript returns the nft commands with which Open opens port.
func PortScript(port uint16) string {
	script := fmt.Sprintf("flush set inet %s %s\n", Table, ports)
	if port != 0 {
		script += fmt.Sprintf("add element inet %s %s { %d }\n", Table, ports, port)
	}
	return script
}

// There reports whether this machine has the appliance's firewall.
func There(ctx context.Context) bool {
	_, err := command.Do(ctx, command.Exec{Limit: nftTakes, Cut: true}, "nft", "list", "table", "inet", Table)
	return err == nil
}
