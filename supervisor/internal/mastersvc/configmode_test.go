package mastersvc

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"saltern/supervisor/internal/child"
	"saltern/supervisor/layout"
	"saltern/supervisor/settings"
)

// The generated configuration holds secrets of appliance.yaml: only root and
// the master's group read it, also where an older version had written it. What
// other users' tools need is beside it, without secrets.
func TestFinding10GeneratedConfiguration(t *testing.T) {
	const secret = "TOPSECRET-sharedsecret"
	dir := t.TempDir()
	prepare := func(account string) (*Master, string) {
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

		env := child.Env{Settings: &cfg, Log: slog.New(slog.DiscardHandler), Now: time.Now, Executable: "/x"}
		programs, err := child.NewPrograms(env, false)
		if err != nil {
			t.Fatal(err)
		}

		own := func() *settings.Settings { return &cfg }
		m := New(env, programs, own, NewTrial(env, programs.Master, nil, nil))
		if err := m.prepare(t.Context(), nil); err != nil {
			t.Fatal(err)
		}

		return m, filepath.Join(cfg.MasterConf(), "master")
	}

	check := func(m *Master, path string) {
		t.Helper()
		fi, err := os.Stat(path)
		if err != nil {
			t.Fatal(err)
		}

		st := fi.Sys().(*syscall.Stat_t)
		mode, gid := os.FileMode(0o600), os.Getegid()
		if m.programs.Master.Credential != nil {
			mode, gid = 0o640, m.programs.Master.GID
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
		m, path := prepare(account)
		check(m, path)
		if err := os.Chmod(path, 0o644); err != nil { // as older versions left it
			t.Fatal(err)
		}

		m, path = prepare(account)
		check(m, path)
		client := filepath.Join(layout.ClientConf(m.env.Settings), "master")
		b, err := os.ReadFile(client)
		if err != nil {
			t.Fatal(err)
		}

		fi, err := os.Stat(client)
		if err != nil || fi.Mode().Perm() != 0o644 {
			t.Errorf("%s: %v, %v", client, fi, err)
		}

		for _, part := range []string{"sock_dir: " + m.env.Settings.MasterSockDir(), "timeout: 7",
			"user: " + m.programs.Master.Name} {
			if !strings.Contains(string(b), part) {
				t.Errorf("%s lacks %s:\n%s", client, part, b)
			}
		}

		if strings.Contains(string(b), "TOPSECRET") {
			t.Errorf("%s holds a secret:\n%s", client, b)
		}
	}
}
