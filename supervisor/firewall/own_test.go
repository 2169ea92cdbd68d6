package firewall

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOwnRulesTakeNothingDown: whatever stands in the folder of the administrator's
// rules, the image's rules hold, right files are loaded, and each wrong one is named
// with its line (F3).
func TestOwnRulesTakeNothingDown(t *testing.T) {
	if !inNamespace(t) {
		return
	}

	ctx := t.Context()
	nft(t, "-f", "../../image/profile/overlay/usr/lib/saltern/nftables.conf")
	base, err := Rules(ctx)
	if err != nil {
		t.Fatal(err)
	}

	wrong := []struct{ name, text, cause string }{
		{"name of a host", "\ntcp dport 9100 ip saddr monitor.invalid accept\n", "line 2: Could not resolve hostname"},
		{"end of lines", "tcp dport 9100 accept\r\n", "line 1: syntax error"},
		{"dots", "… accept\n", "line 1: syntax error"},
		{"typing error", "tcp dport 1 accept\ntcp dport 2 acept\n", "line 2: syntax error"},
		{"command", "add rule inet saltern input accept\n", "line 1: syntax error"},
		{"table", "table inet mine {\n}\n", "line 1: syntax error"},
		{"flush", "flush ruleset\n", "line 1: syntax error"},
		{"flush after the end", "}\n}\nflush ruleset\ntable inet saltern {\nchain own {\n", "line 1: } ends more"},
		{"delete after the end",
			"tcp dport 1 accept }; }; delete table inet saltern; table inet x { chain own {\n",
			"line 1: } ends more"},
		{"end behind a string", "tcp dport 1 accept comment \"#\" }\n", "line 1: } ends more"},
		{"set of the nodes", "tcp dport 1 accept\nct state new add @peers { ip saddr } accept\n", "line 2: the sets"},
		{"set, after a line", "update\n@api { tcp dport }\n", "line 2: the sets"},
		{"other file", "include \"/tmp/x\"\n", "line 1: include"},
		{"open string", "tcp dport 1 accept comment \"a\n", "a string has no end"},
		{"open block", "tcp dport { 1,\n", "without }"},
		{"other chain", "jump nowhere\n", "line 1: Could not process rule"},
	}

	for _, c := range wrong {
		t.Run(c.name, func(t *testing.T) {
			dir := ownDir(t,
				map[string]string{
					"10-a.nft": "tcp dport 9100 counter accept\n",
					"20-b.nft": c.text,
					"30-c.nft": "tcp dport 9300 accept # }\n",
				})

			_, faults, err := LoadOwn(ctx, dir, "")
			if err != nil || len(faults) != 1 || filepath.Base(faults[0].File) != "20-b.nft" ||
				!strings.Contains(faults[0].Cause, c.cause) {
				t.Errorf("%+v %v, want %q", faults, err, c.cause)
			}

			own := nft(t, "list", "chain", "inet", Table, "own")
			if !strings.Contains(own, "9100") || !strings.Contains(own, "9300") || strings.Contains(own, "dport 1 ") {
				t.Errorf("loaded: %s", own)
			}

			if now, err := Rules(ctx); err != nil || now != base {
				t.Errorf("the image's rules are others: %v\n%s", err, nft(t, "list", "ruleset"))
			}
		})
	}

	t.Run("again", func(t *testing.T) { loadsAgainWhatBecameRight(ctx, t) })
	t.Run("names", func(t *testing.T) { keepsNamesThatAreAway(ctx, t) })
	t.Run("many names", func(t *testing.T) { manyNamesThatHang(ctx, t) })
	t.Run("generated", func(t *testing.T) { generatedRules(ctx, t, base) })
}

