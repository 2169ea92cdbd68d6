package lab

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// Network is a bridge with pretend hosts on it, each a network namespace with
// an address of its own. The test process is on it too, so that what it dials
// goes over the bridge. Root is needed; without it the test is skipped, loudly.
type Network struct {
	prefix string // of names of namespaces and links, at most 7 bytes
	bridge string
	net    string // "10.50.7."
	hosts  map[string]string
	links  map[string]string // the end of each host's cable at the bridge
	space  string            // the namespace of the bridge; empty: the test's
}

// AdoptNetwork gives hosts that others have made as a network, for Cut, Deafen and their like.
// net begins their addresses ("10.50.7."); space is the namespace of their bridge; hosts are
// their namespaces and links the ends of their cables at the bridge, by address.
func AdoptNetwork(net, space string, hosts, links map[string]string) *Network {
	return &Network{
		net:   net,
		space: space,
		hosts: hosts,
		links: links,
	}
}

// NewNetwork makes a network. prefix begins the names of what it makes (three
// letters), base is the first two numbers of its addresses, such as "10.50".
// Everything is gone at the end of the test.
func NewNetwork(t testing.TB, prefix, base string) *Network {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: namespaces need root")
	}

	n := &Network{hosts: map[string]string{}, links: map[string]string{}}
	var last error
	for range 50 { // until the addresses are free: the bridge is named after them
		k := rand.IntN(250)
		n.prefix, n.net = fmt.Sprintf("%s%02x", prefix, k), fmt.Sprintf("%s.%d.", base, k)
		n.bridge = fmt.Sprintf("lab%s.%d", base, k)
		if last = ipCommand("link", "add", n.bridge, "type", "bridge"); last == nil {
			break
		}
	}

	if last != nil {
		t.Skipf("NOT TESTED: no bridge can be made here: %v", last)
	}

	t.Cleanup(func() {
		for _, ns := range n.hosts {
			_ = ipCommand("netns", "del", ns)
		}
		_ = ipCommand("link", "del", n.bridge)
	})

	n.must(t, "addr", "add", n.net+"254/24", "dev", n.bridge)
	n.must(t, "link", "set", n.bridge, "up")
	return n
}

