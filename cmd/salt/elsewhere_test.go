package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	op "saltern/cmd/salt/optparse"
	"saltern/internal/control"
	"saltern/internal/control/toolrun"
	"saltern/master/value"
	"saltern/test/fakemaster"
)

// notPortable are the options that another node is not asked with, and those that
// ask no master at all.
var notPortable = strings.Fields(`version versions_report help saltfile log_file log_level_logfile output_file output_file_append
	eauth mktoken username password config_dump preview_target profiling_path profiling_enabled`)

// Whoever adds an option decides whether it means the same on another node.
func TestPortableOptions(t *testing.T) {
	e := &env{getenv: func(string) string { return "" }}
	for _, p := range []interface {
		All(func(o *op.Option) bool)
	}{e.saltParser(), e.runParser()} {
		for o := range p.All {
			if slices.Contains(portable, o.Dst()) == slices.Contains(notPortable, o.Dst()) {
				t.Errorf("%s (%s) is in one list of the two", o.Names, o.Dst())
			}
		}
	}
}

// neighbour is a supervisor whose other node has a master.
type neighbour struct {
	t      *testing.T
	conf   string // the folder of that master's configuration
	answer func(w http.ResponseWriter) bool

	mu    sync.Mutex
	asked []toolrun.Request
}

func (n *neighbour) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q, err := toolrun.Read(r.Body)
	if err != nil || r.URL.Path != toolrun.Path {
		n.t.Errorf("asked for %s: %v", r.URL.Path, err)
	}

	n.mu.Lock()
	n.asked = append(n.asked, q)
	answer := n.answer
	n.mu.Unlock()

	if answer != nil && answer(w) {
		return
	}

	body, err := q.Encode()
	if err != nil {
		n.t.Error(err)
	}

	w.Header().Set(toolrun.AskedHeader, "n2 (10.0.0.12)")
	there := &env{
		stdin:  bytes.NewReader(body),
		stdout: frame{w, toolrun.Stdout},
		stderr: frame{w, toolrun.Stderr},
		getenv: func(string) string { return "" },
	}

	code := there.runTool(r.Context(), toolrun.Program, []string{n.conf})
	_ = toolrun.WriteFrame(w, toolrun.Exit, []byte{byte(code)})
}

// say replaces the answer.
func (n *neighbour) say(answer func(w http.ResponseWriter) bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.answer = answer
}

type frame struct {
	w    http.ResponseWriter
	kind toolrun.Kind
}

func (f frame) Write(b []byte) (int, error) { return len(b), toolrun.WriteFrame(f.w, f.kind, b) }

// besides makes a node whose master is down, and one whose master answers; m is the
// latter.
func besides(t *testing.T, m *fakemaster.Master) (*house, *neighbour) {
	t.Helper()
	dir, err := os.MkdirTemp("", "salt") // a short path, for the socket
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { os.RemoveAll(dir) })
	n := &neighbour{t: t, conf: newHouse(t, m, "").dir}
	ln, err := net.Listen("unix", filepath.Join(dir, "s"))
	if err != nil {
		t.Fatal(err)
	}

	srv := &http.Server{Handler: n}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	t.Cleanup(func() { _ = srv.Close(); <-done })

	return newHouse(t, nil, "saltern_supervisor: "+ln.Addr().String()+"\n"), n
}

const askedOther = "this node's master does not answer; asked n2 (10.0.0.12)\n"