// loadsAgainWhatBecameRight: a chain that holds what it should is left alone, with its
// counters; a file that became right comes in, and a flushed chain is filled again.
func loadsAgainWhatBecameRight(ctx context.Context, t *testing.T) {
	dir := ownDir(t,
		map[string]string{
			"a.nft": "ip saddr 192.0.2.1 counter packets 7 bytes 7 accept\n",
			"b.nft": "tcp dport 9200 acept\n",
		})

	loaded, faults, err := LoadOwn(ctx, dir, "")
	if err != nil || len(faults) != 1 {
		t.Fatalf("%+v %v", faults, err)
	}

	handles := func() string { return nft(t, "-a", "list", "chain", "inet", Table, "own") }
	before := handles()
	loaded, faults, err = LoadOwn(ctx, dir, loaded)
	if err != nil || len(faults) != 1 || handles() != before {
		t.Errorf("loaded twice: %+v %v\n%s", faults, err, handles())
	}

	if err := os.WriteFile(filepath.Join(dir, "b.nft"), []byte("tcp dport 9200 accept\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	loaded, faults, err = LoadOwn(ctx, dir, loaded)
	if err != nil || len(faults) != 0 || !strings.Contains(handles(), "9200") {
		t.Errorf("not tried again: %+v %v\n%s", faults, err, handles())
	}

	nft(t, "flush", "chain", "inet", Table, "own")
	if _, _, err := LoadOwn(ctx, dir, loaded); err != nil || !strings.Contains(handles(), "9200") {
		t.Errorf("a flushed chain stays empty: %v\n%s", err, handles())
	}
}

// keepsNamesThatAreAway: a rule that was loaded stays while no name server knows its name.
func keepsNamesThatAreAway(ctx context.Context, t *testing.T) {
	hosts := filepath.Join(t.TempDir(), "hosts")
	if err := os.WriteFile(hosts, []byte("192.0.2.55 monitor.example.org\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	if err := unix.Mount(hosts, "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount("/etc/hosts", unix.MNT_DETACH)

	dir := ownDir(t, map[string]string{"a.nft": "tcp dport 9100 ip saddr monitor.example.org accept\n"})
	loaded, faults, err := LoadOwn(ctx, dir, "")
	if err != nil || len(faults) != 0 {
		t.Fatalf("%+v %v", faults, err)
	}

	if err := os.Truncate(hosts, 0); err != nil {
		t.Fatal(err)
	}

	again, faults, err := LoadOwn(ctx, dir, loaded)
	if own := nft(t, "list", "chain", "inet", Table, "own"); err != nil || len(faults) != 0 ||
		again != loaded || !strings.Contains(own, "192.0.2.55") {
		t.Errorf("taken away with the name server: %+v %v\n%s", faults, err, own)
	}
}

// manyNamesThatHang: rules whose names no name server answers for take no others with them,
// however many they are, and no more time than all may.
func manyNamesThatHang(ctx context.Context, t *testing.T) {
	if out, err := exec.Command("ip", "link", "set", "lo", "up").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}

	silent, err := net.ListenPacket("udp", "127.0.0.153:53")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()

	resolver := filepath.Join(t.TempDir(), "resolv.conf")
	if err := os.WriteFile(resolver, []byte("nameserver 127.0.0.153\noptions timeout:30\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	if err := unix.Mount(resolver, "/etc/resolv.conf", "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount("/etc/resolv.conf", unix.MNT_DETACH)

	rules := map[string]string{"z.nft": "tcp dport 9200 accept\n"}
	const hanging = 6
	for i := range hanging {
		rules[fmt.Sprintf("a%d.nft", i)] = fmt.Sprintf("ip saddr host%d.example.org accept\n", i)
	}

	files, _, err := ownFiles(ownDir(t, rules))
	if err != nil {
		t.Fatal(err)
	}

	var good []ownFile
	var faults []Fault
	within := 2 * time.Second
	for ; within <= 32*time.Second; within *= 4 { // nft itself takes seconds on a machine that does much else
		began := time.Now()
		good, faults = acceptedFiles(ctx, files, within)
		if took := time.Since(began); took > 2*within+ownTakes {
			t.Errorf("the checks took %s, and may take %s", took, within)
		}

		if len(good) == 1 {
			break
		}
	}

	if len(good) != 1 || filepath.Base(good[0].path) != "z.nft" || len(faults) != hanging {
		t.Errorf("%d files are good, left out: %+v", len(good), faults)
	}

	for _, f := range faults {
		if !strings.Contains(f.Cause, "no name server that answers") {
			t.Errorf("%+v", f)
		}
	}
}

// generatedRules puts words of nft's language together at random.
func generatedRules(ctx context.Context, t *testing.T, base string) {
	words := []string{"}", "{", "}}", "\n", ";", "\"", "#", "\\\n", " flush ruleset ",
		" delete table inet saltern ", " table inet saltern ", " chain own ", " chain input ",
		" accept ", "tcp dport 1", " policy accept; ", " include \"/etc/hostname\" ", " define x = 1 ", "$x", "\r\n", "\x00", " add ", " set peers ", "type filter hook input priority 0", "comment \"}\""}
	const seed = 41
	random := rand.New(rand.NewPCG(seed, seed))
	for i := range 80 {
		text := ""
		for range 1 + random.IntN(12) {
			text += words[random.IntN(len(words))]
		}

		dir := ownDir(t, map[string]string{"a.nft": text})
		if _, _, err := LoadOwn(ctx, dir, ""); err != nil {
			t.Fatalf("%d: %q: %v", i, text, err)
		}

		if now, err := Rules(ctx); err != nil || now != base {
			t.Fatalf("%d: %q changed the image's rules: %v\n%s", i, text, err, nft(t, "list", "ruleset"))
		}
	}
}

// TestOwnRulesAreBounded: sizes, numbers, names and kinds of files that nobody meant.
func TestOwnRulesAreBounded(t *testing.T) {
	files := map[string]string{
		"big.nft":       strings.Repeat("# x\n", maxOwnSize/4+1),
		"a\"b.nft":      "accept\n",
		"not-rules.txt": "}",
		"ok.nft":        "",
	}

	for i := range maxOwnFiles {
		files[fmt.Sprintf("x%02d.nft", i)] = "tcp dport 1 accept\n"
	}

	dir := ownDir(t, files)
	if err := os.Mkdir(filepath.Join(dir, "folder.nft"), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := exec.Command("mkfifo", filepath.Join(dir, "pipe.nft")).Run(); err != nil {
		t.Fatal(err)
	}

	good, faults, err := ownFiles(dir)
	if err != nil || len(good) != maxOwnFiles {
		t.Errorf("%d files, %v", len(good), err)
	}

	var names []string
	for _, f := range faults {
		names = append(names, filepath.Base(f.File))
	}

	if want := []string{"a\"b.nft", "big.nft", "folder.nft", "pipe.nft", "x63.nft"}; !slices.Equal(names, want) {
		t.Errorf("%q, want %q", names, want)
	}

	if good, faults, err := ownFiles(filepath.Join(dir, "none")); good != nil || faults != nil || err != nil {
		t.Errorf("no folder: %v %v %v", good, faults, err)
	}
}

// TestRulesTellChanges: what somebody does to the rules is seen, what the node does
// to its sets is not; a table that is gone is said so.
func TestRulesTellChanges(t *testing.T) {
	if !inNamespace(t) {
		return
	}

	ctx := t.Context()
	if _, err := Rules(ctx); err != ErrNoTable {
		t.Errorf("no table: %v", err)
	}

	const rules = "../../image/profile/overlay/usr/lib/saltern/nftables.conf"
	nft(t, "-f", rules)
	base, err := Rules(ctx)
	if err != nil {
		t.Fatal(err)
	}

	peers, err := Peers(table())
	if err != nil {
		t.Fatal(err)
	}

	if holds, err := Holds(ctx, peers); holds || err != nil {
		t.Errorf("empty sets hold the nodes: %v", err)
	}

	if err := Apply(ctx, peers); err != nil {
		t.Fatal(err)
	}

	if err := Open(ctx, 8000); err != nil {
		t.Fatal(err)
	}

	nft(t, "add", "element", "inet", Table, "strangers", "{ 192.0.2.7 limit rate over 2/second }")
	if now, err := Rules(ctx); err != nil || now != base {
		t.Errorf("the node's own work looks like somebody's: %v", err)
	}

	if holds, err := Holds(ctx, peers); !holds || err != nil {
		t.Errorf("filled sets do not hold the nodes: %v", err)
	}

	nft(t, "add", "element", "inet", Table, "peers", "{ 192.0.2.9 }")
	if holds, err := Holds(ctx, peers); holds || err != nil {
		t.Errorf("a stranger among the nodes is not seen: %v", err)
	}

	for _, change := range [][]string{
		{"flush", "chain", "inet", Table, "input"},
		{"insert", "rule", "inet", Table, "input", "accept"},
		{"add", "rule", "inet", Table, "stranger", "accept"},
		{"chain", "inet", Table, "input", "{ policy accept; }"},
		{"flush", "chain", "inet", Table, "output"},
		{"add", "chain", "inet", Table, "more", "{ type filter hook input priority -1; }"},
	} {
		nft(t, "-f", rules)
		nft(t, change...)
		if now, err := Rules(ctx); err != nil || now == base {
			t.Errorf("%v is not seen: %v", change, err)
		}
	}
}

// ownDir makes a folder of rules.
func ownDir(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// nft runs a command of nft's in this network namespace.
func nft(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("nft", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("nft %q: %v\n%s", args, err, out)
	}
	return string(out)
}

// inNamespace runs the test again in a network of its own, and reports whether this
// is that run.
func inNamespace(t *testing.T) bool {
	t.Helper()
	const inside = "SALTERN_TEST_FIREWALL"
	if os.Getenv(inside) != "" {
		return true
	}

	for _, tool := range []string{"nft", "unshare"} {
		if _, err := exec.LookPath(tool); err != nil || os.Geteuid() != 0 {
			t.Skipf("SKIPPED: needs root and %s", tool)
		}
	}

	cmd := exec.Command("unshare", "--net", "--mount", os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Env = append(os.Environ(), inside+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: "+t.Name()) {
		t.Fatalf("in a namespace: %v\n%s", err, out)
	}

	return false
}
