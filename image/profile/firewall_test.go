package profile_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestFinding23InstanceMetadata: only root reaches the cloud's metadata, which
// hold the machine's answers. In a network of its own, with the address on its
// loopback: who gets through is refused by the port, who does not by the rule.
func TestFinding23InstanceMetadata(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root makes networks")
	}

	for _, p := range []string{"nft", "ip", "python3"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skip("NOT TESTED: ", err)
		}
	}

	const ask = `import os,socket,sys
os.setuid(int(sys.argv[1]))
s=socket.socket(socket.AF_INET6 if ":" in sys.argv[2] else socket.AF_INET)
s.settimeout(10)
print(os.strerror(s.connect_ex((sys.argv[2],int(sys.argv[3])))))`

	script := `set -e
ip link set lo up
ip address add 169.254.169.254/32 dev lo
ip address add fd00:ec2::254/128 dev lo 2>/dev/null || true
nft -f overlay/usr/lib/saltern/nftables.conf
for uid in 0 801 65534; do for port in 80 53; do
echo "$uid $port $(python3 -c "$1" $uid 169.254.169.254 $port)"
done; done`

	cmd := exec.Command("sh", "-c", script, "sh", ask)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	for line := range strings.Lines(strings.TrimSpace(string(out)) + "\n") {
		want := "Connection refused" // by the port: the way is open
		if !strings.HasPrefix(line, "0 ") && strings.Contains(line, " 80 ") {
			want = "No route to host"
		}
		if !strings.Contains(line, want) {
			t.Errorf("%q, want %s", strings.TrimSpace(line), want)
		}
	}

	if strings.Count(string(out), "\n") != 6 {
		t.Errorf("%s", out)
	}
}

// TestRefusedRulesLeaveAFirewall: with a fault in /etc/nftables.conf a reload fails and changes
// nothing; at a start, when nothing is loaded, the image's own rules are.
func TestRefusedRulesLeaveAFirewall(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root makes networks")
	}

	if _, err := exec.LookPath("nft"); err != nil {
		t.Skip("NOT TESTED: ", err)
	}

	text, err := os.ReadFile("overlay/usr/libexec/saltern/rules")
	if err != nil {
		t.Fatal(err)
	}

	images, err := filepath.Abs("overlay/usr/lib/saltern/nftables.conf")
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	own := filepath.Join(dir, "nftables.conf")
	rules := strings.NewReplacer("/run/saltern-guards", filepath.Join(dir, "run"), "/etc/nftables.conf", own,
		"/usr/lib/saltern/nftables.conf", images, "/usr/bin/applianced", "true").Replace(string(text))

	const script = `load() { sh -c "$1" 2>/dev/null; echo "exit $?, $(nft list ruleset | grep -c -e 'dport 2222' -e 'jump own')"; }
echo 'acept' >$2; load "$1"; ls $3
printf 'include "%s"\nadd rule inet saltern input tcp dport 2222 accept\n' $4 >$2; load "$1"; ls $3
echo 'acept' >>$2; load "$1"; ls $3
nft flush ruleset; load "$1"`

	cmd := exec.Command("sh", "-c", script, "sh", rules, own, filepath.Join(dir, "run"), images)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	out, err := cmd.CombinedOutput()
	const want = `exit 0, 1
rules.refused
exit 0, 2
exit 1, 2
rules.refused
exit 0, 1
`

	if err != nil || string(out) != want {
		t.Errorf("%v\n%s\nwant\n%s", err, out, want)
	}
}
