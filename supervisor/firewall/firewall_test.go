package firewall

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"saltern/supervisor/nodes"
)

func table() nodes.Table {
	return nodes.Table{Nodes: []nodes.Node{
		{Name: "b", Address: "10.0.0.2", State: nodes.Member},
		{Name: "a", Address: "10.0.0.1", State: nodes.Joining},
		{Name: "gone", Address: "10.0.0.9", State: nodes.Removed},
		{Name: "six", Address: "2001:db8::7", State: nodes.Member},
		{Name: "mapped", Address: "::ffff:10.0.0.2", State: nodes.Member},
	}}
}

func TestScript(t *testing.T) {
	peers, err := Peers(table())
	if err != nil {
		t.Fatal(err)
	}

	want := `flush set inet saltern peers
add element inet saltern peers { 10.0.0.1, 10.0.0.2 }
flush set inet saltern peers6
add element inet saltern peers6 { 2001:db8::7 }
`
	if got := Script(peers); got != want {
		t.Errorf("got:\n%s", got)
	}

	if got := Script(nil); strings.Contains(got, "add") {
		t.Errorf("nobody: %s", got)
	}

	bad := nodes.Table{Nodes: []nodes.Node{{Name: "x", Address: "10.0.0.1 }; flush ruleset"}}}
	if p, err := Peers(bad); err == nil {
		t.Errorf("taken: %v", p)
	}
}

func TestReadPort(t *testing.T) {
	for text, want := range map[string]uint16{
		"8000\n":                 8000,
		"0\n":                    0,
		"":                       0,
		"70000":                  0,
		"8000 }; flush":          0,
		strings.Repeat("8", 100): 0,
	} {
		dir := t.TempDir()
		if err := os.WriteFile(dir+"/"+PortFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := ReadPort(dir); got != want {
			t.Errorf("%q: %d", text, got)
		}
	}

	if got := ReadPort(t.TempDir()); got != 0 {
		t.Errorf("no file: %d", got)
	}
}

// TestImageRules loads the image's rules into a network namespace of their
// own, fills the sets twice, and reads them back.
func TestImageRules(t *testing.T) {
	for _, tool := range []string{"nft", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil || os.Geteuid() != 0 {
			t.Skipf("SKIPPED: needs root and %s", tool)
		}
	}

	peers, err := Peers(table())
	if err != nil {
		t.Fatal(err)
	}

	own := t.TempDir()
	const rules = "../../image/profile/overlay/usr/lib/saltern/nftables.conf"
	if err := os.WriteFile(own+"/peers", []byte(Script(peers)), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(own+"/open", []byte(PortScript(8001)+PortScript(0)+PortScript(8000)), 0o600); err != nil {
		t.Fatal(err)
	}

	out, err := exec.Command("unshare", "--net", "sh", "-ec",
		"nft -f "+rules+"; nft -f "+own+"/peers; nft -f "+own+"/peers; nft -f "+own+
			"/open; nft list ruleset").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	fields := strings.Fields(string(out))
	for _, want := range []string{"10.0.0.1,", "10.0.0.2", "2001:db8::7", "8000"} {
		if !slices.Contains(fields, want) {
			t.Errorf("no %s in:\n%s", want, out)
		}
	}

	if strings.Contains(string(out), "10.0.0.9") || strings.Contains(string(out), "8001") {
		t.Errorf("a removed node, or a port of before, is let in:\n%s", out)
	}
}
