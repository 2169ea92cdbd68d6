package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// peers answers Keep with a fixed error, or passes the return to another master.
type peers struct {
	err error
	to  []*Cluster
}

func (p *peers) Keep(ctx context.Context, r Return) error {
	for _, c := range p.to {
		if err := c.SaveCopy(ctx, "10.0.0.1", r); err != nil {
			return err
		}
	}
	return p.err
}

func (p *peers) Copy(r Return) {
	for _, c := range p.to {
		_ = c.SaveCopy(context.Background(), "10.0.0.1", r)
	}
}

type fellow struct {
	*Cluster
	peers    *peers
	mu       sync.Mutex
	degraded error
	clock    time.Time
}

func (f *fellow) state() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.degraded
}

func (f *fellow) now() time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.clock
}

func (f *fellow) wait(d time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clock = f.clock.Add(d)
}

// member opens the job cache of a master; Close ends it early.
func member(t *testing.T, id, shared, dir string) *fellow {
	t.Helper()
	return memberWith(t, id, shared, dir, nil)
}

// memberWith is member with an archive.
func memberWith(t *testing.T, id, shared, dir string, archive Archive) *fellow {
	t.Helper()
	return memberOf(t, id, shared, Config{Dir: filepath.Join(dir, "jobs"), Archive: archive}, time.Now(), 0)
}

// memberOf is member at a time, and with an age at which jobs are removed; 0: they are not.
func memberOf(t *testing.T, id, shared string, cfg Config, now time.Time, keep time.Duration) *fellow {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	f := &fellow{peers: &peers{}, clock: now}
	cfg.Now = f.now
	cfg.Shared = true
	l, err := Open(cfg, log)
	if err != nil {
		t.Fatal(err)
	}

	f.Cluster, err = OpenCluster(ClusterConfig{
		ID:    id,
		Dir:   shared,
		Local: l,
		Peers: f.peers,
		Keep:  keep,
		Log:   log,
		Degraded: func(err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.degraded = err
		},
	})
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() { f.end(t) })
	return f
}

func (f *fellow) end(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if f.Cluster == nil {
		return
	}
	if err := f.Close(ctx); err != nil {
		t.Error(err)
	}
	f.Cluster = nil
}

func (f *fellow) save(id, text string) error {
	load := value.NewMap("jid", jid1, "id", id, "fun", "test.ping", "return", text, "retcode", int64(0),
		"success", true)
	_, err := f.SaveReturn(context.Background(), ReturnOf(load))
	return err
}

func (f *fellow) has(t *testing.T, id string) string {
	t.Helper()
	r, err := f.Returns(context.Background(), jid1)
	if err != nil {
		t.Fatal(err)
	}
	return r.Map(id).Str("return")
}

// TestAloneInTheFolder: without a peer, a return is in the shared folder when it is acknowledged,
// and another master finds the return and its job there.
func TestAloneInTheFolder(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	a := member(t, "10.0.0.1", shared, t.TempDir())
	a.peers.err = ErrNoPeer
	check.Must(t,
		a.SaveLoad(context.Background(), jid1, value.NewMap("jid", jid1, "fun", "test.ping", "tgt", "*"),
			[]string{"m1", "m2"}))
	check.Must(t, a.save("m1", "one"))

	if a.state() == nil || errors.Is(a.state(), errClosed) {
		t.Errorf("state %v", a.state())
	}

	b := member(t, "10.0.0.2", shared, t.TempDir()) // the first one may be dead by now
	if got := b.has(t, "m1"); got != "one" {
		t.Errorf("b has %q", got)
	}

	load, err := b.Load(context.Background(), jid1)
	if err != nil || load.Str("tgt") != "*" || len(load.List("Minions")) != 2 {
		t.Errorf("the job on b: %v, %v", load, err)
	}

	// A segment grows, and is read again.
	check.Must(t, a.save("m2", "two"))
	check.Must(t, b.Import(context.Background()))
	if got := b.has(t, "m2"); got != "two" {
		t.Errorf("b has %q", got)
	}

	if n := b.ClusterStats().Imported; n < 4 {
		t.Errorf("%d imported", n)
	}

	again := b.ClusterStats().Imported
	check.Must(t, b.Import(context.Background()))
	if n := b.ClusterStats().Imported; n != again {
		t.Errorf("read again: %d, %d", again, n)
	}

	a.peers.err = nil
	check.Must(t, a.save("m3", "three"))
	if a.state() != nil {
		t.Errorf("state %v", a.state())
	}
}

