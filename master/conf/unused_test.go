package conf

import (
	"log/slog"
	"strings"
	"testing"
)

// What is asked for and does not happen is said.
func TestUnusedOptions(t *testing.T) {
	for _, c := range []struct {
		in, option string
		level      slog.Level
		noted      bool
	}{
		{"event_return: [mysql]", "event_return", 0, false},
		{"engines: [slack: {}]", "engines", 0, false},
		{"master_job_cache: redis", "master_job_cache", 0, false},
		{"cache: redis", "cache", slog.LevelWarn, true},
		{"worker_threads: 20", "worker_threads", slog.LevelInfo, true},
		{"log_rotate_max_bytes: 1000", "log_rotate_max_bytes", slog.LevelWarn, true},
		{"memcache_max_items: 10", "memcache_max_items", slog.LevelInfo, true},
		{"yaml_utf8: True", "yaml_utf8", slog.LevelInfo, true},
		{"mine_interval: 5", "mine_interval", slog.LevelInfo, true},
		{"svnfs_remotes: [https://h/x]", "svnfs_remotes", slog.LevelInfo, true},
		{"cache: sdb://x/y", "cache", slog.LevelWarn, true},
		{"ssh_user: anna", "ssh_user", 0, false},
		{"gpg_cache: True", "gpg_cache", 0, false},
		{"cli_summary: True", "cli_summary", 0, false},
		{"token_dir: /srv/tokens", "token_dir", slog.LevelWarn, true},
		{"token_dir: /var/cache/salt/master/tokens/", "token_dir", 0, false},
		{"token_dir: ''", "token_dir", 0, false},
		{"{token_dir: /r/c/tokens, root_dir: /r, cachedir: /c}", "token_dir", 0, false},
		{"master_job_cache: local_cache", "master_job_cache", 0, false},
		{"event_return: ''", "event_return", 0, false},
		{"worker_threads: 5", "worker_threads", 0, false},
		{"timeout: 7", "timeout", 0, false},
	} {
		m, err := loader().Load(write(t, map[string]string{"master": c.in + "\n"}))
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}

		noted := false
		for _, n := range m.Notes {
			if n.Option == c.option && strings.Contains(n.Text, "not used") {
				noted = true
				if n.Level != c.level || !strings.HasSuffix(n.Path, "/master") {
					t.Errorf("%q: note %+v", c.in, n)
				}
			}
		}

		if noted != c.noted {
			t.Errorf("%q: noted %v, want %v", c.in, noted, c.noted)
		}
	}
}

func TestOtherUserIsNoted(t *testing.T) {
	for user, want := range map[string]bool{"root": false, "salt": true} {
		l := loader()
		l.User = "root"
		m, err := l.Load(write(t, map[string]string{"master": "user: " + user + "\n"}))
		if err != nil {
			t.Fatal(err)
		}

		got := false
		for _, n := range m.Notes {
			got = got || n.Option == "user" && n.Level == slog.LevelWarn
		}

		if got != want {
			t.Errorf("user %s: noted %v, want %v", user, got, want)
		}
	}
}
