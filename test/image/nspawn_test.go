//go:build nspawn

package image

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/nodes"
	"saltern/test/lab"
)

// TestNode boots one new node: the console asks, nothing unexpected listens;
// then it is set up there, serves a real minion with templates in its pillar,
// and a supervisor that hangs is replaced.
func TestNode(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	m := boot(t, n, 1, nil)
	m.wait(t, 120*time.Second, "active", "systemctl", "is-active", "multi-user.target")
	wizard := &pages{t: t, x: m, wait: 2 * time.Minute}
	wizard.lead()

	if used, ok := m.cpu(); ok {
		t.Logf("from the start to the set-up on the console: %s of CPU time", used.Round(10*time.Millisecond))
		if used > 5*time.Second && os.Getenv("SALTERN_STRICT") != "" {
			t.Errorf("the start to the set-up took %s of CPU time", used)
		}
	}

	t.Run("identity", func(t *testing.T) {
		if id := strings.TrimSpace(m.run(t, "cat", "/etc/machine-id")); len(id) != 32 {
			t.Errorf("machine-id %q", id)
		}

		m.wait(t, 30*time.Second, "ssh-ed25519", "cat", "/etc/ssh/ssh_host_ed25519_key.pub")
		out, _ := m.try("systemctl", "--failed", "--no-legend", "--plain")
		if strings.TrimSpace(out) != "" {
			t.Errorf("units that failed: %s", out)
		}

		if out, err := m.try("applianced", "status"); exitCode(err) != 4 {
			t.Errorf("status of a new node: %v %s", err, out)
		}
	})

	t.Run("ports", func(t *testing.T) {
		other, _ := n.namespace(t, 90)
		if open := scan(t, other, m.Address); !slices.Equal(open, []int{22}) {
			t.Errorf("open on a new node: %v, want 22 only", open)
		}
	})

	wizard.form(somebody, "node1", m.Address)
	m.wait(t, 120*time.Second, "HEALTHY", "applianced", "status")
	if out := m.run(t, "sh", "-c",
		"hostname; cat /etc/hostname; echo x: >/srv/salt/x.sls; ls /var/lib/saltern/cluster/srv/salt /srv/cluster/srv/salt 2>/dev/null; ls -d /srv/pillar/."); !strings.HasPrefix(out, "node1\nnode1\n") || !strings.Contains(out, "x.sls") {
		t.Errorf("host name, states and pillars: %s", out)
	}

	if out := m.run(t, "/etc/update-motd.d/10-uname"); !strings.Contains(out, "node1: healthy") ||
		!strings.Contains(out, "/srv/salt") {
		t.Errorf("who logs in reads: %s", out)
	}

	wizard.page("This node is ready", "\r")
	wizard.page("minions use", "") // the console page
	console := &networkPage{pages: wizard, m: m}
	t.Run("network", func(t *testing.T) {
		console.try(t, m.Address+"/24", "")
		console.confirm(t)
		console.has(t, true, m.Address+"/24", "")
		console.try(t, m.Address+"/24", n.base+"254")
		console.has(t, true, m.Address+"/24", n.base+"254")
	})

	t.Run("accounts", func(t *testing.T) {
		ps := m.run(t, "ps", "-eo", "user:20,args")
		for _, want := range []string{`saltern-master\s+\S*salt-master`, `saltern-lb\s+\S*saltern-lb lb`} {
			if !regexp.MustCompile(`(?m)^` + want).MatchString(ps) {
				t.Errorf("nobody runs as %s:\n%s", want, ps)
			}
		}
	})

	t.Run("minion", func(t *testing.T) { m.servesGitAndSecrets(t, n, m.serves(t, n)) })
	t.Run("ports of a node that serves", func(t *testing.T) {
		other, _ := n.namespace(t, 91)
		got := scan(t, other, m.Address)
		for _, p := range got {
			if !slices.Contains([]int{22, 4505, 4506, 4521}, p) {
				t.Errorf("port %d is open", p)
			}
		}

		if !slices.Contains(got, 4505) || !slices.Contains(got, 4506) {
			t.Errorf("open: %v", got)
		}
	})

	t.Run("network nobody confirmed", func(t *testing.T) { // a minute is over since
		wizard.page("The network is as it was before", "\x1b")
		console.has(t, true, m.Address+"/24", "")
	})

	t.Run("glusterd", m.restartsDaemon)
	t.Run("watchdog", func(t *testing.T) {
		main := func() string { return strings.TrimSpace(m.run(t, "systemctl", "show", "-P", "MainPID", "applianced")) }
		before := main()
		lb := m.run(t, "pgrep", "-u", "saltern-lb")
		m.run(t, "kill", "-STOP", before)
		lab.Eventually(t, 180*time.Second, "systemd replaces a supervisor that hangs", func() error {
			if now := main(); now == before || now == "0" {
				return fmt.Errorf("still %s", now)
			}
			return nil
		})

		m.wait(t, 120*time.Second, "HEALTHY", "applianced", "status")
		if now := m.run(t, "pgrep", "-u", "saltern-lb"); now != lb {
			t.Errorf("the load balancer was replaced too: %s then %s", lb, now)
		}
	})

	t.Run("bound", m.boundsBalancer)
	t.Run("rest", m.killsRestOfMaster)
}

