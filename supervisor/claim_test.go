package supervisor

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"saltern/supervisor/setup"
)

// TestSecondSupervisorIsRefused: a supervisor that is started beside another one, by whichever path it
// would use the same files, is refused before it does anything. It carries out no reset that the
// first one was ordered to do, and does not begin to set the machine up.
func TestSecondSupervisorIsRefused(t *testing.T) {
	r, conf := newRun(t)
	r.write(conf)
	r.start()
	r.until("serves", serving)

	text, err := os.ReadFile(r.path)
	if err != nil {
		t.Fatal(err)
	}
	ordered, err := json.Marshal(order{Settings: text})
	if err != nil {
		t.Fatal(err)
	}
	orderFile := filepath.Join(r.dir, ".reset-appliance.yaml")
	if err := os.WriteFile(orderFile, ordered, 0o600); err != nil {
		t.Fatal(err)
	}

	conf["runtime_dir"] = r.dir + "/run2"
	other, err := yaml.Marshal(conf)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(r.dir+"/other.yaml", other, 0o600); err != nil {
		t.Fatal(err)
	}

	base := setup.Base{DataDir: r.dir + "/data", RuntimeDir: r.dir + "/run3"}
	for name, opt := range map[string]Options{
		"same configuration":                  {ConfigPath: r.path, Socket: r.dir + "/api.sock"},
		"same configuration, other socket":    {ConfigPath: r.path, Socket: r.dir + "/api2.sock"},
		"other configuration, same directory": {ConfigPath: r.dir + "/other.yaml"},
		"no configuration, same directory":    {ConfigPath: r.dir + "/none.yaml", Base: base},
	} {
		t.Run(name, func(t *testing.T) {
			opt.Hostname = "host"
			opt.Executable = "/nowhere/applianced"
			opt.Log = slog.New(slog.DiscardHandler)
			opt.Source = func(context.Context) (setup.Given, error) {
				t.Error("it began to set the machine up")
				return setup.Given{}, nil
			}

			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := New(opt).Run(ctx); err == nil || !strings.Contains(err.Error(), "another supervisor") {
				t.Errorf("second supervisor: %v", err)
			}

			for _, path := range []string{orderFile, r.path, r.dir + "/data/etc", r.dir + "/api.sock"} {
				if _, err := os.Lstat(path); err != nil {
					t.Errorf("second supervisor: %v", err)
				}
			}
		})
	}

	r.until("the first serves on", serving)
	if err := os.Remove(orderFile); err != nil {
		t.Error(err)
	}
}

// TestSupervisorStartsAfterAnother: a supervisor waits a moment for one that is ending, and the file
// that an earlier one has left is no lock.
func TestSupervisorStartsAfterAnother(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "appliance.yaml")
	log := slog.New(slog.DiscardHandler)
	if err := os.WriteFile(filepath.Join(dir, ".lock-appliance.yaml"), []byte("4711\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	first, err := claimConfig(t.Context(), path, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := first.lockDataDir(t.Context(), dir+"/data"); err != nil {
		t.Fatal(err)
	}

	_, err = claimConfig(t.Context(), path, log)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("process %q", strconv.Itoa(os.Getpid()))) {
		t.Errorf("beside another: %v", err)
	}

	// A reset removes the directory. The next life locks the one that is created then.
	if err := os.Remove(dir + "/data"); err != nil {
		t.Fatal(err)
	}
	if err := first.lockDataDir(t.Context(), dir+"/data"); err != nil {
		t.Fatal(err)
	}
	second := &claim{log: log}
	if err := second.lockDataDir(t.Context(), dir+"/data"); err == nil {
		t.Error("the directory that was created after a reset is not locked")
	}

	time.AfterFunc(claimTakes/4, first.release) // it ends while the next one starts
	next, err := claimConfig(t.Context(), path, log)
	if err != nil {
		t.Fatal(err)
	}
	if err := next.lockDataDir(t.Context(), dir+"/data"); err != nil {
		t.Error(err)
	}

	next.release()
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("left beside the data directory: %v, %v", left, err)
	}
}
