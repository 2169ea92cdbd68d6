package pyhost

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/internal/pause"
	"saltern/master/value"
	"saltern/test/await"
)

// tasks is a program whose tasks leave as much as they can.
const tasks = `
import msgpack
import importlib
import subprocess

def load():
    try:
        import saltern_library
    except ImportError:
        pass
    return "none"

def pack(value):
    return msgpack.packb(value, use_bin_type=True)

def unpack(raw):
    return msgpack.unpackb(raw, raw=False, strict_map_key=False)

count = 0
held = []

def state():
    return {
        "count": count, "cwd": os.getcwd(), "umask": os.umask(0o077), "environ": os.environ.get("LEFT"), "limits": resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        "handler": str(signal.getsignal(signal.SIGUSR1)), "children": len(children()), "path": "/left" in sys.path, "threads": threading.active_count(),
        "parent": open(f"/proc/{os.getppid()}/stat").read().split()[2] != str(os.getpid()), "session": os.getsid(0) == os.getpid(), "oom": int(open("/proc/self/oom_score_adj").read()),
        "collects": gc.isenabled(),
    }

def leave():
    global count
    count += 1
    os.chdir("/tmp")
    os.environ["LEFT"] = "x"
    sys.path.append("/left")
    signal.signal(signal.SIGUSR1, lambda *_: None)
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    print("printed")

def daemon(stubborn, pids):
    "A process of a session of its own, without a parent, and its child."
    if os.fork():
        os.wait()
        return
    os.setsid()
    if os.fork():
        os._exit(0)
    def asked(*_):
        open(pids + ".asked", "w").close()
        os._exit(0)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if stubborn else asked)
    child = os.fork()
    if child:
        with open(pids + ".new", "w") as out:
            out.write(f"{os.getpid()} {child}")
        os.rename(pids + ".new", pids)
    time.sleep(600)

def await_file(path):
    while not os.path.exists(path):
        time.sleep(0.01)

def work(request, begun):
    begun()
    do, arg = request["do"], request.get("arg")
    if do == "echo":
        return {"arg": arg}
    if do == "warm":
        return {"warm": arg}
    if do == "state":
        seen = state()
        leave()
        return seen
    if do in ("daemon", "daemon and exit", "daemon and wait"):
        daemon(request["stubborn"], arg)
        await_file(arg)
        if do == "daemon and exit":
            os._exit(7)
        if do == "daemon and wait":
            time.sleep(600)
        return {}
    if do == "eat":
        while True:
            held.append(bytearray(1 << 20))
    if do == "open":
        while True:
            held.append(open("/dev/null"))
    if do == "exit":
        os._exit(arg)
    if do == "signal":
        os.kill(os.getpid(), arg)
    if do == "hang up":
        os.closerange(3, 1000)
        time.sleep(600)
    if do == "compute":
        until = time.process_time() + arg
        while time.process_time() < until:
            pass
        return {}
    if do == "sleep":
        time.sleep(arg)
        return {}
    if do == "wait":
        open(f"{arg}/{os.getpid()}", "w").close()
        await_file(arg + "/go")
        return {}
    if do == "fork":
        if os.fork():
            time.sleep(0.2)
            return {"by": "the parent"}
        return {"by": "the child"}
    if do == "descriptors":
        ours = [os.readlink(f"/proc/self/fd/{s.fileno()}") for s in gc.get_objects() if isinstance(s, socket.socket) and s.fileno() >= 0]
        theirs = subprocess.run(["ls", "-l", "/proc/self/fd"], stdout=subprocess.PIPE, close_fds=False, check=True).stdout.decode()
        return {"ours": len(ours), "left": [name for name in ours if name in theirs]}
    if do == "raise":
        raise ValueError(arg)
    if do == "long":
        return {"text": "x" * arg}
    if do == "unpackable":
        return {"object": object()}
    if do == "import":
        return {"version": importlib.import_module("saltern_library").version}
    raise ValueError("what?")
`

// testPython is one with the module msgpack.
func testPython(t testing.TB) string {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to test what only Python can do")
	}
	return python
}

