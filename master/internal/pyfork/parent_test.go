package pyfork

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
	"saltern/test/logged"
)

// ready is what programs of these tests do first; it needs Python's own library only.
const ready = `
control = socket.socket(fileno=CONTROL)
raw = read_frame(lambda size: os.read(0, size), 1 << 26)
tell(control, op="ready", salt="3008.3")
`

// python returns a Python; it need not have Salt.
func python(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath(cmp.Or(os.Getenv("SALTERN_PYTHON"), "python3"))
	if err != nil {
		t.Skip("SKIPPED: no Python")
	}
	return path
}

// config is that of a parent with a program, which follows Prelude.
func config(t *testing.T, program string) Config {
	t.Helper()
	return Config{
		Python:       python(t),
		Program:      Prelude + program,
		Settings:     value.NewMap("word", "of the settings"),
		Env:          []string{"WORD=of the environment", "PATH=" + os.Getenv("PATH")},
		StartTimeout: time.Minute,
		Name:         "renderer",
		Log:          slog.New(slog.DiscardHandler),
	}
}

func start(t *testing.T, cfg Config) *Parent {
	t.Helper()
	p, err := Start(t.Context(), cfg)
	check.Must(t, err)
	t.Cleanup(func() { p.Stop(0) })
	return p
}

// TestConversation: a parent gets its settings and environment, says that it is ready, takes an
// order with a file, and is heard; its end is the end of the control socket.
func TestConversation(t *testing.T) {
	t.Parallel()
	p := start(t, config(t, ready+`
order, rights, _, _ = socket.recv_fds(control, 1 << 16, 1)
os.write(rights[0], os.environ["WORD"].encode())
tell(control, op="forked", worker=7, error=repr(b"of the settings" in raw and b"of the order" in order and os.getcwd() == "/"))
`))
	if p.Salt != "3008.3" || !p.Alive() || p.PID() <= 0 {
		t.Errorf("%+v", p)
	}

	if score, err := os.ReadFile(fmt.Sprintf("/proc/%d/oom_score_adj", p.PID())); err != nil ||
		strings.TrimSpace(string(score)) != oomScore {
		t.Errorf("the kernel kills it at %q, %v", score, err)
	}

	ours, theirs, err := SocketPair(unix.SOCK_STREAM)
	check.Must(t, err)
	defer ours.Close()

	check.Must(t, p.Order(value.NewMap("word", "of the order"), theirs))
	theirs.Close()
	m, err := p.Receive()
	check.Must(t, err)

	if m.Op != "forked" || m.Worker != 7 || m.Error != "True" {
		t.Errorf("message: %+v", m)
	}

	if text, err := io.ReadAll(ours); err != nil || string(text) != "of the environment" {
		t.Errorf("the file: %q, %v", text, err)
	}

	if m, err := p.Receive(); err == nil {
		t.Errorf("after its end: %+v", m)
	}

	<-p.Done()
	if p.Alive() {
		t.Error("alive after its end")
	}
}

// TestStartThatFails: whoever starts a Python learns whether it will ever start.
// TestNiceIsRelative: a process that is to count less than this one does so whatever this one's own
// priority is.
func TestNiceIsRelative(t *testing.T) {
	own, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	check.Must(t, err)
	own = 20 - own
	for _, less := range []int{0, 3} {
		cfg := config(t, strings.Replace(ready, `"3008.3"`, "str(os.nice(0))", 1)+"receive = control.recv(1)\n")
		cfg.Nice = less
		if got, want := start(t, cfg).Salt, fmt.Sprint(min(own+less, 19)); got != want {
			t.Errorf("nice %s for %d less than %d, want %s", got, less, own, want)
		}
	}
}

