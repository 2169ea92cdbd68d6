package service

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/test/await"
)

const shell = "/bin/sh"

func runShell(t *testing.T, ctx context.Context, script string, stop time.Duration) (*Lines, error) {
	t.Helper()
	out := NewLines()
	p := &Process{
		Path:        shell,
		Args:        []string{"-c", script},
		Log:         out,
		StopTimeout: stop,
		Env:         []string{"PATH=/usr/bin:/bin"},
	}
	err := p.Run(ctx, func(int) {})
	out.Flush()
	return out, err
}

func TestProcessEnds(t *testing.T) {
	for script, want := range map[string]string{
		"exit 7":        "exit code 7",
		"true":          "exit code 0",
		"kill -SEGV $$": "killed by SIGSEGV",
		"kill -KILL $$": "killed by SIGKILL (out of memory, or by hand)",
	} {
		_, err := runShell(t, t.Context(), script, 0)
		var ee *ExitError
		if !errors.As(err, &ee) || err.Error() != want {
			t.Errorf("%s: %v, want %s", script, err, want)
		}
	}

	_ = (&Process{Path: "/no/such/program"}).Path
	err := (&Process{Path: "/no/such/program"}).Run(t.Context(), func(int) {})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing program: %v", err)
	}
}

func TestProcessInheritsNothing(t *testing.T) {
	t.Setenv("NOTIFY_SOCKET", "/canary")
	out, _ := runShell(t, t.Context(), "env", 0)
	if got := strings.Join(out.Tail(50), "\n"); strings.Contains(got, "canary") ||
		!strings.Contains(got, "PATH=/usr/bin:/bin") {
		t.Errorf("environment of the child:\n%s", got)
	}
}

func alive(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(b), ") ")
	return !strings.HasPrefix(rest, "Z")
}

func TestStopKillsTheWholeGroup(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan int, 1)
	out := NewLines(func(l string) {
		if n, err := strconv.Atoi(l); err == nil {
			got <- n
			cancel()
		}
	})

	// Neither the leader nor its child heed SIGTERM.
	p := &Process{Path: shell, Args: []string{"-c", "trap '' TERM; (trap '' TERM; sleep 60) & echo $!; wait; sleep 60"},
		Env: []string{"PATH=/usr/bin:/bin"}, Log: out, StopTimeout: 200 * time.Millisecond}
	began := time.Now()
	if err := p.Run(ctx, func(int) {}); err != nil {
		t.Errorf("stop on request is not an error: %v", err)
	}

	if d := time.Since(began); d > 10*time.Second {
		t.Errorf("stop took %s", d)
	}

	child := <-got
	await.That(t, "the grandchild's end", func() bool { return !alive(child) })
}

// TestParentDeath starts this test binary as a parent that starts a child and
// is then killed: the child must go as well.
func TestParentDeath(t *testing.T) {
	if os.Getenv("SALTERN_TEST_PARENT") != "" {
		p := &Process{Path: shell, Args: []string{"-c", "exec sleep 60"}, Env: []string{"PATH=/usr/bin:/bin"}}
		_ = p.Run(context.Background(), func(pid int) {
			_, _ = os.Stdout.WriteString("child " + strconv.Itoa(pid) + "\n")
		})
		return
	}

	cmd := exec.Command(os.Args[0], "-test.run=^TestParentDeath$")
	cmd.Env = append(os.Environ(), "SALTERN_TEST_PARENT=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	buf := make([]byte, 100)
	n, err := out.Read(buf)
	if err != nil {
		t.Fatal(err)
	}

	child, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(buf[:n]), "child ")))
	if err != nil {
		t.Fatal(err)
	}
	if !alive(child) {
		t.Fatal("child is not there")
	}

	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	_ = cmd.Wait()
	if !await.Within(30*time.Second, func() bool { return !alive(child) }) {
		_ = syscall.Kill(child, syscall.SIGKILL)
		t.Fatal("child outlived its parent")
	}
}

// A child that an earlier life left behind is gone before the new one starts;
// a stranger with the same process id but another start time is left alone.
func TestStaleChild(t *testing.T) {
	file := t.TempDir() + "/child.pid"
	env := []string{"PATH=/usr/bin:/bin"}
	left := func() (*exec.Cmd, string) {
		cmd := exec.Command(shell, "-c", "trap '' TERM; sleep 60 & wait; sleep 60")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}

		ticks, err := startTicks(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}

		return cmd, ticks
	}

	for _, c := range []struct {
		name     string
		stranger bool
	}{{"ours", false}, {"stranger", true}} {
		old, ticks := left()
		go func() { _ = old.Wait() }()
		if c.stranger {
			ticks += "0"
		}

		if err := os.WriteFile(file, []byte(strconv.Itoa(old.Process.Pid)+" "+ticks+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}

		var rest int
		p := &Process{Path: shell, Args: []string{"-c", "sleep 0.3; exit 3"}, Env: env, PIDFile: file}
		p.KillRest = func(pid int) { rest = pid }
		if err := p.KillStale(t.Context()); err != nil || rest != old.Process.Pid {
			t.Errorf("%s: %v; the rest of %d was killed", c.name, err, rest)
		}

		err := p.Run(t.Context(), func(pid int) {
			if alive(old.Process.Pid) != c.stranger {
				t.Errorf("%s: lives: %v", c.name, !c.stranger)
			}
			if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), strconv.Itoa(pid)+" ") {
				t.Errorf("%s: file %q %v", c.name, b, err)
			}
		})
		if err == nil || err.Error() != "exit code 3" {
			t.Errorf("%s: %v", c.name, err)
		}

		killGroup(old.Process.Pid)
		if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the file is left: %v", c.name, err)
		}
	}

	for _, junk := range []string{"", "x y", "1 1", "-5 1", "999999999 1"} {
		if err := os.WriteFile(file, []byte(junk), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := (&Process{PIDFile: file}).KillStale(t.Context()); err != nil {
			t.Errorf("%q: %v", junk, err)
		}
	}
}

func TestLines(t *testing.T) {
	var got []string
	l := NewLines(func(s string) { got = append(got, s) })
	for _, s := range []string{"one\ntw", "o\r\n\n", "esc \x1b[31mred\x1b[0m \x1b]0;title\x07end\n",
		"bad \xff \x00\n", strings.Repeat("x", maxLine+5) + "\n", "tail"} {
		if n, err := l.Write([]byte(s)); n != len(s) || err != nil {
			t.Fatal(n, err)
		}
	}

	l.Flush()
	want := []string{"one", "two", "esc red end", "bad ? ?", strings.Repeat("x", maxLine), "xxxxx", "tail"}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q", got)
	}

	for i := range 1000 {
		_, _ = l.Write([]byte(strconv.Itoa(i) + "\n"))
	}

	if tail := l.Tail(3); strings.Join(tail, " ") != "997 998 999" {
		t.Errorf("tail %v", tail)
	}

	if n := len(l.Tail(1 << 20)); n != tailLines {
		t.Errorf("%d lines kept, want %d", n, tailLines)
	}
}
