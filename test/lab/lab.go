// Package lab stands up real things for tests: a node (applianced with its
// master and load balancer), unmodified salt-minions of several versions, and
// the command line programs. Each node has a loopback address and folders of
// its own, so tests run side by side; everything a test starts is gone when
// the test ends, also when it fails or is killed.
//
// What is under test comes from the environment:
//
//	SALTERN_BIN    folder with applianced, salt-master, salt, salt-key, salt-run, salt-cp (default: bin/ of the repository)
//	SALTERN_CACHE  folder with salt-VERSION virtual environments (default: ~/.cache/saltern); `make deps` fills it
//	SALTERN_PEER   "python": a Python master and Python programs of the newest version instead of ours, to test the lab itself
//	SALTERN_SLOW   factor for every time limit (default 1)
//	SALTERN_KEEP   "1": keep the folders of failed tests
//	SALTERN_FORK   "0": start each minion as a program of its own, without a [forkServer]
package lab

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/test/source"
)

// Versions are the releases of Salt whose minions must work, oldest first.
func Versions() []string { return []string{"3006.28", "3007.15", "3008.3"} }

// Newest is the release whose Python programs are the measure.
const Newest = "3008.3"

// Peer reports whether the Python original stands in for our programs.
func Peer() bool { return os.Getenv("SALTERN_PEER") == "python" }

// Venv gives the folder of programs of a Salt release; the test fails with a
// hint when it is not there.
func Venv(t testing.TB, version string) string {
	t.Helper()
	dir := filepath.Join(cacheDir(t), "salt-"+version, "bin")
	if _, err := os.Stat(filepath.Join(dir, "salt-minion")); err != nil {
		t.Fatalf("Salt %s is not installed (%v): run `make deps`, or point SALTERN_CACHE at a folder with salt-%s",
			version, err, version)
	}

	return dir
}

// cacheDir returns the folder that has the releases of Salt.
func cacheDir(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("SALTERN_CACHE"); dir != "" {
		return dir
	}

	home, err := os.UserCacheDir()
	if err != nil {
		t.Fatalf("no cache folder: %v", err)
	}
	return filepath.Join(home, "saltern")
}

// Bin gives the path of one of our programs.
func Bin(t testing.TB, name string) string {
	t.Helper()
	dir := os.Getenv("SALTERN_BIN")
	if dir == "" {
		dir = filepath.Join(source.Root(t), "bin")
	}
	path, err := filepath.Abs(filepath.Join(dir, name))
	if err == nil {
		_, err = os.Stat(path)
	}
	if err != nil {
		t.Fatalf("%s is not built (%v): run `make build`, or set SALTERN_BIN", name, err)
	}
	return path
}

// CLI gives the path of salt, salt-key, salt-run or salt-cp.
func CLI(t testing.TB, name string) string {
	t.Helper()
	if Peer() {
		return filepath.Join(Venv(t, Newest), name)
	}
	return Bin(t, name)
}

// Limit stretches a time limit by SALTERN_SLOW.
func Limit(d time.Duration) time.Duration {
	if f, err := strconv.ParseFloat(os.Getenv("SALTERN_SLOW"), 64); err == nil && f > 0 {
		return time.Duration(float64(d) * f)
	}
	return d
}

// Eventually calls check until it returns nil, and fails the test with its
// last error when limit (stretched by [Limit]) is over. It waits for a state,
// never for a time.
func Eventually(t testing.TB, limit time.Duration, what string, check func() error) {
	t.Helper()
	limit = Limit(limit)
	start := time.Now()
	end := start.Add(limit)
	for {
		began := time.Now()
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: not within %s: %v", what, limit, err)
		}

		// A check starts programs, so what takes long is asked about less often.
		pause := max(100*time.Millisecond, time.Since(began), time.Since(start)/10)
		time.Sleep(min(pause, 300*time.Millisecond))
	}
}

// Dir makes a folder with a short name (socket paths are limited to 107
// bytes) that is removed at the end of the test.
func Dir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "slab-")
	if err != nil {
		t.Fatal(err)
	}

	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if t.Failed() && os.Getenv("SALTERN_KEEP") == "1" {
			t.Logf("kept: %s", dir)
			return
		}
		_ = os.RemoveAll(dir)
	})

	return dir
}

