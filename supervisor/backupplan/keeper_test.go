package backupplan

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/test/await"
)

// world is a storage without files, that several nodes use.
type world struct {
	mu   sync.Mutex
	r    record
	hung bool
	log  []string
}

// node is the child of one of them.
type node struct {
	w     *world
	name  string
	takes time.Duration
	fails string // why it cannot
	mute  bool   // and cannot write that down
}

func (n *node) readPlace(context.Context) (seen, error) {
	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.w.hung {
		return seen{}, fmt.Errorf("it hangs")
	}
	r := n.w.r
	return seen{Record: &r}, nil
}

func (n *node) makeBackup(ctx context.Context, _ bool) Outcome {
	began := time.Now()
	n.w.mu.Lock()
	n.w.log = append(n.w.log, fmt.Sprintf("%s %s", n.name, time.Since(epoch()).Round(time.Second)))
	n.w.r.Claim = &claim{status.BackupMaker{Node: n.name, Since: began}, "", began.Add(claimFor)}
	n.w.mu.Unlock()

	select {
	case <-ctx.Done():
		return Outcome{Failed, "stopped"}
	case <-time.After(n.takes):
	}

	n.w.mu.Lock()
	defer n.w.mu.Unlock()
	if n.mute {
		return Outcome{Failed, n.fails}
	}

	n.w.r.Claim = nil
	if n.fails != "" {
		n.w.r.Failure = &status.BackupFailure{Node: n.name, Time: time.Now(), Cause: n.fails}
		return Outcome{Failed, n.fails}
	}

	n.w.r.Last = &status.BackupFile{Name: "b", Node: n.name, Time: began}
	n.w.r.Failure = nil
	return Outcome{Kind: Made}
}

// epoch is when the clock of synctest begins.
func epoch() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

func (w *world) keeper(t *testing.T, n *node, place, of int) *Keeper {
	t.Helper()
	s := settings.Default(n.name)
	s.Backup = settings.Backup{Every: "24h", To: "/mnt/nas", Keep: 3}
	k, err := New(Config{
		Settings: &s,
		Log:      slog.New(slog.DiscardHandler),
		Now:      time.Now,
		Rank:     func() (int, int, bool) { return place, of, true },
	})
	if err != nil {
		t.Fatal(err)
	}

	n.w, k.child = w, n
	return k
}

// run runs keepers until stop is called.
func run(t *testing.T, keepers ...*Keeper) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for _, k := range keepers {
		all.Go(func() { k.Run(ctx) })
	}
	return func() {
		cancel()
		all.Wait()
	}
}

// The first node makes the backup; the second one when the first does not, be it that
// it fails or that it dies.
func TestKeeper(t *testing.T) {
	for name, c := range map[string]struct {
		a, b node
		only bool // the first is not there
		want string
	}{
		"the first":            {a: node{takes: time.Minute}, want: "n1 0s, n1 24h0m0s"},
		"the first takes long": {a: node{takes: 9 * time.Minute}, want: "n1 0s, n1 24h0m0s"},
		"the first is away":    {only: true, want: "n2 1m0s, n2 24h2m0s"},
		"the first fails":      {a: node{fails: "no NAS"}, want: "n1 0s, n2 16m0s, n1 24h16m0s, n2 24h32m0s"},
		"the first is killed at it": {
			a:    node{fails: "hangs", mute: true, takes: 5 * time.Minute},
			want: "n1 0s, n2 10m0s, n1 24h10m0s, n2 24h20m0s",
		},
		"both fail, in long pauses": {
			a:    node{fails: "no NAS"},
			b:    node{fails: "no NAS"},
			want: "n1 0s, n2 16m0s, n1 31m0s, n2 47m0s",
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &world{}
				c.a.name, c.b.name = "n1", "n2"
				keepers := []*Keeper{w.keeper(t, &c.a, 0, 2), w.keeper(t, &c.b, 1, 2)}
				if c.only {
					keepers = keepers[1:]
				}

				stop := run(t, keepers...)
				time.Sleep(25 * time.Hour)
				stop()
				if got := strings.Join(w.log, ", "); !strings.HasPrefix(got+", ", c.want+", ") {
					t.Errorf("%s, want %s", got, c.want)
				}
			})
		})
	}
}

