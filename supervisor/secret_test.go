package supervisor

import (
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// A node follows the masters' record from any point at which it was stopped:
// it keeps the next secret beside the present one, changes over when the record
// does, and never refuses the old one earlier.
func TestSecretFollowsTheRecord(t *testing.T) {
	const first, second, third = "the-first-secret-of-all", "the-second-secret-of-all", "the-third-secret-of-all"
	dir := t.TempDir()
	cfg := settings.Default("n1")
	cfg.Cluster, cfg.DataDir, cfg.RuntimeDir = "lab", filepath.Join(dir, "data"), filepath.Join(dir, "run")
	cfg.Storage.Kind, cfg.Storage.Path = settings.DirectoryStorage, filepath.Join(dir, "shared")
	cfg.Peering.Enabled = true
	for _, d := range []string{cfg.NodeDir(), cfg.SharedPKIDir(), filepath.Dir(cfg.ClusterConf())} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	start := func() *member {
		t.Helper()
		n, err := newNode(Options{Log: slog.New(slog.DiscardHandler), Now: time.Now, Executable: "/x"}, &cfg, now, status.NewBoard())
		if err != nil {
			t.Fatal(err)
		}
		return n.member
	}
	record := func(secret, next string) {
		t.Helper()
		text := fmt.Sprintf(`{"secret": %q, "next_secret": %q}`, secret, next)
		if err := os.WriteFile(cfg.ClusterRecord(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	check := func(m *member, what string, want ...string) {
		t.Helper()
		got, err := host{m}.Secrets()
		if err != nil || strings.TrimRight(strings.Join(got, " "), " ") != strings.Join(want, " ") {
			t.Errorf("%s: %q, want %q (%v)", what, got, want, err)
		}
	}
	if err := setup.WriteSecret(cfg.NodeDir(), first); err != nil {
		t.Fatal(err)
	}
	m := start()
	check(m, "as it was formed", first)
	record("", second)
	m.takeSecret()
	check(m, "the next one is on its way", first, second)
	if s := (host{m}).m.secrets; s.own != setup.SecretFinger(first) || s.next != setup.SecretFinger(second) {
		t.Errorf("what the others are told: %+v", s)
	}
	m = start() // stopped between
	check(m, "after a stop", first, second)
	record(second, "")
	check(m, "the record has changed, this node has not seen it", first, second)
	m.takeSecret()
	check(m, "it has", second)
	if b, err := os.ReadFile(cfg.ClusterConf()); err != nil || !strings.Contains(string(b), second) {
		t.Errorf("the master's part: %q %v", b, err)
	}
	// Away during all of it, and a node was removed meanwhile.
	record(third, "")
	m = start()
	m.takeSecret()
	check(m, "away", third)
	// Stopped when the secret was written and the next one was not removed yet.
	if err := setup.WriteNextSecret(cfg.NodeDir(), third); err != nil {
		t.Fatal(err)
	}
	m.takeSecret()
	check(m, "stopped in the middle", third)
	// A record that is damaged changes nothing.
	if err := os.WriteFile(cfg.ClusterRecord(), []byte(`{"secret": "sh`), 0o600); err != nil {
		t.Fatal(err)
	}
	m.takeSecret()
	check(m, "a damaged record", third)
	record("short", "")
	m.takeSecret()
	check(m, "a secret that can be guessed", third)
}