// TestFolderGone: while the shared folder accepts no writes, whether a return is acknowledged
// depends on whether there are other masters.
func TestFolderGone(t *testing.T) {
	t.Parallel()
	shared := filepath.Join(t.TempDir(), "jobs")
	check.Must(t, os.Mkdir(shared, 0o700))
	a := member(t, "10.0.0.1", shared, t.TempDir())
	check.Must(t, os.Rename(shared, shared+".away"))
	a.peers.err = ErrOnlyMaster
	check.Must(t, a.save("m1", "one"))

	if a.state() != nil {
		t.Errorf("one master: %v", a.state())
	}

	a.peers.err = ErrNoPeer
	check.Must(t, a.save("m2", "two"))
	if err := a.state(); !errors.Is(err, ErrNoPeer) || !errors.Is(err, os.ErrNotExist) {
		t.Errorf("alone: %v", err)
	}

	a.peers.err = context.DeadlineExceeded // a peer that is there and silent
	if err := a.save("m3", "three"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("acknowledged: %v", err)
	}

	check.Must(t, os.Rename(shared+".away", shared))
	check.Must(t, a.save("m3", "three")) // the minion has sent it again
	b := member(t, "10.0.0.2", shared, t.TempDir())
	for id, want := range map[string]string{"m1": "one", "m2": "two", "m3": "three"} {
		if got := b.has(t, id); got != want {
			t.Errorf("%s: b has %q", id, got)
		}
	}
}

// TestHeldCopies: if the master that received a record does not hand it over, the master with the
// copy does. A record that was handed over is not handed over again.
func TestHeldCopies(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	a := member(t, "10.0.0.1", shared, t.TempDir())
	b := member(t, "10.0.0.2", shared, t.TempDir())
	a.peers.to = []*Cluster{b.Cluster}
	check.Must(t, a.save("m1", "one"))

	if n := b.ClusterStats().Held; n != 3 { // the return makes the job's load and list of minions
		t.Fatalf("%d held", n)
	}

	check.Must(t, a.volume.addAndWait(context.Background()))
	check.Must(t, b.Import(context.Background()))
	if n := b.ClusterStats().Held; n != 0 {
		t.Errorf("%d held", n)
	}

	// of a master that is gone
	check.Must(t,
		b.SaveCopy(context.Background(), "10.0.0.3", ReturnOf(value.NewMap("jid", jid1, "id", "m2", "return", "two"))))
	check.Must(t,
		b.SaveCopy(context.Background(), "10.0.0.4",
			ReturnOf(value.NewMap("jid", jid1, "id", "m3", "return", "three"))))
	b.PeerLost("10.0.0.4") // and this one at once
	check.Must(t, b.volume.addAndWait(context.Background()))

	if n := b.ClusterStats().Held; n != 1 {
		t.Errorf("%d held of a master that is there", n)
	}

	b.wait(heldFor + time.Second)
	due := b.held.popDue(b.now())
	if len(due) != 1 || due[0].id != "m2" {
		t.Fatalf("due %v", due)
	}

	b.volume.queueRecords(due...)
	check.Must(t, b.volume.addAndWait(context.Background()))
	c := member(t, "10.0.0.3", shared, t.TempDir())
	if c.has(t, "m1") != "one" || c.has(t, "m2") != "two" || c.has(t, "m3") != "three" {
		t.Errorf("c has %q, %q and %q", c.has(t, "m1"), c.has(t, "m2"), c.has(t, "m3"))
	}
}

// TestHeldBounds: copies beyond the bound are handed over early.
func TestHeldBounds(t *testing.T) {
	t.Parallel()
	h, now, due := newHeld(), time.Unix(1000, 0), 0
	big := make([]byte, 1<<20)
	for i := range 40 {
		due += len(h.put(now, "10.0.0.1", &record{kind: kindReturn, jid: jid1, id: fmt.Sprint("m", i), a: big}))
	}

	if due != 40-h.count() || h.bytes > heldBytes || due == 0 {
		t.Errorf("%d due, %d held, %d bytes", due, h.count(), h.bytes)
	}

	for range 5000 { // the same again and again
		h.put(now, "10.0.0.1", &record{kind: kindReturn, jid: jid1, id: "m39"})
	}

	if len(h.list) > 4*h.count()+1024 || h.dropSeen(&record{kind: kindReturn, jid: jid1, id: "m39"}) == nil {
		t.Errorf("%d in the list for %d", len(h.list), h.count())
	}
}

