package setup

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/test/await"
)

// machine is what a Machine under test stands on: its disk survives, the rest
// does not.
type machine struct {
	t    *testing.T
	dir  string
	now  func() time.Time
	fact func() Facts

	mu     sync.Mutex
	serves bool
	source *Answers
	wrong  error
	unused []string
	reason string // why Configure fails
	forms  int
	undone int
}

func newMachine(t *testing.T) *machine {
	return &machine{t: t, dir: t.TempDir(), now: time.Now, serves: true, fact: func() Facts {
		return Facts{
			Hostname:   "n1",
			Interfaces: []Interface{{Name: "lo0", Default: true, Addresses: []string{"127.0.70.9/8"}}},
		}
	}}
}

func (w *machine) path(names ...string) string {
	return filepath.Join(append([]string{w.dir}, names...)...)
}

func (w *machine) Configured() bool {
	_, err := os.Stat(w.path("appliance.yaml"))
	return err == nil
}

func (w *machine) Configure(text []byte, form bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.reason != "" {
		return errors.New(w.reason)
	}
	if form {
		w.forms++
	}
	return os.WriteFile(w.path("appliance.yaml"), text, 0o600)
}

func (w *machine) Brick(*settings.Settings) (string, error) { return w.path("brick"), nil }

func (w *machine) Disk(context.Context, *settings.Settings, string, bool) error { return nil }

func (w *machine) Undo() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.undone++
	return nil
}

func (w *machine) Look() NodeLook {
	w.mu.Lock()
	defer w.mu.Unlock()
	k, err := nodes.OpenKeeper(w.path("data"), "")
	l := NodeLook{
		Running:        w.Configured(),
		Storage:        true,
		Serving:        w.serves,
		ServingWaiting: "a miracle",
		StorageWaiting: "a miracle",
		Addresses:      []string{"127.0.70.9"},
	}

	if err == nil {
		l.Table = k.Table()
		for i := range l.Table.Nodes {
			l.Table.Nodes[i].State = nodes.Member
		}
	}

	return l
}

func (w *machine) config() Config {
	c := Config{
		Dir:     w.path("data", "setup"),
		DataDir: w.path("data"),
		NodeDir: w.path("data", "node"),
		World:   w,
		Version: "v1",
		Base:    Base{DataDir: w.path("data"), RuntimeDir: w.path("run")},
		Facts:   func(context.Context) Facts { return w.fact() },
		Log:     slog.New(slog.NewTextHandler(io.Discard, nil)),
		Now:     w.now,
	}

	if w.source != nil || w.wrong != nil {
		c.Source = func(context.Context) (Given, error) {
			return Given{Answers: w.source, From: "the test", Unused: w.unused}, w.wrong
		}
	}

	return c
}

// boot runs a Machine until stop is called.
func (w *machine) boot() (*Machine, func()) {
	m := NewMachine(w.config())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); m.Run(ctx) }()
	var once sync.Once
	stop := func() { once.Do(func() { cancel(); <-done }) }
	w.t.Cleanup(stop)
	return m, stop
}

func (w *machine) answers() Answers {
	return Answers{
		Mode:     Form,
		Cluster:  "prod",
		Node:     "n1",
		Address:  "127.0.70.9",
		Front:    []string{"127.0.70.9"},
		Storage:  Storage{Kind: settings.LocalStorage},
		Settings: map[string]any{"limits": map[string]any{"disk_low_percent": 0.2, "disk_full_percent": 0.1}},
	}
}

func reaches(t *testing.T, m *Machine, what string, ok func(Progress) bool) Progress {
	t.Helper()
	var p Progress
	if !await.Within(time.Minute, func() bool { p = m.Progress(); return ok(p) }) {
		t.Fatalf("%s: %+v", what, p)
	}
	return p
}

func state(s status.Setup) func(Progress) bool { return func(p Progress) bool { return p.State == s } }

