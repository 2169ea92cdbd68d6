package service

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/test/await"
)

// stayer is a Lasting whose process is a shell; script gets a folder as $1.
type stayer struct {
	*Lasting
	out  *Lines
	mu   sync.Mutex
	tag  string
	sick error
}

func newStayer(t *testing.T, dir, script string) *stayer {
	s := &stayer{tag: "a", out: NewLines()}
	s.Lasting = &Lasting{
		Path:        shell,
		Args:        []string{"-c", script, "sh", dir},
		Env:         []string{"PATH=/usr/bin:/bin"},
		Log:         s.out,
		PIDFile:     filepath.Join(dir, "pid"),
		Pipe:        filepath.Join(dir, "pipe"),
		StopTimeout: 20 * time.Second,
		Patience:    100 * time.Millisecond,
		Tag:         func() (string, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.tag, nil },
		Answers:     func(context.Context) error { s.mu.Lock(); defer s.mu.Unlock(); return s.sick },
		Leave:       func(cause error) bool { return errors.Is(cause, errLeave) },
	}

	t.Cleanup(s.Stop)
	return s
}

var errLeave = errors.New("leave it")

// begin runs it; the function given back ends the run with a cause and gives
// Run's error.
func (s *stayer) begin(t *testing.T) (pid int, end func(error) error) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	pids, done := make(chan int, 1), make(chan error, 1)
	go func() { done <- s.Run(ctx, func(pid int) { pids <- pid }) }()
	select {
	case pid = <-pids:
	case err := <-done:
		t.Fatal(err)
	}
	return pid, func(cause error) error {
		cancel(cause)
		return <-done
	}
}

// writes tells what it is told to by a file, in both lives.
const writes = `while :; do if [ -e "$1/say" ]; then cat "$1/say"; rm "$1/say"; fi; sleep 0.02; done`

func TestLastingIsAdopted(t *testing.T) {
	dir := t.TempDir()
	a := newStayer(t, dir, writes)
	if a.Alive() {
		t.Error("alive before the first start")
	}

	pid, end := a.begin(t)
	if err := end(errLeave); err != nil {
		t.Error(err)
	}

	if !alive(pid) {
		t.Fatal("not left running")
	}

	// What it writes while nobody reads is kept.
	say := filepath.Join(dir, "say")
	if err := os.WriteFile(say, []byte("between two lives\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	await.That(t, "written", func() bool { _, err := os.Stat(say); return err != nil })

	b := newStayer(t, dir, writes)
	if !b.Alive() {
		t.Error("not found")
	}

	again, end := b.begin(t)
	if again != pid {
		t.Errorf("process %d was not adopted, %d runs", pid, again)
	}

	await.That(t, "line arrives", func() bool { return slices.Contains(b.out.Tail(9), "between two lives") })
	if err := end(nil); err != nil {
		t.Error(err)
	}

	if alive(pid) {
		t.Error("not stopped")
	}

	if _, err := os.Stat(b.PIDFile); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is left: %v", err)
	}
}

func TestLastingIsReplaced(t *testing.T) {
	for what, change := range map[string]func(*stayer){
		"configuration changed": func(s *stayer) { s.tag = "b" },
		"restart":               func(s *stayer) { s.Renew() },
		"does not answer":       func(s *stayer) { s.sick = errors.New("no answer") },
	} {
		t.Run(what, func(t *testing.T) {
			dir := t.TempDir()
			a := newStayer(t, dir, writes)
			pid, end := a.begin(t)
			if err := end(errLeave); err != nil {
				t.Fatal(err)
			}

			b := newStayer(t, dir, writes)
			change(b)
			next, end := b.begin(t)
			if next == pid {
				t.Error("adopted")
			}

			if kept := b.sick == nil; alive(pid) != kept {
				t.Errorf("the earlier process lives: %v, want %v", alive(pid), kept)
			}

			// The next life knows both.
			if err := end(errLeave); err != nil {
				t.Error(err)
			}

			c := newStayer(t, dir, writes)
			c.tag = b.tag
			last, end := c.begin(t)
			if last != next {
				t.Errorf("adopted %d, not the newest, %d", last, next)
			}

			if err := end(nil); err != nil {
				t.Error(err)
			}

			if alive(pid) || alive(next) {
				t.Error("not all stopped")
			}
		})
	}
}

// TestLastingRestart: a restart on request puts a new process beside the old
// one, which ends in its own time.
func TestLastingRestart(t *testing.T) {
	s := newStayer(t, t.TempDir(), writes)
	pid, end := s.begin(t)
	if err := end(errRestart); err != nil {
		t.Error(err)
	}

	next, end := s.begin(t)
	if next == pid || !alive(pid) || !alive(next) {
		t.Errorf("%d %v, then %d %v", pid, alive(pid), next, alive(next))
	}

	_ = syscall.Kill(pid, syscall.SIGTERM)
	await.That(t, "old one is reaped and forgotten", func() bool {
		_, err := os.Stat("/proc/" + strconv.Itoa(pid))
		b, _ := os.ReadFile(s.PIDFile)
		return err != nil && !strings.Contains(string(b), strconv.Itoa(pid)+" ")
	})

	if err := end(nil); err != nil || alive(next) {
		t.Errorf("%v, lives %v", err, alive(next))
	}
}

// TestRestartSurvivesTheEndOfALife: a restart that was asked for while, or after, the life ended is
// done by the next life, once; the process that it leaves behind is adopted again after that.
func TestRestartSurvivesTheEndOfALife(t *testing.T) {
	for name, ask := range map[string]func(s *Service, end func()){
		"before the end": func(s *Service, end func()) { s.Restart(); end() },
		"after the end":  func(s *Service, end func()) { end(); s.Restart() },
		"twice":          func(s *Service, end func()) { s.Restart(); end(); s.Restart() },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			live := func(after func(s *Service, end func())) int {
				l := newStayer(t, dir, writes)
				s := newService(Spec{Name: "lb", Runner: l}, slog.New(slog.DiscardHandler), time.Now)
				ctx, cancel := context.WithCancelCause(t.Context())
				ended := make(chan struct{})
				go func() { defer close(ended); s.loop(ctx, nil) }()
				await.That(t, "running", func() bool { return s.Info(0).State == Running })
				pid := s.Info(0).PID
				after(s, func() { cancel(errLeave); <-ended })
				return pid
			}

			first := live(ask)
			second := live(func(_ *Service, end func()) { end() })
			if second == first {
				t.Errorf("process %d was adopted, and the restart dropped", first)
			}
			if third := live(func(_ *Service, end func()) { end() }); third != second {
				t.Errorf("process %d was replaced by %d without a reason", second, third)
			}
		})
	}
}

