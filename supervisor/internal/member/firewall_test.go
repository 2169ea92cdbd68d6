package member

import (
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"saltern/supervisor/firewall"
	"saltern/supervisor/nodes"
)

// TestWall fills sets of nftables in a network namespace of its own: what could not be
// done is left to do.
func TestWall(t *testing.T) {
	const inside = "SALTERN_TEST_WALL"
	for _, tool := range []string{"nft", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil || os.Geteuid() != 0 {
			t.Skipf("SKIPPED: needs root and %s", tool)
		}
	}

	if os.Getenv(inside) == "" {
		cmd := exec.Command("unshare", "--net", os.Args[0], "-test.run", "^TestWall$", "-test.v")
		cmd.Env = append(os.Environ(), inside+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestWall") {
			t.Fatalf("in a namespace: %v\n%s", err, out)
		}
		return
	}

	nft := func(args ...string) string {
		t.Helper()
		out, err := exec.Command("nft", args...).CombinedOutput()
		if err != nil {
			t.Fatalf("nft %q: %v\n%s", args, err, out)
		}
		return string(out)
	}

	w := &firewallSync{env: Env{Log: slog.New(slog.DiscardHandler)}}
	table := nodes.Table{Nodes: []nodes.Node{{Name: "b", Address: "10.0.0.2", State: nodes.Member}}}
	if !w.syncPeers(t.Context(), table) {
		t.Error("something is left to do without a firewall")
	}

	nft("add", "table", "inet", firewall.Table)
	if w.syncPeers(t.Context(), table) {
		t.Error("nothing is left to do for a firewall without sets")
	}

	nft("add", "set", "inet", firewall.Table, "peers", "{ type ipv4_addr; }")
	nft("add", "set", "inet", firewall.Table, "peers6", "{ type ipv6_addr; }")
	if !w.syncPeers(t.Context(), table) || !strings.Contains(nft("list", "ruleset"), "10.0.0.2") {
		t.Errorf("not filled: %s", nft("list", "ruleset"))
	}

	// Somebody flushes it, and loads it again.
	nft("flush", "ruleset")
	w.syncPeers(t.Context(), table)
	if len(w.findings()) != 1 {
		t.Errorf("nobody hears that the firewall is gone: %+v", w.findings())
	}

	nft("add", "table", "inet", firewall.Table)
	nft("add", "set", "inet", firewall.Table, "peers", "{ type ipv4_addr; }")
	nft("add", "set", "inet", firewall.Table, "peers6", "{ type ipv6_addr; }")
	if !w.syncPeers(t.Context(), table) || len(w.findings()) != 0 || !strings.Contains(nft("list", "ruleset"), "10.0.0.2") {
		t.Errorf("not filled again: %+v %s", w.findings(), nft("list", "ruleset"))
	}

	// nft cannot tell, for want of memory or of a disk.
	broken := t.TempDir()
	if err := os.WriteFile(filepath.Join(broken, "nft"), []byte("#!/bin/sh\nexit 1\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	t.Setenv("PATH", broken)
	if w.syncPeers(t.Context(), table) || len(w.findings()) != 0 {
		t.Errorf("said to be gone, or filled, when nobody knows: %+v", w.findings())
	}
}
