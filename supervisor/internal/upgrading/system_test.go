package upgrading

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"saltern/image/bundle"
	"saltern/image/grubenv"
	"saltern/supervisor/api"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade"
	"saltern/supervisor/upgrade/rollout"
	"saltern/test/await"
)

// machine is a node with two slots of plain files. Its restart does what the boot
// loader and the trial do.
type machine struct {
	*System
	dir string
	mu  sync.Mutex
	d   status.Document
}

func put(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func newMachine(t *testing.T, name, keys string) *machine {
	t.Helper()
	m := &machine{dir: t.TempDir()}
	m.d.ServingSince, m.d.Health = new(time.Time), status.Healthy
	m.d.Nodes = []status.Node{{Name: name, This: true, State: "ready", Master: "ok", Storage: "ok"}}
	env, err := grubenv.Env{"slot": "a"}.Bytes()
	if err != nil {
		t.Fatal(err)
	}

	for path, text := range map[string]string{
		"esp/grub/grubenv": string(env),
		"esp/a/version":    "1\n",
		"esp/b/.keep":      "",
		"dev/root-a":       strings.Repeat("\x00", 1<<20),
		"dev/root-b":       strings.Repeat("\x00", 1<<20),
		"cmdline":          "quiet saltern.slot=a\n",
		"os-release":       "VARIANT_ID=cloud\nIMAGE_VERSION=1\nIMAGE_CREATED=2025-01-01T00:00:00Z\n",
		"boot_id":          "first\n",
	} {
		put(t, filepath.Join(m.dir, path), text)
	}

	s := settings.Default(name)
	surroundings := child.Env{Settings: &s, Log: slog.New(slog.DiscardHandler), Now: time.Now}
	m.System = NewSystem(surroundings, "", nil, func() status.Document {
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.d
	}, nil)

	m.sys = upgrade.System{
		ESP:     m.dir + "/esp",
		Devices: m.dir + "/dev",
		Cmdline: m.dir + "/cmdline",
		Release: m.dir + "/os-release",
	}

	m.keyDirs, m.System.boot = []string{keys}, m.dir+"/boot_id"
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Go(func() { m.System.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		all.Wait()
	})

	return m
}

// boots restarts into the slot that is to be tried, and keeps what it finds there.
func (m *machine) boots(created string) func(context.Context, io.Writer) error {
	return func(_ context.Context, tell io.Writer) error {
		st, err := m.sys.Status()
		if err != nil {
			return err
		}

		fmt.Fprintln(tell, "waiting: another node has the turn\nrestarting; 0 minions are moved by that")
		err = errors.Join(os.WriteFile(m.sys.Cmdline, []byte("saltern.slot="+st.Next+" saltern.try"), 0o600),
			os.WriteFile(m.sys.Release,
				[]byte("VARIANT_ID=cloud\nIMAGE_VERSION="+st.Versions[st.Next]+"\nIMAGE_CREATED="+created+"\n"),
				0o600),
			os.WriteFile(m.System.boot, []byte("second\n"), 0o600))

		m.setBusy("", "")
		return errors.Join(err, m.sys.Good())
	}
}

// signed makes a bundle and a folder with the key that it counts by.
func signed(t *testing.T) (path, keys, created string) {
	t.Helper()
	private, public, err := bundle.GenerateKey()
	if err != nil {
		t.Fatal(err)
	}

	key, err := bundle.PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}

	dir := t.TempDir()
	put(t, filepath.Join(dir, "keys", "own.pem"), string(public))
	var files []string
	for _, p := range bundle.Parts {
		files = append(files, filepath.Join(dir, p))
		put(t, filepath.Join(dir, p), strings.Repeat(p, 5000))
	}

	var b bytes.Buffer
	at := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	if err := bundle.Create(&b, bundle.Manifest{Version: "2", Flavour: "cloud", Created: at}, files,
		ed25519.PrivateKey(key)); err != nil {
		t.Fatal(err)
	}

	put(t, filepath.Join(dir, "v.upgrade"), b.String())
	return filepath.Join(dir, "v.upgrade"), filepath.Join(dir, "keys"), at.Format(time.RFC3339)
}

