package extpillar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

func newRunner(t *testing.T, cfg Config) *Runner {
	r := New(cfg)
	t.Cleanup(r.Close)
	return r
}

func run(t *testing.T, r *Runner, e *Entry, id string) (*value.Map, []byte, error) {
	t.Helper()
	return r.Run(t.Context(), e, Minion{ID: id}, nil)
}

// TestCommandGetsID puts ids into a command as Salt does: without quotes.
func TestCommandGetsID(t *testing.T) {
	r := newRunner(t, Config{})
	for _, tt := range []struct{ name, line, id, want string }{
		{"cmd_yaml", "echo 'id: %s, %s'", "web1", "web1, web1"},
		{"cmd_yaml", "echo id: %s", "a$(echo b)", "ab"},
		{"cmd_yaml", "echo id: %s", "a; echo more: 1", "a"},
		{"cmd_json", `printf %%s '{"id":"%s"}'`, "a", ""}, // %%s becomes %a
		{"cmd_json", `echo '{"id":"%s"}'`, "a$(echo b);c", "a$(echo b);c"},
		{"cmd_json", `echo {\"id\":\"%s\"}`, "a", "a"},
		{"cmd_json", `sh -c "echo '{\"id\":' >&2; echo '\"%s\"}'"`, "a", "a"}, // standard error is read, too
	} {
		e := Parse(tt.name, tt.line)
		v, _, err := run(t, r, e, tt.id)
		if tt.want == "" {
			if !errors.Is(err, ErrInexact) {
				t.Errorf("%s %q: %v %v, want it to be left to Salt", tt.name, tt.line, v, err)
			}
			continue
		}
		if err != nil || v.Str("id") != tt.want {
			t.Errorf("%s %q: %v %v, want %q", tt.name, tt.line, v.Value("id"), err, tt.want)
		}
	}
}

// TestCommandRunsOnce: of a command whose output Go does not read, and of a pillar that is compiled
// again, the command does not run again.
func TestCommandRunsOnce(t *testing.T) {
	r := newRunner(t, Config{})
	runs := filepath.Join(t.TempDir(), "runs")
	for _, text := range []string{"a: 1", "a: [", "- list", "''"} {
		e := Parse("cmd_yaml", fmt.Sprintf("echo run >>%s; echo \"%s\"; exit 3", runs, text))
		asked := r.Ask()
		for range 2 {
			_, output, err := r.Run(t.Context(), e, Minion{ID: "m"}, asked)
			if inexact := text != "a: 1"; errors.Is(err, ErrInexact) != inexact || string(output) != text+"\n" {
				t.Errorf("%q: %q %v", text, output, err)
			}
		}
		asked.End()
		if r.askedBytes != 0 {
			t.Errorf("%d bytes are kept", r.askedBytes)
		}
		if text, _ := os.ReadFile(runs); string(text) != "run\n" {
			t.Errorf("%q: the command has run %q", text, text)
		}
		_ = os.Remove(runs)
	}
}

// TestWholeOutput waits for processes that a command leaves behind, as long as they hold its output.
func TestWholeOutput(t *testing.T) {
	r := newRunner(t, Config{})
	v, _, err := run(t, r, Parse("cmd_yaml", "(sleep 1.2; echo late: 1) & echo early: 1"), "m")
	if err != nil || !slices.Equal(v.Keys(), []string{"early", "late"}) {
		t.Errorf("%v %v", v, err)
	}
}

// TestCommandBounds: a command that does not end, writes without end, or leaves a process that holds its
// output for ever, is stopped.
func TestCommandBounds(t *testing.T) {
	r := newRunner(t, Config{Limit: 300 * time.Millisecond})
	for _, line := range []string{"sleep 600", "setsid sleep 5 & echo a: 1", "while :; do sleep 1; done"} {
		e := Parse("cmd_yaml", line)
		began := time.Now()
		if _, _, err := run(t, r, e, "m"); !Unable(err) {
			t.Errorf("%q: %v", line, err)
		}
		if _, _, err := run(t, r, e, "m"); !Unable(err) {
			t.Errorf("%q again: %v", line, err)
		}
		if took := time.Since(began); took > time.Minute {
			t.Errorf("%q took %v", line, took)
		}
	}

	r = newRunner(t, Config{})
	_, _, err := run(t, r, Parse("cmd_yaml", "yes"), "m")
	if err == nil || Unable(err) || errors.Is(err, ErrInexact) || !strings.Contains(err.Error(), "8 MiB") {
		t.Errorf("endless output: %v", err)
	}
}