func TestStartThatFails(t *testing.T) {
	t.Parallel()
	notes := filepath.Join(t.TempDir(), "notes")
	check.Must(t, os.WriteFile(notes, nil, 0o600))
	for _, tt := range []struct {
		name    string
		program string
		change  func(*Config)
		is      []error
		not     error
		text    string
	}{
		{
			name:   "no such program",
			change: func(c *Config) { c.Python = "/nowhere/python" },
			is:     []error{fs.ErrNotExist},
			not:    ErrCut,
			text:   "find /nowhere/python",
		},
		{name: "no program", change: func(c *Config) { c.Python = notes }, is: []error{fs.ErrPermission}, not: ErrCut},
		{
			name:    "it says why",
			program: "tell(socket.socket(fileno=CONTROL), op='failed', error='no such module')",
			not:     ErrCut,
			text:    "no such module",
		},
		{name: "it has no Salt", program: "sys.exit(3)", is: []error{ErrNoSalt}, not: ErrCut},
		{name: "it ends by itself", program: "sys.exit(1)", is: []error{errNotReady}, not: ErrCut},
		{name: "it crashes", program: "os.kill(os.getpid(), signal.SIGSEGV)", is: []error{errNotReady}, not: ErrCut},
		{name: "it is killed", program: "os.kill(os.getpid(), signal.SIGKILL)", is: []error{ErrCut}, not: ErrNoSalt},
		{
			name:    "it is too slow",
			program: "signal.pause()",
			change:  func(c *Config) { c.StartTimeout = 10 * time.Millisecond },
			is:      []error{ErrCut},
			not:     ErrNoSalt,
		},
		{
			name:    "it says what nobody understands",
			program: "socket.socket(fileno=CONTROL).send(b'{')",
			is:      []error{errNotReady},
			not:     ErrCut,
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			cfg := config(t, tt.program+"\n")
			if tt.change != nil {
				tt.change(&cfg)
			}

			p, err := Start(t.Context(), cfg)
			if err == nil {
				p.Stop(0)
				t.Fatal("it has started")
			}

			for _, want := range tt.is {
				if !errors.Is(err, want) {
					t.Errorf("%v is no %v", err, want)
				}
			}

			if errors.Is(err, tt.not) {
				t.Errorf("%v is taken for %v", err, tt.not)
			}

			if !strings.Contains(err.Error(), tt.text) {
				t.Errorf("%v does not say %q", err, tt.text)
			}
		})
	}
}

// TestSlowStart: a process that computes a little in each timeout becomes ready; one that waits is cut.
func TestSlowStart(t *testing.T) {
	t.Parallel()
	const timeout = 2 * time.Second
	real, err := exec.CommandContext(t.Context(), python(t), "-c", "import sys; print(sys.executable, end='')").Output()
	check.Must(t, err) // python3 may be a script that computes longer than a Python to find one
	cfg := config(t, `
import time
until = time.monotonic() + 5
while time.monotonic() < until:
    sum(range(50000))
    time.sleep(0.2)
`+ready+"receive = control.recv(1)\n")
	cfg.StartTimeout = timeout
	cfg.Python = string(real)
	if p := start(t, cfg); p.Salt != "3008.3" {
		t.Errorf("Salt %q", p.Salt)
	}

	cfg = config(t, "signal.pause()\n")
	cfg.StartTimeout = timeout
	cfg.Python = string(real)
	p, err := Start(t.Context(), cfg)
	if err == nil {
		p.Stop(0)
	}
	if !errors.Is(err, ErrCut) {
		t.Errorf("one that waits: %v", err)
	}
}

// TestStillStarts: the bounds of a slow start.
func TestStillStarts(t *testing.T) {
	for name, tt := range map[string]struct {
		before, used, passed time.Duration
		want, slow           bool
	}{
		"starved":        {0, 600 * time.Millisecond, time.Minute, true, true},
		"starved, later": {2 * time.Second, 2100 * time.Millisecond, 5 * time.Minute, true, true},
		"waits":          {time.Second, time.Second, time.Minute, false, false},
		"hardly moves":   {time.Second, time.Second + time.Millisecond, time.Minute, false, false},
		"loop":           {0, 55 * time.Second, time.Minute, false, false},
		"slow loop":      {29 * time.Second, 31 * time.Second, 5 * time.Minute, false, false},
		"too long":       {2 * time.Second, 3 * time.Second, 10 * time.Minute, false, true},
		"unknown":        {0, 0, time.Minute, false, false},
	} {
		if got := stillStarts(tt.before, tt.used, tt.passed, time.Minute); got != tt.want {
			t.Errorf("%s: %v", name, got)
		}
		if got := progresses(tt.before, tt.used, time.Minute); got != tt.slow {
			t.Errorf("%s: it makes progress: %v", name, got)
		}
	}
}