// Three machines take a version: each proves and writes it as on its own, and restarts.
// What is not signed, and a machine that is none, is refused before anything is done.
func TestUpgradeOfAll(t *testing.T) {
	path, keys, created := signed(t)
	var all []*machine
	var targets []rollout.Target
	for _, name := range []string{"n1", "n2"} {
		m := newMachine(t, name, keys)
		m.reboot = m.boots(created)
		all = append(all, m)
		targets = append(targets, rollout.Target{Name: name, Node: m})
	}

	open := func() (io.ReadCloser, error) { return os.Open(path) }
	u := NewUpgrades(all[1].env, all[1].System, nil)
	m, err := u.proven(open)
	if err != nil {
		t.Fatal(err)
	}

	var lines []string
	r := rollout.Roll{Targets: targets, Manifest: m, Open: open, Tell: func(l string) { lines = append(lines, l) }}
	if got := r.Run(t.Context()); got.Code != rollout.Upgraded {
		t.Fatalf("%+v\n%s", got, strings.Join(lines, "\n"))
	}

	for _, m := range all {
		st, err := m.State(t.Context())
		if err != nil || st.Version != "2" || st.Trying || st.Next != "" || st.Boot != "second" || st.Left != "1" {
			t.Errorf("%+v %v", st, err)
		}
	}

	if got := r.Run(t.Context()); got.Code != rollout.Unchanged {
		t.Errorf("again: %+v", got)
	}

	if err := u.Upgrade(t.Context(), api.UpgradeRequest{Path: "v.upgrade"}); !errors.Is(err, api.ErrState) {
		t.Errorf("a relative path: %v", err)
	}

	unsigned := filepath.Join(t.TempDir(), "v.upgrade")
	put(t, unsigned, "nothing")
	if err := u.Upgrade(t.Context(), api.UpgradeRequest{Path: unsigned}); !errors.Is(err, api.ErrState) ||
		!strings.Contains(err.Error(), "no bundle") {
		t.Errorf("unsigned: %v", err)
	}

	put(t, all[1].sys.Cmdline, "root=/dev/sda1")
	if err := u.Upgrade(t.Context(), api.UpgradeRequest{Path: path}); !errors.Is(err, api.ErrState) ||
		!strings.Contains(err.Error(), "package manager") {
		t.Errorf("a host: %v", err)
	}

	if st, err := all[1].State(t.Context()); err != nil || st.Image || !st.Serving {
		t.Errorf("a host: %+v %v", st, err)
	}
}