// killsRestOfMaster: when the master is killed, what it has left in groups of its own ends, too.
func (m *machine) killsRestOfMaster(t *testing.T) {
	master := strings.TrimSpace(m.run(t, "pgrep", "-o", "-x", "salt-master"))
	const join = `set -e
group=$(grep -o -m 1 '/[^:]*/saltern-master-[0-9]*[.]scope' /proc/"$1"/cgroup)
for tree in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
  [ ! -d "$tree$group" ] || echo $$ >"$tree$group/cgroup.procs"
done
setsid sleep 7391 >/dev/null 2>&1 </dev/null &`
	lab.Eventually(t, 90*time.Second, "a process in the master's scope", func() error {
		out, err := m.try("sh", "-c", join, "sh", master)
		if err != nil {
			return errors.New(out + m.run(t, "cat", "/proc/"+master+"/cgroup"))
		}
		return nil
	})
	m.wait(t, 10*time.Second, "", "pgrep", "-xf", "sleep 7391")

	m.run(t, "kill", "-KILL", master)
	lab.Eventually(t, 30*time.Second, "the end of what the master has left", func() error {
		if out, err := m.try("pgrep", "-xf", "sleep 7391"); err == nil {
			return errors.New(out)
		}
		return nil
	})
	m.wait(t, 120*time.Second, "HEALTHY", "applianced", "status")
}

// boundsBalancer: the load balancer has a bound on its memory, also after the supervisor
// was replaced, and gets one as soon as systemd answers when it did not at its start.
func (m *machine) boundsBalancer(t *testing.T) {
	bounded := func() {
		t.Helper()
		scope := "saltern-lb-" + strings.TrimSpace(m.run(t, "pgrep", "-n", "-u", "saltern-lb")) + ".scope"
		lab.Eventually(t, 90*time.Second, "a bound on the memory of "+scope, func() error {
			if out, _ := m.try("systemctl", "show", "-P", "MemoryMax", scope); !regexp.MustCompile(`^\d+\s*$`).MatchString(out) {
				return errors.New(out)
			}
			if out, _ := m.try("applianced", "status"); strings.Contains(out, "SCA-505") {
				return errors.New(out)
			}
			return nil
		})
	}

	bounded()
	const bus = "/run/dbus/system_bus_socket"
	m.run(t, "mv", bus, bus+".away")
	t.Cleanup(func() { _, _ = m.try("mv", bus+".away", bus) })
	m.run(t, "applianced", "restart", "lb")
	m.wait(t, 30*time.Second, "SCA-505 lb has no bound", "applianced", "status")
	m.run(t, "mv", bus+".away", bus)
	bounded()
}

func exitCode(err error) int {
	var e *exec.ExitError
	if errors.As(err, &e) {
		return e.ExitCode()
	}
	return 0
}

