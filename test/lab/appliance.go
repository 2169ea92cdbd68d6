package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/status"
)

// Appliance is a whole node that sets itself up from answers, on a host of its
// own.
type Appliance struct {
	*Proc
	Name, Addr string
	Dir        string
	Shared     string // the directory that nodes share; empty: learnt on joining
	Programs   string // a directory with other programs than those that were built; see Altered
	net        *Network
}

// ApplianceSecret is the secret of clusters in tests.
const ApplianceSecret = "the-secret-of-this-tests-cluster"

// NewAppliance makes a host with answers for a node and starts nothing. They
// say what differs from a node that shares the directory shared and has no
// other answers than its name and address.
func NewAppliance(t testing.TB, net *Network, number int, shared string, answers map[string]any) *Appliance {
	t.Helper()
	a := &Appliance{
		Name:   fmt.Sprintf("n%d", number),
		Addr:   net.Host(t, number),
		Dir:    Dir(t),
		Shared: shared,
		net:    net,
	}

	all := map[string]any{"cluster_id": "lab", "node": a.Name, "address": a.Addr, "front": []string{a.Addr},
		"settings": map[string]any{
			"allow_insecure": []string{"auto_accept"},
			"limits":         map[string]any{"disk_low_percent": 0.2, "disk_full_percent": 0.1},
			"master": map[string]any{"options": map[string]any{
				"auto_accept":             true,
				"gather_job_timeout":      30,
				"saltern_renderer_python": filepath.Join(Venv(t, Newest), "python3"),
			}},
		}}

	if shared != "" {
		all["storage"] = map[string]any{"kind": "directory", "path": shared}
	}

	maps.Copy(all, answers)
	a.Answer(t, all)
	return a
}

