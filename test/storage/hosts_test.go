//go:build e2e

package storage

import (
	"bytes"
	"context"
	"crypto/rsa"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
	"saltern/test/lab"
)

// Directories of a copy: the first, and the one after a lost disk.
const (
	brick     = "/data/brick/cluster-1"
	nextBrick = "/data/brick/cluster-2"
)

// labName names the lab of a test: those that run at once have one each, and
// with it a network in which the same addresses are used.
func labName(t *testing.T) string {
	name := setting("LAB_NAME", "sst")
	if t.Name() == "TestVolumeHangs" {
		name += "h"
	}
	return name
}

// setting gives what the environment says: two runs at once on one machine need
// names and networks of their own (LAB_NAME, LAB_NET).
func setting(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

// hosts are pretend machines, each with an applianced or not.
type hosts struct {
	dir    string // seen by all machines
	script string
	env    []string
	bin    string
	net    string // of the machines: node 1 has the address net.11
	nodes  map[int]*exec.Cmd
	table  nodes.Table
	name   string // of the lab
	two    bool   // two nodes have two copies

	strangers int // minions that have signed in, all with one key
	key       *rsa.PrivateKey
}

// newHosts makes n machines. What the machine cannot run is skipped, loudly.
func newHosts(t *testing.T, n int) *hosts {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("NOT TESTED: pretend machines need root")
	}

	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("NOT TESTED: nothing can be mounted here: %v", err)
	}

	for _, p := range []string{"glusterd", "mkfs.xfs", "ip"} {
		if _, err := exec.LookPath(p); err != nil {
			t.Skipf("NOT TESTED: %s is missing (make deps): %v", p, err)
		}
	}

	script, err := filepath.Abs("../gluster/lab")
	if err != nil {
		t.Fatal(err)
	}

	h := &hosts{
		dir:    lab.Dir(t),
		script: script,
		net:    setting("LAB_NET", "10.72.1"),
		nodes:  map[int]*exec.Cmd{},
		bin:    filepath.Dir(lab.Bin(t, "applianced")),
	}

	h.name = labName(t)
	h.env = append(os.Environ(), "LAB_NAME="+h.name, "LAB_DIR="+filepath.Join(os.TempDir(), "lab-"+h.name),
		"LAB_NET="+h.net)
	h.must(t, time.Minute, "down")
	t.Cleanup(func() {
		for i := range h.nodes {
			h.stop(i, syscall.SIGKILL)
		}

		if t.Failed() {
			for i := 1; i <= n; i++ {
				b, _ := os.ReadFile(h.path(i, "log"))
				t.Logf("log of node%d:\n%s", i, b[max(0, len(b)-8000):])
			}
		}

		_, _ = h.run(time.Minute, "down")
	})

	for i := 1; i <= n; i++ {
		if out, err := h.run(time.Minute, "boot", fmt.Sprint(i)); err != nil {
			if i == 1 {
				t.Skipf("NOT TESTED: no pretend machine can be made here (network namespaces, loop devices, xfs): %v\n%s",
					err, out)
			}
			t.Fatalf("boot %d: %v\n%s", i, err, out)
		}

		h.prepare(t, i)
	}

	h.table = nodes.Table{Cluster: "test", KeyHash: strings.Repeat("0", 64)}
	return h
}

func (h *hosts) path(i int, name string) string {
	return filepath.Join(h.dir, fmt.Sprintf("node%d.%s", i, name))
}

