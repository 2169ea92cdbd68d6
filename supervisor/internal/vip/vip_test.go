package vip

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite the recorded files")

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

var three = Config{
	Node:    "n2",
	Cluster: strings.Repeat("ab", 32),
	Virtual: addr("10.0.0.20"),
	Where:   Where{"eth0", "eth0"},
	Own:     addr("10.0.0.2"),
	Peers:   []netip.Addr{addr("10.0.0.1"), addr("10.0.0.3")},
	Rank:    1,
	Check:   []string{"/usr/bin/applianced", "--socket", "/run/saltern/applianced.sock", "virtual-address", "--fit"},
}

// What is written is what was recorded.
func TestRender(t *testing.T) {
	alone, two, six := three, three, three
	alone.Peers, alone.Rank = nil, 0
	two.Where.Device = "eth1"
	six.Virtual, six.Own, six.Peers = addr("fd00::20"), addr("fd00::2"), []netip.Addr{addr("fd00::1")}

	for name, c := range map[string]Config{"three": three, "alone": alone, "two-interfaces": two, "ipv6": six} {
		t.Run(name, func(t *testing.T) {
			text, err := Render(c)
			if err != nil {
				t.Fatal(err)
			}

			path := filepath.Join("testdata", name+".conf")
			if *update {
				if err := os.WriteFile(path, text, 0o644); err != nil {
					t.Fatal(err)
				}
			}

			want, err := os.ReadFile(path)
			if err != nil || string(want) != string(text) {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// Debian's keepalived takes the recorded files, without a warning.
func TestKeepalivedTakesIt(t *testing.T) {
	if _, err := Program(); err != nil {
		t.Skipf("NOT TESTED: %v", err)
	}

	ns := host(t)
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(files) < 4 {
		t.Fatalf("%d files, %v", len(files), err)
	}

	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}

		tried := filepath.Join(t.TempDir(), "c")
		if err := os.WriteFile(tried,
			[]byte(strings.ReplaceAll(string(text), "/usr/bin/applianced", "/bin/true")), 0o600); err != nil {
			t.Fatal(err)
		}

		if out, err := exec.Command("ip", "netns", "exec", ns, "keepalived", "--vrrp", "--config-test",
			"--use-file", tried).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("keepalived refuses %s: %v\n%s", f, err, out)
		}
	}
}

func TestRenderRefuses(t *testing.T) {
	mixed, words, none := three, three, three
	mixed.Virtual = addr("fd00::20")
	words.Check = []string{"/usr/bin/app lianced"}
	none.Check = nil
	for name, c := range map[string]Config{"of the same kind": mixed, "cannot be written": words, "no check": none} {
		if _, err := Render(c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestDerived(t *testing.T) {
	seen := map[int]bool{}
	for _, c := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
		id, pass := routerID(c), password(c)
		if id < 1 || id > 255 || len(pass) != 8 || routerID(c) != id || password(c) != pass {
			t.Errorf("%s: %d %q", c, id, pass)
		}
		seen[id] = true
	}

	if len(seen) < 4 {
		t.Errorf("ids do not differ: %v", seen)
	}

	if priority(0) != 250 || priority(63) < 1 || priority(500) != 1 {
		t.Error(priority(0), priority(63), priority(500))
	}
}

func TestPlace(t *testing.T) {
	p := netip.MustParsePrefix
	list := []Interface{
		{"lo", []netip.Prefix{p("127.0.0.1/8")}},
		{"eth0", []netip.Prefix{p("10.0.0.2/24"), p("10.0.0.20/32"), p("fe80::1/64"), p("fd00::2/64")}},
		{"eth1", []netip.Prefix{p("192.0.2.7/28")}},
	}

	for _, c := range []struct{ virtual, own, want string }{
		{"10.0.0.20", "10.0.0.2", "eth0 eth0"}, {"192.0.2.9", "10.0.0.2", "eth0 eth1"}, {"fd00::20", "fd00::2", "eth0 eth0"},
		{"10.0.1.20", "10.0.0.2", "none of this node's networks"}, {"10.0.0.20", "10.0.0.3", "no interface of this node has its address"},
		{"10.0.0.2", "10.0.0.2", "own address"}, {"10.0.0.0", "10.0.0.2", "whole network 10.0.0.0/24"}, {"192.0.2.15", "10.0.0.2", "whole network 192.0.2.0/28"},
	} {
		w, err := Place(addr(c.virtual), addr(c.own), list)
		got := w.Interface + " " + w.Device
		if err != nil {
			got = err.Error()
		}

		if !strings.Contains(got, c.want) {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// host makes a network namespace with the interfaces eth0 and eth1; eth0 is in
// 198.18.77.0/24 as 2, and this process as 1.
func host(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: namespaces need root")
	}

	name := fmt.Sprintf("svip%d", os.Getpid()%100000)
	t.Cleanup(func() {
		for _, args := range [][]string{
			{"link", "del", name + "a"},
			{"link", "del", name + "b"},
			{"netns", "del", name},
		} {
			_ = exec.Command("ip", args...).Run() // the first failure has made less
		}
	})

	for _, args := range [][]string{
		{"netns", "add", name},
		{"link", "add", name + "a", "type", "veth", "peer", "name", "eth0", "netns", name},
		{"link", "add", name + "b", "type", "veth", "peer", "name", "eth1", "netns", name},
		{"addr", "add", "198.18.77.1/24", "dev", name + "a"},
		{"link", "set", name + "a", "up"},
		{"-n", name, "addr", "add", "198.18.77.2/24", "dev", "eth0"},
		{"-n", name, "link", "set", "eth0", "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Skipf("NOT TESTED: no namespaces can be made here: ip %v: %v: %s", args, err, out)
		}
	}

	return name
}

// On a pretend network, a host is found at its address and at no other.
func TestInUse(t *testing.T) {
	host(t)
	for a, want := range map[string]bool{"198.18.77.2": true, "198.18.77.3": false, "198.18.77.1": false} {
		if got, err := InUse(t.Context(), addr(a)); got != want || err != nil {
			t.Errorf("%s: %v, %v", a, got, err)
		}
	}
	if !Held(addr("198.18.77.1")) || Held(addr("198.18.77.2")) {
		t.Error("Held")
	}
}
