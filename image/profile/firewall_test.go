package profile_test

import (
	"os"
	"os/exec"
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