// What is wrong is said: nothing while all is well, at once when a try has failed, and
// when nobody makes one.
func TestFindings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		n := &node{name: "n1"}
		k := w.keeper(t, n, 0, 1)
		says := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			k.updateView(t.Context())
			got := ""
			for _, f := range k.Findings() {
				got += string(f.Code) + " " + f.Cause
			}

			if want == "" && got != "" || !strings.Contains(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		}

		if k.State() != nil || k.Findings() != nil {
			t.Error("it knows before it has looked")
		}

		says(0, "")
		says(2*time.Hour, "SCA-223 none was ever made; it was due at 2000-01-01 00:00 UTC")
		w.r.Last = &status.BackupFile{Name: "b", Node: "n2", Time: time.Now()}
		says(24*time.Hour+30*time.Minute, "")

		if st := k.State(); st.Last.Node != "n2" || st.Making != nil || !st.Next.Before(time.Now()) {
			t.Errorf("%+v", st)
		}

		says(4*24*time.Hour, "SCA-223 the last one is 5d old, of 2000-01-01 02:00 UTC")
		w.r.Claim = &claim{status.BackupMaker{Node: "n2", Since: time.Now()}, "", time.Now().Add(claimFor)}
		says(0, "")
		if st := k.State(); st.Making == nil || st.Making.Node != "n2" {
			t.Errorf("%+v", st)
		}

		w.r.Failure = &status.BackupFailure{Node: "n2", Time: time.Now(), Cause: "no space left on device"}
		says(0, "n2 tried at 02:30 UTC: no space left on device")
		w.r = record{Version: 1, Last: &status.BackupFile{Name: "b", Node: "n2", Time: time.Now().AddDate(0, 1, 0)}}
		k.began = time.Now()
		says(2*time.Hour, "has a time in the future")
		w.r.Last.Time = time.Now()
		says(0, "")
		w.hung = true
		says(3*24*time.Hour, "the last one is 3d old, of 2000-01-06 04:30 UTC; it hangs")

		if l := k.List(); l.Unread != "it hangs" || l.Last == nil {
			t.Errorf("%+v", l)
		}
	})
}

// A backup that is asked for is made by the node that was asked, and its end is told.
func TestStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{}
		n := &node{name: "n2", takes: time.Minute, fails: "no NAS"}
		w.r.Last = &status.BackupFile{Name: "b", Node: "n1", Time: time.Now()}
		k := w.keeper(t, n, 1, 2)
		stop := run(t, k)
		time.Sleep(time.Minute)

		if err := k.Start(); err != nil {
			t.Fatal(err)
		}

		synctest.Wait()
		if l := k.List(); !l.Running || l.Making == nil || l.Making.Node != "n2" {
			t.Errorf("%+v", l)
		}

		if err := k.Start(); err == nil {
			t.Error("two at once")
		}

		time.Sleep(2 * time.Minute)
		if l := k.List(); l.Running || l.Tries != 1 || l.Result != "no NAS" || l.Failure == nil {
			t.Errorf("%+v", l)
		}

		stop()
	})
}

// A child that hangs in a directory is given up, and no second one begins beside it.
func TestChildHangs(t *testing.T) {
	s := newSite(t)
	m := s.maker("n1")
	if err := os.MkdirAll(m.Settings.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}

	script := filepath.Join(t.TempDir(), "applianced")
	if err := os.WriteFile(script,
		[]byte("#!/bin/sh\necho '{\"record\": {\"version\": 1}}'\nexec sleep 600\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	p := process{Config{Settings: m.Settings, Executable: script}}
	began := time.Now()
	if o := p.runChild(t.Context(), "", 200*time.Millisecond); o.Kind != Failed ||
		!strings.Contains(o.Text, "it made no progress for 200ms and was given up: the storage, or "+s.to) {
		t.Errorf("%+v", o)
	}

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if got, err := p.readPlace(ctx); err != nil || got.Record == nil ||
		!strings.Contains(got.Unread, s.to+" does not answer") {
		t.Errorf("%+v %v", got, err)
	}

	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("it took %s", took)
	}

	unlock, err := lockPurpose(m.Settings, "make")
	if err != nil {
		t.Fatal(err)
	}

	if _, err := lockPurpose(m.Settings, "make"); err == nil {
		t.Error("a second child")
	}

	if _, err := lockPurpose(m.Settings, "look"); err != nil {
		t.Errorf("a look beside it: %v", err)
	}

	unlock()
	await.That(t, "the lock ends with its holder", func() bool {
		unlock, err := lockPurpose(m.Settings, "make")
		if err == nil {
			unlock()
		}
		return err == nil
	})
}

// Both sides understand each other.
func TestBothSides(t *testing.T) {
	s := newSite(t)
	m := s.maker("n1")
	if err := os.MkdirAll(m.Settings.DataDir, 0o700); err != nil {
		t.Fatal(err)
	}

	p := process{Config{Settings: m.Settings, ConfigPath: "/nonexistent"}}
	spec, err := p.encodeSpec(true)
	if err != nil {
		t.Fatal(err)
	}

	run := func(verb string) string {
		t.Helper()
		var out, errOut strings.Builder
		if code := Main(t.Context(), []string{verb}, strings.NewReader(spec), &out, &errOut); code != 0 {
			t.Fatalf("%s: %d %s", verb, code, errOut.String())
		}
		return out.String()
	}

	if got := run("make"); !strings.Contains(got, `"Kind":"made"`) {
		t.Error(got)
	}

	script := filepath.Join(t.TempDir(), "applianced")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ncat <<'E'\n"+run("look")+"E\n"), 0o700); err != nil {
		t.Fatal(err)
	}

	p.cfg.Executable = script
	if got, err := p.readPlace(t.Context()); err != nil || got.Record.Last == nil || len(got.Files) != 1 ||
		got.Files[0].Name != got.Record.Last.Name {
		t.Errorf("%+v %v", got, err)
	}

	if code := Main(t.Context(), []string{"make"}, strings.NewReader("x"), &strings.Builder{},
		&strings.Builder{}); code == 0 {
		t.Error("a spec that is none was taken")
	}
}
