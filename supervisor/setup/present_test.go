package setup

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPresentNetwork: what an interface has is told as the kernel knows it, in
// a network of its own.
func TestPresentNetwork(t *testing.T) {
	var got []Interface
	var skipped string
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with its network
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			skipped = err.Error()
			return
		}

		for _, line := range []string{"link add d0 type veth peer name e0",
			"link add d1 type veth peer name e1", "link add d2 type veth peer name e2",
			"link set d0 up", "link set e0 up", "link set d1 up", "link set e1 up",
			"addr add 192.0.2.7/24 dev d0 valid_lft 600 preferred_lft 600", "addr add 198.51.100.7/24 dev d1"} {
			if out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput(); err != nil {
				skipped = "ip " + line + ": " + string(out)
				return
			}
		}

		got = slices.DeleteFunc(interfaces(), func(i Interface) bool { return i.Name[0] == 'e' })
	}()

	<-done
	if skipped != "" {
		t.Skipf("NOT TESTED: no network of its own can be made here: %s", skipped)
	}

	if len(got) != 3 || !got[0].DHCP || !got[0].Up || got[1].DHCP ||
		!slices.Contains(got[1].Addresses, "198.51.100.7/24") || got[2].Up || got[2].DHCP {
		t.Errorf("%+v", got)
	}
}

func TestDefaultRoute(t *testing.T) {
	const head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	const six = "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000002 00000000 00000001     eth0\n" +
		"00000000000000000000000000000000 00 00000000000000000000000000000000 00 fd000000000000000000000000000001 00000400 00000002 00000000 00000003     eth6\n"
	for name, tt := range map[string]struct{ four, six, iface, gateway string }{
		"least metric": {head + "eth1\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\neth0\t00000000\t020200C0\t0003\t0\t0\t10\t00000000\t0\t0\t0\n",
			six, "eth0", "192.0.2.2"},
		"no gateway": {head + "ppp0\t00000000\t00000000\t0001\t0\t0\t0\t00000000\t0\t0\t0\n", six, "ppp0", ""},
		"IPv6 alone": {head, six, "eth6", "fd00::1"},
		"none":       {head, "", "", ""},
	} {
		dir := t.TempDir()
		for file, text := range map[string]string{"route": tt.four, "ipv6_route": tt.six} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}

		if iface, gateway := defaultRoute(dir); iface != tt.iface || gateway != tt.gateway {
			t.Errorf("%s: %s by %s", name, iface, gateway)
		}
	}
}

func TestResolvers(t *testing.T) {
	dir := t.TempDir()
	stub, real := filepath.Join(dir, "stub"), filepath.Join(dir, "real")
	for path, text := range map[string]string{
		stub: "nameserver 127.0.0.53\n",
		real: "# from resolved\nnameserver 192.0.2.53\nnameserver 192.0.2.54\nsearch example.org lan\n",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	servers, search := resolvers(real, stub)
	if strings.Join(servers, " ") != "192.0.2.53 192.0.2.54" || strings.Join(search, " ") != "example.org lan" {
		t.Errorf("%v %v", servers, search)
	}

	if servers, _ := resolvers(filepath.Join(dir, "none"), stub); len(servers) != 1 {
		t.Errorf("%v", servers)
	}
}
