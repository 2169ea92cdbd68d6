package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/release"
	"saltern/master/client"
	"saltern/master/value"
	"saltern/test/fakemaster"
)

// house is a configuration directory and what a tool of it prints.
type house struct {
	t    *testing.T
	dir  string
	env  map[string]string
	in   string
	tty  bool
	out  string
	errs string
}

// newHouse writes a configuration; m may be nil.
func newHouse(t *testing.T, m *fakemaster.Master, extra string) *house {
	t.Helper()
	dir := t.TempDir()
	sock, cache, port := filepath.Join(dir, "run"), filepath.Join(dir, "cache"), 1
	if m != nil {
		sock = m.SockDir
		cache = m.CacheDir
		port = m.Port
	}

	conf := fmt.Sprintf("user: %s\nid: m1_master\ninterface: 127.0.0.1\nret_port: %d\nroot_dir: /\npki_dir: %s\ncachedir: %s\nsock_dir: %s\ntimeout: 1\ngather_job_timeout: 1\nstate_output_profile: false\n%s",
		client.EffectiveUser(), port, filepath.Join(dir, "pki"), cache, sock, extra)
	if err := os.WriteFile(filepath.Join(dir, "master"), []byte(conf), 0o600); err != nil {
		t.Fatal(err)
	}

	return &house{t: t, dir: dir, env: map[string]string{"HOME": dir, "PATH": filepath.Join(dir, "bin")}}
}

func (h *house) run(tool string, args ...string) int {
	h.t.Helper()
	var out, errs bytes.Buffer
	e := &env{stdin: strings.NewReader(h.in), stdout: &out, stderr: &errs, columns: 80, terminal: h.tty,
		getenv: func(k string) string { return h.env[k] }}
	ctx, cancel := context.WithTimeout(h.t.Context(), 20*time.Second)
	defer cancel()
	code := e.runTool(ctx, tool, append([]string{"-c", h.dir}, args...))
	h.out, h.errs = jids.ReplaceAllString(out.String(), "JID"), errs.String()
	return code
}

var jids = regexp.MustCompile(`20\d{18}`)

// want checks the last run.
func (h *house) want(code, wantCode int, out, errs string) {
	h.t.Helper()
	if code != wantCode || h.out != out || h.errs != errs {
		h.t.Errorf("exit code %d, want %d\nstdout:\n%swant:\n%sstderr:\n%swant:\n%s", code, wantCode, h.out,
			out, h.errs, errs)
	}
}

func asUser(t *testing.T, m *fakemaster.Master) {
	t.Helper()
	if u := client.EffectiveUser(); u != "root" {
		if err := os.Rename(filepath.Join(m.CacheDir, ".root_key"),
			filepath.Join(m.CacheDir, "."+u+"_key")); err != nil {
			t.Fatal(err)
		}
	}
}

// answers are the minions of the tests.
func answers(id, fun string, load *value.Map) fakemaster.Answer {
	a := fakemaster.Answer{Reply: true, Return: true}
	switch fun {
	case "test.arg":
		a.Return = load.List("arg")
	case "test.fail":
		a.Return, a.Retcode = "bad", int64(3)
	case "test.hostile":
		a.Return = "x\x1b[2Jy"
	case "state.apply":
		a.Return = value.NewMap("test_|-i_|-n_|-nop",
			value.NewMap("result", false, "comment", "no", "changes", value.NewMap(), "__run_num__", 0, "name", "n"))
		a.Out = "highstate"
		a.Retcode = int64(2)
	case "sys.doc":
		a.Return = value.NewMap("test.ping", "Ping.\n", "test.arg", nil)
	case "sys.list_functions":
		a.Return = []any{"test.ping"}
	case "test.mute":
		a.Reply = false
	}

	if id == "b" {
		a.After = 150 * time.Millisecond
	}

	return a
}

const lookup = "    Minion did not return. [No response]\n    The minions may not have all finished running and any remaining minions will return upon completion. " +
	"To look up the return data for this job later, run the following command:\n    \n    salt-run jobs.lookup_jid JID\n"