// serves has a real minion sign in and get its pillar through the image's own
// renderers. It returns the storage's path.
func (m *machine) serves(t *testing.T, n *network) (storage string) {
	where := regexp.MustCompile(`(?m)^Storage\s+(/[^:]+):`).FindStringSubmatch(m.wait(t, 60*time.Second,
		"Storage", "applianced", "status"))
	if where == nil {
		t.Fatal("the status names no storage")
	}

	m.put(t, where[1]+"/srv/pillar/top.sls", "base:\n  '*': [p]\n")
	m.put(t, where[1]+"/srv/pillar/p.sls", "{% set n = 6 * 7 %}\nanswer: {{ n }}\nwho: {{ grains['id'] }}\n")
	m.put(t, where[1]+"/srv/salt/hello.sls",
		"hello:\n  test.succeed_without_changes:\n    - name: it is {{ pillar['answer'] }} for {{ pillar['who'] }}\n")
	n.minion(t, 50, "web1", m.Address)
	m.wait(t, 120*time.Second, "web1", "salt-key", "-l", "un")
	m.run(t, "salt-key", "-y", "-a", "web1")
	m.wait(t, 120*time.Second, "web1: True", "salt", "--out", "txt", "web1", "test.ping")

	// Salt hides values of pillars in its output; a state's name shows them.
	out := m.wait(t, 180*time.Second, "it is 42 for web1", "salt", "web1", "state.apply", "hello")
	if !strings.Contains(out, "Succeeded: 1") {
		t.Errorf("state.apply: %s", out)
	}

	return where[1]
}

// minion starts a real one on machine number of the network; it knows one
// address. More are lines of its configuration; log is the path of its log.
func (n *network) minion(t *testing.T, number int, id, master string, more ...string) (log string) {
	t.Helper()
	ns, _ := n.namespace(t, number)
	dir := lab.Dir(t)
	venv := lab.Venv(t, lab.Newest)
	lab.WriteTree(t, dir, map[string]string{"etc/minion": fmt.Sprintf(
		"id: %s\nmaster: %s\nroot_dir: %[3]s\npki_dir: %[3]s/pki\ncachedir: %[3]s/cache\nsock_dir: %[3]s/sock\nlog_file: %[3]s/log\npidfile: %[3]s/pid\nuser: root\nacceptance_wait_time: 1\nacceptance_wait_time_max: 1\nrandom_startup_delay: 0\nenable_fqdns_grains: False\n%[4]s\n",
		id, master, dir, strings.Join(more, "\n"))})
	lab.Start(t, "salt-minion", filepath.Join(dir, "out"), "ip", "netns", "exec", ns,
		filepath.Join(venv, "salt-minion"), "-c", filepath.Join(dir, "etc"))
	return filepath.Join(dir, "log")
}

// TestNewAddress: a machine whose answers name a fixed address gets it before
// anything is checked, and goes by it.
func TestNewAddress(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	m := boot(t, n, 31, map[string]string{"etc/saltern/answers.yaml": fmt.Sprintf(
		"mode: form\ncluster_id: blue\nnode: node31\naddress: %[1]s32\nstorage: {kind: local}\nnetwork: {method: static, address: %[1]s32/24}\n", n.base)})
	m.wait(t, 120*time.Second, "HEALTHY", "applianced", "status")
	m.wait(t, 30*time.Second, n.base+"32", "sh", "-c", "cat /etc/systemd/network/10-saltern.network; ip -br addr")

	// On the console page another one is tried: it cannot be kept, and is taken
	// back by key and when the supervisor is lost.
	p := &pages{t: t, x: m, wait: 2 * time.Minute}
	p.page("minions use", "")
	console := &networkPage{pages: p, m: m}
	console.try(t, n.base+"33/24", n.base+"254")
	console.has(t, true, n.base+"33/24", n.base+"254")
	console.has(t, false, n.base+"32/24", "")
	p.page("KEEP IT", "\r")
	p.page("this machine would lose "+n.base+"32", "\x1b")
	p.page("Address with prefix length", "\x03")
	console.has(t, true, n.base+"32/24", "")
	console.try(t, n.base+"33/24", "")
	m.run(t, "kill", "-KILL", strings.TrimSpace(m.run(t, "systemctl", "show", "-P", "MainPID", "applianced")))
	console.has(t, true, n.base+"32/24", "")
	m.wait(t, 120*time.Second, "HEALTHY", "applianced", "status")
}