func (h *hosts) run(limit time.Duration, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, h.script, args...)
	cmd.Env = h.env
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func (h *hosts) must(t *testing.T, limit time.Duration, args ...string) string {
	t.Helper()
	out, err := h.run(limit, args...)
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

// on runs a command on machine i.
func (h *hosts) on(t *testing.T, i int, args ...string) string {
	t.Helper()
	return h.must(t, 2*time.Minute, append([]string{"exec", fmt.Sprint(i)}, args...)...)
}

// prepare writes the settings of node i.
func (h *hosts) prepare(t *testing.T, i int) {
	t.Helper()
	addr := fmt.Sprintf("%s.1%d", h.net, i)
	text, err := yaml.Marshal(map[string]any{
		"node": fmt.Sprintf("node%d", i), "data_dir": "/data/saltern", "runtime_dir": "/run/saltern",
		"front": map[string]any{"addresses": []string{addr}}, "master": map[string]any{"address": addr},
		"storage": map[string]any{"kind": "volume", "bricks": filepath.Dir(brick), "two_copies": h.two},
	})
	if err == nil {
		err = os.WriteFile(h.path(i, "yaml"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// start starts applianced on node i.
func (h *hosts) start(t *testing.T, i int) {
	t.Helper()
	log, err := os.OpenFile(h.path(i, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()

	cmd := exec.Command(h.script, "exec", fmt.Sprint(i), filepath.Join(h.bin, "applianced"), "run",
		"--config", h.path(i, "yaml"))
	cmd.Env = h.env
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	h.nodes[i] = cmd
}

// stop ends the programs that start started.
func (h *hosts) stop(i int, sig syscall.Signal) {
	cmd := h.nodes[i]
	if cmd == nil {
		return
	}
	delete(h.nodes, i)
	_ = syscall.Kill(-cmd.Process.Pid, sig) // it may be gone
	_ = cmd.Wait()
}

// killNode kills applianced itself on node i with SIGKILL and waits until all of
// it is gone, which takes a moment when it is in a call on the volume: its
// children, the bricks and the mount go on.
func (h *hosts) killNode(t *testing.T, i int) {
	t.Helper()
	cmd := h.nodes[i]
	delete(h.nodes, i)
	h.on(t, i, "sh", "-c", "pkill -KILL -f 'applianced ru[n]'; true")

	if cmd == nil {
		return
	}

	// Until then its sockets are answered, when its name and arguments are gone.
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		_ = cmd.Wait()
	}()

	select {
	case <-gone:
	case <-time.After(lab.Limit(2 * time.Minute)):
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // what waits for it
		<-gone
		t.Fatalf("applianced on node%d is killed and does not end", i)
	}
}

// member adds node i to the table.
func (h *hosts) member(i int) {
	h.table.Nodes = append(h.table.Nodes,
		nodes.Node{Name: fmt.Sprintf("node%d", i), Address: fmt.Sprintf("%s.1%d", h.net, i), State: nodes.Member,
			Certificate: strings.Repeat("0", 64), Storage: "data", Brick: brick})
}

// spread gives all nodes of the list the table as it is.
func (h *hosts) spread(t *testing.T, list ...int) {
	t.Helper()
	h.table.Version++
	b, err := json.Marshal(h.table)
	if err == nil {
		err = h.table.Check()
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(h.dir, "table"), b, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	for _, i := range list {
		h.on(t, i, "sh", "-c",
			"mkdir -p /data/saltern && cp "+filepath.Join(h.dir, "table")+
				" /data/saltern/.t && mv /data/saltern/.t /data/saltern/"+nodes.File)
	}
}

// ask runs a verb of applianced on node i and decodes what it prints.
func (h *hosts) ask(i int, into any, verb ...string) error {
	args := append([]string{"exec", fmt.Sprint(i), filepath.Join(h.bin, "applianced"), "--config", h.path(i, "yaml")},
		verb...)
	out, err := h.run(30*time.Second, args...)
	if jerr := json.Unmarshal([]byte(out), into); jerr != nil {
		return fmt.Errorf("applianced %s on node%d: %w %w: %s", strings.Join(verb, " "), i, err, jerr, out)
	}
	return nil
}

func (h *hosts) storage(i int) (storage.State, error) {
	var s storage.State
	err := h.ask(i, &s, "storage", "status", "--json")
	return s, err
}

func (h *hosts) status(i int) (status.Document, error) {
	var d status.Document
	err := h.ask(i, &d, "status", "--json")
	return d, err
}

// upCopies counts the copies of the volume that run.
func upCopies(s storage.State) int {
	up := 0
	for _, b := range s.Bricks {
		if b.Up {
			up++
		}
	}
	return up
}

// unsettled says what is missing until node i can use the volume, the pool is
// as the table wants it, so many copies run, and nothing is to be healed.
func (h *hosts) unsettled(i, copies int) error {
	s, err := h.storage(i)
	up := upCopies(s)
	switch {
	case err != nil:
		return err
	case !s.Ready:
		return fmt.Errorf("it waits for %s", s.Waiting)
	case !s.Done:
		return fmt.Errorf("to do: %s %s", s.Doing, s.Plan)
	case up != copies || len(s.Bricks) != copies:
		return fmt.Errorf("copies: %+v", s.Bricks)
	case copies > 1 && (!s.Heal.Known || s.Heal.Pending > 0):
		return fmt.Errorf("to be healed: %+v", s.Heal)
	}

	return nil
}

// settled waits until nothing is missing on any node of the list.
func (h *hosts) settled(t *testing.T, limit time.Duration, copies int, list ...int) {
	t.Helper()
	start := time.Now()
	for _, i := range list {
		lab.Eventually(t, limit, fmt.Sprintf("node%d has a volume of %d copies", i, copies),
			func() error { return h.unsettled(i, copies) })
	}
	t.Logf("%v settled with %d copies after %.1f s", list, copies, time.Since(start).Seconds())
}

// has waits for a problem on node i.
func (h *hosts) has(t *testing.T, limit time.Duration, i int, code status.Code) status.Problem {
	t.Helper()
	var found status.Problem
	lab.Eventually(t, limit, fmt.Sprintf("node%d says %s", i, code), func() error {
		d, err := h.status(i)
		if err != nil {
			return err
		}

		var have []string
		for _, p := range d.Problems {
			if p.Code == code {
				found = p
				return nil
			}
			have = append(have, string(p.Code)+" "+p.Cause)
		}

		return fmt.Errorf("it says %s: %s", d.Health, strings.Join(have, "; "))
	})

	t.Logf("node%d: %s %s: %s; next: %s", i, found.Code, found.Title, found.Cause, found.Next)
	if found.Cause == "" || found.Next == "" {
		t.Errorf("%s names no cause or no next step: %+v", code, found)
	}

	return found
}
