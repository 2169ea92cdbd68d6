package life

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// The generated configuration holds secrets of appliance.yaml: only root and
// the master's group read it, also where an older version had written it. What
// other users' tools need is beside it, without secrets.
func TestFinding10GeneratedConfiguration(t *testing.T) {
	const secret = "TOPSECRET-sharedsecret"
	dir := t.TempDir()
	prepare := func(account string) (*Life, string) {
		t.Helper()
		cfg := settings.Default("n1")
		cfg.DataDir, cfg.RuntimeDir = filepath.Join(dir, "data"), filepath.Join(dir, "run")
		cfg.Storage.Path = filepath.Join(dir, "cluster")
		cfg.Users.Master = account
		cfg.Users.LB = ""
		cfg.Programs.Master = "/bin/true"
		cfg.Master.PublishPort, cfg.Master.RequestPort = 0, 0
		cfg.Master.Options = map[string]any{
			"sharedsecret": secret,
			"timeout":      7,
			"ext_pillar":   []any{map[string]any{"git": "https://u:" + secret + "@host/"}},
		}

		n, err := New(Config{
			Settings:   &cfg,
			Board:      status.NewBoard(),
			Log:        slog.New(slog.DiscardHandler),
			Now:        time.Now,
			Executable: "/x",
		})
		if err != nil {
			t.Fatal(err)
		}

		t.Cleanup(n.Close)
		if err := n.master.prepare(t.Context(), nil); err != nil {
			t.Fatal(err)
		}

		return n, filepath.Join(cfg.MasterConf(), "master")
	}

	check := func(n *Life, path string) {
		t.Helper()
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}

		st := fi.Sys().(*syscall.Stat_t)
		mode, gid := os.FileMode(0o600), os.Getegid()
		if n.programs.Master.Credential != nil {
			mode, gid = 0o640, n.programs.Master.GID
		}

		if fi.Mode().Perm() != mode || int(st.Uid) != os.Geteuid() || int(st.Gid) != gid {
			t.Errorf("%s: mode %v, owner %d:%d, want %v, %d:%d", path, fi.Mode(), st.Uid, st.Gid, mode,
				os.Geteuid(), gid)
		}
	}

	accounts := []string{""}
	if os.Geteuid() == 0 {
		accounts = []string{"", "nobody", ""}
	} else {
		t.Log("not root: another account for the master is not tried")
	}

	for _, account := range accounts {
		n, path := prepare(account)
		check(n, path)
		if err := os.Chmod(path, 0o644); err != nil { // as older versions left it
			t.Fatal(err)
		}

		n, path = prepare(account)
		check(n, path)
		client := filepath.Join(layout.ClientConf(n.cfg.Settings), "master")
		b, err := os.ReadFile(client)
		if err != nil {
			t.Fatal(err)
		}

		fi, err := os.Stat(client)
		if err != nil || fi.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", client, fi, err)
		}

		for _, part := range []string{"sock_dir: " + n.cfg.Settings.MasterSockDir(), "timeout: 7",
			"user: " + n.programs.Master.Name} {
			if !strings.Contains(string(b), part) {
				t.Errorf("%s lacks %s:\n%s", client, part, b)
			}
		}

		if strings.Contains(string(b), "TOPSECRET") {
			t.Errorf("%s holds a secret:\n%s", client, b)
		}
	}
}
