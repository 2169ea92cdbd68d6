package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// Node is a one-node appliance on an address of its own.
type Node struct {
	*Proc
	Addr     string
	Dir      string
	Settings *settings.Settings
	program  string // path of its applianced
	config   string
	minions  sync.Map // of *Minion by id: those that were started for this node
}

// NodeConfig changes the node that [StartNode] makes.
type NodeConfig struct {
	Options map[string]any    // master.options of appliance.yaml
	States  map[string]string // files under the file root
	Pillar  map[string]string // files under the pillar root
	Extra   map[string]any    // further top-level keys of appliance.yaml
	Addr    string            // an address of this machine whose ports are free; empty: a loopback address
	Disk    string            // size of a file system of its own for the data, such as "64m"; needs root
	Bin     string            // the folder of applianced and what it starts; empty: that of [Bin]
}

// StartNode starts applianced and waits until it serves.
func StartNode(t testing.TB, c NodeConfig) *Node {
	t.Helper()
	n := PrepareNode(t, c)
	n.Launch(t)
	return n
}

// PrepareNode makes the folders and the configuration and starts nothing.
func PrepareNode(t testing.TB, c NodeConfig) *Node {
	t.Helper()
	front := [2]int{4505, 4506}
	conf := map[string]any{"node": "node1", "allow_insecure": []string{"auto_accept", "open_mode"}}
	if Peer() {
		// A Python master tells minions its own port, so they are told the
		// front's; and it does not understand PROXY headers.
		front = [2]int{24505, 24506}
		conf["programs"] = map[string]any{"master": filepath.Join(Venv(t, Newest), "salt-master")}
		conf["lb"] = map[string]any{"proxy_protocol": false}
	}

	n := &Node{Dir: Dir(t), Addr: c.Addr, program: filepath.Join(c.Bin, "applianced")}
	if c.Bin == "" {
		n.program = Bin(t, "applianced")
	}

	if n.Addr == "" {
		n.Addr = Address(t, front[0], front[1], 14505, 14506)
	}

	conf["data_dir"] = filepath.Join(n.Dir, "data")
	conf["runtime_dir"] = filepath.Join(n.Dir, "run")
	conf["front"] = map[string]any{"addresses": []string{n.Addr}, "publish_port": front[0], "request_port": front[1]}
	conf["metrics"] = map[string]any{"listen": net.JoinHostPort(n.Addr, "4522")}
	options := map[string]any{}
	if !Peer() {
		options["saltern_renderer_python"] = filepath.Join(Venv(t, Newest), "python3")
	}

	maps.Copy(options, c.Options)
	conf["master"] = map[string]any{"address": n.Addr, "options": options}
	for k, v := range c.Extra {
		conf[k] = v
	}

	text, err := yaml.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}

	if c.Disk != "" {
		mountDisk(t, filepath.Join(n.Dir, "data"), c.Disk)
	}

	if n.Settings, err = settings.Parse(text, "appliance.yaml", "node1"); err != nil {
		t.Fatal(err)
	}

	n.config = filepath.Join(n.Dir, "appliance.yaml")
	if err := os.WriteFile(n.config, text, 0o600); err != nil {
		t.Fatal(err)
	}

	WriteTree(t, n.Settings.FileRoot(), c.States)
	WriteTree(t, n.Settings.PillarRoot(), c.Pillar)
	return n
}

// mountDisk puts a file system in memory on dir until the end of the test. The
// test is skipped where that is not allowed.
func mountDisk(t testing.TB, dir, size string) {
	t.Helper()
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}

	if err := syscall.Mount("tmpfs", dir, "tmpfs", syscall.MS_NOSUID|syscall.MS_NODEV,
		"mode=755,size="+size); err != nil {
		t.Skipf("NOT TESTED: no file system of its own can be mounted here (root with CAP_SYS_ADMIN is needed): %v",
			err)
	}

	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
}

