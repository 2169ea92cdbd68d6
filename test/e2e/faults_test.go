//go:build e2e

package e2e

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/status"
	"saltern/test/lab"
	"saltern/test/minion"
)

// fault is what `applianced status` must say about a fault.
type fault struct {
	head  string // beginning of the first line
	exit  int
	code  status.Code
	cause []string // parts of the cause
	next  string   // part of the next step
}

// says waits until the status tells of a fault, as text and as JSON.
func says(t *testing.T, n *lab.Node, limit time.Duration, f fault) status.Problem {
	t.Helper()
	var found status.Problem
	lab.Eventually(t, limit, fmt.Sprintf("status says %s", f.code), func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}

		i := slices.IndexFunc(d.Problems, func(p status.Problem) bool { return p.Code == f.code })
		if i < 0 {
			return fmt.Errorf("%s: %+v", d.Health, d.Problems)
		}

		found = d.Problems[i]
		for _, part := range f.cause {
			if !strings.Contains(found.Cause, part) && !strings.Contains(found.Title, part) {
				return fmt.Errorf("no %q in %+v", part, found)
			}
		}

		if !strings.Contains(found.Next, f.next) {
			return fmt.Errorf("next step: %+v", found)
		}

		r := n.Applianced(t, "status")
		if !strings.HasPrefix(r.Out, f.head) || !strings.Contains(r.Out, "\n  "+string(f.code)+" ") ||
			r.Code != f.exit {
			return fmt.Errorf("exit %d:\n%s", r.Code, r.Out)
		}

		return nil
	})

	return found
}

// well waits until the status has nothing to say about codes any more and the
// node serves.
func well(t *testing.T, n *lab.Node, limit time.Duration, codes ...status.Code) {
	t.Helper()
	lab.Eventually(t, limit, fmt.Sprintf("%v are over", codes), func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}

		for _, p := range d.Problems {
			if slices.Contains(codes, p.Code) || p.Severity == status.Fatal {
				return fmt.Errorf("%+v", p)
			}
		}

		if d.ServingSince == nil {
			return errors.New("not serving")
		}

		return nil
	})
}