// TestStartIsCancelled: nobody waits for a Python that is not wanted any more.
// TestStartOfNoProgram: what the kernel cannot run is said to be so at once. It was taken for a program that may start
// later, and tried again for ever.
func TestStartOfNoProgram(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	elf := []byte("\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x08\x00") // for MIPS
	random := make([]byte, 512)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random)
	files := map[string][]byte{
		"empty":                 nil,
		"of another machine":    append(elf, make([]byte, 200)...),
		"cut ELF":               elf[:9],
		"text":                  []byte("import salt\n"),
		"bytes":                 random,
		"script of nobody":      []byte("#!/nowhere/python\n"),
		"script of a directory": []byte("#!" + dir + "\n"),
		"itself":                []byte("#!" + dir + "/itself\n"),
		"script of zeros":       append([]byte("#!"), make([]byte, 100)...),
	}

	for name, content := range files {
		path := filepath.Join(dir, name)
		check.Must(t, os.WriteFile(path, content, 0o755))
		cfg := config(t, "")
		cfg.Python = path
		began := time.Now()
		p, err := Start(t.Context(), cfg)
		if err == nil {
			p.Stop(0)
			t.Errorf("%s: it has started", name)
			continue
		}
		if errors.Is(err, ErrCut) || time.Since(began) > cfg.StartTimeout/2 {
			t.Errorf("%s may start later, it says after %v: %v", name, time.Since(began), err)
		}
	}
}

func TestStartIsCancelled(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	up := filepath.Join(t.TempDir(), "up")
	go func() {
		await.Within(time.Minute, func() bool { _, err := os.Stat(up); return err == nil })
		cancel()
	}()

	began := time.Now()
	_, err := Start(ctx, config(t, fmt.Sprintf("open(%q, 'w').close()\nsignal.pause()\n", up)))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error: %v", err)
	}

	if d := time.Since(began); d > 30*time.Second {
		t.Errorf("it took %v", d)
	}
}

// TestStopEndsTheFamily: Stop ends the workers of a parent too, whatever they ignore, and
// leaves a parent that ends by itself the time to do so.
func TestStopEndsTheFamily(t *testing.T) {
	t.Parallel()
	p := start(t, config(t, ready+`
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = os.fork()
if child == 0:
    signal.pause()
tell(control, op="forked", worker=child)
signal.pause()
`))

	m, err := p.Receive()
	check.Must(t, err)
	p.Stop(0)
	if p.Alive() {
		t.Error("the parent is alive")
	}

	await.That(t, "the end of the worker", func() bool {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", m.Worker))
		return err != nil || strings.Contains(string(stat), ") Z ")
	})

	dir := t.TempDir()
	p = start(t, config(t, ready+fmt.Sprintf(`
control.recv(1)
open(%q, "w").close()
`, filepath.Join(dir, "ended"))))

	p.Stop(time.Minute)
	if _, err := os.Stat(filepath.Join(dir, "ended")); err != nil {
		t.Errorf("it had no time to end: %v", err)
	}

	if err := syscall.Kill(p.PID(), 0); err == nil {
		t.Error("the process is there after Stop")
	}
}

// TestLogOfAParent: what a parent logs is logged here with its level, what it prints counts as
// little, and what is written at its end is not lost.
func TestLogOfAParent(t *testing.T) {
	t.Parallel()
	var log logged.Buffer
	cfg := config(t, ready+`
setup_logging(logging.INFO)
logging.getLogger("salt.x").warning("a warning")
os.write(2, b"printed\n")
logging.getLogger().handlers[0].jid = "20260102030405678901"
logging.getLogger("salt.y").error("the last word\nTraceback")
`)

	cfg.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p := start(t, cfg)
	<-p.Done()
	for _, want := range []string{
		`level=WARN msg="renderer: a warning" logger=salt.x`,
		`level=DEBUG msg="renderer output" text=printed`,
		`level=ERROR msg="renderer: the last word" logger=salt.y jid=20260102030405678901`,
		`level=DEBUG msg="renderer: the last word\nTraceback"`,
	} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in\n%s", want, log.String())
		}
	}
}

// TestLogIsBounded: who writes without end is cut off after a number of lines, and the rest is
// counted.
func TestLogIsBounded(t *testing.T) {
	t.Parallel()
	var log logged.Buffer
	text := strings.Repeat(`{"level": 30, "logger": "x", "text": "again"}`+"\n", 10*maxLines)
	relayLog(strings.NewReader(text), "runner", slog.New(slog.NewTextHandler(&log, nil)))
	if n := strings.Count(log.String(), "runner: again"); n != maxLines {
		t.Errorf("%d lines, want %d", n, maxLines)
	}
}
