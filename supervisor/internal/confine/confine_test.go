package confine

import (
	"context"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"saltern/supervisor/internal/service"
)

// TestFinding02OOMScore: a child does not inherit the supervisor's protection
// from being killed when memory is short. The supervisor is a process of its own
// here, with the score that its unit has.
func TestFinding02OOMScore(t *testing.T) {
	if os.Getenv("SALTERN_TEST_OOM") != "" {
		superviseSleeper(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root lowers the score")
	}

	if err := exec.Command("sh", "-c", "echo -500 > /proc/self/oom_score_adj").Run(); err != nil {
		t.Skip("NOT TESTED: this kernel does not let us lower the score: ", err)
	}

	cmd := exec.Command("sh", "-c",
		"echo -500 > /proc/self/oom_score_adj; exec "+os.Args[0]+" -test.run '^TestFinding02OOMScore$' -test.v")
	cmd.Env = append(os.Environ(), "SALTERN_TEST_OOM=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func superviseSleeper(t *testing.T) {
	if own, err := oomScore("self"); err != nil || own != -500 {
		t.Fatalf("%d %v", own, err)
	}

	bounded := func(child string, oom, percent int) func(context.Context, int) error {
		return func(ctx context.Context, pid int) error {
			err := Child(ctx, child, pid, oom, percent, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Errorf("outside of a service nothing is bounded, and nothing is missing: %v", err)
			}
			return err
		}
	}

	for score, p := range map[int]*service.Process{
		MasterOOM: {
			Path:    "/bin/sleep",
			Args:    []string{"60"},
			Log:     io.Discard,
			Confine: bounded("master", MasterOOM, 75),
		},
		BalancerOOM: {
			Path:    "/bin/sleep",
			Args:    []string{"60"},
			Log:     io.Discard,
			Confine: bounded("lb", BalancerOOM, 40),
		},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		err := p.Run(ctx, func(pid int) {
			defer cancel()
			if got, err := oomScore(strconv.Itoa(pid)); err != nil || got != score {
				t.Errorf("%d, want %d: %v", got, score, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
	}
}

func TestScopeProperties(t *testing.T) {
	path := filepath.Join(t.TempDir(), "meminfo")
	if err := os.WriteFile(path, []byte("MemTotal:        1000000 kB\nMemFree:  5 kB\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	total, err := memoryTotal(path)
	if err != nil || total != 1000000<<10 {
		t.Fatalf("%d %v", total, err)
	}

	got := map[string]any{}
	for _, p := range scopeProperties("master", 7, 75, total) {
		got[p.Name] = p.Value.Value()
	}

	if got["MemoryMax"] != uint64(768000000) || got["MemoryHigh"] != uint64(691200000) {
		t.Errorf("%v", got)
	}
}

// TestInScope: a scope that systemd made after the time for its answer is seen, whatever
// the hierarchies of control groups, and that of another process is not taken for it.
func TestInScope(t *testing.T) {
	const scope = "saltern-lb-42.scope"
	for name, c := range map[string]struct {
		cgroup string
		want   bool
	}{
		"unified": {"0::/system.slice/" + scope + "\n", true},
		"hybrid": {"9:memory:/system.slice/" + scope + "\n1:name=systemd:/system.slice/" + scope + "\n",
			true},
		"still in the service":    {"0::/system.slice/applianced.service\n", false},
		"another process's scope": {"0::/system.slice/saltern-lb-4.scope\n", false},
		"a longer name":           {"0::/system.slice/x-" + scope + "\n", false},
		"a group below":           {"0::/system.slice/" + scope + "/more\n", false},
		"empty":                   {"", false},
	} {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			if err := os.Mkdir(filepath.Join(proc, "42"), 0o755); err != nil {
				t.Fatal(err)
			}

			if err := os.WriteFile(filepath.Join(proc, "42", "cgroup"), []byte(c.cgroup), 0o600); err != nil {
				t.Fatal(err)
			}

			if got := inScope(proc, 42, scope); got != c.want {
				t.Errorf("%q: %v", c.cgroup, got)
			}
		})
	}

	if inScope(t.TempDir(), 42, scope) {
		t.Error("a process that has ended is in its scope")
	}
}