// The tools give by another master what they give by their own, and the job is
// published there once.
func TestElsewhere(t *testing.T) {
	m := fakemaster.New(t, "a", "b")
	m.Minion = answers
	asUser(t, m)
	own := newHouse(t, m, "")
	h, n := besides(t, m)
	h.env["SUDO_USER"] = "alice"

	for _, args := range [][]string{
		{"salt", "a", "test.ping"}, {"salt", "a", "test.arg", "1", "x=ü y"}, {"salt", "a", "test.fail"}, {"salt", "nobody", "test.ping"},
		{"salt", "--out", "json", "--static", "a", "test.arg", "--", "-x"}, {"salt", "-b", "1", "a", "test.ping"}, {"salt", "--async", "a", "test.ping"},
		{"salt", "a", "test.ping", "--force-color"}, {"salt", "a", "state.apply"},
	} {
		published := func() (n int) {
			for _, l := range m.Loads() {
				if l.Str("cmd") == "publish" && l.Str("fun") != "saltutil.find_job" {
					n++
				}
			}
			return n
		}

		before := published()
		code := own.run(args[0], args[1:]...)
		once := published() - before
		got := h.run(args[0], args[1:]...)
		h.want(got, code, own.out, askedOther+own.errs)

		if p := published() - before - once; p != once {
			t.Errorf("%q: published %d times, not %d", args, p, once)
		}
	}

	for _, q := range n.asked {
		if q.User != "sudo_alice" {
			t.Errorf("asked for %s", q.User)
		}
	}

	h.env["SALT_NO_PARSE"] = "a"
	own.env["SALT_NO_PARSE"] = "a"
	code := own.run("salt", "a", "test.arg", "a=1", "b=1")
	h.want(h.run("salt", "a", "test.arg", "a=1", "b=1"), code, own.out, askedOther+own.errs)
	h.in = "a\ntest.arg\n1\n"
	own.in = h.in
	code = own.run("salt", "--args-stdin")
	h.want(h.run("salt", "--args-stdin"), code, own.out, askedOther+own.errs)
}

// A master that answers is asked itself.
func TestNotElsewhere(t *testing.T) {
	m := fakemaster.New(t, "a")
	asUser(t, m)
	_, n := besides(t, m)
	h := newHouse(t, m, "saltern_supervisor: /nowhere\n")
	m.Clear = func(load *value.Map) any {
		if load.Str("cmd") == "ping" {
			return load
		}
		return nil
	}

	h.want(h.run("salt", "a", "test.ping"), 0, "a:\n    True\n", "")
	if len(n.asked) > 0 {
		t.Errorf("asked %+v", n.asked)
	}
}

// TestElsewhereOfUnwell: a master that says that it can keep no jobs is told none, and another one
// is asked. (Finding F4: each call on a node whose disk had died failed.)
func TestElsewhereOfUnwell(t *testing.T) {
	well := fakemaster.New(t, "a")
	asUser(t, well)
	down, _ := besides(t, well)
	conf, err := os.ReadFile(filepath.Join(down.dir, "master"))
	if err != nil {
		t.Fatal(err)
	}

	_, supervisor, _ := strings.Cut(string(conf), "saltern_supervisor: ")
	supervisor, _, _ = strings.Cut(supervisor, "\n")

	unwell := fakemaster.New(t, "a")
	asUser(t, unwell)
	unwell.Clear = func(*value.Map) any {
		return value.NewMap("ret", false, "cluster_retry", true, control.PingFault,
			"this master cannot keep jobs: input/output error")
	}

	h := newHouse(t, unwell, "saltern_supervisor: "+supervisor+"\n")
	h.want(h.run("salt", "a", "test.ping"), 0, "a:\n    True\n",
		"this node's master can keep no jobs; asked n2 (10.0.0.12)\n")
	for _, l := range unwell.Loads() {
		if cmd := l.Str("cmd"); cmd != "ping" {
			t.Errorf("the unwell master was told to %s", cmd)
		}
	}
}