// TestFaultsOfTheMaster: what an administrator can break is named with its
// place, what is not broken works on, and the node serves by itself once it
// is fixed.
func TestFaultsOfTheMaster(t *testing.T) {
	if lab.Peer() {
		t.Skip("the faults are those of our own master")
	}

	t.Parallel()
	n := lab.StartNode(t, lab.NodeConfig{})
	accepted(t, n, "web1", lab.Newest)
	restart := func() {
		t.Helper()
		if r := n.Applianced(t, "restart", "master"); r.Code != 0 {
			t.Fatalf("restart: %+v", r)
		}
	}

	// keysWork: tools that need no master go on without one.
	keysWork := func() {
		t.Helper()
		if k := n.Keys(t); !slices.Equal(k["accepted"], []string{"web1"}) {
			t.Errorf("salt-key meanwhile: %v", k)
		}
	}

	fixed := func() {
		t.Helper()
		well(t, n, 60*time.Second, status.MasterConfig, status.MasterLastGood, status.KeyUnreadable, status.PortInUse)
		n.Ping(t, 60*time.Second, "web1")
	}

	key := filepath.Join(n.Settings.PKIDir(), "node1.pem")
	text, err := os.ReadFile(key)
	if err != nil {
		t.Fatal(err)
	}

	broken := func(b []byte) {
		t.Helper()
		if err := errors.Join(os.Remove(key), os.WriteFile(key, b, 0o400)); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("key file", func(t *testing.T) {
		broken(text[:100])
		n.Ping(t, 30*time.Second, "web1") // the master has its key in memory
		restart()
		says(t, n, 30*time.Second,
			fault{"NOT SERVING", status.ExitNotServing, status.KeyUnreadable,
				[]string{"node1.pem", "cut short"}, "backup"})
		keysWork()

		// Whole to look at, and no key.
		broken([]byte("-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n"))
		says(t, n, 60*time.Second,
			fault{"NOT SERVING", status.ExitNotServing, status.KeyUnreadable, []string{".pem"}, "backup"})
		broken(text)
		fixed()
	})

	t.Run("port in use", func(t *testing.T) {
		// The port is free for a moment while the master is restarted; it is
		// held back by a broken key until we have the port.
		broken(text[:100])
		restart()
		says(t, n, 30*time.Second,
			fault{"NOT SERVING", status.ExitNotServing, status.KeyUnreadable,
				[]string{"node1.pem", "cut short"}, "backup"})
		ln, err := net.Listen("tcp", n.Settings.MasterRequest())
		if err != nil {
			t.Fatal(err)
		}
		defer ln.Close()

		broken(text)
		self, _ := os.ReadFile("/proc/self/comm")
		says(t, n, 30*time.Second, fault{"NOT SERVING", status.ExitNotServing, status.PortInUse,
			[]string{n.Settings.MasterRequest(), strings.TrimSpace(string(self)),
				fmt.Sprintf("pid %d", os.Getpid())}, "stop that program"})
		keysWork()
		_ = ln.Close()
		fixed()
	})

	t.Run("options", func(t *testing.T) {
		conf := filepath.Join(n.Settings.UserConfDir(), "mine.conf")
		if err := os.WriteFile(conf, []byte("timeout: 5\n"), 0o644); err != nil {
			t.Fatal(err)
		}

		restart()
		fixed()
		for _, c := range []struct {
			name, text string
			cause      []string
		}{
			{"broken YAML", "timeout: 5\nnodegroups:\n  web: [a, b\nfile_roots: {}\n", []string{"mine.conf:3"}},
			{"wrong type", "# mine\ntimeout: 5\nfile_recv: [1, 2]\n", []string{"mine.conf:3", "file_recv"}},
			{"wrong value", "hash_type: md6\n", []string{"mine.conf:1", "hash_type", "md6"}},
			{"ours", "timeout: 5\n\ncachedir: /tmp\n", []string{"mine.conf:3", "cachedir", "set by the appliance"}},
			{"no options", "- timeout\n", []string{"mine.conf:1", "not a list of options"}},
		} {
			t.Run(c.name, func(t *testing.T) {
				if err := os.WriteFile(conf, []byte(c.text), 0o644); err != nil {
					t.Fatal(err)
				}

				// What runs is not touched.
				ctx, cancel := context.WithTimeout(context.Background(), lab.Limit(20*time.Second))
				defer cancel()
				if jid, err := publish(ctx, n, "web1", "test.ping"); err != nil || jid == "" {
					t.Errorf("before the restart: %q %v", jid, err)
				}

				// Nor does it keep one from starting that could start before.
				restart()
				says(t, n, 30*time.Second,
					fault{"DEGRADED", status.ExitDegraded, status.MasterLastGood, c.cause, "applianced config apply"})
				keysWork()
				n.Ping(t, 60*time.Second, "web1")

				if v := n.SaltRun(t, "config.get", "timeout", "--out", "json"); strings.TrimSpace(v.Out) != "5" {
					t.Errorf("the last good timeout: %+v", v)
				}

				if err := os.WriteFile(conf, []byte("timeout: 5\n"), 0o644); err != nil {
					t.Fatal(err)
				}

				restart()
				fixed()
			})
		}

		// A node without a cluster takes options by the same command as a cluster.
		for _, c := range []struct {
			text, said string
			code       int
		}{
			{"file_roots: {seven: [/srv/none]}\n", "node1 has the new options", 0},
			{"file_roots: {seven: [/srv/none]}\n", "node1 has the present options already", 0},
			{"file_roots: {eight: [/srv/none]}\ntimeout: soon\n", "node1: " + conf + ":2: option timeout", 1},
			{"file_roots: {eight: [/srv/none]}\nmaster_sign_pubkey: true\nmaster_use_pubkey_signature: true\n",
				"node1 has its last good options", 1},
		} {
			if err := os.WriteFile(conf, []byte(c.text), 0o644); err != nil {
				t.Fatal(err)
			}

			if r := n.Applianced(t, "config", "apply", "--yes"); r.Code != c.code || !strings.Contains(r.Out, c.said) {
				t.Errorf("apply %q: %+v", c.text, r)
			}

			if strings.Contains(c.text, "soon") {
				continue // salt-run reads the file itself, and does not run with it
			}

			if v := n.SaltRun(t, "fileserver.envs", "--out", "json"); !strings.Contains(v.Out, `"seven"`) {
				t.Errorf("in force: %+v", v)
			}
		}

		if err := os.Remove(conf); err != nil {
			t.Fatal(err)
		}

		if r := n.Applianced(t, "config", "apply", "--yes"); r.Code != 0 {
			t.Errorf("%+v", r)
		}

		fixed()
	})
}

// TestFaultInAPillar: a template error is told with the minion's name, other
// SLS files and other minions work on, and it is over when it is fixed.
func TestFaultInAPillar(t *testing.T) {
	if lab.Peer() {
		t.Skip("the faults are those of our own master")
	}

	t.Parallel()
	n := lab.PrepareNode(t, lab.NodeConfig{Pillar: map[string]string{
		"top.sls":  "base:\n  '*':\n    - good\n  'web*':\n    - site\n",
		"good.sls": "good: {{ grains['id'] }}\n",
		"site.sls": "site: {{ grains['id'] }}\n",
	}})

	other := scripted(t, n, 1)[0]
	n.Launch(t)
	pin(t, n, other)
	defer other.Close()

	accepted(t, n, "web1", lab.Newest)
	d, err := n.Status(t)
	if err != nil || d.Health != status.Healthy && d.Health != status.Degraded {
		t.Fatalf("before: %+v %v", d, err)
	}

	site := filepath.Join(n.Settings.PillarRoot(), "site.sls")
	if err := os.WriteFile(site, []byte("site: {{ grains['id'] }}\nbad: {{ missing.thing.here }}\n"),
		0o644); err != nil {
		t.Fatal(err)
	}

	items := func() map[string]any {
		t.Helper()
		m, err := n.JSON(t, "web1", "-t", "30", "pillar.items")
		if err != nil {
			t.Fatal(err)
		}
		p, _ := m["web1"].(map[string]any)
		return p
	}

	if p := items(); p["good"] == nil || p["_errors"] == nil || p["site"] != nil {
		t.Errorf("pillar with an error: %v", p)
	}

	says(t, n, 30*time.Second,
		fault{"DEGRADED", status.ExitDegraded, status.PillarErrors,
			[]string{"minion web1", "Rendering SLS 'site' failed"}, "logs master"})

	// The log names minion, SLS, line and reason.
	r := n.Applianced(t, "logs", "master")
	if !strings.Contains(r.Out, "a pillar SLS cannot be rendered minion=web1 sls=site") ||
		!strings.Contains(r.Out, "'missing' is undefined; line 2") {
		t.Errorf("logs master: %+v", r)
	}

	ctx, cancel := context.WithTimeout(context.Background(), lab.Limit(60*time.Second))
	defer cancel()
	if err := other.SignIn(ctx); err != nil {
		t.Fatal(err)
	}

	if p, err := other.Pillar(ctx); err != nil || p.Str("good") != other.ID || p.List("_errors") != nil {
		t.Errorf("pillar of another minion: %v %v", p, err)
	}

	// One minion whose pillar is well says nothing about the other.
	says(t, n, 10*time.Second,
		fault{"DEGRADED", status.ExitDegraded, status.PillarErrors, []string{"minion web1"}, "logs master"})
	if err := os.WriteFile(site, []byte("site: fixed\n"), 0o644); err != nil {
		t.Fatal(err)
	}

	if p := items(); p["_errors"] != nil || p["site"] == nil {
		t.Errorf("pillar after mending: %v", p)
	}

	well(t, n, 30*time.Second, status.PillarErrors)
}

// TestFaultDiskFull: a return that cannot be kept is not acknowledged, so the
// minion sends it again; the status names the disk, what needs no disk goes
// on, and making room is all there is to do.
func TestFaultDiskFull(t *testing.T) {
	if lab.Peer() {
		t.Skip("a Python master acknowledges before it keeps")
	}

	t.Parallel()
	n := lab.PrepareNode(t,
		lab.NodeConfig{Disk: "96m", States: map[string]string{"file.txt": "of the master\n"}, Pillar: map[string]string{
			"top.sls": "base:\n  '*':\n    - plain\n", "plain.sls": "a: 1\n"}})
	other := scripted(t, n, 1)[0]
	n.Launch(t)
	pin(t, n, other)
	defer other.Close()

	m := lab.StartMinion(t, n, "web1", lab.Newest,
		map[string]any{"return_retry_timer": 2, "return_retry_timer_max": 3, "return_retry_tries": 60})
	accept(t, n, "web1")

	ctx, cancel := context.WithTimeout(context.Background(), lab.Limit(240*time.Second))
	defer cancel()
	go1 := filepath.Join(m.Dir, "go")
	jid, err := publish(ctx, n, "web1", "cmd.run",
		"while ! test -e "+go1+"; do sleep 0.2; done; head -c 300000 /dev/urandom | base64 -w0; echo late")
	if err != nil {
		t.Fatal(err)
	}

	filler := filepath.Join(n.Settings.DataDir, "filler")
	fill(t, filler)

	// The journal has room of its own: only when that is used up is a return
	// not taken.
	if err := other.SignIn(ctx); err != nil {
		t.Fatal(err)
	}

	taken := 0
	for taken < 2000 && other.Return(quickly(t, ctx), "req", "test.ping", noise()) == nil {
		taken++
	}

	t.Logf("%d returns were taken on a full disk", taken)
	lab.WriteTree(t, m.Dir, map[string]string{"go": ""})
	says(t, n, 60*time.Second,
		fault{"NOT SERVING", status.ExitNotServing, status.DiskFull, []string{n.Settings.DataDir, "B free"},
			"make room"})
	lab.Eventually(t, 60*time.Second, "the returns that are not kept are a consequence", func() error {
		d, err := n.Status(t)
		if err != nil {
			return err
		}

		for _, p := range d.Problems {
			if p.Code == status.DiskFull && slices.Contains(p.Hides, status.ReturnsNotKept) {
				return nil
			}
		}

		return fmt.Errorf("%+v", d.Problems)
	})

	// What needs no disk goes on: sign-in, pillar, files, keys.
	if err := other.SignIn(ctx); err != nil {
		t.Errorf("sign-in meanwhile: %v", err)
	}

	if p, err := other.Pillar(ctx); err != nil || fmt.Sprint(p.List("_errors")) != "[]" {
		t.Errorf("pillar meanwhile: %v %v", p, err)
	}

	if v, err := other.Ask(ctx, "_file_envs"); err != nil || fmt.Sprint(v) != "[base]" {
		t.Errorf("files meanwhile: %v %v", v, err)
	}

	if k := n.Keys(t); len(k["accepted"]) != 2 {
		t.Errorf("salt-key meanwhile: %v", k)
	}

	if err := other.Return(quickly(t, ctx), "req", "test.ping", noise()); err == nil ||
		errors.Is(err, minion.ErrRefused) {
		t.Errorf("a return that cannot be kept is answered: %v", err)
	}

	if r := n.SaltRun(t, "jobs.lookup_jid", jid, "--out", "json"); strings.Contains(r.Out, "late") {
		t.Fatalf("the return is kept on a full disk: %s", r.Out)
	}

	if before, s := pid(t, n, "master"); before == 0 || s.Restarts != 0 {
		t.Errorf("the master was restarted: %+v", s)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, 90*time.Second, "the return is sent again and kept", func() error {
		if r := n.SaltRun(t, "jobs.lookup_jid", jid, "--out", "json"); !strings.Contains(r.Out, "late") {
			return fmt.Errorf("%.300s%s", r.Out, r.Err)
		}
		return nil
	})

	well(t, n, 60*time.Second, status.DiskFull, status.ReturnsNotKept, status.MasterProblem)
	n.Ping(t, 60*time.Second, "web1")

	// Nor does a full disk keep a master from starting: what the one before had
	// acknowledged is in its journal, and cannot become files yet.
	fill(t, filler)
	for taken = 0; taken < 2000 && other.Return(quickly(t, ctx), "req", "test.ping", noise()) == nil; taken++ {
	}
	t.Logf("%d more returns were taken on a full disk", taken)
	dead, _ := pid(t, n, "master")
	if err := syscall.Kill(dead, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	lab.Eventually(t, 60*time.Second, "another master serves on the full disk", func() error {
		if now, s := pid(t, n, "master"); now == 0 || now == dead || s.State != "running" {
			return fmt.Errorf("%+v", s)
		}

		if err := other.SignIn(ctx); err != nil {
			return fmt.Errorf("sign-in: %w", err)
		}

		p, err := other.Pillar(ctx)
		if err == nil && fmt.Sprint(p.List("_errors")) != "[]" {
			err = fmt.Errorf("%v", p)
		}

		return err
	})

	if r := n.SaltRun(t, "jobs.lookup_jid", jid, "--out", "json"); !strings.Contains(r.Out, "late") {
		t.Errorf("jobs on the full disk: %+v", r)
	}

	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}

	well(t, n, 60*time.Second, status.DiskFull, status.ReturnsNotKept, status.MasterProblem)
	n.Ping(t, 60*time.Second, "web1")
}

// fill takes all the room there is.
func fill(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 1<<20); len(chunk) > 0; {
		if _, err := f.Write(chunk); err != nil {
			chunk = chunk[:len(chunk)/2]
		}
	}
}

// noise is a return that does not compress.
func noise() string {
	b := make([]byte, 64<<10)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}

// quickly bounds a question that is not expected to be answered.
func quickly(t *testing.T, ctx context.Context) context.Context {
	ctx, cancel := context.WithTimeout(ctx, lab.Limit(8*time.Second))
	t.Cleanup(cancel)
	return ctx
}