func TestSalt(t *testing.T) {
	m := fakemaster.New(t, "a", "b")
	m.Minion = answers
	asUser(t, m)
	h := newHouse(t, m, "nodegroups: {g: 'a', far: ['N@g and not b'], loop: 'N@loop'}\n")
	const bad = "ERROR: Minions returned with non-zero exit code\n"
	for _, c := range []struct {
		args []string
		code int
		out  string
		errs string
	}{
		{[]string{"*", "test.ping"}, 0, "a:\n    True\nb:\n    True\n", ""},
		{[]string{"a", "test.arg", "1", "x=y", "--out", "json", "--out-indent=-1"}, 0,
			`{"a": [1, {"__kwarg__": true, "x": "y"}]}` + "\n", ""},
		{[]string{"--out=txt", "*", "test.fail"}, 1, "a: bad\nb: bad\n", bad},
		{[]string{"nobody", "test.ping"}, 2, client.ErrNoMinions.Error() + "\n", "ERROR: No return received\n"},
		{[]string{"-L", "a,ghost", "test.ping"}, 1, "a:\n    True\nghost:\n" + lookup, bad},
		{[]string{"--hide-timeout", "-L", "a ghost", "test.ping"}, 0, "a:\n    True\n", ""},
		{[]string{"--hide-timeout", "-t", "1", "a", "test.mute"}, 0, "", ""},
		{[]string{"a", "test.ping", "-v"}, 0,
			"Executing job with jid JID\n" + strings.Repeat("-", 43) + "\n\na:\n    True\n", ""},
		{[]string{"a", "test.ping", "--show-jid"}, 0, "jid: JID\na:\n    True\n", ""},
		{[]string{"a", "test.ping", "--async"}, 0, "Executed command with job ID: JID\n", ""},
		{[]string{"nobody", "test.ping", "--async"}, 0,
			client.ErrNoMinions.Error() + "\nExecuted command with job ID: 0\n", ""},
		{[]string{"a", "state.apply"}, 1,
			"a:\n----------\n          ID: i\n    Function: test.nop\n        Name: n\n      Result: False\n     Comment: no\n     Changes:   \n\n" +
				"Summary for a\n------------\nSucceeded: 0\nFailed:    1\n------------\nTotal states run:     1\n", bad},
		{[]string{"a", "state.apply", "--state-output=terse"}, 1,
			"a:\n  Name: n - Function: test.nop - Result: Failed\n\nSummary for a\n------------\nSucceeded: 0\nFailed:    1\n------------\nTotal states run:     1\n",
			bad},
		{[]string{"-s", "*", "test.ping", "--out=json"}, 0, "{\n    \"a\": true,\n    \"b\": true\n}\n", ""},
		{[]string{"-b", "1", "*", "test.fail"}, 3,
			"\nExecuting run on ['a']\n\n\nExecuting run on ['b']\n\na:\n    bad\njid:\n    JID\nretcode:\n    3\nb:\n    bad\njid:\n    JID\nretcode:\n    3\n",
			""},
		{[]string{"-b", "1", "--failhard", "*", "test.fail"}, 3,
			"\nExecuting run on ['a']\n\na:\n    bad\njid:\n    JID\nretcode:\n    3\n",
			"[ERROR   ] Batch run stopped due to failhard\n"},
		{[]string{"-b", "1", "nobody", "test.ping"}, 2,
			client.ErrNoMinions.Error() + "\nNo minions matched the target.\n",
			"ERROR: No return received\n"},
		// m2
		{[]string{"-s", "nobody", "test.ping", "--out=json"}, 2, client.ErrNoMinions.Error() + "\n{}\n",
			"ERROR: No return received\n"},
		// m3
		{[]string{"-N", "far", "test.ping"}, 2, client.ErrNoMinions.Error() + "\n",
			unexpanded(`unknown nodegroup "g and not b"`)},
		// m3
		{[]string{"-N", "loop", "test.ping"}, 2, client.ErrNoMinions.Error() + "\n",
			unexpanded(`illegal nested nodegroup "loop"`)},
		{[]string{"-b", "x", "*", "test.ping"}, 1,
			"Invalid batch specification 'x': must be an integer or percentage string like '10' or '25%'.\n",
			""},
		{[]string{"--subset=2", "*", "test.ping", "--out=txt"}, 0, "a: True\nb: True\n", ""},
		{[]string{"-d", "a", "test.ping"}, 0, "test.ping:\nPing.\n\n\n", ""},
		{[]string{"a", "test.ping", "--summary"}, 0,
			"a:\n    True\n\n\n" + strings.Repeat("-", 43) + "\nSummary\n" + strings.Repeat("-", 43) +
				"\n# of minions targeted: 1\n# of minions returned: 1\n# of minions that did not return: 0\n# of minions with errors: 0\n" + strings.Repeat("-", 43) + "\n", ""},
		{[]string{"-N", "no such", "test.ping"}, 1,
			"Node group no such unavailable in " + filepath.Join(h.dir, "master") + "\n", ""},
		{[]string{"a", "test.ping,test.arg", "x,y,z"}, 42, "",
			"Cannot execute compound command with more arguments than commands.\n"},
		{[]string{"-E", "-L", "a", "test.ping"}, 64, "",
			"Usage: salt [options] '<target>' <function> [arguments]\n\nsalt: error: The options --pcre/--list are mutually exclusive. Please only choose one of them\n"},
		{[]string{"--nosuch"}, 64, "",
			"Usage: salt [options] '<target>' <function> [arguments]\n\nsalt: error: no such option: --nosuch\n"},
		{[]string{"a", "test.ping", "--out=nosuch"}, 0, "a:\n    True\n",
			"[ERROR   ] Invalid outputter nosuch specified, fall back to nested\n"},
	} {
		t.Run(strings.Join(c.args, " "), func(t *testing.T) {
			h.t = t
			h.want(h.run("salt", c.args...), c.code, sorted(c.args, h, c.out), c.errs)
		})
	}

	h.t = t
	if code := h.run("salt", "--version"); code != 0 || !strings.HasPrefix(h.out, "salt "+release.Salt) {
		t.Errorf("version: %d %q", code, h.out)
	}

	for _, args := range [][]string{{}, {"a"}} {
		if code := h.run("salt", args...); code != exitArguments || !strings.HasPrefix(h.out, "Usage: salt") {
			t.Errorf("%v: %d %q", args, code, h.out)
		}
	}
}