// A master that takes connections and says nothing is not told what another one does.
func TestSilentMaster(t *testing.T) {
	t.Parallel()
	m := fakemaster.New(t, "a")
	asUser(t, m)
	h, _ := besides(t, m)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()

	silent := filepath.Join(h.dir, "run")
	if err := os.Mkdir(silent, 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(filepath.Join(silent, "publish_pull.ipc"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	path := filepath.Join(h.dir, "master")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	text := strings.Replace(string(b), "ret_port: 1\n", fmt.Sprintf("ret_port: %d\n", ln.Addr().(*net.TCPAddr).Port), 1)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	h.want(h.run("salt", "a", "test.ping"), 0, "a:\n    True\n", askedOther)
	if d := time.Since(began); d < aliveTakes || d > 3*aliveTakes {
		t.Errorf("answered after %s", d)
	}
}

// Nobody else is asked with what would mean something else there; this node's own
// master is tried then, as ever.
func TestAnotherIsNotAsked(t *testing.T) {
	m := fakemaster.New(t, "a")
	h, n := besides(t, m)
	const own = "cannot listen to the master's events"
	file := filepath.Join(h.dir, "Saltfile")
	if err := os.WriteFile(file, []byte("salt:\n  static: true\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	for want, args := range map[string][]string{
		"--output-file is not possible": {"--out-file", filepath.Join(h.dir, "out"), "a", "test.ping"},
		"--log-file is not possible":    {"--log-file", "/tmp/x", "a", "test.ping"},
		"--saltfile is not possible":    {"--saltfile", file, "a", "test.ping"},
		"--password is not possible":    {"--password", "secret", "a", "test.ping"},
		"not text in UTF-8":             {"a", "test.arg", "\xff"},
	} {
		code := h.run("salt", args...)
		if code == 0 || !strings.Contains(h.errs, "no other one can be asked: ") ||
			!strings.Contains(h.errs, want) || args[0] != "--out-file" && !strings.Contains(h.out, own) {
			t.Errorf("%q: exit %d, %q %q", args, code, h.out, h.errs)
		}
	}

	h.env["SALT_SALTFILE"] = file
	if code := h.run("salt", "a", "test.ping"); code == 0 ||
		!strings.Contains(h.errs, "no other one can be asked: options come from a Saltfile") {
		t.Errorf("a Saltfile: exit %d, %q %q", code, h.out, h.errs)
	}

	delete(h.env, "SALT_SALTFILE")
	if len(n.asked) > 0 {
		t.Errorf("asked %+v", n.asked)
	}

	n.say(func(w http.ResponseWriter) bool {
		w.WriteHeader(http.StatusConflict)
		fmt.Fprint(w, `{"error":"n2: its master does not answer either"}`)
		return true
	})

	if code := h.run("salt", "a", "test.ping"); code == 0 ||
		!strings.Contains(h.errs, "no other one can be asked: n2: its master") || !strings.Contains(h.out, own) {
		t.Errorf("all masters hang: exit %d, %s", code, h.errs)
	}
}

// Once it is not known whether another master has done it, nobody is asked again.
func TestUnknownElsewhere(t *testing.T) {
	m := fakemaster.New(t, "a")
	asUser(t, m)
	h, n := besides(t, m)
	for name, tt := range map[string]struct {
		answer func(w http.ResponseWriter) bool
		want   string
	}{
		"hangs up": {func(http.ResponseWriter) bool { panic(http.ErrAbortHandler) }, "is not known"},
		"a fault": {func(w http.ResponseWriter) bool {
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprint(w, `{"error":"n2: EOF"}`)
			return true
		}, "is not known: n2: EOF"},
		"cut": {func(w http.ResponseWriter) bool {
			_ = toolrun.WriteFrame(w, toolrun.Stdout, []byte("a:\n"))
			return true
		}, "is lost"},
		"no frames": {func(w http.ResponseWriter) bool { fmt.Fprint(w, "<html>"); return true }, "is lost"},
	} {
		n.say(tt.answer)
		if code := h.run("salt", "a", "test.ping"); code != 1 || !strings.Contains(h.errs, tt.want) ||
			strings.Contains(h.out+h.errs, "master's events") {
			t.Errorf("%s: exit %d, %s", name, code, h.errs)
		}
	}

	if len(m.Loads()) > 0 {
		t.Errorf("the other master was told %v", m.Loads())
	}
}

// What a node asks of another one is checked there, whatever the asking tool has let
// through.
func TestForOther(t *testing.T) {
	m := fakemaster.New(t, "a")
	asUser(t, m)
	h := newHouse(t, m, "")
	out := filepath.Join(h.dir, "out")
	run := func(text string, args ...string) (int, string) {
		var b bytes.Buffer
		e := &env{stdin: strings.NewReader(text), stdout: &b, stderr: &b, getenv: func(string) string { return "" }}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		return e.runTool(ctx, toolrun.Program, args), b.String()
	}

	for text, want := range map[string]string{
		`{"tool":"salt","user":"root","words":["a","test.ping","--out-file=` + out +
			`"]}`: "--output-file is not possible",
		`{"tool":"salt","user":"root","words":["a","test.ping","--output-fil","` + out + `"]}`: "ambiguous option",
		`{"tool":"salt","user":"root","words":["--saltfile=/etc/shadow","a","test.ping"]}`:     "--saltfile is not possible",
		`{"tool":"salt","user":"root","words":["-a","pam","a","test.ping"]}`:                   "is not possible",
		`{"tool":"salt","user":"root","words":["--config-dump","a","test.ping"]}`:              "--config-dump is not possible",
		`{"tool":"salt-key","user":"root","words":["-D","-y"]}`:                                "cannot be asked",
		`{"tool":"salt-elsewhere","user":"root","words":["/"]}`:                                "cannot be asked",
		`{"tool":"salt","user":"bob","words":["a","test.ping"]}`:                               "only root",
		`{"tool":"salt-run","user":"root","words":["no.such"]}`:                                "not available",
		`{"tool":"salt-run","user":"root","words":["-d","no.such"]}`:                           "not available",
		`not JSON`: "decode",
	} {
		if code, got := run(text, h.dir); code == 0 || !strings.Contains(got, want) {
			t.Errorf("%s: exit %d, %s, want %s", text, code, got, want)
		}
	}

	if _, err := os.Stat(out); err == nil {
		t.Error("a file was made")
	}

	if code, got := run(`{"tool":"salt","user":"root","words":["-c","/nowhere","a","test.ping"]}`, h.dir); code != 0 || got != "a:\n    True\n" {
		t.Errorf("exit %d, %s", code, got)
	}

	if code, _ := run("", "a", "b"); code != exitUsage {
		t.Errorf("exit %d", code)
	}
}

// slowly is a pager that nobody turns for a while.
type slowly struct{ bytes.Buffer }

func (s *slowly) Write(b []byte) (int, error) {
	time.Sleep(5 * time.Minute)
	return s.Buffer.Write(b)
}

// A node that says nothing for a while is lost; how long our own reader takes does not
// count, nor how long the tool has nothing to print.
func TestRelaySilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out, errs := &slowly{}, &bytes.Buffer{}
		c := &tool{env: &env{stdout: out, stderr: errs}}
		from, to := io.Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			for range 100 {
				time.Sleep(toolrun.Beat)
				_ = toolrun.WriteFrame(to, toolrun.Alive, nil)
			}
			_ = toolrun.WriteFrame(to, toolrun.Stdout, []byte("a\n"))
			_ = toolrun.WriteFrame(to, toolrun.Stdout, []byte("b\n"))
		}()

		began := time.Now()
		err := c.relayOutput(ctx, func() { cancel(); _ = from.CloseWithError(ctx.Err()) }, from)
		if err == nil || !strings.Contains(err.Error(), "is lost") || out.String() != "a\nb\n" || errs.String() != "" {
			t.Errorf("%v, %q %q", err, out.String(), errs)
		}

		if d, want := time.Since(began), 100*toolrun.Beat+10*time.Minute+toolrun.Silence; d != want {
			t.Errorf("after %s, want %s", d, want)
		}
	})
}

// Ctrl-C ends the call with what is known.
func TestRelayInterrupted(t *testing.T) {
	errs := &bytes.Buffer{}
	c := &tool{env: &env{stderr: errs}}
	ctx, cancel := context.WithCancel(t.Context())
	from, _ := io.Pipe()
	cancel()
	_ = from.CloseWithError(ctx.Err())
	if err := c.relayOutput(ctx, cancel, from); err != exit(exitGeneric) ||
		!strings.Contains(errs.String(), "Exiting gracefully on Ctrl-c") {
		t.Errorf("%v %q", err, errs)
	}
}
