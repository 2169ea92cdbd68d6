//go:build nspawn

package image

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/creack/pty"
	"github.com/hinshun/vt10x"

	"saltern/test/lab"
)

// tree is the folder that is booted.
func tree(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("SALTERN_TREE")
	if dir == "" {
		t.Fatal("SALTERN_TREE must name a tree (make test-nspawn sets it)")
	}
	return dir
}

// networks counts them: tests run side by side.
var networks atomic.Int32

// network is one bridge with pretend machines, each a network namespace.
type network struct{ bridge, base string }

func newNetwork(t testing.TB) *network {
	t.Helper()
	able(t)
	n := &network{bridge: fmt.Sprintf("sim%d%c", os.Getpid()%10000, 'a'+networks.Add(1)%26), base: "10.90.0."}
	ip(t, "link", "add", n.bridge, "type", "bridge")
	t.Cleanup(func() { _ = exec.Command("ip", "link", "del", n.bridge).Run() })
	ip(t, "link", "set", n.bridge, "up")
	return n
}

func ip(t testing.TB, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

// namespace adds a machine's namespace with the address base+number.
func (n *network) namespace(t testing.TB, number int) (name, address string) {
	t.Helper()
	name, address = fmt.Sprintf("%s-%d", n.bridge, number), n.base+strconv.Itoa(number)
	veth := fmt.Sprintf("%sv%d", n.bridge, number)
	ip(t, "netns", "add", name)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	ip(t, "link", "add", veth, "type", "veth", "peer", "name", "host0", "netns", name)
	ip(t, "link", "set", veth, "master", n.bridge, "up")
	ip(t, "-n", name, "link", "set", "lo", "up")
	ip(t, "-n", name, "addr", "add", address+"/24", "dev", "host0")
	ip(t, "-n", name, "link", "set", "host0", "up")
	return name, address
}

// machine is a booted tree.
type machine struct {
	Name, Address string
	namespace     string
	root, state   string // its file system and /var/lib/saltern, seen from outside
	enter         string // shell commands that enter its control groups
	options       []string
	pid           int // its first process, seen from outside; 0: off
	cmd           *exec.Cmd
	tty           *os.File
	ended         chan struct{} // closed when it has ended
	read          chan struct{} // closed when its console has been read to the end

	vt vt10x.Terminal // its console, 80x24
}

// boot starts machine number with files put into its root before.
func boot(t testing.TB, n *network, number int, files map[string]string) *machine {
	t.Helper()
	m := prepare(t, n, number)
	m.mount(t, tree(t))
	lab.WriteTree(t, m.root, files)
	m.launch(t)
	return m
}

// mount puts what is on the machine's disk over folders that are only read.
func (m *machine) mount(t testing.TB, lower string) {
	t.Helper()
	dir := filepath.Dir(m.root)
	opt := fmt.Sprintf("lowerdir=%s,upperdir=%s/up,workdir=%s/wk", lower, dir, dir)
	if out, err := exec.Command("mount", "-t", "overlay", "-o", opt, "overlay", m.root).CombinedOutput(); err != nil {
		t.Fatalf("mount overlay: %v: %s", err, out)
	}
}

// prepare makes machine number; it has no root yet, and is off.
func prepare(t testing.TB, n *network, number int) *machine {
	t.Helper()
	m := &machine{Name: fmt.Sprintf("node%d", number)}
	m.namespace, m.Address = n.namespace(t, number)
	dir := t.TempDir()
	if err := exec.Command("mount", "-t", "tmpfs", "-o", "size=2g,mode=0755", "simtmp", dir).Run(); err != nil {
		t.Fatalf("mount tmpfs: %v", err)
	}

	t.Cleanup(func() { _ = exec.Command("umount", "-l", dir).Run() })
	m.root, m.state = filepath.Join(dir, "root"), filepath.Join(dir, "state")
	for _, d := range []string{"up", "wk", "root", "state"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}

	t.Cleanup(func() { _ = exec.Command("umount", "-l", m.root).Run() })

	// An own control group in each hierarchy: with --keep-unit all machines would
	// share the caller's, and systemd could not kill what it started.
	var enter strings.Builder
	for _, h := range []string{"unified", "systemd", "."} {
		cg := filepath.Join("/sys/fs/cgroup", h)
		if _, err := os.Stat(filepath.Join(cg, "cgroup.procs")); err != nil {
			continue
		}

		own := filepath.Join(cg, m.namespace)
		fmt.Fprintf(&enter, "mkdir -p %s && echo $$ > %s/cgroup.procs; ", own, own)
		t.Cleanup(func() {
			// What was killed may take a moment to be gone.
			lab.Eventually(t, 20*time.Second, "the control group is empty", func() error {
				_ = exec.Command("find", own, "-depth", "-type", "d", "-exec", "rmdir", "{}", ";").Run()
				if _, err := os.Stat(own); !os.IsNotExist(err) {
					return fmt.Errorf("%s is there still (%v)", own, err)
				}
				return nil
			})
		})
	}

	m.enter = enter.String()
	t.Cleanup(func() { m.cut(t) })
	t.Cleanup(func() {
		if t.Failed() && m.pid != 0 {
			out, _ := m.try("sh", "-c", `journalctl -b -u applianced --no-pager -o short-monotonic | grep -E "storage|mount|set-up" | tail -40
applianced status; nft list set inet saltern peers; gluster peer status; gluster volume heal cluster info`)
			t.Logf("%s at the end:\n%s", m.Name, out)
		}
	})

	return m
}

// launch switches it on, with whatever is on its disk.
func (m *machine) launch(t testing.TB) {
	t.Helper()
	m.cmd = exec.Command("sh", "-c", m.enter+
		`exec "$@"`, "sh", "systemd-nspawn", "-q", "-bD", m.root, "-M", m.namespace, "--register=no", "--keep-unit",
		"--network-namespace-path=/run/netns/"+
			m.namespace, "--capability=CAP_NET_ADMIN", "--bind=/dev/fuse", "--bind="+m.state+
			":/var/lib/saltern", "--hostname="+m.Name)

	m.cmd.Args = append(m.cmd.Args, m.options...)
	m.read, m.vt = make(chan struct{}), vt10x.New(vt10x.WithSize(80, 24))
	var err error
	m.ended, err = startChild(m.cmd, func() (err error) {
		m.tty, err = pty.StartWithSize(m.cmd, &pty.Winsize{Rows: 24, Cols: 80})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	go m.keepScreen(m.tty, m.read)
	lab.Eventually(t, 60*time.Second, m.Name+" starts", func() error {
		m.pid = child(m.cmd.Process.Pid)
		if m.pid == 0 {
			return fmt.Errorf("no process yet; console: %s", m.Screen())
		}
		return nil
	})
}

func (m *machine) keepScreen(tty *os.File, read chan struct{}) {
	defer close(read)
	buf := make([]byte, 4096)
	for {
		n, err := tty.Read(buf)
		_, _ = m.vt.Write(buf[:n])
		if err != nil {
			return
		}
	}
}

// cpu is what the machine has used since its start, if the kernel tells.
func (m *machine) cpu() (time.Duration, bool) {
	for _, h := range []string{"unified", "."} {
		b, err := os.ReadFile(filepath.Join("/sys/fs/cgroup", h, m.namespace, "cpu.stat"))
		if err != nil {
			continue
		}
		for l := range strings.Lines(string(b)) {
			if v, ok := strings.CutPrefix(strings.TrimSpace(l), "usage_usec "); ok {
				n, err := strconv.ParseInt(v, 10, 64)
				return time.Duration(n) * time.Microsecond, err == nil
			}
		}
	}
	return 0, false
}

// Screen is what the console shows.
func (m *machine) Screen() string { return text(m.vt) }

// Type types text on the console.
func (m *machine) Type(t testing.TB, text string) {
	t.Helper()
	if _, err := m.tty.WriteString(text); err != nil {
		t.Fatalf("%s: console: %v", m.Name, err)
	}
}

// child finds the machine's systemd below nspawn.
func child(of int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", of, of))
	if err != nil {
		return 0
	}
	for _, f := range strings.Fields(string(b)) {
		pid, _ := strconv.Atoi(f)
		if comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil &&
			strings.TrimSpace(string(comm)) == "systemd" {
			return pid
		}
	}
	return 0
}

// cut is a power cut: everything of the machine dies at once.
func (m *machine) cut(t testing.TB) {
	if m.cmd == nil {
		return
	}

	_ = m.cmd.Process.Kill()
	if m.pid != 0 {
		if p, err := os.FindProcess(m.pid); err == nil {
			_ = p.Kill()
		}
	}

	<-m.ended
	_ = m.tty.Close()
	select {
	case <-m.read:
	case <-time.After(lab.Limit(20 * time.Second)):
		t.Errorf("%s: the console does not end", m.Name)
	}

	m.cmd, m.pid = nil, 0
}

// inside runs a command in the machine; in is what it reads, "" for nothing. A machine that goes down
// stops its processes first, and nsenter itself with them: it would never go on, nor end
// by the timeout inside.
func (m *machine) inside(in string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 65*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "nsenter",
		append([]string{"-t", strconv.Itoa(m.pid), "-a", "timeout", "60"}, args...)...)
	cmd.WaitDelay = 2 * time.Second
	if in != "" {
		cmd.Stdin = strings.NewReader(in)
	}
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// try runs a command inside.
func (m *machine) try(args ...string) (string, error) {
	return m.inside("",
		append([]string{"env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8"}, args...)...)
}

func (m *machine) run(t testing.TB, args ...string) string {
	t.Helper()
	out, err := m.try(args...)
	if err != nil {
		t.Fatalf("%s: %s: %v: %s\njournal:\n%s", m.Name, strings.Join(args, " "), err, out, m.journal())
	}
	return out
}

// put writes a file inside.
func (m *machine) put(t testing.TB, path, text string) {
	t.Helper()
	if out, err := m.inside(text, "sh", "-c", `mkdir -p "$(dirname "$1")" && cat >"$1" && chmod 0644 "$1"`,
		"sh", path); err != nil {
		t.Fatalf("%s: write %s: %v: %s", m.Name, path, err, out)
	}
}

func (m *machine) journal() string {
	out, _ := m.try("journalctl", "-b", "--no-pager", "-n", "60", "-o", "short-monotonic")
	return out
}

// wait waits until a command inside ends with code 0 and says the words.
func (m *machine) wait(t testing.TB, limit time.Duration, words string, args ...string) string {
	t.Helper()
	var last string
	defer func() {
		if t.Failed() {
			t.Logf("%s: journal:\n%s", m.Name, m.journal())
		}
	}()

	lab.Eventually(t, limit, fmt.Sprintf("%s: %s says %q", m.Name, strings.Join(args, " "), words), func() error {
		out, err := m.try(args...)
		last = out
		if err != nil || !strings.Contains(out, words) {
			return fmt.Errorf("%v: %s", err, out)
		}
		return nil
	})

	return last
}