func TestForm(t *testing.T) {
	w := newMachine(t)
	m, _ := w.boot()
	if p := m.Progress(); p.State != status.SetupNew || !m.Active() {
		t.Fatalf("at first: %+v", p)
	}

	if err := m.Start(t.Context(), "", w.answers()); err != nil {
		t.Fatal(err)
	}

	p := reaches(t, m, "ready", state(status.SetupReady))
	for _, s := range p.Steps {
		if s.State != "done" {
			t.Errorf("step %+v", s)
		}
	}

	if s, err := m.JoinString(); err != nil || !strings.HasPrefix(s, "sca2.") {
		t.Errorf("the join string: %q, %v", s, err)
	}

	if p.Done == nil || p.Done.JoinString != "" || len(p.Done.BackUp) != 1 ||
		p.Done.MinionConf != "master: 127.0.70.9\nmaster_alive_interval: 30\n" {
		t.Errorf("the last page: %+v", p.Done)
	}

	if err := m.Start(t.Context(), "", w.answers()); !errors.Is(err, ErrState) {
		t.Errorf("a second time: %v", err)
	}

	if _, err := os.Stat(w.path("data", "node", StagedKey)); err != nil {
		t.Error(err)
	}

	// Secrets are where nobody else reads them, and nowhere else.
	secret, _ := ReadSecret(w.path("data", "node"))
	err := filepath.WalkDir(w.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}

		b, err := os.ReadFile(path)
		fi, serr := os.Stat(path)
		if strings.Contains(string(b), secret) && (filepath.Base(path) != SecretFile || fi.Mode().Perm() != 0o600) {
			t.Errorf("the secret is in %s, mode %v", path, fi.Mode())
		}

		return errors.Join(err, serr)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestPowerCut: power fails after each single change of the disk, and the next
// life goes on to the end, with the same key and secret.
func TestPowerCut(t *testing.T) {
	key, err := nodeapi.NewClusterKey() // making one takes long, and is tested above
	if err != nil {
		t.Fatal(err)
	}

	for cut := 1; ; cut++ {
		w := newMachine(t)
		w.serves = false
		if err := errors.Join(os.MkdirAll(w.path("data", "node"), 0o700),
			os.WriteFile(w.path("data", "node", StagedKey), key, 0o600)); err != nil {
			t.Fatal(err)
		}

		m, stop := w.boot()
		writes, ended := 0, make(chan struct{})
		m.store.before = func() error {
			writes++
			if writes == cut+1 {
				close(ended)
			}

			if writes > cut {
				return errors.New("power is off")
			}

			return nil
		}

		if err := m.Start(t.Context(), "", w.answers()); err != nil {
			t.Fatal(err)
		}

		for over := false; !over; {
			select {
			case <-ended:
				over = true
			case <-time.After(5 * time.Millisecond):
				over = m.Progress().State == status.SetupWaiting // as far as it goes
			}
		}

		stop()
		before, _ := os.ReadFile(w.path("data", "node", SecretFile))
		table, _ := os.ReadFile(w.path("data", nodes.File))
		w.serves = true
		m, stop = w.boot()
		p := reaches(t, m, "ready after a power cut",
			func(p Progress) bool { return p.State == status.SetupReady || p.Failure != nil })
		if p.State != status.SetupReady {
			t.Fatalf("power cut at change %d: %+v", cut, p)
		}

		after, _ := os.ReadFile(w.path("data", "node", SecretFile))
		now, _ := os.ReadFile(w.path("data", nodes.File))
		if len(before) > 0 && string(before) != string(after) || len(table) > 0 && string(table) != string(now) {
			t.Errorf("power cut at change %d: the secret or the table of nodes is another one", cut)
		}

		stop()
		select {
		case <-ended:
		default: // there were fewer changes
			if cut < 8 {
				t.Errorf("only %d changes of the disk", cut-1)
			}
			return
		}
	}
}

// TestAddressComesLater: with answers given with the machine, an address that no
// interface has yet is waited for.
func TestAddressComesLater(t *testing.T) {
	w := newMachine(t)
	var there atomic.Bool
	facts := w.fact()
	w.fact = func() Facts {
		f := facts
		if there.Load() {
			f.Interfaces = append(slices.Clone(f.Interfaces),
				Interface{Name: "eth0", Addresses: []string{"192.0.2.77/24"}})
		}
		return f
	}

	a := w.answers()
	a.Address = "192.0.2.77" // not of this machine
	w.source = &a
	m, _ := w.boot()
	waits := func(words string) func(Progress) bool {
		return func(p Progress) bool {
			return p.Failure == nil && len(p.Steps) > 0 && strings.HasPrefix(p.Steps[0].Message, "waits: "+words)
		}
	}

	reaches(t, m, "waiting for the address", waits("address 192.0.2.77: no interface has it"))
	there.Store(true) // says the machine; its ports cannot be had all the same
	reaches(t, m, "waiting for the ports", waits("ports of this node"))
}

func TestFailureRetryBack(t *testing.T) {
	w := newMachine(t)
	w.reason = "no space left on device"
	m, stop := w.boot()
	a := w.answers()
	a.Storage = Storage{Kind: settings.DirectoryStorage, Path: w.path("not", "mounted")}

	if err := m.Start(t.Context(), "", a); err != nil {
		t.Fatal(err)
	}

	p := reaches(t, m, "stopped", func(p Progress) bool { return p.Failure != nil })
	if p.State != status.SetupFailed || !p.Failure.Back ||
		!strings.Contains(p.Failure.Cause, "no such file") || len(p.Failure.Check) == 0 {
		t.Errorf("%+v", p.Failure)
	}

	stop() // it is still there after a restart
	m, _ = w.boot()
	if p := m.Progress(); p.State != status.SetupFailed {
		t.Errorf("after a restart: %+v", p)
	}

	if err := m.Back(""); err != nil {
		t.Fatal(err)
	}

	reaches(t, m, "back at the answers", state(status.SetupNew))
	if err := m.Start(t.Context(), "", w.answers()); err != nil {
		t.Fatal(err)
	}

	p = reaches(t, m, "stopped at the configuration", func(p Progress) bool { return p.Failure != nil })
	if !p.Failure.Back || !strings.Contains(p.Failure.Cause, "no space left") {
		t.Errorf("%+v", p.Failure)
	}

	k, err := nodes.OpenKeeper(w.path("data"), "")
	if err != nil {
		t.Fatal(err)
	}

	table := k.Table()
	table.Version++
	table.Nodes = append(table.Nodes,
		nodes.Node{Name: "n2", Address: "127.0.70.10", State: nodes.Joining, Certificate: strings.Repeat("0", 64)})

	if _, err := k.Offer(table); err != nil {
		t.Fatal(err)
	}

	if err := m.Back(""); !errors.Is(err, ErrState) || w.undone > 0 {
		t.Errorf("back from where another node has joined: %v", err)
	}

	w.mu.Lock()
	w.reason = ""
	w.mu.Unlock()

	if err := m.Retry(""); err != nil {
		t.Fatal(err)
	}

	reaches(t, m, "ready", state(status.SetupReady))
	if err := m.Retry(""); !errors.Is(err, ErrState) {
		t.Errorf("retry of nothing: %v", err)
	}
}

// TestBackUndoes: while no other machine knows of the cluster that is formed,
// going back has all of it removed; the answers can then be given anew.
func TestBackUndoes(t *testing.T) {
	for _, reason := range []string{"no space left on device", ""} { // stopped, and waiting for ever
		w := newMachine(t)
		w.reason, w.serves = reason, false
		m, _ := w.boot()
		if err := m.Start(t.Context(), "", w.answers()); err != nil {
			t.Fatal(err)
		}

		reaches(t, m, "stopped or waiting",
			func(p Progress) bool { return p.Failure != nil || p.State == status.SetupWaiting })
		if err := m.Back(""); err != nil || w.undone != 1 {
			t.Fatalf("%v, undone %d", err, w.undone)
		}

		full := errors.New("the disk is away")
		if err := m.Anew(false, func() error { return full }); !errors.Is(err, full) {
			t.Fatal(err)
		}

		if err := m.Start(t.Context(), "", w.answers()); !errors.Is(err, ErrState) {
			t.Errorf("a start while things are being removed: %v", err)
		}

		if err := m.Anew(false,
			func() error {
				return errors.Join(os.RemoveAll(w.path("data")),
					os.RemoveAll(w.path("appliance.yaml")))
			}); err != nil {
			t.Fatal(err)
		}

		reaches(t, m, "new", state(status.SetupNew))
		w.mu.Lock()
		w.reason, w.serves = "", true
		w.mu.Unlock()

		if err := m.Start(t.Context(), "", w.answers()); err != nil {
			t.Fatal(err)
		}

		reaches(t, m, "ready", state(status.SetupReady))
		if err := m.Back(""); !errors.Is(err, ErrState) || w.undone != 1 {
			t.Errorf("back from a node that is set up: %v", err)
		}
	}
}

// TestUnattended: nothing given is new, something wrong is failed with all of
// it shown, something right goes on by itself.
func TestUnattended(t *testing.T) {
	none := newMachine(t)
	m, _ := none.boot()
	if p := m.Progress(); p.State != status.SetupNew || p.Failure != nil {
		t.Errorf("nothing given: %+v", p)
	}

	bad := newMachine(t)
	bad.source, bad.unused = &Answers{Mode: "x", Node: "/"}, []string{"a script was given"}
	m, _ = bad.boot()
	p := reaches(t, m, "wrong answers are told", func(p Progress) bool { return p.Failure != nil })
	if p.State != status.SetupFailed || !strings.Contains(p.Failure.Cause, "mode: ") ||
		!strings.Contains(p.Failure.Cause, "node: ") {
		t.Errorf("%+v", p.Failure)
	}

	if !slices.Equal(p.Unused, bad.unused) {
		t.Errorf("what was given besides: %q", p.Unused)
	}

	if err := m.Start(t.Context(), "", bad.answers()); err != nil { // somebody answers on the console
		t.Fatal(err)
	}

	reaches(t, m, "ready", state(status.SetupReady))
	good := newMachine(t)
	a := good.answers()
	good.source = &a
	m, _ = good.boot()
	reaches(t, m, "ready", state(status.SetupReady))
}

func TestClaim(t *testing.T) {
	w := newMachine(t)
	now := time.Unix(1e9, 0)
	w.now = func() time.Time { return now }
	m := NewMachine(w.config())

	// A terminal that nobody types at leads nobody.
	for _, name := range []string{"tty1", "ttyS0"} {
		if c := m.Claim(name, ClaimRequest{Name: name, Lead: Watch}); !c.Mine || c.Owner != "" {
			t.Errorf("%s, nobody has typed: %+v", name, c)
		}
	}

	if err := m.May("anybody"); err != nil {
		t.Error(err)
	}

	if c := m.Claim("a", ClaimRequest{Name: "tty1", Lead: Begin}); !c.Mine || c.Owner != "tty1" {
		t.Errorf("the first: %+v", c)
	}

	if c := m.Claim("b", ClaimRequest{Name: "ttyS0", Lead: Begin}); c.Mine || c.Owner != "tty1" {
		t.Errorf("a second that begins: %+v", c)
	}

	if c := m.Claim("b", ClaimRequest{Name: "ttyS0", Lead: Watch}); c.Mine || c.Owner != "tty1" {
		t.Errorf("the second: %+v", c)
	}

	if err := m.Start(t.Context(), "b", w.answers()); !errors.Is(err, ErrState) ||
		!strings.Contains(err.Error(), "tty1") {
		t.Errorf("a start by the second: %v", err)
	}

	if c := m.Claim("b", ClaimRequest{Name: "ttyS0", Lead: Take}); !c.Mine {
		t.Errorf("taken over: %+v", c)
	}

	now = now.Add(claimLasts + time.Second)
	if c := m.Claim("a", ClaimRequest{Name: "tty1", Lead: Watch}); !c.Mine {
		t.Errorf("after the other went away: %+v", c)
	}
}

// TestTakeOverHandsTheDraftOn: who takes over is given what the one before has answered,
// once; who only looks, or begins when nobody leads, is not. (m1)
func TestTakeOverHandsTheDraftOn(t *testing.T) {
	w := newMachine(t)
	now := time.Unix(1e9, 0)
	w.now = func() time.Time { return now }
	m := NewMachine(w.config())
	claim := func(token string, lead Lead, draft Draft) Draft {
		t.Helper()
		return m.Claim(token, ClaimRequest{Name: token, Lead: lead, Draft: draft}).Draft
	}

	mine := Draft{"node": "n7"}
	if got := claim("a", Begin, nil); got != nil {
		t.Errorf("who begins is given %v", got)
	}

	claim("a", Watch, mine)
	claim("a", Watch, nil)                                           // keeps it
	claim("a", Watch, Draft{"node": strings.Repeat("x", maxDraft)})  // too large: the one before stays
	if got := claim("b", Watch, Draft{"node": "evil"}); got != nil { // leads not
		t.Errorf("who looks is given %v", got)
	}

	if got := claim("b", Take, nil); !reflect.DeepEqual(got, mine) {
		t.Errorf("who takes over is given %v", got)
	}

	if got := claim("b", Watch, nil); got != nil {
		t.Errorf("afterwards it is given %v", got)
	}

	if got := claim("a", Take, nil); !reflect.DeepEqual(got, mine) {
		t.Errorf("who takes it back before anything was typed is given %v", got)
	}

	now = now.Add(claimLasts + time.Second)
	if got := claim("c", Begin, nil); got != nil {
		t.Errorf("who begins after the other went away is given %v", got)
	}
}

// TestClaimAfterSetup: the console page changes the network right after the
// wizard has ended.
func TestClaimAfterSetup(t *testing.T) {
	w := newMachine(t)
	a := w.answers()
	w.source = &a
	m, _ := w.boot()
	m.Claim("wizard", ClaimRequest{Name: "tty1", Lead: Begin})
	reaches(t, m, "ready", state(status.SetupReady))
	if c := m.Claim("page", ClaimRequest{Name: "console", Lead: Watch}); c.Mine {
		t.Fatal("the wizard's claim is gone")
	}
	if err := m.May("page"); err != nil {
		t.Error(err)
	}
}

// TestProgressWhileTheDiskHangs: the state of the set-up is shown while its next state cannot be
// written; it is the one that is on the disk.
func TestProgressWhileTheDiskHangs(t *testing.T) {
	hang, begun := make(chan struct{}), make(chan struct{})
	m := NewMachine(Config{Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler), Now: time.Now})
	m.store.before = func() error {
		close(begun)
		<-hang
		return nil
	}

	ended := make(chan error, 1)
	go func() { ended <- m.change(func(s *saved) { s.Phase = status.SetupPreflight }) }()
	<-begun
	shown := make(chan saved, 1)
	go func() { shown <- m.snapshot() }()
	await.That(t, "the state is shown", func() bool { return len(shown) == 1 })
	if s := <-shown; s.Phase != status.SetupNew {
		t.Errorf("shows %s, which is not on the disk", s.Phase)
	}

	close(hang)
	if err := <-ended; err != nil || m.snapshot().Phase != status.SetupPreflight {
		t.Errorf("%v, %s", err, m.snapshot().Phase)
	}
}