// unexpanded is what is said of a node group that comes out empty.
func unexpanded(why string) string {
	return "[ERROR   ] Failed nodegroup expansion: " + why + "\nERROR: No return received\n"
}

// sorted allows for the one case in which two minions answer in any order.
func sorted(args []string, h *house, want string) string {
	if slices.Contains(args, "--subset=2") {
		lines := strings.Split(strings.TrimSpace(h.out), "\n")
		slices.Sort(lines)
		h.out = strings.Join(lines, "\n") + "\n"
	}
	return want
}

// TestAttack26SaltTerminal: what a minion returns does not reach the terminal
// as an escape.
func TestAttack26SaltTerminal(t *testing.T) {
	m := fakemaster.New(t, "a")
	m.Minion = answers
	asUser(t, m)
	h := newHouse(t, m, "")
	h.tty = true

	for _, out := range []string{"nested", "json", "yaml", "txt", "raw", "pprint", "highstate"} {
		h.run("salt", "a", "test.hostile", "--no-color", "--out="+out)
		if strings.ContainsRune(h.out, 0x1b) || !strings.Contains(h.out, "[2J") {
			t.Errorf("%s: %q", out, h.out)
		}
	}

	h.run("salt", "a", "test.ping")
	if !strings.Contains(h.out, "\x1b[0;36m") {
		t.Errorf("no colours on a terminal: %q", h.out)
	}
}