func startHost(t testing.TB, change func(*Config)) *Host {
	cfg := Config{Pythons: []string{testPython(t)}, Program: tasks}
	if change != nil {
		change(&cfg)
	}
	h := New(cfg)
	t.Cleanup(h.Close)
	return h
}

func do(ctx context.Context, h *Host, what string, more ...any) (*value.Map, error) {
	return h.Do(ctx, Task{Request: value.NewMap(append([]any{"do", what}, more...)...)})
}

// TestTaskFindsNothing: what a task leaves in memory, directory, environment, umask,
// signal handlers, limits and threads is not there for the next one.
func TestTaskFindsNothing(t *testing.T) {
	h := startHost(t, nil)
	var first string
	for i := range 3 {
		seen, err := do(t.Context(), h, "state")
		if err != nil {
			t.Fatal(err)
		}

		text := fmt.Sprint(seen.Keys(), seen.Value("count"), seen.Value("cwd"), seen.Value("umask"), seen.Value("environ"), seen.Value("limits"),
			seen.Value("handler"), seen.Value("children"), seen.Value("path"), seen.Value("threads"), seen.Value("session"))
		if i == 0 {
			first = text
		}

		if text != first {
			t.Errorf("task %d found %s, the first one %s", i+1, text, first)
		}

		if seen.Str("cwd") != "/" || seen.Value("limits") != int64(maxFiles) || !seen.Bool("session") ||
			seen.Value("oom") != int64(300) {
			t.Errorf("it is not confined: %s", text)
		}

		if !seen.Bool("collects") {
			t.Error("nobody collects its garbage")
		}
	}

	if s := h.Stats(); s.Tasks != 3 || s.Starts != 1 || s.Workers != 0 || s.Seconds <= 0 || !s.Running {
		t.Errorf("%+v", s)
	}
}

// gone reports whether no process with the id runs.
func gone(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}

// TestDescendantsEndWithTheirTask: also daemons, whatever the end of the task was, and
// those that do not hear SIGTERM. After a good end they get the time to do so.
func TestDescendantsEndWithTheirTask(t *testing.T) {
	h := startHost(t, nil)
	for _, how := range []string{"daemon", "daemon and exit", "daemon and wait"} {
		for _, stubborn := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, stubborn %v", how, stubborn), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()

				file := filepath.Join(t.TempDir(), "pids")
				result := make(chan error, 1)
				go func() {
					_, err := do(ctx, h, how, "arg", file, "stubborn", stubborn)
					result <- err
				}()

				if how == "daemon and wait" {
					await.That(t, "the daemon", func() bool {
						_, err := os.Stat(file)
						return err == nil
					})
					cancel()
				}

				err := <-result
				switch {
				case how == "daemon" && err != nil,
					how == "daemon and exit" && (err == nil || !strings.Contains(err.Error(), "exit status 7")),
					how == "daemon and wait" && !errors.Is(err, context.Canceled):
					t.Error(err)
				}

				_, err = os.Stat(file + ".asked")
				if asked := err == nil; how == "daemon" && asked == stubborn {
					t.Errorf("was asked to end: %v", asked)
				}

				text, err := os.ReadFile(file)
				if err != nil {
					t.Fatal(err)
				}

				for _, word := range strings.Fields(string(text)) {
					pid, err := strconv.Atoi(word)
					if err != nil || !gone(pid) {
						t.Errorf("process %s runs: %v", word, err)
					}
				}
			})
		}
	}
}