func TestLastingEnds(t *testing.T) {
	for script, want := range map[string]string{
		"exit 7":        "exit code 7",
		"kill -KILL $$": "killed by SIGKILL (out of memory, or by hand)",
	} {
		s := newStayer(t, t.TempDir(), "echo last words; "+script)
		err := s.Run(t.Context(), func(int) {})
		if err == nil || err.Error() != want || !slices.Contains(s.out.Tail(1), "last words") {
			t.Errorf("%s: %v, want %s; printed %q", script, err, want, s.out.Tail(9))
		}
	}

	// Of an adopted one, the end is seen but not how.
	dir := t.TempDir()
	a := newStayer(t, dir, writes)
	if os.Getenv("SALTERN_TEST_PARENT") != "" {
		return
	}

	pid := orphan(t, a)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	err := a.Run(ctx, func(got int) {
		if got != pid {
			t.Errorf("adopted %d, not %d", got, pid)
		}
		_ = syscall.Kill(got, syscall.SIGKILL)
	})
	if err == nil || !strings.Contains(err.Error(), "not known") {
		t.Errorf("end of an adopted process: %v", err)
	}
}

// orphan has another process start s's process and die without a word.
func orphan(t *testing.T, s *stayer) int {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLastingParent$")
	cmd.Env = append(os.Environ(), "SALTERN_TEST_PARENT="+filepath.Dir(s.PIDFile))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}

	b := make([]byte, 100)
	n, err := out.Read(b)
	if err != nil {
		t.Fatal(err)
	}

	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(b[:n]), "child ")))
	if err != nil {
		t.Fatalf("%q", b[:n])
	}

	return pid
}

// TestLastingParent is the other process of orphan, and by itself a test that
// the death of the parent is not that of the child.
func TestLastingParent(t *testing.T) {
	if dir := os.Getenv("SALTERN_TEST_PARENT"); dir != "" {
		s := newStayer(t, dir, writes)
		_ = s.Run(context.Background(), func(pid int) {
			_, _ = os.Stdout.WriteString("child " + strconv.Itoa(pid) + "\n")
		})
		return
	}
	s := newStayer(t, t.TempDir(), writes)
	if pid := orphan(t, s); !alive(pid) {
		t.Error("it died with its parent")
	}
}

// TestLastingStrangers: a file from another boot, or garbage, names nobody.
func TestLastingStrangers(t *testing.T) {
	dir := t.TempDir()
	s := newStayer(t, dir, writes)
	text := strconv.Itoa(os.Getpid()) + " 1 a\nrubbish\n1 1 a\n-1 -1 a\n0 0 a\n\x00\n"
	if err := os.WriteFile(s.PIDFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if s.Alive() {
		t.Error("a stranger was taken for ours")
	}
}