// TestAwayAndDamaged: a master that was away imports each record that it missed once, also behind a
// damaged part of a segment. It does not touch unknown files.
func TestAwayAndDamaged(t *testing.T) {
	t.Parallel()
	shared, dir := t.TempDir(), t.TempDir()
	a, b := member(t, "10.0.0.1", shared, t.TempDir()), member(t, "10.0.0.2", shared, dir)
	b.end(t)

	for i := range 10 {
		check.Must(t, a.save(fmt.Sprint("m", i), fmt.Sprint("v", i)))
	}

	check.Must(t, a.volume.addAndWait(context.Background()))
	check.Must(t, os.WriteFile(filepath.Join(shared, "notes.txt"), []byte("x"), 0o600))
	check.Must(t, os.Mkdir(filepath.Join(shared, "10.0.0.9_0000000000000000001_0000000000000001.log"), 0o700))
	names, err := a.volume.listSegments()
	check.Must(t, err)
	var path string
	for _, n := range names {
		if st, err := os.Stat(filepath.Join(shared, n)); err == nil && st.Mode().IsRegular() {
			path = filepath.Join(shared, n)
		}
	}

	whole, err := os.ReadFile(path)
	check.Must(t, err)
	whole[len(whole)/2] ^= 0xff
	check.Must(t, os.WriteFile(path, whole, 0o600))
	b = member(t, "10.0.0.2", shared, dir)
	n := 0
	for i := range 10 {
		if got := b.has(t, fmt.Sprint("m", i)); got == fmt.Sprint("v", i) {
			n++
		} else if got != "" {
			t.Errorf("m%d has %q", i, got)
		}
	}

	if n != 9 {
		t.Errorf("%d of 10 returns, one is damaged", n)
	}

	read := b.ClusterStats().Imported
	b.end(t)
	b = member(t, "10.0.0.2", shared, dir)
	if again := b.ClusterStats().Imported; read == 0 || again != 0 {
		t.Errorf("imported %d records, and %d after a restart", read, again)
	}

	// Old segments go.
	a.wait(48 * time.Hour)
	_, err = a.Clean(context.Background(), 24*time.Hour)
	check.Must(t, err)
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("the old segment: %v", err)
	}
}

// TestRunIsAtAllMasters: a peer has the result of a runner, with its load, at once. The shared
// folder has them for a master that was away, whether the peer or the master itself hands them
// over.
func TestRunIsAtAllMasters(t *testing.T) {
	t.Parallel()
	for _, lost := range []bool{false, true} {
		t.Run(fmt.Sprintf("master lost %v", lost), func(t *testing.T) {
			t.Parallel()
			shared := t.TempDir()
			a := member(t, "10.0.0.1", shared, t.TempDir())
			b := member(t, "10.0.0.2", shared, t.TempDir())
			a.peers.to = []*Cluster{b.Cluster}
			load := value.NewMap("jid", jid1, "id", "10.0.0.1", "tgt", "10.0.0.1", "fun", "runner.test.arg",
				"return", value.NewMap("return", 77), "user", "root")
			stored, err := a.SaveReturn(t.Context(), ReturnOf(load))
			if err != nil || !stored {
				t.Fatalf("the result is not kept: %v, %v", stored, err)
			}
			if stored, err := a.SaveReturn(t.Context(), ReturnOf(load)); err != nil || stored {
				t.Fatalf("the same result again: %v, %v", stored, err)
			}

			if lost {
				a.volume.waiting = nil // what a killed master never wrote
				b.PeerLost("10.0.0.1")
			}
			a.end(t)

			for _, c := range []*fellow{b, member(t, "10.0.0.3", shared, t.TempDir())} {
				await.That(t, "the job is known", func() bool {
					check.Must(t, c.Import(t.Context()))
					known, err := c.Load(t.Context(), jid1)
					check.Must(t, err)
					return known.Str("fun") == "runner.test.arg"
				})
				returns, err := c.Returns(t.Context(), jid1)
				check.Must(t, err)
				if got := returns.Map("10.0.0.1").Map("return").Value("return"); got != int64(77) {
					t.Errorf("%s has %s", c.cfg.ID, value.Repr(returns))
				}
			}
		})
	}
}

// TestJobOfAMinionIsTheSameOnAllMasters: the master that takes the return of salt-call makes a job for it; the others get
// the return at once.
func TestJobOfAMinionIsTheSameOnAllMasters(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	a := member(t, "10.0.0.1", shared, t.TempDir())
	b := member(t, "10.0.0.2", shared, t.TempDir())
	a.peers.to = []*Cluster{b.Cluster}
	load := value.NewMap("jid", jid1, "fun", "state.apply", "tgt", "m1", "tgt_type", "glob", "id", "m1", "return", true)
	check.Must(t, a.SaveLoad(await.Context(t), jid1, load.Clone(), []string{"m1"}))
	_, err := a.SaveReturn(await.Context(t), ReturnOf(load))
	check.Must(t, err)
	for _, master := range []*fellow{a, b} {
		got, err := master.Load(await.Context(t), jid1)
		if err != nil || fmt.Sprint(got.List("Minions")) != "[m1]" {
			t.Errorf("%s expects %v, %v", master.cfg.ID, got.List("Minions"), err)
		}
	}
}