// TestBadEnds: whatever a task does, its caller hears what it was, and the others are
// served.
func TestBadEnds(t *testing.T) {
	h := startHost(t, func(c *Config) { c.Memory = leastMemory })
	for _, tt := range []struct {
		do   string
		arg  any
		want string // in the error
	}{
		{"eat", nil, "MemoryError"},
		{"open", nil, "Too many open files"},
		{"exit", 3, "it ended its process with exit status 3, and returned nothing"},
		{"exit", 0, "it ended its process with exit status 0, and returned nothing"},
		{"signal", int(syscall.SIGSEGV), "ended by the signal 11"},
		{"signal", int(syscall.SIGKILL), "its process was killed"},
		{"hang up", nil, "it closed what it was to answer by"},
		{"raise", "as asked", "ValueError: as asked"},
		{"long", maxAnswer, "is too long"},
		{"unpackable", nil, "cannot be sent"},
		{"echo", "x", ""},
	} {
		t.Run(fmt.Sprint(tt.do, tt.arg), func(t *testing.T) {
			t.Parallel()
			reply, err := do(t.Context(), h, tt.do, "arg", tt.arg)
			text := reply.Str("error")
			if err != nil {
				text = err.Error()
			}

			if (text == "") != (tt.want == "") || !strings.Contains(text, tt.want) {
				t.Errorf("%.300s, want %s", text, tt.want)
			}
		})
	}
}

// TestOneAnswer: a task that forks, and whose child forgets to end, is answered once, by
// the process that was asked. Programs that a task starts do not get what it answers by.
func TestOneAnswer(t *testing.T) {
	h := startHost(t, nil)
	for range 2 {
		if reply, err := do(t.Context(), h, "fork"); err != nil || reply.Str("by") != "the parent" {
			t.Errorf("%v %v", reply, err)
		}
	}
	reply, err := do(t.Context(), h, "descriptors")
	if left := reply.Texts("left"); err != nil || len(left) != 0 || reply.Value("ours") != int64(1) {
		t.Errorf("%v of %v sockets %v", left, reply.Value("ours"), err)
	}
}

// TestTaskEndsWithItsContext, and with its limit.
func TestTaskEndsWithItsContext(t *testing.T) {
	h := startHost(t, nil)
	if _, err := do(t.Context(), h, "echo"); err != nil {
		t.Fatal(err)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := do(ctx, h, "sleep", "arg", 600); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a deadline: %v", err)
	}

	_, err := h.Do(t.Context(), Task{Request: value.NewMap("do", "sleep", "arg", 600), Limit: 50 * time.Millisecond})
	if err == nil || !strings.Contains(err.Error(), "longer than 50ms") {
		t.Errorf("a limit: %v", err)
	}

	if s := h.Stats(); s.Workers != 0 || s.Starts != 1 {
		t.Errorf("%+v", s)
	}
}

