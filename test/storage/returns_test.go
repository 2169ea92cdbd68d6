//go:build e2e

package storage

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/lab"
)

// where the masters that take returns keep what is theirs, on each machine, and
// what they share.
const (
	takerOwn    = "/data/takers"
	takerShared = "/srv/cluster/takers"
	takerPort   = 7505 // and the next for requests
	takerPool   = 7520
)

// takers are three masters of one cluster whose shared folder is on the volume,
// and minions that send them 200 returns a second.
type takers struct {
	h       *hosts
	dir     string // seen by all machines
	program string
	procs   []*exec.Cmd
}

// takers starts a master on each of the three machines.
func (h *hosts) takers(t *testing.T, program string) *takers {
	t.Helper()
	k := &takers{h: h, program: program, dir: filepath.Join(h.dir, "takers")}
	if err := os.Mkdir(k.dir, 0o700); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		for _, p := range k.procs {
			_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL) // it may be gone
			_ = p.Wait()
		}

		if t.Failed() {
			for i := 1; i <= 3; i++ {
				b, _ := os.ReadFile(k.log(i))
				t.Logf("log of the master that takes returns on node%d:\n%s", i, b[max(0, len(b)-4000):])
			}
		}
	})

	h.on(t, 1, "mkdir", takerShared)
	for i := 1; i <= 3; i++ {
		k.master(t, i)
	}

	return k
}

func (k *takers) log(i int) string { return filepath.Join(k.dir, fmt.Sprintf("log%d", i)) }

// etc is the configuration folder of the master of machine i.
func (k *takers) etc(i int) string { return filepath.Join(k.dir, fmt.Sprintf("etc%d", i)) }

// master starts the master of machine i and waits until it is ready.
func (k *takers) master(t *testing.T, i int) {
	t.Helper()
	var peers []string
	addr := func(i int) string { return fmt.Sprintf("%s.1%d", k.h.net, i) }
	for j := 1; j <= 3; j++ {
		if j != i {
			peers = append(peers, addr(j))
		}
	}

	conf, err := json.Marshal(map[string]any{ // JSON is YAML
		"id": addr(i), "interface": addr(i), "publish_port": takerPort, "ret_port": takerPort +
			1, "root_dir": "/", "user": "root",
		"pki_dir": takerOwn + "/pki", "cachedir": takerOwn +
			"/cache", "sock_dir": "/run/takers", "pidfile": "/run/takers.pid", "log_file": takerOwn +
			"/log", "log_level": "info",
		"auto_accept": true,
		"cluster_id":  "takers", "cluster_peers": peers, "cluster_pki_dir": takerShared, "cluster_secret": "of this test only",
		"cluster_pool_port": takerPool, "file_roots": map[string]any{"base": []string{takerOwn}}, "pillar_roots": map[string]any{"base": []string{takerOwn}},
	})

	etc := k.etc(i)
	if err == nil {
		err = os.MkdirAll(etc, 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(etc, "master"), conf, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	k.h.on(t, i, "mkdir", "-p", takerOwn+"/pki", takerOwn+"/cache", "/run/takers")
	log, err := os.Create(k.log(i))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()

	cmd := exec.Command(k.h.script, "exec", fmt.Sprint(i), filepath.Join(k.h.bin, "salt-master"), "-c", etc)
	cmd.Env = k.h.env
	cmd.Stdout = log
	cmd.Stderr = log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	k.procs = append(k.procs, cmd)
	lab.Eventually(t, 90*time.Second, fmt.Sprintf("the master that takes returns on node%d is ready", i), func() error {
		b, err := os.ReadFile(k.log(i))
		if err == nil && !strings.Contains(string(b), "is ready") {
			err = fmt.Errorf("it says: %s", b[max(0, len(b)-300):])
		}
		return err
	})
}

// sending starts the minions, on machine 1; the function given ends them.
func (k *takers) sending(t *testing.T, seconds int) func() written {
	t.Helper()
	play := map[string]any{"key": takerShared + "/cluster.pub"}
	var masters []string
	for i := 1; i <= 3; i++ {
		masters = append(masters, fmt.Sprintf("%s.1%d:%d", k.h.net, i, takerPort+1))
	}

	play["masters"] = masters
	b, err := json.Marshal(play)
	if err == nil {
		err = os.WriteFile(filepath.Join(k.dir, "play.json"), b, 0o600)
	}

	if err != nil {
		t.Fatal(err)
	}

	type answer struct {
		out string
		err error
	}

	done := make(chan answer, 1)
	go func() {
		out, err := k.h.run(time.Duration(seconds+120)*time.Second, "exec", "1", k.program, "returns", k.dir,
			fmt.Sprint(seconds))
		done <- answer{out, err}
	}()

	k.more(t, 200)
	k.listed(t, 2)
	return func() written {
		t.Helper()
		_, _ = k.h.run(10*time.Second, "exec", "1", "pkill", "-TERM", "-f", "writer return[s]") // it may have ended
		a := <-done
		var w written
		if err := json.Unmarshal([]byte(a.out), &w); err != nil || a.err != nil {
			t.Fatalf("minions that send returns: %v %v: %s", a.err, err, a.out)
		}

		return w
	}
}

// listed checks that salt-key on machine i has the key of each minion whose
// return was taken, a moment after it signed in somewhere for the first time.
func (k *takers) listed(t *testing.T, i int) {
	t.Helper()
	taken, err := os.ReadFile(filepath.Join(k.dir, "taken"))
	if err != nil {
		t.Fatal(err)
	}

	var have struct {
		Accepted []string `json:"minions"`
	}
	out := k.h.on(t, i, filepath.Join(k.h.bin, "salt-key"), "-c",
		k.etc(i), "-L", "--out=json")
	if err := json.Unmarshal([]byte(out), &have); err != nil {
		t.Fatalf("salt-key: %v: %s", err, out)
	}

	for line := range strings.Lines(string(taken)) {
		if w := strings.Fields(line); len(w) == 3 && !slices.Contains(have.Accepted, w[1]) {
			t.Fatalf("salt-key on node%d does not list %s: %q", i, w[1], have.Accepted)
		}
	}
}

// more waits until the masters have taken so many returns more.
func (k *takers) more(t *testing.T, more int) {
	t.Helper()
	from := -1
	lab.Eventually(t, 2*time.Minute, "the masters take returns", func() error {
		b, err := os.ReadFile(filepath.Join(k.dir, "taken"))
		n := strings.Count(string(b), "\n")
		if err == nil && from < 0 {
			from = n
		}
		if err == nil && n < from+more {
			err = fmt.Errorf("%d of %d", n, from+more)
		}
		return err
	})
}

// have checks that the masters of some machines have every return that was
// taken.
func (k *takers) have(t *testing.T, list ...int) {
	t.Helper()
	for _, i := range list {
		found := k.h.on(t, i, k.program, "returned", k.dir, takerOwn+"/cache/jobs",
			filepath.Join(k.h.bin, "salt-run"), k.etc(i))
		t.Logf("node%d: %s", i, found)
	}
}