func TestSaltRefused(t *testing.T) {
	m := fakemaster.New(t, "a")
	h := newHouse(t, m, "")
	if err := os.WriteFile(filepath.Join(m.CacheDir, "."+client.EffectiveUser()+"_key"), []byte("wrong"),
		0o600); err != nil {
		os.Remove(filepath.Join(m.CacheDir, ".root_key"))
		if err := os.WriteFile(filepath.Join(m.CacheDir, ".root_key"), []byte("wrong"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h.want(h.run("salt", "a", "test.ping"), 1, "Authentication error occurred.\n", "")
	if strings.Contains(h.out+h.errs, "wrong") {
		t.Error("the key is shown")
	}
}

func TestSaltToken(t *testing.T) {
	m := fakemaster.New(t, "a")
	if err := os.Remove(filepath.Join(m.CacheDir, ".root_key")); err != nil {
		t.Fatal(err)
	}

	m.Clear = func(l *value.Map) any {
		if l.Str("cmd") == "mk_token" {
			return value.NewMap("token", "t0k")
		}
		if l.Map("kwargs").Str("token") == "t0k" {
			l.Set("key", fakemaster.Key)
		}
		return nil
	}

	h := newHouse(t, m, "")
	h.in = "bob\nsecret\n"
	h.want(h.run("salt", "-a", "pam", "-T", "a", "test.ping"), 0, "username: password: a:\n    True\n", "")
	mk := m.Loads()[0]
	if mk.Str("username") != "bob" || mk.Str("password") != "secret" || mk.Str("eauth") != "pam" {
		t.Errorf("mk_token: %v", mk.Keys())
	}

	st, err := os.Stat(filepath.Join(h.dir, "salt_token"))
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("token file: %v, %v", st, err)
	}

	h.in = ""
	h.want(h.run("salt", "a", "test.ping"), 0, "a:\n    True\n", "")
}

func TestOutFile(t *testing.T) {
	m := fakemaster.New(t, "a")
	asUser(t, m)
	h := newHouse(t, m, "output: txt\n")
	file := filepath.Join(h.dir, "out")
	for range 2 {
		h.want(h.run("salt", "a", "test.ping", "--out-file", file), 0, "", "")
	}
	h.want(h.run("salt", "a", "test.ping", "--out-file", file, "--out-file-append"), 0, "", "")
	if b, err := os.ReadFile(file); err != nil || string(b) != "a: True\na: True\n" {
		t.Errorf("%q, %v", b, err)
	}
}

func TestSaltfile(t *testing.T) {
	m := fakemaster.New(t, "a")
	asUser(t, m)
	h := newHouse(t, m, "")
	file := filepath.Join(h.dir, "sf")
	if err := os.WriteFile(file, []byte("salt:\n  output: raw\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.env["SALT_SALTFILE"] = file
	h.want(h.run("salt", "a", "test.ping"), 0, "{'a': True}\n", "")
	h.want(h.run("salt", "a", "test.ping", "--out=txt"), 0, "a: True\n", "")
}

func TestSaltCP(t *testing.T) {
	m := fakemaster.New(t, "a")
	asUser(t, m)
	h := newHouse(t, m, "salt_cp_chunk_size: 4\n")
	src := filepath.Join(h.dir, "src")
	if err := os.MkdirAll(filepath.Join(src, "empty"), 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(src, "f"), []byte("0123456789"), 0o640); err != nil {
		t.Fatal(err)
	}

	h.want(h.run("salt-cp", "a", filepath.Join(src, "f"), "/dst"), 0, "a:\n    True\n", "")
	arg := m.Loads()[0].List("arg")
	if files := arg[0].(*value.Map); files.Str(filepath.Join(src, "f")) != "0123456789" || arg[1] != "/dst" {
		t.Errorf("cp.recv %v", arg)
	}

	h.want(h.run("salt-cp", "-C", "-n", "a", src, "/dst"), 0,
		"a:\n    ----------\n    /dst/src/empty:\n        True\n    /dst/src/f:\n        True\n", "")
	var got []string
	for _, l := range m.Loads()[1:] {
		a := l.List("arg")
		if l.Str("fun") == "saltutil.find_job" {
			continue // asked when the machine is slow
		}

		if len(a) == 5 {
			b, _ := base64.StdEncoding.DecodeString(a[1].(string))
			got = append(got, fmt.Sprint(a[0], " ", string(b), " ", a[2], a[3], a[4]))
		} else {
			got = append(got, fmt.Sprint(a...))
		}
	}

	if want := []string{"/dst/src/f 0123 false false 416", "/dst/src/f 4567 true false 416",
		"/dst/src/f 89 true false 416", "/dst/src/empty<nil>"}; !slices.Equal(got, want) {
		t.Errorf("parts %q", got)
	}

	h.want(h.run("salt-cp", "a", src, "/dst"), 1,
		src+" is a directory, only files are supported in non-chunked mode. Use \"--chunked\" command line argument.\n",
		"")
	h.want(h.run("salt-cp", "-C", "a", src+"x", "/dst"), 42, "", src+"x does not exist\n")
}

func TestSaltRun(t *testing.T) {
	h := newHouse(t, nil, "")
	h.want(h.run("salt-run", "test.arg", "1", "a=[x]"), 0,
		"args:\n    - 1\nkwargs:\n    ----------\n    a:\n        - x\n", "")
	h.want(h.run("salt-run", "config.get", "timeout", "--out=json"), 0, "1\n", "")
	h.want(h.run("salt-run", "config.get", "timeout", "--quiet"), 0, "", "")
	h.want(h.run("salt-run", "test.sleep", "1", "2"), 0,
		"\nPassed invalid arguments: sleep() takes from 0 to 1 positional arguments but 2 were given\n\nUsage:\n\n    salt-run test.sleep [s_time=...]\n",
		"")
	h.want(h.run("salt-run", "test.sleep", "x"), 1,
		"Passed invalid arguments: s_time must be a number of seconds\n", "")

	if code := h.run("salt-run", "state.orchestrate", "x"); code != exitUnavailable ||
		!strings.Contains(h.errs, "'state.orchestrate' is not available") {
		t.Errorf("%d %q %q", code, h.out, h.errs)
	}

	h.want(h.run("salt-run", "--jid", "12", "test.arg"), 64, "",
		"Usage: salt-run [options] <function> [arguments]\n\nsalt-run: error: '12' is not a valid JID\n")
}

// TestDocsOfRunners: without a Python, salt-run -d shows how built-in functions are called, by the forms of
// Salt's: a name, a module, a pattern, none. Functions that Salt does not have are described with a Python too.
func TestDocsOfRunners(t *testing.T) {
	h := newHouse(t, nil, "")
	status := "git.status:\n\n    Returns which commits of the git remotes each master serves.\n\n" +
		"    Usage:\n\n        salt-run git.status\n\n"
	h.want(h.run("salt-run", "-d", "test.sleep"), 0,
		"test.sleep:\n\n    Usage:\n\n        salt-run test.sleep [s_time=...]\n\n", "")
	h.want(h.run("salt-run", "-d", "git.status"), 0, status, "")
	for asked, want := range map[string][]string{
		"jobs":       {"jobs.list_job", "jobs.list_jobs", "jobs.lookup_jid"},
		"jobs.":      {"jobs.list_job", "jobs.list_jobs"},
		"*.list_jo*": {"jobs.list_job", "jobs.list_jobs", "jobs.list_jobs_filter"},
		"":           {"appliance.status", "cluster.secret", "jobs.list_job", "test.arg"},
	} {
		words := []string{"-d"}
		if asked != "" {
			words = append(words, asked)
		}
		code := h.run("salt-run", words...)
		at := 0
		for _, name := range want {
			i := strings.Index(h.out[at:], name+":\n")
			if code != 0 || i < 0 {
				t.Errorf("%q: %d, no %s in its order in\n%s%s", asked, code, name, h.out, h.errs)
				break
			}
			at += i
		}
		if strings.Contains(h.out, "manage.up:") != (asked == "") {
			t.Errorf("%q shows\n%s", asked, h.out)
		}
	}

	for _, unknown := range []string{"state.orchestrate", "job", "jobs.nonsense", "jobs.list_job.x"} {
		if code := h.run("salt-run", "-d", unknown); code != exitUnavailable || h.out != "" ||
			!strings.Contains(h.errs, "'"+unknown+"' is not available") {
			t.Errorf("%s: %d %q %q", unknown, code, h.out, h.errs)
		}
	}

	h.env["SALTERN_PYTHON_SALT_RUN"] = "/bin/false" // ends the test as failed if it runs
	h.want(h.run("salt-run", "-d", "git.status"), 0, status, "")
}

func TestPythonSaltRun(t *testing.T) {
	h := newHouse(t, nil, "")
	bin := filepath.Join(h.dir, "bin")
	if err := os.Mkdir(bin, 0o755); err != nil {
		t.Fatal(err)
	}

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	find := func() (string, error) {
		e := &env{
			stdout: &bytes.Buffer{},
			stderr: &bytes.Buffer{},
			stdin:  strings.NewReader(""),
			getenv: func(k string) string { return h.env[k] },
		}

		tool, _ := e.startTool(e.runParser(), []string{"-c", h.dir}, false)
		return (&runCall{tool: tool}).pythonSaltRun()
	}

	if err := os.Symlink(exe, filepath.Join(bin, "salt-run")); err != nil {
		t.Fatal(err)
	}

	if p, err := find(); err == nil {
		t.Errorf("this program itself was found: %s", p)
	}

	other := filepath.Join(h.dir, "other")
	if err := os.MkdirAll(other, 0o755); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(other, "salt-run")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	h.env["PATH"] = bin + ":." + ":" + other
	if p, err := find(); err != nil || p != path {
		t.Errorf("got %s, %v", p, err)
	}

	beside := filepath.Join(h.dir, "venv")
	if err := os.MkdirAll(beside, 0o755); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(beside, "salt-run"), []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}

	h.env["SALTERN_RENDERER_PYTHON"] = filepath.Join(beside, "python")
	if p, err := find(); err != nil || filepath.Dir(p) != beside {
		t.Errorf("got %s, %v, not the one beside the renderers' Python", p, err)
	}

	h.env["SALTERN_PYTHON_SALT_RUN"] = filepath.Join(h.dir, "nosuch")
	if p, err := find(); err == nil {
		t.Errorf("a missing file was taken: %s", p)
	}
}

func TestRemotes(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 2E00007F:5FB9 0200000A:D1F2 01 00000000:00000000 00:00000000 00000000     0        0 1
   1: 2E00007F:5FB9 0100007F:D1F2 01 00000000:00000000 00:00000000 00000000     0        0 1
   2: 2E00007F:5FB9 0300000A:D1F2 06 00000000:00000000 00:00000000 00000000     0        0 1
   3: 2E00007F:5FBA 0400000A:D1F2 01 00000000:00000000 00:00000000 00000000     0        0 1
   4: 0000000000000000FFFF00002E00007F:5FB9 0000000000000000FFFF00000500000A:D1F2 01 0 0 0
   5: 000080FE000000000000000001000000:5FB9 B80D0120000000000000000002000000:D1F2 01 0 0 0
   6: garbage
   7: 2E00007F:5FB9 XX:D1F2 01
`

	got := map[netip.Addr]bool{}
	remotes(strings.NewReader(table), 0x5fb9, got)
	replaceLoopback(got, func() ([]net.Addr, error) {
		return []net.Addr{&net.IPNet{IP: net.IPv4(192, 168, 1, 9), Mask: net.CIDRMask(24, 32)},
			&net.IPNet{IP: net.IPv4(127, 0, 0, 1), Mask: net.CIDRMask(8, 32)}}, nil
	})

	want := []string{"10.0.0.2", "10.0.0.5", "192.168.1.9", "2001:db8::2"}
	var list []string
	for a := range got {
		list = append(list, a.String())
	}

	slices.Sort(list)
	if !slices.Equal(list, want) {
		t.Errorf("got %v, want %v", list, want)
	}
}