// Address reserves a loopback address, 127.64.0.0/10, on which the given
// ports are free. No other test process gets it while this test runs.
func Address(t testing.TB, ports ...int) string {
	t.Helper()
	locks := filepath.Join(os.TempDir(), fmt.Sprintf("saltern-lab-%d", os.Getuid()))
	if err := os.MkdirAll(locks, 0o700); err != nil {
		t.Fatal(err)
	}

	for range 100 {
		var b [3]byte
		_, _ = rand.Read(b[:])
		ip := net.IPv4(127, 64|b[0]&63, b[1], 1+b[2]%250).String()
		f, err := os.OpenFile(filepath.Join(locks, ip), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		if syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil || !allFree(ip, ports) {
			_ = f.Close()
			continue
		}

		t.Cleanup(func() {
			_ = os.Remove(f.Name())
			_ = f.Close()
		})

		return ip
	}

	t.Fatalf("no loopback address with ports %v free (does something listen on 0.0.0.0?)", ports)
	return ""
}

func allFree(ip string, ports []int) bool {
	for _, p := range ports {
		ln, err := net.Listen("tcp", net.JoinHostPort(ip, strconv.Itoa(p)))
		if err != nil {
			return false
		}
		_ = ln.Close()
	}
	return true
}

// tokenEnv marks every process a test starts, so that one that left its group
// is found as well.
const tokenEnv = "SALTERN_LAB_TOKEN"

// Proc is a process with a group of its own.
type Proc struct {
	Name string
	Log  string // path of what it printed
	pid  int
	tok  string
	done chan struct{}
	once sync.Once
	err  error // valid after done is closed
}

// Start starts a long-running program. It is killed with its whole group at
// the end of the test, and when the test process dies. On failure the end of
// its output is shown.
func Start(t testing.TB, name, logPath, path string, args ...string) *Proc {
	t.Helper()
	p := newProc(name, logPath)
	out, err := os.OpenFile(logPath, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}

	cmd := exec.Command(path, args...)
	cmd.Env = append(cleanEnv(), tokenEnv+"="+p.tok)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := startAndWait(cmd, func(err error) {
		p.err = err
		_ = out.Close()
		close(p.done)
	}); err != nil {
		t.Fatalf("start %s: %v", name, err)
	}

	p.pid = cmd.Process.Pid
	p.killAtEnd(t)
	return p
}

// newProc returns a process that is not started yet.
func newProc(name, logPath string) *Proc {
	var b [8]byte
	_, _ = rand.Read(b[:])
	return &Proc{Name: name, Log: logPath, tok: hex.EncodeToString(b[:]), done: make(chan struct{})}
}

// startAndWait starts a command that has a parent death signal, and calls ended with the error of
// its Wait. ended is called also when the start fails.
func startAndWait(cmd *exec.Cmd, ended func(error)) error {
	started := make(chan error)
	go func() {
		// The parent death signal hangs on the thread that started the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err

		if err == nil {
			err = cmd.Wait()
		}

		ended(err)
	}()

	return <-started
}

// killAtEnd kills the process at the end of the test. On failure the end of its output is shown.
func (p *Proc) killAtEnd(t testing.TB) {
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("%s printed:\n%s", p.Name, Tail(p.Log, 40))
		}
	})
}

// cleanEnv is our environment without what would change Python's or systemd's
// mind.
func cleanEnv() []string {
	var out []string
	for _, e := range os.Environ() {
		k, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(k, "PYTHON") || strings.HasPrefix(k, "SALT_") || k == "NOTIFY_SOCKET" ||
			k == "VIRTUAL_ENV" {
			continue
		}
		out = append(out, e)
	}
	return out
}

// PID of the process.
func (p *Proc) PID() int { return p.pid }

// Running reports whether the process has not ended.
func (p *Proc) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Stop sends SIGTERM and waits; after limit the group is killed and an error
// returned.
func (p *Proc) Stop(limit time.Duration) error {
	if p.Running() {
		_ = syscall.Kill(p.pid, syscall.SIGTERM) // it may end now
	}

	select {
	case <-p.done:
		p.Kill()
		var exit interface{ ExitCode() int }
		if errors.As(p.err, &exit) && exit.ExitCode() > 0 {
			return fmt.Errorf("%s ended with code %d", p.Name, exit.ExitCode())
		}
		return nil
	case <-time.After(Limit(limit)):
		p.Kill()
		return fmt.Errorf("%s did not stop within %s", p.Name, limit)
	}
}

// Kill sends SIGKILL to the group and to every process that came from it. It
// may be called more than once.
func (p *Proc) Kill() {
	p.once.Do(func() {
		_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
		<-p.done
		for _, pid := range p.Left() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
}

// Left lists processes that came from this one and still live: those that
// inherited its mark, and those that name its folder on their command line
// (the children of applianced inherit no environment).
func (p *Proc) Left() []int {
	mark, dir := tokenEnv+"="+p.tok, filepath.Dir(p.Log)+"/"
	var out []int
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || pid == os.Getpid() {
			continue
		}

		env, _ := os.ReadFile(d + "/environ")
		args, _ := os.ReadFile(d + "/cmdline")
		if strings.Contains(string(env), mark) || strings.Contains(string(args), dir) {
			out = append(out, pid)
		}
	}

	return out
}

// Result is what a program that ended gave.
type Result struct {
	Out, Err string
	Code     int
}

// returns decodes what salt printed with --out json --static: minion → return.
func (r Result) returns(args []string) (map[string]any, error) {
	var m map[string]any
	if err := json.Unmarshal([]byte(r.Out), &m); err != nil {
		return nil, fmt.Errorf("salt %s: %w\n%s%s", strings.Join(args, " "), err, r.Out, r.Err)
	}
	return m, nil
}

// Run runs a program to its end, at most limit (stretched).
func Run(t testing.TB, limit time.Duration, path string, args ...string) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), Limit(limit))
	defer cancel()

	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = cleanEnv()
	cmd.Dir = "/"
	cmd.WaitDelay = 20 * time.Second // on a busy machine the end of a pipe comes late
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	err := cmd.Run()
	r := Result{Out: out.String(), Err: errOut.String(), Code: cmd.ProcessState.ExitCode()}
	var ee *exec.ExitError
	if err != nil && !errors.As(err, &ee) || ctx.Err() != nil {
		t.Fatalf("%s %s: %v (limit %s)\n%s%s", filepath.Base(path), strings.Join(args, " "), err, limit, r.Out, r.Err)
	}

	return r
}

// tailWidth is how much of a line Tail shows, in bytes.
const tailWidth = 600

// Tail gives the last n lines of a file, each cut where it is very long.
func Tail(path string, n int) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimRight(string(b), "\n"), "\n")
	lines = lines[max(0, len(lines)-n):]
	for i, l := range lines {
		if len(l) > tailWidth {
			lines[i] = fmt.Sprintf("%s … (%d bytes)", l[:tailWidth], len(l))
		}
	}
	return strings.Join(lines, "\n")
}