// A second administrator is told what is under way, on this node and at each machine.
func TestSecondUpgrade(t *testing.T) {
	path, keys, _ := signed(t)
	m := newMachine(t, "n1", keys)
	held := make(chan struct{})
	m.reboot = func(ctx context.Context, tell io.Writer) error {
		fmt.Fprintln(tell, "waiting: node n2 is unreachable")
		select {
		case <-held:
			return errors.New("restart: waited for 45m: node n2 is unreachable")
		case <-ctx.Done():
			return ctx.Err()
		}
	}

	u := NewUpgrades(m.env, m.System, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var loop sync.WaitGroup
	loop.Go(func() { u.Run(ctx) })
	defer loop.Wait()

	defer cancel()
	q := api.UpgradeRequest{Path: path}
	if err := u.Upgrade(t.Context(), q); err != nil {
		t.Fatal(err)
	}

	busy := func() string {
		st, err := m.State(t.Context())
		if err != nil {
			t.Error(err)
		}
		return st.Busy
	}

	await.That(t, "the node waits for its turn",
		func() bool { return strings.Contains(busy(), "waiting: node n2 is unreachable") })
	if err := u.Upgrade(t.Context(), q); !errors.Is(err, api.ErrState) ||
		!strings.Contains(err.Error(), "upgrades all nodes to version 2 since") {
		t.Errorf("a second one: %v", err)
	}

	if err := m.Restart(t.Context(), "2"); !errors.Is(err, rollout.ErrBusy) {
		t.Errorf("a second restart: %v", err)
	}

	waits := busy()
	if err := m.Install(t.Context(), strings.NewReader("")); !errors.Is(err, rollout.ErrBusy) || busy() != waits {
		t.Errorf("another version while it restarts: %v; it %q", err, busy())
	}

	close(held)
	await.That(t, "it ends with the reason", func() bool {
		p := u.Upgrading()
		return !p.Running && p.Result != nil && p.Result.Code == rollout.Stopped &&
			strings.Contains(p.Result.Cause, "node n2 is unreachable")
	})

	if err := m.Restart(t.Context(), "3"); !errors.Is(err, errNotNext) {
		t.Errorf("another version: %v", err)
	}
}

// Packages of an image get old; a host has a package manager for that.
func TestAged(t *testing.T) {
	now := time.Date(2026, 11, 24, 0, 0, 0, 0, time.UTC)
	old := now.AddDate(0, -4, 0)
	for name, c := range map[string]struct {
		st    rollout.State
		want  string
		since time.Time
	}{
		"new, no key": {st: rollout.State{Image: true, Created: now}, since: now.AddDate(0, 0, -6)},
		"a host":      {st: rollout.State{Created: old}},
		"new":         {st: rollout.State{Image: true, Keys: 1, Created: now.AddDate(0, 0, -89)}, want: ""},
		"old": {
			st:   rollout.State{Image: true, Keys: 1, Created: old, Version: "1"},
			want: "SCA-224 version 1 was built 2026-07-24, 123 days ago: security fixes of since then are missing;",
		},
		"age not known": {st: rollout.State{Image: true, Keys: 1}, want: ""},
		"without a key": {
			st:   rollout.State{Image: true, Created: now},
			want: "SCA-225 it trusts no key: the image was built without one, and none was added;",
		},
		"of tomorrow": {st: rollout.State{Image: true, Keys: 1, Created: now.AddDate(0, 0, 1)}, want: ""},
		"went back": {
			st: rollout.State{
				Image:       true,
				Keys:        1,
				Window:      "02:00-04:00",
				Version:     "1",
				Created:     now.AddDate(0, 0, -9),
				Left:        "2",
				LeftCreated: now.AddDate(0, 0, -2),
			},
			want: "SCA-240 this node went back from version 2 to 1;",
		},
		"went back, no window": {
			st: rollout.State{
				Image:       true,
				Keys:        1,
				Version:     "1",
				Created:     now.AddDate(0, 0, -9),
				Left:        "2",
				LeftCreated: now.AddDate(0, 0, -2),
			},
			want: "",
		},
		"gave a version up": {
			st: rollout.State{
				Image:   true,
				Keys:    1,
				Version: "1",
				Created: now,
				Left:    "2",
				GaveUp:  now.AddDate(0, 0, -1),
			},
			want: "SCA-243 it was to be tried from 2026-11-23 00:00 UTC on, and was not known to be good after its tries; version 1 runs;",
		},
		"the one of before": {
			st: rollout.State{
				Image:       true,
				Keys:        1,
				Window:      "02:00-04:00",
				Version:     "2",
				Created:     now.AddDate(0, 0, -2),
				Left:        "1",
				LeftCreated: now.AddDate(0, 0, -9),
			},
			want: "",
		},
		"a clock at 197": {st: rollout.State{Image: true, Keys: 1, Created: now.AddDate(50, 0, 1)}, want: ""},
	} {
		got := ""
		for _, f := range ageFindings(c.st, now, c.since) {
			got += string(f.Code) + " " + f.Cause + ";"
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
