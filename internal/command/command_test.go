package command

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/test/await"
	"saltern/test/orphan"
)

func sh(text string, args ...string) []string { return append([]string{"sh", "-c", text}, args...) }

func TestRun(t *testing.T) {
	out, err := Exec{}.Run(t.Context(), sh("echo $LC_ALL; pwd; echo no >&2; exit 3"))
	if err != nil || string(out.Stdout) != "C\n/\n" || string(out.Stderr) != "no\n" || out.Exit != 3 {
		t.Errorf("%+v %v", out, err)
	}

	out, err = Exec{Stdin: "asked", Env: []string{"WORD=said"}, Path: "/bin/sh"}.Run(t.Context(),
		[]string{"name", "-c", `/bin/cat; echo " $WORD $0"`})
	if err != nil || string(out.Stdout) != "asked said name\n" {
		t.Errorf("%+v %v", out, err)
	}

	if _, err := (Exec{}).Run(t.Context(), []string{"/no/such/program"}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a program that does not exist: %v", err)
	}

	if _, err := (Exec{}).Run(t.Context(), nil); err == nil {
		t.Error("no command ran")
	}
}

func TestErr(t *testing.T) {
	for _, tt := range []struct {
		out  Output
		want string
	}{
		{Output{Exit: 1}, "exit status 1"},
		{Output{Exit: -1, Stdout: []byte(" \n")}, "ended by a signal"},
		{Output{Exit: 2, Stderr: []byte("no room\n")}, "no room (exit status 2)"},
		{Output{Exit: 2, Stdout: []byte("line 1\n"), Stderr: []byte("refused")}, "refused line 1 (exit status 2)"},
		{Output{Exit: 2, Stderr: []byte(strings.Repeat("ä", maxText))},
			strings.Repeat("ä", maxText/2) + "… (exit status 2)"},
	} {
		if err := tt.out.Err(); err == nil || err.Error() != tt.want {
			t.Errorf("%q, want %q", err, tt.want)
		}
	}

	if err := (Output{Stderr: []byte("a warning")}).Err(); err != nil {
		t.Error(err)
	}

	if out, err := Do(t.Context(), Exec{}, sh("echo said; exit 1")...); err == nil || string(out) != "said\n" {
		t.Errorf("%q %v", out, err)
	}

	if out, err := Do(t.Context(), Exec{}, "echo", "said"); err != nil || string(out) != "said\n" {
		t.Errorf("%q %v", out, err)
	}
}

// With a command all that it has started ends.
func TestStopsTheWholeGroup(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer cancel()
		await.Within(time.Minute, func() bool { _, err := os.Stat(pid); return err == nil || ctx.Err() != nil })
	}()

	// The grandchild keeps the output open.
	out, err := Exec{}.Run(ctx, sh(`echo began; sleep 600 & echo $! >"$0.new"; mv "$0.new" "$0"; sleep 600`, pid))
	if !errors.Is(err, context.Canceled) || out.Exit != -1 || string(out.Stdout) != "began\n" {
		t.Errorf("%+v %v", out, err)
	}

	text, err := os.ReadFile(pid)
	if err != nil {
		t.Fatal(err)
	}

	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}

	await.That(t, "the end of what it started", func() bool { return gone(n) })
}

// gone: nobody may have reaped it, without an init.
func gone(pid int) bool {
	if errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
		return true
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	return err != nil || strings.Contains(string(text), ") Z ")
}

func TestEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	began := time.Now()
	if _, err := (Exec{}).Run(ctx, []string{"sleep", "600"}); !errors.Is(err, context.Canceled) || errors.Is(err, ErrTimeout) {
		t.Errorf("without its caller: %v", err)
	}

	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := (Exec{Limit: time.Hour}).Run(ctx, []string{"sleep", "600"}); !errors.Is(err, ErrTimeout) {
		t.Errorf("at its deadline: %v", err)
	}

	if _, err := (Exec{Limit: 50 * time.Millisecond}).Run(t.Context(), []string{"sleep", "600"}); !errors.Is(err, ErrTimeout) {
		t.Errorf("after its time: %v", err)
	}

	if d := time.Since(began); d > time.Minute {
		t.Errorf("it took %v", d)
	}
}

func TestBoundsOutput(t *testing.T) {
	const endless = "while :; do echo 0123456789; done"
	if _, err := (Exec{MaxOutput: 1000}).Run(t.Context(), sh(endless)); !errors.Is(err, ErrOutput) {
		t.Errorf("endless output: %v", err)
	}

	for range 20 { // it may have ended when that is seen
		if out, err := (Exec{MaxOutput: 4}).Run(t.Context(), sh("echo 0123456789")); !errors.Is(err, ErrOutput) {
			t.Fatalf("%+v %v", out, err)
		}
	}

	if out, err := (Exec{MaxOutput: 11}).Run(t.Context(), sh("echo 0123456789")); err != nil || len(out.Stdout) != 11 {
		t.Errorf("as much as is accepted: %+v %v", out, err)
	}

	out, err := Exec{MaxOutput: 1000, Cut: true}.Run(t.Context(),
		sh("yes | head -n 100000; echo lost; yes no | head -n 100000 >&2"))
	if err != nil || len(out.Stdout) != 1000 || len(out.Stderr) != 1000 || out.Exit != 0 {
		t.Errorf("%d %d bytes, %v", len(out.Stdout), len(out.Stderr), err)
	}
}

// TestChildEndsWithUs kills a process that runs a command.
func TestChildEndsWithUs(t *testing.T) {
	orphan.Check(t, "program", func(string) {
		_, err := Exec{EndsWithUs: true, AllOutput: true, Limit: time.Hour}.Run(t.Context(), sh("exec program"))
		t.Error(err)
	})
}

// TestEndedIsCalledOnce: whether the command runs, does not start, or leaves a process behind.
func TestEndedIsCalledOnce(t *testing.T) {
	for name, argv := range map[string][]string{
		"runs": sh("exit 1"), "none": nil, "missing": {"/no/such/program"}, "hangs": sh("exec sleep 600"),
		"leaves": sh("setsid sleep 3 & echo"),
	} {
		var calls atomic.Int32
		began := time.Now()
		_, _ = Exec{AllOutput: true, Limit: 1500 * time.Millisecond, Ended: func() { calls.Add(1) }}.Run(t.Context(), argv)
		await.That(t, name, func() bool { return calls.Load() > 0 })
		if took := time.Since(began); calls.Load() != 1 || name == "leaves" && took < 2900*time.Millisecond {
			t.Errorf("%s: %d calls after %v", name, calls.Load(), took)
		}
	}
}

// TestMayStartLater: a program that is just being written may start later, one that is none may not.
func TestMayStartLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "program")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString("#!/bin/sh\n"); err != nil {
		t.Fatal(err)
	}

	if _, err := (Exec{}).Run(t.Context(), []string{path}); !errors.Is(err, syscall.ETXTBSY) || !MayStartLater(err) {
		t.Errorf("a program that is being written: %v", err)
	}
	if _, err := (Exec{}).Run(t.Context(), []string{path + "none"}); err == nil || MayStartLater(err) {
		t.Errorf("a program that does not exist: %v", err)
	}
	for _, later := range []error{syscall.EAGAIN, syscall.ENOMEM, syscall.EMFILE, syscall.ENFILE, syscall.EINTR, syscall.EIO} {
		if !MayStartLater(&os.PathError{Op: "fork/exec", Path: "python", Err: later}) {
			t.Errorf("%v may not start later", later)
		}
	}
}
