package member

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/test/controltest"
)

// secretNode is a node of a cluster with a shared folder, which may be started
// again.
func secretNode(t *testing.T) (*settings.Settings, func() *Member) {
	t.Helper()
	dir := t.TempDir()
	cfg := settings.Default("n1")
	cfg.Cluster = "lab"
	cfg.DataDir = filepath.Join(dir, "data")
	cfg.RuntimeDir = filepath.Join(dir, "run")
	cfg.Storage.Kind = settings.DirectoryStorage
	cfg.Storage.Path = filepath.Join(dir, "shared")
	cfg.Peering.Enabled = true

	for _, d := range []string{cfg.NodeDir(), cfg.SharedPKIDir(), filepath.Dir(cfg.ClusterConf())} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}

	return &cfg, func() *Member {
		t.Helper()
		return newMember(t, Env{Settings: &cfg, Log: slog.New(slog.DiscardHandler), Now: time.Now}, nil)
	}
}

// A node follows the masters' record from any point at which it was stopped:
// it keeps the next secret beside the present one, changes over when the record
// does, and never refuses the old one earlier.
func TestSecretFollowsTheRecord(t *testing.T) {
	const first, second, third = "the-first-secret-of-all", "the-second-secret-of-all", "the-third-secret-of-all"
	cfg, start := secretNode(t)
	record := func(secret, next string) {
		t.Helper()
		text := fmt.Sprintf(`{"seed": "seed", "secret": %q, "next_secret": %q}`, secret, next)
		if err := os.WriteFile(cfg.ClusterRecord(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}

	checkSecret := func(m *Member, what string, want ...string) {
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
	checkSecret(m, "as it was formed", first)
	record("", second)
	m.shared.takeSecret(t.Context())
	checkSecret(m, "the next one is on its way", first, second)
	names := control.Secrets{Seed: "seed"}
	if s := m.shared.fingerprints(); s.own != names.SecretFinger(first) || s.next != names.SecretFinger(second) {
		t.Errorf("what the others are told: %+v", s)
	}

	m = start() // stopped between
	checkSecret(m, "after a stop", first, second)
	record(second, "")
	checkSecret(m, "the record has changed, and is looked at when it counts", second)

	if b, err := os.ReadFile(cfg.ClusterConf()); err != nil || !strings.Contains(string(b), second) {
		t.Errorf("the master's part: %q %v", b, err)
	}

	// Away during all of it, and a node was removed meanwhile.
	record(third, "")
	m = start()
	m.shared.takeSecret(t.Context())
	checkSecret(m, "away", third)

	// Stopped when the secret was written and the next one was not removed yet.
	if err := setup.WriteNextSecret(cfg.NodeDir(), third); err != nil {
		t.Fatal(err)
	}

	m.shared.takeSecret(t.Context())
	checkSecret(m, "stopped in the middle", third)

	// A record that is damaged changes nothing.
	if err := os.WriteFile(cfg.ClusterRecord(), []byte(`{"secret": "sh`), 0o600); err != nil {
		t.Fatal(err)
	}

	m.shared.takeSecret(t.Context())
	checkSecret(m, "a damaged record", third)
	record("short", "")
	m.shared.takeSecret(t.Context())
	checkSecret(m, "a secret that can be guessed", third)
}

// TestFinding23SecretFinger: the name of a secret stands in answers of the node
// API and in the arguments of cluster.secret_commit, which everybody on the
// machine can see. It is no hash that a guess could be compared with, and
// another cluster with the same secret has another name for it.
func TestFinding23SecretFinger(t *testing.T) {
	const secret = "the-first-secret-of-all"
	var names []string
	for _, seed := range []string{strings.Repeat("ab", 32), strings.Repeat("cd", 32)} {
		cfg, start := secretNode(t)
		if err := setup.WriteSecret(cfg.NodeDir(), secret); err != nil {
			t.Fatal(err)
		}

		text := fmt.Sprintf(`{"seed": %q, "secret": "", "next_secret": %q}`, seed, secret+"-of-the-next-year")
		if err := os.WriteFile(cfg.ClusterRecord(), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}

		m := start()
		m.shared.takeSecret(t.Context())
		own, next := m.shared.fingerprints().own, m.shared.fingerprints().next
		if own == "" || next == "" || own == next {
			t.Errorf("names: %q %q", own, next)
		}

		for _, label := range []string{"", "saltern cluster secret\n", "saltern cluster secret 2\n"} {
			sum := sha256.Sum256([]byte(label + secret))
			if strings.Contains(own, hex.EncodeToString(sum[:8])) {
				t.Errorf("%q is a hash of the secret alone: it can be compared with guesses", own)
			}
		}

		names = append(names, own)
	}

	if names[0] == names[1] {
		t.Error("two clusters have the same name for the same secret: one table of guesses serves for all")
	}
}

// A cluster goes on with a weak secret that it has, and status says so until it
// has another one.
func TestFinding14WeakSecretOfAnOldCluster(t *testing.T) {
	cfg, start := secretNode(t)
	if err := setup.WriteSecret(cfg.NodeDir(), "aaaaaaaaaaaaaaaa"); err != nil {
		t.Fatal(err)
	}

	for secret, want := range map[string]bool{"": true, "the-second-secret-of-all": false} {
		if err := os.WriteFile(cfg.ClusterRecord(),
			[]byte(fmt.Sprintf(`{"seed": "seed", "secret": %q}`, secret)), 0o600); err != nil {
			t.Fatal(err)
		}

		if want {
			if err := setup.WriteSecret(cfg.NodeDir(), "aaaaaaaaaaaaaaaa"); err != nil {
				t.Fatal(err)
			}
		}

		m := start()
		m.shared.takeSecret(t.Context())
		found := m.State().Findings
		got := slices.ContainsFunc(found, func(f status.Finding) bool { return f.Code == status.SecretWeak })
		if list, err := (host{m}).Secrets(); got != want || err != nil || list[0] == "" {
			t.Errorf("record says %q: weak %v, want %v; %q %v", secret, got, want, list, err)
		}
	}
}

// A node takes the secrets from the record as the masters' test has written it.
func TestSecretsOfARecordedRecord(t *testing.T) {
	cfg, start := secretNode(t)
	if err := setup.WriteSecret(cfg.NodeDir(), "the-secret-before-the-first"); err != nil {
		t.Fatal(err)
	}

	b, err := os.ReadFile(controltest.Path(t, "record.json"))
	if err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(cfg.ClusterRecord(), b, 0o600); err != nil {
		t.Fatal(err)
	}

	m := start()
	m.shared.takeSecret(t.Context())
	own, err := setup.ReadSecret(cfg.NodeDir())
	next, err2 := setup.ReadNextSecret(cfg.NodeDir())
	if err != nil || err2 != nil || own != "the-first-secret-of-all" || next != "the-second-secret-of-all" ||
		m.shared.fingerprints().own != "k18c6db13d963ec32" {
		t.Errorf("%q %q %+v %v %v", own, next, m.shared.fingerprints(), err, err2)
	}
}

// A join string is asked for on one node right after another has changed the
// secret: what this node's look had read before does not count.
func TestLookForSecretSeesTheNewest(t *testing.T) {
	cfg, start := secretNode(t)
	record := func(secret string) {
		if err := os.WriteFile(cfg.ClusterRecord(),
			fmt.Appendf(nil, `{"seed": "seed", "secret": %q}`, secret), 0o600); err != nil {
			t.Error(err)
		}
	}

	record("the-secret-of-before")
	m := start()
	looks, change := make(chan struct{}), make(chan struct{})
	m.shared.look.Start(func() {
		m.shared.takeSecret(t.Context())
		close(looks)
		<-change
		record("the-secret-of-after")
	})

	<-looks
	close(change)
	if err := (Verbs{m}).LookForSecret(); err != nil {
		t.Error(err)
	}

	if got, err := setup.ReadSecret(cfg.NodeDir()); err != nil || got != "the-secret-of-after" {
		t.Errorf("%q, %v", got, err)
	}
}

// While the storage is away a join string of before may be void; before there is a
// record nothing can have changed.
func TestLookForSecretWithoutStorage(t *testing.T) {
	cfg, start := secretNode(t)
	m := start()
	if err := (Verbs{m}).LookForSecret(); err != nil {
		t.Errorf("there is no record yet: %v", err)
	}

	if err := os.WriteFile(cfg.ClusterRecord(), []byte(`{"seed": "seed", "secret": "the-secret-of-before"}`),
		0o600); err != nil {
		t.Fatal(err)
	}

	m.shared.isFounded()
	if err := (Verbs{m}).LookForSecret(); err != nil {
		t.Error(err)
	}

	if err := os.Remove(cfg.ClusterRecord()); err != nil {
		t.Fatal(err)
	}

	if err := (Verbs{m}).LookForSecret(); !errors.Is(err, errUnread) {
		t.Errorf("the record cannot be read: %v", err)
	}
}