// Clone copies the disk of a node, which is off, to a new host with an address of its own,
// and starts nothing. The copy keeps the name and the settings of the node.
func (a *Appliance) Clone(t testing.TB, number int) *Appliance {
	t.Helper()
	c := &Appliance{
		Name:     a.Name + " (copy)",
		Addr:     a.net.Host(t, number),
		Dir:      Dir(t),
		Shared:   a.Shared,
		Programs: a.Programs,
		net:      a.net,
	}

	if out, err := exec.Command("cp", "-a", filepath.Join(a.Dir, "data"), c.Dir).CombinedOutput(); err != nil {
		t.Fatalf("copy a disk: %v: %s", err, out)
	}

	text, err := os.ReadFile(a.Config())
	if err == nil {
		err = os.WriteFile(c.Config(), bytes.ReplaceAll(text, []byte(a.Dir), []byte(c.Dir)), 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	return c
}

// TakeAddress gives the host of a node the address of another one in the place of its own.
func (a *Appliance) TakeAddress(t testing.TB, of *Appliance) {
	t.Helper()
	ns := a.net.hosts[a.Addr]
	a.net.must(t, "-n", ns, "addr", "flush", "dev", "eth0")
	a.net.must(t, "-n", ns, "addr", "add", of.Addr+"/24", "dev", "eth0")
}

// Answer replaces the file with the answers.
func (a *Appliance) Answer(t testing.TB, answers map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(a.Answers(), text, 0o600); err != nil {
		t.Fatal(err)
	}
}

// Change changes one of the answers; a dot leads into it ("settings.lb").
func (a *Appliance) Change(t testing.TB, key string, value any) {
	t.Helper()
	var all map[string]any
	text, err := os.ReadFile(a.Answers())
	if err == nil {
		err = yaml.Unmarshal(text, &all)
	}

	if err != nil {
		t.Fatal(err)
	}

	at := all
	words := strings.Split(key, ".")
	for _, w := range words[:len(words)-1] {
		next, _ := at[w].(map[string]any)
		if next == nil {
			next = map[string]any{}
			at[w] = next
		}
		at = next
	}

	at[words[len(words)-1]] = value
	a.Answer(t, all)
}

// Squat has another program take a port of the node.
func (a *Appliance) Squat(t testing.TB, port string) *Proc {
	t.Helper()
	code := fmt.Sprintf("import socket,time; s=socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind((%q, %s)); s.listen(5); print('ready', flush=True); time.sleep(3600)",
		a.Addr, port)
	log := filepath.Join(Dir(t), "squatter") // not in the node's: see Proc.Left
	path, args := a.net.wrap(a.Addr, filepath.Join(Venv(t, Newest), "python3"), []string{"-c", code})
	p := Start(t, "squatter", log, path, args...)
	Eventually(t, 30*time.Second, "the port is taken", func() error {
		if b, err := os.ReadFile(log); err != nil || !strings.Contains(string(b), "ready") {
			return fmt.Errorf("%q %w", b, err)
		}
		return nil
	})
	return p
}

// Answers is the path of the file with its answers.
func (a *Appliance) Answers() string { return filepath.Join(a.Dir, "answers.yaml") }

// Config is the path of its appliance.yaml.
func (a *Appliance) Config() string { return filepath.Join(a.Dir, "appliance.yaml") }

// MasterConf is the configuration directory for Salt's tools.
func (a *Appliance) MasterConf() string { return filepath.Join(a.Dir, "data/etc/salt") }

func (a *Appliance) bin(t testing.TB, name string) string {
	t.Helper()
	if a.Programs != "" {
		return filepath.Join(a.Programs, name)
	}
	return Bin(t, name)
}

// Data is the folder with all that the node keeps.
func (a *Appliance) Data() string { return filepath.Join(a.Dir, "data") }

// OwnDisk gives a node that was never launched a file system of its own, of such a size as
// "256m", for what it keeps. It needs root.
func (a *Appliance) OwnDisk(t testing.TB, size string) {
	t.Helper()
	mountDisk(t, a.Data(), size)
}

// Launch starts the node, for the first time or again, and does not wait.
func (a *Appliance) Launch(t testing.TB) {
	t.Helper()
	path, args := a.net.wrap(a.Addr, a.bin(t, "applianced"),
		[]string{"--config", a.Config(), "run", "--data-dir", a.Dir + "/data",
			"--runtime-dir", a.Dir + "/run", "--answers", a.Answers()})
	a.Proc = Start(t, "applianced "+a.Name, filepath.Join(a.Dir, "log"), path, args...)
}

// Applianced runs a verb on the node.
func (a *Appliance) Applianced(t testing.TB, args ...string) Result {
	t.Helper()
	path, args := a.net.wrap(a.Addr, a.bin(t, "applianced"),
		append([]string{"--config", a.Config(), "--socket", a.Dir + "/run/applianced.sock"}, args...))
	return Run(t, 60*time.Second, path, args...)
}

// Status asks the node.
func (a *Appliance) Status(t testing.TB) (status.Document, error) {
	t.Helper()
	r := a.Applianced(t, "status", "--json")
	var d status.Document
	if err := json.Unmarshal([]byte(r.Out), &d); err != nil {
		return d, fmt.Errorf("status: %w: %s%s", err, r.Out, r.Err)
	}
	if r.Code == status.ExitUnknown {
		return d, fmt.Errorf("status: %s", r.Err)
	}
	return d, nil
}

// WaitReady waits until the node is set up and sees so many nodes, all ready.
func (a *Appliance) WaitReady(t testing.TB, nodes int) {
	t.Helper()
	Eventually(t, 120*time.Second, a.Name+" is ready", func() error { return a.Ready(t, nodes) })
}

// Ready says why the node is not set up or does not see so many nodes, all ready.
func (a *Appliance) Ready(t testing.TB, nodes int) error {
	t.Helper()
	if !a.Running() {
		t.Fatalf("applianced of %s ended", a.Name)
	}
	d, err := a.Status(t)
	if err != nil {
		return err
	}
	return AllReady(d, nodes)
}

// AllReady returns what a status lacks of that of a node that is set up and sees so many
// nodes, all ready.
func AllReady(d status.Document, nodes int) error {
	if d.Setup != status.SetupReady || len(d.Nodes) != nodes {
		return fmt.Errorf("set-up %s, %d nodes: %s", d.Setup, len(d.Nodes), headline(d))
	}
	for _, n := range d.Nodes {
		if n.State != "ready" {
			return fmt.Errorf("%s is %s", n.Name, n.State)
		}
	}
	return nil
}

// Tool runs one of Salt's tools on the node.
func (a *Appliance) Tool(t testing.TB, name string, args ...string) Result {
	t.Helper()
	path, args := a.net.wrap(a.Addr, a.bin(t, name), append([]string{"-c", a.MasterConf()}, args...))
	return Run(t, 90*time.Second, path, args...)
}

// Ping waits until all minions answer one job from this node.
func (a *Appliance) Ping(t testing.TB, limit time.Duration, ids ...string) {
	t.Helper()
	Eventually(t, limit, "test.ping from "+a.Name, func() error {
		r := a.Tool(t, "salt", "--out", "json", "--static", "-t", "30", "*", "test.ping")
		var m map[string]any
		if err := json.Unmarshal([]byte(r.Out), &m); err != nil {
			return fmt.Errorf("salt: %w\n%s%s", err, r.Out, r.Err)
		}

		for _, id := range ids {
			if m[id] != true {
				return fmt.Errorf("%s gave %v", id, m[id])
			}
		}

		return nil
	})
}

// ClusterOf gives nodes of one shared directory as a cluster that is asked by Salt's
// tools: its members start and stop nothing.
func ClusterOf(net *Network, nodes ...*Appliance) *Cluster {
	c := &Cluster{Shared: nodes[0].Shared, Config: ClusterConfig{Nodes: len(nodes), Network: net}}
	for _, a := range nodes {
		c.Members = append(c.Members, &Member{Addr: a.Addr, Dir: a.Dir, c: c, conf: a.MasterConf()})
	}
	return c
}

// StartMinion starts a minion that uses this node.
func (a *Appliance) StartMinion(t testing.TB, id, version string) *Minion {
	t.Helper()
	return StartMinionAt(t, id, version, a.Addr)
}

// StartMinionAt starts a minion of appliances that knows this address alone.
func StartMinionAt(t testing.TB, id, version, address string) *Minion {
	t.Helper()
	return StartMinionWith(t, id, version, map[string]any{"master": address, "master_alive_interval": 15})
}

// StartMinionWith starts a minion of appliances with options that say which
// masters it uses.
func StartMinionWith(t testing.TB, id, version string, options map[string]any) *Minion {
	t.Helper()
	m := &Minion{ID: id, Version: version, Dir: Dir(t), bin: Venv(t, version)}
	options = maps.Clone(options)
	options["master_port"] = FrontRequest
	m.prepare(t, options)
	m.Launch(t)
	return m
}
