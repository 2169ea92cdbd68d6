package life

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/internal/recovery"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/systemd"
	"saltern/test/address"
	"saltern/test/await"
)

// TestFinding18MissingAccount: in the image a child whose account is missing is
// not started, instead of run as root, and the status says what to do. Elsewhere
// it runs, and that is shown.
func TestFinding18MissingAccount(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("NOT TESTED: only root starts children as somebody else")
	}

	for _, image := range []bool{true, false} {
		dir := t.TempDir()
		started := filepath.Join(dir, "started")
		program := filepath.Join(dir, "salt-master")
		if err := os.WriteFile(program,
			[]byte("#!/bin/sh\nid -u > "+started+".new; mv "+started+".new "+started+"; exec sleep 60\n"),
			0o755); err != nil {
			t.Fatal(err)
		}

		cfg := settings.Default("n1")
		cfg.DataDir = filepath.Join(dir, "data")
		cfg.RuntimeDir = filepath.Join(dir, "run")
		cfg.Storage.Path = filepath.Join(dir, "cluster")
		cfg.Programs.Master = program
		cfg.Users.Master = "no-such-account-here"
		cfg.Master.Address, cfg.Master.PublishPort, cfg.Master.RequestPort = "127.0.0.1", int(address.Free(t, "127.0.0.1").Port()), int(address.Free(t, "127.0.0.1").Port())
		cfg.LB.Enabled = false
		n, err := New(Config{
			Settings:   &cfg,
			Board:      status.NewBoard(),
			Log:        slog.New(slog.DiscardHandler),
			Now:        time.Now,
			Executable: program,
			InImage:    image,
			Notify:     systemd.Nobody{},
			Recovery:   recovery.New(program, slog.New(slog.DiscardHandler)),
		})
		if err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); _ = n.manager.Run(ctx, 20*time.Second) }()
		wait := func(what string, ok func() bool) {
			t.Helper()
			if !await.Within(time.Minute, ok) {
				t.Fatalf("image %v: %s: %+v", image, what, n.manager.Services(8))
			}
		}

		state := func() service.Info { return n.manager.Services(0)[0] }
		if image {
			wait("not started",
				func() bool { return strings.Contains(state().Message, "no account no-such-account-here") })
			f := n.statusFacts()
			if b := f.Blocked[status.MasterService]; len(b) != 1 || b[0].Code != status.AccountMissing ||
				len(f.AsRoot) > 0 {
				t.Errorf("%+v %v", f.Blocked, f.AsRoot)
			}
		} else {
			wait("started", func() bool { _, err := os.Stat(started); return err == nil })
			if f := n.statusFacts(); len(f.AsRoot) != 1 {
				t.Errorf("%v", f.AsRoot)
			}
		}

		cancel()
		<-done
		n.Close()
		if _, err := os.Stat(started); image && err == nil {
			t.Error("it was started as root")
		}
	}
}

func TestInImage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "os-release")
	for text, want := range map[string]bool{
		"ID=debian\nIMAGE_ID=saltern\nIMAGE_VERSION=1\n": true,
		"IMAGE_ID=saltern\n":                             true,
		"ID=debian\n":                                    false,
		"X_IMAGE_ID=saltern\n":                           false,
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := layout.InImage(path); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}

	if layout.InImage(filepath.Join(t.TempDir(), "none")) {
		t.Error("a machine without os-release")
	}
}