// Launch starts a prepared (or stopped) node and waits until it serves.
func (n *Node) Launch(t testing.TB) {
	t.Helper()
	n.Proc = Start(t, "applianced", filepath.Join(n.Dir, "log"), n.program, "run", "--config", n.config)
	Eventually(t, 60*time.Second, "node serves", func() error {
		if !n.Running() {
			t.Fatal("applianced ended")
		}
		d, err := n.Status(t)
		if err == nil && d.ServingSince == nil {
			err = fmt.Errorf("%s; services %+v", headline(d), d.Services)
		}
		return err
	})
}

func headline(d status.Document) string {
	s := string(d.Health)
	for _, p := range d.Problems {
		s += fmt.Sprintf("; %s %s %s", p.Code, p.Title, p.Cause)
	}
	return s
}

// Applianced runs a verb of applianced against this node.
func (n *Node) Applianced(t testing.TB, args ...string) Result {
	t.Helper()
	return Run(t, 20*time.Second, n.program, append([]string{"--config", n.config}, args...)...)
}

// Status asks the node; the exit code is checked against the document.
func (n *Node) Status(t testing.TB) (status.Document, error) {
	t.Helper()
	r := n.Applianced(t, "status", "--json")
	var d status.Document
	if err := json.Unmarshal([]byte(r.Out), &d); err != nil {
		return d, fmt.Errorf("status: %w: %s%s", err, r.Out, r.Err)
	}
	if d.Exit != r.Code {
		t.Fatalf("status exits with %d, its document says %d", r.Code, d.Exit)
	}
	if r.Code == status.ExitUnknown {
		return d, fmt.Errorf("status: %s", r.Err)
	}
	return d, nil
}

// Salt, Key and SaltRun run the command line programs against this node's
// master.
func (n *Node) Salt(t testing.TB, args ...string) Result { t.Helper(); return n.cli(t, "salt", args) }

// Key runs salt-key.
func (n *Node) Key(t testing.TB, args ...string) Result {
	t.Helper()
	return n.cli(t, "salt-key", args)
}

// SaltRun runs salt-run.
func (n *Node) SaltRun(t testing.TB, args ...string) Result {
	t.Helper()
	return n.cli(t, "salt-run", args)
}

func (n *Node) cli(t testing.TB, name string, args []string) Result {
	t.Helper()
	return Run(t, 90*time.Second, CLI(t, name), append([]string{"-c", n.Settings.MasterConf()}, args...)...)
}

// Keys lists the minion keys by state: accepted, pending, rejected, denied.
func (n *Node) Keys(t testing.TB) map[string][]string {
	t.Helper()
	r := n.Key(t, "-L", "--out", "json")
	var raw map[string][]string
	if err := json.Unmarshal([]byte(r.Out), &raw); err != nil {
		t.Fatalf("salt-key -L: %v\n%s%s", err, r.Out, r.Err)
	}
	return map[string][]string{
		"accepted": raw["minions"],
		"pending":  raw["minions_pre"],
		"rejected": raw["minions_rejected"],
		"denied":   raw["minions_denied"],
	}
}

// JSON runs salt with JSON output and decodes it: minion → return.
func (n *Node) JSON(t testing.TB, args ...string) (map[string]any, error) {
	t.Helper()
	r := n.Salt(t, append([]string{"--out", "json", "--static"}, args...)...)
	return r.returns(args)
}

// Ping waits until every one of ids answers test.ping in one job.
func (n *Node) Ping(t testing.TB, limit time.Duration, ids ...string) {
	t.Helper()
	Eventually(t, limit, "test.ping of "+strings.Join(ids, ", "), func() error {
		m, err := n.JSON(t, "-L", strings.Join(ids, ","), "-t", "5", "test.ping")
		if err != nil {
			for _, id := range ids { // nobody has answered
				n.untangle(t, id)
			}
			return err
		}

		for _, id := range ids {
			if m[id] != true {
				n.untangle(t, id)
				return fmt.Errorf("%s gave %v", id, m[id])
			}
		}

		return nil
	})
}

// WriteTree writes files under root.
func WriteTree(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
