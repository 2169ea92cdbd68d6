package nodeapi

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
)

// memberSettings are those of a node that the table on its disk has as n3 of cluster lab.
func memberSettings(t *testing.T, state nodes.State) *settings.Settings {
	t.Helper()
	s := settings.Default("n3")
	s.DataDir, s.Cluster = t.TempDir(), "lab"
	s.Peering.Enabled, s.Peering.Address = true, "127.0.70.3"

	if err := os.MkdirAll(s.NodeDir(), 0o700); err != nil {
		t.Fatal(err)
	}

	id, err := LoadIdentity(s.NodeDir())
	if err != nil {
		t.Fatal(err)
	}

	k, err := nodes.OpenKeeper(s.DataDir, "")
	if err != nil {
		t.Fatal(err)
	}

	table := nodes.Table{Version: 1, Cluster: "lab", KeyHash: strings.Repeat("ab", 32), Nodes: []nodes.Node{
		{Name: "n1", Address: "127.0.70.1", State: nodes.Member, Certificate: strings.Repeat("01", 32)},
		{Name: "n3", Address: "127.0.70.3", State: state, Certificate: id.Hash},
	}}

	if _, err := k.Offer(table); err != nil {
		t.Fatal(err)
	}

	return &s
}

// TestSettingsThatDifferFromTheTable: whatever appliance.yaml calls a node, its cluster and
// its address, each difference is refused with what the table has, and the node goes on as
// what the table has (F9).
func TestSettingsThatDifferFromTheTable(t *testing.T) {
	right := memberSettings(t, nodes.Member)
	if err := CheckRecorded(right, "appliance.yaml"); err != nil {
		t.Fatal(err)
	}

	for seed := range uint64(200) {
		chance := rand.New(rand.NewPCG(seed, 1))
		s := *right
		var want []string
		if chance.IntN(2) == 0 {
			s.Node = []string{"n1", "N3", "n3.example.org", "salt-three", fmt.Sprint("h", seed)}[chance.IntN(5)]
			want = append(want, "appliance.yaml: node: "+s.Node+" ", "write node: n3.")
		}
		if chance.IntN(2) == 0 {
			s.Cluster = []string{"other", "LAB", fmt.Sprint("c", seed)}[chance.IntN(3)]
			want = append(want, "appliance.yaml: cluster: "+s.Cluster+" ", "write cluster: lab.")
		}
		if chance.IntN(2) == 0 {
			s.Peering.Address = []string{"127.0.70.33", "2001:db8::3", "127.0.70.1"}[chance.IntN(3)]
			want = append(want, "appliance.yaml: peering.address: "+s.Peering.Address+" ",
				"write peering.address: 127.0.70.3.", "applianced remove n3 on another node")
		}

		err := CheckRecorded(&s, "appliance.yaml")
		if (err != nil) != (len(want) > 0) {
			t.Fatalf("seed %d: %v", seed, err)
		}

		for _, w := range want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("seed %d: %v, want %q", seed, err, w)
			}
		}

		if f := FollowTable(&s); f.Node != "n3" || f.Cluster != "lab" || f.Peering.Address != "127.0.70.3" ||
			f.Master.Address != f.Peering.Address || f.DataDir != s.DataDir {
			t.Errorf("seed %d: it goes on as %s of %s at %s", seed, f.Node, f.Cluster, f.Peering.Address)
		}
	}
}

// TestSettingsWithoutATable: a node that has not joined, was removed, or is alone is named
// by appliance.yaml; to look makes no key.
func TestSettingsWithoutATable(t *testing.T) {
	for name, spoil := range map[string]func(*settings.Settings){
		"alone":    func(s *settings.Settings) { s.Peering.Enabled = false },
		"no table": func(s *settings.Settings) { _ = os.Remove(filepath.Join(s.DataDir, nodes.File)) },
		"no key":   func(s *settings.Settings) { _ = os.Remove(filepath.Join(s.NodeDir(), identityFile)) },
		"its disk": func(s *settings.Settings) { s.DataDir = t.TempDir() },
		"damaged": func(s *settings.Settings) {
			_ = os.WriteFile(filepath.Join(s.DataDir, nodes.File),
				[]byte("{"), 0o600)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := memberSettings(t, nodes.Member)
			spoil(s)
			s.Node = "salt-three"
			if err := CheckRecorded(s, "appliance.yaml"); err != nil {
				t.Error(err)
			}

			if f := FollowTable(s); f.Node != "salt-three" {
				t.Errorf("it goes on as %s", f.Node)
			}

			if _, err := os.Stat(filepath.Join(s.NodeDir(), identityFile)); (name == "no key" ||
				name == "its disk") && err == nil {
				t.Error("a key was made")
			}
		})
	}

	removed := memberSettings(t, nodes.Removed)
	removed.Node = "salt-three"
	if err := CheckRecorded(removed, "appliance.yaml"); err != nil {
		t.Error(err)
	}
}
