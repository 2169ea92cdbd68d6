package firewall

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"

	"saltern/internal/command"
)

// ErrNoTable means that no firewall protects the node: the firewall's table is not in the kernel.
var ErrNoTable = errors.New("the table inet " + Table + " is not there")

// maxRules bounds nft's list of the table, in bytes. Addresses of strangers are not part of the
// list.
const maxRules = 8 << 20

// Rules returns a digest of the table without the parts that change while the node runs: the
// addresses and ports in its sets, counters, and the chain "own". If there is no table, the error
// is ErrNoTable.
func Rules(ctx context.Context) (string, error) {
	out, err := command.Exec{Limit: nftTakes, MaxOutput: maxRules}.Run(ctx,
		[]string{"nft", "-j", "-s", "list", "table", "inet", Table})
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return "", fmt.Errorf("firewall: %w (install nftables)", err)
	case err != nil:
		return "", fmt.Errorf("firewall: nft: %w", err)
	case out.Exit != 0 && strings.Contains(string(out.Stderr), "No such file"):
		return "", ErrNoTable
	case out.Exit != 0:
		return "", fmt.Errorf("firewall: nft: %w", out.Err())
	}
	return rulesDigest(out.Stdout)
}

// rulesDigest returns the digest of the output of `nft -j list table` (libnftables-json(5)).
func rulesDigest(list []byte) (string, error) {
	var doc struct {
		Nftables []map[string]map[string]any `json:"nftables"`
	}
	if err := json.Unmarshal(list, &doc); err != nil {
		return "", fmt.Errorf("firewall: nft's list of the table: %w", err)
	}

	var kept bytes.Buffer
	for _, object := range doc.Nftables {
		for kind, fields := range object {
			if kind == "metainfo" || kind == "rule" && fields["chain"] == ownChain {
				continue
			}

			delete(fields, "handle")
			if kind == "set" {
				delete(fields, "elem")
			}

			text, err := json.Marshal(map[string]any{kind: fields}) // keys in a fixed order
			if err != nil {
				return "", fmt.Errorf("firewall: nft's list of the table: %w", err)
			}

			kept.Write(append(text, '\n'))
		}
	}

	return digest(kept.Bytes()), nil
}

func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Holds reports whether the sets hold exactly the addresses in peers.
func Holds(ctx context.Context, peers []netip.Addr) (bool, error) {
	var have []netip.Addr
	for _, set := range []string{set4, set6} {
		out, err := command.Do(ctx, command.Exec{Limit: nftTakes}, "nft", "-j", "list", "set", "inet", Table, set)
		if err != nil {
			return false, fmt.Errorf("firewall: nft: %w", err)
		}

		addresses, err := setAddresses(out)
		if err != nil {
			return false, err
		}

		have = append(have, addresses...)
	}

	slices.SortFunc(have, netip.Addr.Compare)
	return slices.Equal(have, peers), nil
}

// setAddresses returns the addresses in the output of `nft -j list set`. If the set holds anything
// else, setAddresses returns one address that no node has.
func setAddresses(list []byte) (out []netip.Addr, err error) {
	var doc struct {
		Nftables []struct {
			Set struct {
				Elem []json.RawMessage `json:"elem"`
			} `json:"set"`
		} `json:"nftables"`
	}

	if err := json.Unmarshal(list, &doc); err != nil {
		return nil, fmt.Errorf("firewall: nft's list of a set: %w", err)
	}

	for _, o := range doc.Nftables {
		for _, raw := range o.Set.Elem {
			var a netip.Addr
			if json.Unmarshal(raw, &a) != nil {
				a = netip.Addr{}
			}
			out = append(out, a)
		}
	}

	return out, nil
}