// TestHangOfOneMinion: a command that hangs for one minion runs for the others.
func TestHangOfOneMinion(t *testing.T) {
	r := newRunner(t, Config{Limit: 2 * time.Second})
	e := Parse("cmd_yaml", "test %s != bad || sleep 600; echo id: %s")
	if _, _, err := run(t, r, e, "bad"); !errors.Is(err, errHangs) {
		t.Errorf("the bad one: %v", err)
	}
	if v, _, err := run(t, r, e, "good"); err != nil || v.Str("id") != "good" {
		t.Errorf("the good one: %v %v", v, err)
	}
	began := time.Now()
	if _, _, err := run(t, r, e, "bad"); !errors.Is(err, errHangs) || time.Since(began) > time.Second {
		t.Errorf("the bad one again: %v", err)
	}
}

// TestCloseEndsCommands: a command at work ends with its Runner.
func TestCloseEndsCommands(t *testing.T) {
	r := New(Config{})
	pid := filepath.Join(t.TempDir(), "pid")
	go func() {
		await.Within(time.Minute, func() bool { _, err := os.Stat(pid); return err == nil })
		r.Close()
	}()
	if _, _, err := run(t, r, Parse("cmd_yaml", "echo >"+pid+"; sleep 600"), "m"); !errors.Is(err, errClosed) || !Unable(err) {
		t.Errorf("%v", err)
	}
	if _, _, err := run(t, r, Parse("cmd_yaml", "echo a: 1"), "m"); !errors.Is(err, errClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestCommandWithoutProgram: Salt says what is wrong with a command that cannot be started.
func TestCommandWithoutProgram(t *testing.T) {
	r := newRunner(t, Config{})
	for _, line := range []string{"/nosuch/program", "nosuchprogram", `"open`, `end\`, " ", "''", "/etc", "a\x00b"} {
		if _, output, err := run(t, r, Parse("cmd_json", line), "m"); !errors.Is(err, ErrInexact) || output != nil {
			t.Errorf("%q: %q %v", line, output, err)
		}
	}
	if _, output, err := run(t, r, Parse("cmd_yaml", " \n"), "m"); !errors.Is(err, ErrInexact) || output != nil {
		t.Errorf("no command at all: %q %v", output, err)
	}
}

// TestCommandEnvironment: a command gets nothing of this process but PATH and HOME, and no secrets.
func TestCommandEnvironment(t *testing.T) {
	t.Setenv("SALTERN_SECRET", "hidden")
	t.Setenv("HOME", t.TempDir())
	v, _, err := run(t, newRunner(t, Config{}), Parse("cmd_yaml",
		`echo "secret: '$SALTERN_SECRET'"; echo "all: '$LC_ALL'"; echo "dir: '$PWD'"; echo "in: '$(cat)'"`), "m")
	if err != nil || v.Str("secret") != "" || v.Str("all") != "C.UTF-8" || v.Str("dir") != os.Getenv("HOME") || v.Str("in") != "" {
		t.Errorf("%v %v", v, err)
	}
}

func TestOutputs(t *testing.T) {
	deep := strings.Repeat("[", 100) + strings.Repeat("]", 100)
	for name, texts := range map[string][]string{
		"cmd_yaml": {"", " \n", "a: 1\n\x1f", "# nothing", "~"},
		"cmd_json": {`{"a": 1}`, ` {"a": -0, "a": "\u00e4"}` + "\n", "{}"},
	} {
		for _, text := range texts {
			if _, err := (&Entry{Name: name}).read([]byte(text)); err != nil {
				t.Errorf("%s %q: %v", name, text, err)
			}
		}
	}
	for name, texts := range map[string][]string{
		"cmd_yaml": {"text", "- 1", "a: [", "a: \xff", "a: 1\u00a0", "a: !!binary aGk=", "a: &x 1", "a: [{yes: b}]", "1: a", strings.Repeat("a", maxRead+1)},
		"cmd_json": {"", "[]", "1", `{"a": NaN}`, `{"a": "\ud83d"}`, `{"a": 12345678901234567890}`, `{"a": 1e999}`, `{"a": 1,}`, `{"a": ` + deep + `}`, "\ufeff{}"},
	} {
		for _, text := range texts {
			if v, err := (&Entry{Name: name}).read([]byte(text)); !errors.Is(err, ErrInexact) {
				t.Errorf("%s %.80q is read: %v %v", name, text, v, err)
			}
		}
	}
}

// TestCommandInheritsBounds: a command has what it had beneath a renderer.
func TestCommandInheritsBounds(t *testing.T) {
	r := newRunner(t, Config{})
	script := filepath.Join(t.TempDir(), "script")
	const lines = "umask; ulimit -v; cat /proc/self/oom_score_adj"
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho \"{\\\"got\\\": \\\"$(echo $("+lines+"))\\\"}\"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for name, line := range map[string]string{"cmd_yaml": "echo got: $(" + lines + ")", "cmd_json": script} {
		v, _, err := run(t, r, Parse(name, line), "m")
		if err != nil || v.Str("got") != "0077 2097152 300" {
			t.Errorf("%s: %v %v", name, v.Value("got"), err)
		}
	}
}

// TestProgramsOfPython: a program that the kernel does not run is left to Salt's module. A shell would
// run it.
func TestProgramsOfPython(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("HOME", dir)
	for name, mode := range map[string]os.FileMode{"plain": 0o700, "data": 0o600} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("echo '{\"a\": 1}'\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "script"), []byte("#!/bin/sh\necho '{\"a\": 1}'\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	r := newRunner(t, Config{})
	for line, inGo := range map[string]bool{
		"./script": true, filepath.Join(dir, "script"): true,
		"./plain": false, "./data": false, "script": false, "-c 'echo {}'": false, "exec": false, "cd": false,
	} {
		_, _, err := run(t, r, Parse("cmd_json", line), "m")
		if inGo && err != nil || !inGo && !errors.Is(err, ErrInexact) {
			t.Errorf("%s: %v", line, err)
		}
	}
}

// TestHangsBesideModules: the look at extension_modules does not count as an answer of a command that
// hangs.
func TestHangsBesideModules(t *testing.T) {
	r := newRunner(t, Config{AtOnce: 2, Limit: 300 * time.Millisecond, Modules: t.TempDir()})
	dir := t.TempDir()
	e := Parse("cmd_yaml", ">"+dir+"/%s; exec sleep 600")
	for _, id := range []string{"a", "b"} {
		if _, _, err := run(t, r, e, id); !errors.Is(err, errHangs) {
			t.Errorf("%s: %v", id, err)
		}
	}
	_, _, err := run(t, r, e, "c")
	if _, ran := os.Stat(dir + "/c"); !errors.Is(err, errHangs) || ran == nil {
		t.Errorf("after two that hang: %v, and the command ran: %v", err, ran == nil)
	}
}

// TestPlaceOfLeftovers: what a command has left behind, out of its group, keeps its place.
func TestPlaceOfLeftovers(t *testing.T) {
	r := newRunner(t, Config{AtOnce: 1, Limit: 1500 * time.Millisecond})
	began := time.Now()
	if _, _, err := run(t, r, Parse("cmd_yaml", "setsid sleep 4 & echo a: 1"), "m"); !errors.Is(err, errHangs) {
		t.Fatal(err)
	}
	v, _, err := run(t, r, Parse("cmd_yaml", "echo b: 1"), "m")
	if waited := time.Since(began); err != nil || v.Value("b") == nil || waited < 3700*time.Millisecond {
		t.Errorf("%v %v after %v", v, err, waited)
	}
}

// TestShareOfLeftovers: what a suspect has left behind keeps its part of the places for suspects.
func TestShareOfLeftovers(t *testing.T) {
	r := newRunner(t, Config{AtOnce: 4})
	pipe := filepath.Join(t.TempDir(), "pipe")
	leaves := Parse("cmd_yaml", "setsid sh -c 'echo >"+pipe+".began; while [ ! -e "+pipe+" ]; do sleep 0.05; done' &")
	other := Parse("cmd_yaml", "echo b: 1")
	r.suspects.note(leaves.command, time.Now())
	r.suspects.note(other.command, time.Now())

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan struct{})
	go func() {
		defer close(left)
		_, _, _ = r.Run(ctx, leaves, Minion{ID: "m"}, nil)
	}()
	await.That(t, "the process that stays", func() bool { _, err := os.Stat(pipe + ".began"); return err == nil })
	leave()
	<-left
	if _, _, err := run(t, r, other, "m"); !errors.Is(err, errHangs) {
		t.Errorf("another suspect, while it stays: %v", err)
	}

	check.Must(t, os.WriteFile(pipe, nil, 0o600))
	await.That(t, "the share", func() bool { return len(r.commands) == 0 })
	if _, _, err := run(t, r, other, "m"); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// TestCallerWithoutTime: a caller whose own time is over says nothing about a command.
func TestCallerWithoutTime(t *testing.T) {
	r := newRunner(t, Config{AtOnce: 1})
	slow := t.TempDir()
	e := Parse("file_tree", slow)
	for _, id := range []string{"a", "b"} {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		_, _, err := r.Run(ctx, Parse("cmd_yaml", "test %s = c || exec sleep 600; echo a: 1"), Minion{ID: id}, nil)
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errHangs) || !Unable(err) {
			t.Errorf("%s: %v", id, err)
		}
		cancel()
	}
	if _, _, err := run(t, r, Parse("cmd_yaml", "test %s = c || exec sleep 600; echo a: 1"), "c"); err != nil {
		t.Errorf("the next: %v", err)
	}

	r.readers <- struct{}{} // a tree that takes its time
	for range 2 {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if _, _, err := r.Run(ctx, e, Minion{ID: "m"}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("waiting for a place: %v", err)
		}
		cancel()
	}
	<-r.readers
	if _, _, err := run(t, r, e, "m"); err != nil {
		t.Errorf("the next tree: %v", err)
	}
}

// TestFailedCommandIsLoggedOnce: not for each minion.
func TestFailedCommandIsLoggedOnce(t *testing.T) {
	var log logged.Buffer
	r := newRunner(t, Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 3 {
		if _, _, err := run(t, r, Parse("cmd_yaml", "echo a: 1; exit 3"), "m"); err != nil {
			t.Error(err)
		}
	}
	if n := strings.Count(log.String(), "a command of ext_pillar failed"); n != 1 {
		t.Errorf("%d lines: %s", n, log.String())
	}
}

// TestCloseWaitsForCommands: when Close returns, no command is left.
func TestCloseWaitsForCommands(t *testing.T) {
	r := New(Config{})
	dir := t.TempDir()
	done := make(chan error, 1)
	go func() {
		_, _, err := r.Run(context.Background(), Parse("cmd_yaml", "echo $$ >"+dir+"/pid; exec sleep 600"), Minion{ID: "m"}, nil)
		done <- err
	}()
	var pid int
	await.That(t, "the command", func() bool {
		text, _ := os.ReadFile(dir + "/pid")
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
		return pid > 0
	})
	r.Close()
	if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the command lives after Close: %v", err)
	}
	if err := <-done; !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

// TestPanicIsLeftToSalt: a panic below a tree does not end the master.
func TestPanicIsLeftToSalt(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "nodegroups", "web"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := newRunner(t, Config{AtOnce: 1})
	for range 2 {
		_, _, err := r.Run(t.Context(), Parse("file_tree", root), Minion{
			ID:      "m",
			Groups:  value.NewMap("web", "*"),
			InGroup: func(any) (bool, error) { panic("a fault of the matcher") },
		}, nil)
		if !errors.Is(err, ErrInexact) {
			t.Error(err)
		}
	}
}