// TestManyTasksAtOnce: 200 are all done, as many at once as may be; who may not wait so
// long is told what he has waited for.
func TestManyTasksAtOnce(t *testing.T) {
	const most = 4
	h := startHost(t, func(c *Config) { c.MaxWorkers = most })
	var all sync.WaitGroup
	for i := range 200 {
		all.Go(func() {
			reply, err := do(t.Context(), h, "echo", "arg", i)
			if err != nil || reply.Value("arg") != int64(i) {
				t.Errorf("%d: %v %v", i, reply, err)
			}
			if s := h.Stats(); s.Workers > most {
				t.Errorf("%d at work", s.Workers)
			}
		})
	}

	all.Wait()
	if s := h.Stats(); s.Tasks != 200 || s.Starts != 1 || s.Waited <= 0 || s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// TestFewComputeAtOnce: of tasks that compute without end, no more than MaxComputing run at once,
// and a task of a minion does not wait for all of them.
func TestFewComputeAtOnce(t *testing.T) {
	const most = 3
	h := startHost(t, func(c *Config) { c.MaxComputing = most })
	if _, err := do(t.Context(), h, "echo"); err != nil {
		t.Fatal(err)
	}

	var all sync.WaitGroup
	for range 12 {
		all.Go(func() {
			if _, err := do(t.Context(), h, "compute", "arg", 0.3); err != nil {
				t.Error(err)
			}
		})
	}

	await.That(t, "tasks that wait", func() bool { return h.Stats().Waiting >= 12-most })
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := do(ctx, h, "echo"); err != nil || h.Stats().Waiting == 0 {
		t.Errorf("with a deadline: %v, %+v", err, h.Stats())
	}

	for h.Stats().Waiting > 0 {
		if s := h.Stats(); s.Workers > most {
			t.Fatalf("%+v", s)
		}
		if err := pause.For(t.Context(), 5*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}

	all.Wait()
}

// TestWorkersThatWaitHoldUpNobody: tasks that wait for something do not count as tasks that compute.
func TestWorkersThatWaitHoldUpNobody(t *testing.T) {
	h := startHost(t, func(c *Config) { c.MaxComputing = 2 })
	dir, results := waiting(t, h, 12)
	if _, err := do(t.Context(), h, "echo"); err != nil {
		t.Error(err)
	}
	if s := h.Stats(); s.Workers != 12 {
		t.Errorf("%+v", s)
	}

	release(t, dir)
	for range 12 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}

// waiting begins tasks that wait for a file, and returns when all are at work.
func waiting(t *testing.T, h *Host, n int) (dir string, results chan error) {
	t.Helper()
	dir = t.TempDir()
	results = make(chan error, n)
	for range n {
		go func() {
			_, err := do(context.Background(), h, "wait", "arg", dir)
			results <- err
		}()
	}

	await.That(t, "tasks at work", func() bool {
		entries, err := os.ReadDir(dir)
		return err == nil && len(entries) == n
	})

	return dir, results
}

func release(t *testing.T, dir string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestPlacesAreKeptForWhoHurries: tasks without a deadline leave a fourth of the places.
func TestPlacesAreKeptForWhoHurries(t *testing.T) {
	h := startHost(t, func(c *Config) { c.MaxWorkers = 4 })
	dir, results := waiting(t, h, 3)
	late := make(chan error, 1)
	go func() {
		_, err := do(context.Background(), h, "echo")
		late <- err
	}()

	await.That(t, "a task that waits", func() bool { return h.Stats().Waiting == 1 })

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := do(ctx, h, "echo"); err != nil {
		t.Errorf("with a deadline: %v", err)
	}

	if s := h.Stats(); s.Waiting != 1 || s.Workers != 3 {
		t.Errorf("%+v", s)
	}

	release(t, dir)
	for range 3 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}

	if err := <-late; err != nil {
		t.Error(err)
	}
}

func TestWhoWaitsInVainIsTold(t *testing.T) {
	h := startHost(t, func(c *Config) { c.MaxWorkers = 1 })
	dir, results := waiting(t, h, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	_, err := do(ctx, h, "echo")
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "saltern_runner_max") ||
		h.Stats().Left != 1 {
		t.Errorf("%v %+v", err, h.Stats())
	}
	release(t, dir)
	if err := <-results; err != nil {
		t.Error(err)
	}
}

// TestParentKilled: those that ran fail, with the reason; who waited is served by the
// next parent.
func TestParentKilled(t *testing.T) {
	const most = 10
	h := startHost(t, func(c *Config) { c.MaxWorkers = 14 })
	dir, results := waiting(t, h, most)
	pids, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}

	h.mu.Lock()
	parent := h.current
	h.mu.Unlock()

	if err := syscall.Kill(parent.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	for range most {
		if err := <-results; err == nil || !strings.Contains(err.Error(), "the Python that had started it died") {
			t.Errorf("one that ran: %v", err)
		}
	}

	if _, err := do(t.Context(), h, "echo"); err != nil {
		t.Errorf("the next one: %v", err)
	}

	for _, p := range pids {
		pid, _ := strconv.Atoi(p.Name())
		await.That(t, "the end of a worker", func() bool { return gone(pid) })
	}

	if s := h.Stats(); s.Restarts != 1 || s.Starts != 2 || s.Lost != most || s.Workers != 0 {
		t.Errorf("%+v", s)
	}
}

// TestParentHangs: who asks a parent that does not run any more is served by another one.
func TestParentHangs(t *testing.T) {
	h := startHost(t, nil)
	if _, err := do(t.Context(), h, "echo"); err != nil {
		t.Fatal(err)
	}

	h.orderTime = 200 * time.Millisecond
	h.mu.Lock()
	parent := h.current
	h.mu.Unlock()

	if err := syscall.Kill(parent.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}

	errs := make(chan error, 10)
	for range cap(errs) {
		go func() {
			_, err := do(t.Context(), h, "echo")
			errs <- err
		}()
	}

	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}

	if s := h.Stats(); s.Restarts != 1 || s.Starts != 2 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

// TestChangedLibrary: no task is done with a module of the library that was read before
// the file changed, also when neither its size nor its time shows it, while tasks of
// before go on.
func TestChangedLibrary(t *testing.T) {
	t.Run("times of a nanosecond", func(t *testing.T) { changeLibrary(t, tasks) })
	t.Run("times of two seconds", func(t *testing.T) {
		changeLibrary(t, tasks+`
def signature(path):
    try:
        st = os.stat(path)
    except OSError:
        return None
    return (st.st_ino, st.st_size, 0, st.st_ctime_ns // 2_000_000_000 * 2_000_000_000)
`)
	})
}

func changeLibrary(t *testing.T, program string) {
	layer := t.TempDir()
	file := filepath.Join(layer, "saltern_library.py")
	write := func(version int) {
		t.Helper()
		// In place, as an editor or rsync --inplace does.
		if err := os.WriteFile(file, fmt.Appendf(nil, "version = %d\n", version), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	write(0)
	h := startHost(t, func(c *Config) {
		c.Program = program
		c.Layer = func() string { return layer }
	})

	dir, results := waiting(t, h, 1)
	for version := range 5 {
		write(version)
		reply, err := do(t.Context(), h, "import")
		if err != nil || reply.Value("version") != int64(version) {
			t.Fatalf("version %v, want %d: %v", reply.Value("version"), version, err)
		}
	}

	if s := h.Stats(); s.Renewals == 0 || s.Restarts != 0 {
		t.Errorf("%+v", s)
	}

	layer = t.TempDir()
	if _, err := do(t.Context(), h, "import"); err == nil {
		reply, _ := do(t.Context(), h, "import")
		if !strings.Contains(reply.Str("error"), "No module named") {
			t.Errorf("without the layer: %v", reply)
		}
	}

	release(t, dir)
	if err := <-results; err != nil {
		t.Errorf("a task of before: %v", err)
	}
}

// TestWarmModules: what tasks import the parent imports, unless it makes threads, which
// workers would lack.
func TestWarmModules(t *testing.T) {
	layer := t.TempDir()
	for name, text := range map[string]string{
		"saltern_calm.py":    "version = 1\n",
		"saltern_threads.py": "import threading, time\nthreading.Thread(target=time.sleep, args=(600,), daemon=True, name='ticker').start()\n",
	} {
		if err := os.WriteFile(filepath.Join(layer, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	h := startHost(t, func(c *Config) {
		c.Layer = func() string { return layer }
		c.Program = tasks + "\ndef work(request, begun):\n    return {'warm': request.get('arg', []), 'modules': [n for n in sys.modules if n.startswith('saltern_')], 'threads': threading.active_count()}\n"
	})

	warm := func(names ...string) {
		t.Helper()
		if _, err := do(t.Context(), h, "warm", "arg", names); err != nil {
			t.Fatal(err)
		}
	}

	modules := func() string {
		t.Helper()
		reply, err := do(t.Context(), h, "modules")
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(reply.Texts("modules"), reply.Value("threads"))
	}

	if got := modules(); got != "[] 1" {
		t.Errorf("at first: %s", got)
	}

	warm("saltern_calm", "saltern_nothing", strings.Repeat("x", 1000))
	await.That(t, "a warm parent", func() bool { return modules() == "[saltern_calm] 1" })
	warm("saltern_threads")
	await.That(t, "another parent", func() bool { return h.Stats().Renewals == 1 })
	warm("saltern_threads")

	if got := modules(); got != "[] 1" {
		t.Errorf("after threads: %s", got)
	}
}

// TestParentsStartWarm: what a task had to load is loaded by all later parents, too: after a pause
// without tasks, and after files have changed.
func TestParentsStartWarm(t *testing.T) {
	layer := t.TempDir()
	const module = "version = 1\n"
	if err := os.WriteFile(filepath.Join(layer, "saltern_calm.py"), []byte(module), 0o600); err != nil {
		t.Fatal(err)
	}

	h := startHost(t, func(c *Config) {
		c.Idle = 300 * time.Millisecond
		c.Layer = func() string { return layer }
		c.Program = tasks + `
def work(request, begun):
    before = library_modules(set())
    import saltern_calm
    return {"before": "saltern_calm" in before, "warm": request["warm"]}
`
	})

	for round := range 3 {
		names := []string{"saltern_calm"}
		await.That(t, "a warm parent", func() bool {
			if round > 0 {
				names = nil
			}
			reply, err := do(t.Context(), h, "", "warm", names)
			if err != nil {
				t.Fatal(err)
			}
			return reply.Bool("before")
		})

		if starts := h.Stats().Starts; starts <= uint64(round) {
			t.Fatalf("%d starts in round %d", starts, round)
		}

		await.That(t, "the end of Python", func() bool { return !h.Stats().Running })
	}
}

// TestHangingImportIsNotRepeated: a module that hangs when a parent imports it in advance ends neither this
// parent's tasks nor those of all later parents.
func TestHangingImportIsNotRepeated(t *testing.T) {
	for name, hang := range map[string]string{
		"sleeps":          "time.sleep(600)",
		"catches":         "\n    try:\n        time.sleep(600)\n    except Exception:\n        pass",
		"takes no signal": "signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM]); time.sleep(600)",
	} {
		t.Run(name, func(t *testing.T) {
			layer := t.TempDir()
			blocked := filepath.Join(t.TempDir(), "blocked")
			module := fmt.Sprintf("import os, signal, time\nif os.path.exists(%q): %s\n", blocked, hang)
			if err := os.WriteFile(filepath.Join(layer, "saltern_stuck.py"), []byte(module), 0o600); err != nil {
				t.Fatal(err)
			}

			h := startHost(t, func(c *Config) {
				c.Idle = 100 * time.Millisecond
				c.Layer = func() string { return layer }
				c.MaxWorkers = 1
				c.Program = tasks + "\nIMPORT_TAKES = 0.3\n"
			})
			h.orderTime = time.Second
			h.killTime = time.Second
			if _, err := do(t.Context(), h, "warm", "arg", []string{"saltern_stuck"}); err != nil {
				t.Fatal(err)
			}

			await.That(t, "the end of Python", func() bool { return !h.Stats().Running })
			if err := os.WriteFile(blocked, nil, 0o600); err != nil {
				t.Fatal(err)
			}

			for range 2 {
				if _, err := do(t.Context(), h, "echo"); err != nil {
					t.Error(err)
				}
				await.That(t, "the end of Python", func() bool { return !h.Stats().Running })
			}

			h.mu.Lock()
			off := h.warm.off
			h.mu.Unlock()
			if !off {
				t.Error("the next parent imports the module, too")
			}
		})
	}
}

// TestCodeIsNeverOld: what a parent has read of a file that Salt's loaders run counts as long as the
// file is as it was, also when its size and its time in whole seconds are the same.
func TestCodeIsNeverOld(t *testing.T) {
	layer := t.TempDir()
	path := filepath.Join(layer, "module.py")
	write := func(n int) {
		t.Helper()
		if err := os.WriteFile(path, fmt.Appendf(nil, "version = %d\n", n), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	h := startHost(t, func(c *Config) {
		c.Layer = func() string { return layer }
		c.Program = tasks + `
SETTLED = -1e9  # files that were just changed count, too
sys.dont_write_bytecode = True  # which such files may not have

def version(path):
    name = LOADED + "module"
    scope = {}
    exec(importlib.machinery.SourceFileLoader(name, path).get_code(name), scope)
    return scope["version"]

def work(request, begun):
    first = version(request["path"])
    read = sorted(library.read)
    if request["next"]:
        time.sleep(0.02)  # the resolution of times of files
        with open(request["path"], "w") as file:
            file.write(f"version = {request['next']}\n")
    return {"seen": [first, version(request["path"])], "warm": read}
`
	})
	ask := func(next int) (*value.Map, error) {
		return h.Do(t.Context(), Task{Request: value.NewMap("path", path, "next", next)})
	}

	write(1)
	await.That(t, "code that the parent has read", func() bool {
		reply, err := ask(0)
		if err != nil {
			t.Fatal(err)
		}
		return len(reply.Texts("warm")) == 0
	})

	for n := 1; n < 6; n++ {
		reply, err := ask(n + 1)
		if got, want := fmt.Sprint(reply.Value("seen")), fmt.Sprint([]int{n, n + 1}); err != nil || got != want {
			t.Errorf("%s %v, want %s", got, err, want)
		}
	}
}

// TestImportsHoldNobodyUp: a parent that imports many modules from a slow disk is not taken for
// one that hangs, which would end the tasks that are at work.
func TestImportsHoldNobodyUp(t *testing.T) {
	layer := t.TempDir()
	var modules []string
	for i := range 12 {
		name := fmt.Sprint("saltern_slow", i)
		modules = append(modules, name)
		if err := os.WriteFile(filepath.Join(layer, name+".py"), []byte("import time\ntime.sleep(0.2)\n"),
			0o600); err != nil {
			t.Fatal(err)
		}
	}

	h := startHost(t, func(c *Config) { c.Layer = func() string { return layer } })
	h.orderTime = 1500 * time.Millisecond
	dir := t.TempDir()
	long := make(chan error, 1)
	go func() {
		_, err := do(t.Context(), h, "wait", "arg", dir)
		long <- err
	}()

	await.That(t, "a task at work", func() bool { files, _ := os.ReadDir(dir); return len(files) == 1 })

	if _, err := do(t.Context(), h, "warm", "arg", modules); err != nil {
		t.Fatal(err)
	}

	if _, err := do(t.Context(), h, "echo"); err != nil {
		t.Error(err)
	}

	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}

	if err := <-long; err != nil {
		t.Error(err)
	}

	if s := h.Stats(); s.Restarts != 0 || s.Starts != 1 || s.Lost != 0 {
		t.Errorf("%+v", s)
	}
}

func TestIdleParentStops(t *testing.T) {
	h := startHost(t, func(c *Config) { c.Idle = 30 * time.Millisecond })
	for round := range 2 {
		if _, err := do(t.Context(), h, "sleep", "arg", 0.1); err != nil {
			t.Fatal(err)
		}
		await.That(t, "the end of Python", func() bool { return !h.Stats().Running })
		if s := h.Stats(); s.Starts != uint64(round+1) || s.Restarts != 0 || s.Renewals != 0 {
			t.Errorf("%+v", s)
		}
	}
}

// TestCloseEndsTasks, those that wait included.
func TestCloseEndsTasks(t *testing.T) {
	h := startHost(t, func(c *Config) { c.MaxWorkers = 1 })
	_, results := waiting(t, h, 1)
	waits := make(chan error, 1)
	go func() {
		_, err := do(context.Background(), h, "echo")
		waits <- err
	}()

	await.That(t, "a task that waits", func() bool { return h.Stats().Waiting == 1 })
	h.Close()
	for _, ch := range []chan error{results, waits} {
		if err := <-ch; !errors.Is(err, errClosed) {
			t.Error(err)
		}
	}

	if _, err := do(t.Context(), h, "echo"); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

// TestBadStart: what keeps Python from starting is told, and tried again after a pause.
func TestBadStart(t *testing.T) {
	h := startHost(t,
		func(c *Config) { c.Program = "def load():\n    raise OSError('no disk')\n" + "def pack(v): pass\n" })
	for range 3 {
		if _, err := do(t.Context(), h, "echo"); err == nil || !strings.Contains(err.Error(), "OSError: no disk") {
			t.Error(err)
		}
	}

	without, err := exec.LookPath("false")
	if err != nil {
		t.Skip("SKIPPED: there is no program false")
	}

	h = startHost(t, func(c *Config) { c.Pythons = []string{without} })
	if _, err := do(t.Context(), h, "echo"); err == nil || errors.Is(err, ErrNoSalt) ||
		!strings.Contains(err.Error(), "did not become ready") {
		t.Error(err)
	}
}