func ipCommand(args ...string) error {
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

func (n *Network) must(t testing.TB, args ...string) {
	t.Helper()
	if err := ipCommand(args...); err != nil {
		t.Fatal(err)
	}
}

// Host adds a host and gives its address; number is the last part of it,
// 1 to 99.
func (n *Network) Host(t testing.TB, number int) string {
	t.Helper()
	addr, ns := fmt.Sprint(n.net, number), fmt.Sprintf("%s-%d", n.prefix, number)
	veth := fmt.Sprintf("%sv%d", n.prefix, number)
	n.must(t, "netns", "add", ns)
	n.hosts[addr] = ns
	n.links[addr] = veth
	n.must(t, "link", "add", veth, "type", "veth", "peer", "name", "eth0", "netns", ns)
	n.must(t, "link", "set", veth, "master", n.bridge, "up")
	n.must(t, "-n", ns, "addr", "add", addr+"/24", "dev", "eth0")
	n.must(t, "-n", ns, "link", "set", "lo", "up")
	n.must(t, "-n", ns, "link", "set", "eth0", "up")
	return addr
}

// Namespace is the path of a host's network namespace, for what is put into it by
// others, such as containers.
func (n *Network) Namespace(addr string) string { return "/run/netns/" + n.hosts[addr] }

// Outside is the address of the test process and of what it starts outside
// of the hosts, such as minions.
func (n *Network) Outside() string { return n.net + "254" }

// Elsewhere is a second address of the test process, from which it has to dial by name.
func (n *Network) Elsewhere(t testing.TB) string {
	t.Helper()
	addr := n.net + "253"
	n.must(t, "addr", "add", addr+"/24", "dev", n.bridge)
	return addr
}

// setLink sets the end of a host's cable at the bridge up or down.
func (n *Network) setLink(t testing.TB, addr, state string) {
	t.Helper()
	args := []string{"link", "set", n.links[addr], state}
	if n.space != "" {
		args = append([]string{"-n", n.space}, args...)
	}
	n.must(t, args...)
}

// Cut pulls the cable of a host: no reset and no end of stream tells the
// others. Mend puts it back.
func (n *Network) Cut(t testing.TB, addr string) {
	t.Helper()
	n.setLink(t, addr, "down")
}

// Mend ends Cut.
func (n *Network) Mend(t testing.TB, addr string) {
	t.Helper()
	n.setLink(t, addr, "up")
}

// Bar drops what two hosts send each other from or to a TCP port, as a firewall
// between them would. Unbar ends that for the first of them.
func (n *Network) Bar(t testing.TB, host, other string, port int) {
	t.Helper()
	rules := "table inet lab {\n"
	for hook, end := range map[string]string{"input": "saddr", "output": "daddr"} {
		rules += fmt.Sprintf("chain %[1]s { type filter hook %[1]s priority 0; }\n", hook)
		for _, side := range []string{"dport", "sport"} {
			rules += fmt.Sprintf("chain %s { ip %s %s tcp %s %d drop; }\n", hook, end, other, side, port)
		}
	}
	n.filter(t, host, rules+"}\n")
}

// filter loads rules of nftables into a host.
func (n *Network) filter(t testing.TB, host, rules string) {
	t.Helper()
	cmd := exec.Command("ip", "netns", "exec", n.hosts[host], "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("nft: %v: %s", err, out)
	}
}

// Deafen has a host receive nothing, while it can send. Unbar ends that.
func (n *Network) Deafen(t testing.TB, host string) {
	t.Helper()
	n.filter(t, host, `table inet lab { chain input { type filter hook input priority 0; iif != "lo" drop; }; }`+"\n")
}

// Mute has a host send nothing, while it receives. Unbar ends that.
func (n *Network) Mute(t testing.TB, host string) {
	t.Helper()
	n.filter(t, host, `table inet lab { chain output { type filter hook output priority 0; oif != "lo" drop; }; }`+"\n")
}

// Lose drops so many of a hundred packets that a host receives. Unbar ends that.
func (n *Network) Lose(t testing.TB, host string, percent int) {
	t.Helper()
	n.filter(t, host, fmt.Sprintf("table inet lab { chain input { type filter hook input priority 0; "+
		"iif != \"lo\" numgen random mod 100 < %d drop; }; }\n", percent))
}

// Apart drops all that a host and these others send each other; minions reach it. Unbar ends that.
func (n *Network) Apart(t testing.TB, host string, others ...string) {
	t.Helper()
	list := strings.Join(others, ", ")
	n.filter(t, host, fmt.Sprintf("table inet lab {\n"+
		"chain input { type filter hook input priority 0; ip saddr { %[1]s } drop; }\n"+
		"chain output { type filter hook output priority 0; ip daddr { %[1]s } drop; }\n}\n", list))
}

// Unbar ends Bar, Deafen, Mute, Lose and Apart.
func (n *Network) Unbar(t testing.TB, host string) {
	t.Helper()
	n.must(t, "netns", "exec", n.hosts[host], "nft", "delete", "table", "inet", "lab")
}

// Forget takes an address from a host, as its machine does when it loses power.
func (n *Network) Forget(host, addr string) {
	_ = ipCommand("-n", n.hosts[host], "addr", "del", addr+"/32", "dev", "eth0") // it may not have had it
}

// Virtual is an address that belongs to no host yet; see Move.
func (n *Network) Virtual() string { return n.net + "200" }

// Move gives the virtual address to a host, and takes it from all others, as
// a program for virtual addresses does when a host is lost.
func (n *Network) Move(t testing.TB, to string) {
	t.Helper()
	v := n.Virtual()
	for addr, ns := range n.hosts {
		if addr != to {
			_ = ipCommand("-n", ns, "addr", "del", v+"/32", "dev", "eth0") // most do not have it
		}
	}
	n.must(t, "-n", n.hosts[to], "addr", "replace", v+"/32", "dev", "eth0")
	// The test's own table of neighbours; a router is told by an announcement.
	_ = ipCommand("neigh", "del", v, "dev", n.bridge)
}

// Also gives a host a further address; number is its last part, 1 to 199. Host
// "" is the test process.
func (n *Network) Also(t testing.TB, host string, number int) string {
	t.Helper()
	addr := fmt.Sprint(n.net, number)
	if host == "" {
		n.must(t, "addr", "add", addr+"/32", "dev", n.bridge)
	} else {
		n.must(t, "-n", n.hosts[host], "addr", "add", addr+"/24", "dev", "eth0")
	}
	return addr
}

// Start is [Start] on a host; host "" or a nil network: here.
func (n *Network) Start(t testing.TB, host, name, logPath, path string, args ...string) *Proc {
	t.Helper()
	path, args = n.wrap(host, path, args)
	return Start(t, name, logPath, path, args...)
}

// wrap gives the command line that runs a program on a host; addr "" or a nil
// network: here.
func (n *Network) wrap(addr, path string, args []string) (string, []string) {
	space := n.namespace(addr)
	if space == "" {
		return path, args
	}
	return "ip", append([]string{"netns", "exec", space, path}, args...)
}

// namespace returns the name of a host's namespace; empty: addr is "" or the network nil, so that
// programs run here.
func (n *Network) namespace(addr string) string {
	if n == nil {
		return ""
	}
	return n.hosts[addr]
}