// TestNewNodesDiffer boots two machines of one image.
func TestNewNodesDiffer(t *testing.T) {
	t.Parallel()
	n := newNetwork(t)
	var machines []*machine
	for i := range 2 {
		machines = append(machines, boot(t, n, 11+i, nil))
	}

	for _, path := range []string{"/etc/machine-id", "/etc/ssh/ssh_host_ed25519_key.pub"} {
		var seen []string
		for _, m := range machines {
			text := strings.TrimSpace(m.wait(t, 120*time.Second, "", "grep", ".", path))
			if slices.Contains(seen, text) {
				t.Errorf("%s is the same on two machines", path)
			}
			seen = append(seen, text)
		}
	}

	t.Run("firewall", func(t *testing.T) { machines[0].followsTable(t) })
}

// followsTable changes the table of nodes many times, also while the firewall
// is being changed, and once when it cannot be; in the end it lets in whom the last table
// names.
func (m *machine) followsTable(t *testing.T) {
	k, err := nodes.OpenKeeper(m.state, "")
	if err != nil {
		t.Fatal(err)
	}

	table := nodes.Table{Cluster: "c", KeyHash: strings.Repeat("ab", 32)}
	more := func() {
		t.Helper()
		n := len(table.Nodes) + 1
		table.Version = uint64(n)
		table.Nodes = append(table.Nodes,
			nodes.Node{Name: fmt.Sprintf("n%d", n), Address: fmt.Sprintf("10.91.0.%d", n), State: nodes.Member,
				Certificate: fmt.Sprintf("%064x", n), Storage: "data"})

		if _, err := k.Offer(table); err != nil {
			t.Fatal(err)
		}
	}

	lets := func() {
		t.Helper()
		m.wait(t, 30*time.Second, fmt.Sprintf("10.91.0.%d", len(table.Nodes)), "nft", "list", "set", "inet",
			"saltern", "peers")
	}

	for range 5 {
		for range 10 {
			more()
			time.Sleep(10 * time.Millisecond) // so that they come while it works
		}
		lets()
	}

	// What could not be changed is changed later, without another table.
	m.run(t, "nft", "delete", "table", "inet", "saltern")
	more()
	m.wait(t, 30*time.Second, "exit-code", "systemctl", "show", "-P", "Result", "saltern-firewall.service")
	m.run(t, "nft", "-f", "/etc/nftables.conf")
	lets()
}

// scan tries the ports that the documents name and those around them from
// another machine, and gives the open ones.
func scan(t *testing.T, namespace, address string) []int {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command("ip", "netns", "exec", namespace, self, "-test.run", "^TestScanner$")
	cmd.Env = append(os.Environ(), "SALTERN_SCAN="+address)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("scan: %v %s", err, out)
	}

	var open []int
	for _, f := range regexp.MustCompile(`OPEN (\d+)`).FindAllStringSubmatch(string(out), -1) {
		p, _ := strconv.Atoi(f[1])
		open = append(open, p)
	}

	return open
}

// TestScanner is what scan runs in another namespace.
func TestScanner(t *testing.T) {
	address := os.Getenv("SALTERN_SCAN")
	if address == "" {
		t.Skip("called by other tests only")
	}

	ports := []int{22, 24007, 24008, 24009, 49152, 49153, 14505, 14506, 4520, 4521, 111, 2049, 38465}
	for p := 1; p < 1024; p++ {
		ports = append(ports, p)
	}

	for p := 4500; p < 4530; p++ {
		ports = append(ports, p)
	}

	slices.Sort(ports)
	found := make(chan int, len(ports))
	slots := make(chan struct{}, 600)
	ports = slices.Compact(ports)
	for _, p := range ports {
		slots <- struct{}{}
		go func() {
			defer func() { <-slots }()
			c, err := net.DialTimeout("tcp", net.JoinHostPort(address, strconv.Itoa(p)), 3*time.Second)
			if err == nil {
				c.Close()
				found <- p
			} else {
				found <- 0
			}
		}()
	}

	var open []int
	for range ports {
		if p := <-found; p != 0 {
			open = append(open, p)
		}
	}

	slices.Sort(open)
	for _, p := range open {
		fmt.Println("OPEN", p)
	}
}
