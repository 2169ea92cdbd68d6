package gitpillar

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestConfigured(t *testing.T) {
	yes := []any{value.NewMap("cmd_yaml", "x"), value.NewMap("git", []any{})}
	if !Configured(yes) || Configured(yes[:1]) || Configured(nil) || Configured([]any{"git", nil}) {
		t.Error("the option is not understood")
	}
}

func TestInterval(t *testing.T) {
	const s = time.Second
	for _, c := range [][3]time.Duration{{60 * s, 60 * s, 60 * s}, {5 * s, 60 * s, 60 * s}, {61 * s, 60 * s, 120 * s}, {0, 10 * s, 10 * s}, {-s, s, s}, {20 * s, 7 * s, 21 * s}} {
		if got := Interval(c[0], c[1]); got != c[2] {
			t.Errorf("%v every %v: %v, want %v", c[0], c[1], got, c[2])
		}
	}
}

// fetcher makes a repository, and a Fetcher of it and of more remotes.
func fetcher(t *testing.T, limit time.Duration, more string) (f *Fetcher, dir string, log *strings.Builder) {
	t.Helper()
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python that has the Salt library to fetch git pillars")
	}
	dir = t.TempDir()
	cmd := exec.Command("sh", "-ec", `git init -q -b master repo; cd repo; echo "base: {'*': []}" >top.sls; git add -A; git -c user.name=a -c user.email=a@example.com commit -qm x`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	text := fmt.Sprintf("cachedir: %[1]s/cache\npki_dir: %[1]s/pki\nsock_dir: %[1]s\nlog_file: /dev/null\ngit_pillar_provider: gitpython\next_pillar:\n  - git:\n%[2]s    - master file://%[1]s/repo\n", dir, more)
	must(t, os.WriteFile(filepath.Join(dir, "master"), []byte(text), 0o600))
	log = &strings.Builder{}
	return New(Config{Pythons: []string{"/nonexistent/python3", python}, ConfigFile: filepath.Join(dir, "master"), Limit: limit, Log: slog.New(slog.NewTextHandler(log, nil))}), dir, log
}

func glob(t *testing.T, parts ...string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(parts...))
	must(t, err)
	if len(found) != 1 {
		t.Fatalf("%v: %v", parts, found)
	}
	return found[0]
}

// What a killed fetch left behind ends no later fetch; what a living process
// holds is left alone.
func TestLocks(t *testing.T) {
	const limit = 40 * time.Second
	f, dir, log := fetcher(t, limit, "")
	must(t, f.Fetch(t.Context()))
	lock := filepath.Join(glob(t, dir, "cache/git_pillar/work/*/*"), "update.lk")
	index := filepath.Join(glob(t, dir, "cache/git_pillar/*/*/.git"), "index.lock")
	machine := "no_machine_id_available"
	if b, err := os.ReadFile("/etc/machine-id"); err == nil {
		machine = strings.TrimSpace(string(b))
	}
	for _, c := range []struct {
		name, text string
		age        time.Duration
	}{
		{"empty", "", time.Hour},
		{"of another machine", "4194303\nanother\n", time.Hour},
		{"of a number that another process has now", fmt.Sprintf("%d\n%s\n", os.Getpid(), machine), time.Hour},
		{"of a process that is gone", "4194303\n" + machine + "\n", 0},
	} {
		for _, path := range []string{lock, index} {
			must(t, os.WriteFile(path, []byte(c.text), 0o600))
			old := time.Now().Add(-c.age)
			must(t, os.Chtimes(path, old, old))
		}
		if err := f.Fetch(t.Context()); err != nil {
			t.Errorf("a lock %s: %v", c.name, err)
		}
		_, err := os.Stat(index)
		if c.age > limit != errors.Is(err, os.ErrNotExist) {
			t.Errorf("git's lock, %v old: %v", c.age, err)
		}
	}
	if !strings.Contains(log.String(), "removed the lock") {
		t.Errorf("the log does not tell: %s", log)
	}
	must(t, os.WriteFile(lock, fmt.Appendf(nil, "%d\n%s\n", os.Getpid(), machine), 0o600))
	err := f.Fetch(t.Context())
	var remote *RemoteError
	if !errors.As(err, &remote) || !strings.Contains(remote.Text, "lock") {
		t.Errorf("while another process fetches: %v", err)
	}
	if _, err := os.Stat(lock); err != nil {
		t.Error("the lock of a living process was removed")
	}
}

// A remote that never answers keeps the others waiting for no longer than the
// limit, and leaves no process behind.
func TestRemoteHangs(t *testing.T) {
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	defer ln.Close()
	url := "http://" + ln.Addr().String() + "/x"
	f, dir, _ := fetcher(t, 30*time.Second, "    - master "+url+"\n")
	err = f.Fetch(t.Context())
	var remote *RemoteError
	if !errors.As(err, &remote) || !strings.Contains(remote.Remote, url) || !strings.Contains(remote.Text, "no answer within 30s") {
		t.Errorf("a remote that hangs: %v", err)
	}
	found, _ := filepath.Glob(filepath.Join(dir, "cache/git_pillar/*/*/.git/refs/remotes/origin/master"))
	if len(found) != 1 {
		t.Errorf("the remote after it has not been fetched: %v", found)
	}
	if out, _ := exec.Command("ps", "-eo", "args").Output(); strings.Contains(string(out), url) {
		t.Error("git still runs")
	}
}

// Without a Python with Salt, and with a configuration that Salt refuses.
func TestCannotFetch(t *testing.T) {
	f := New(Config{Pythons: []string{"/nonexistent/python3"}, Log: slog.New(slog.DiscardHandler)})
	if err := f.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "saltern_renderer_python") {
		t.Errorf("without Salt: %v", err)
	}
	f, _, _ = fetcher(t, time.Minute, "    - master file:///x:\n      - nonsense: 1\n")
	if err := f.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("a wrong option of a remote: %v", err)
	}
	f, _, _ = fetcher(t, time.Minute, "    - master git://git.example.com/x\n") // a protocol that Salt refuses
	if err := f.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), "git.example.com") {
		t.Errorf("a remote that Salt leaves out: %v", err)
	}
	f, dir, _ := fetcher(t, time.Minute, "")
	text, err := os.ReadFile(filepath.Join(dir, "master"))
	must(t, err)
	for provider, want := range map[string]string{"gitcli": "gitcli", "nonsense": "Invalid git_pillar_provider"} {
		must(t, os.WriteFile(filepath.Join(dir, "master"), []byte(strings.ReplaceAll(string(text), "gitpython", provider)), 0o600))
		if err := f.Fetch(t.Context()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with the provider %s: %v", provider, err)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "master"), []byte("a: [\n"), 0o600))
	if err := f.Fetch(t.Context()); err == nil {
		t.Error("a configuration that Salt cannot read is no error")
	}
}
