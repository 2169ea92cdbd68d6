package jobs

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/check"
)

// crashed is what a disk holds when its machine dies now.
func crashed(t *testing.T, dir string) string {
	t.Helper()
	to := t.TempDir()
	check.Must(t, os.CopyFS(to, os.DirFS(dir)))
	return to
}

func (f *fellow) handOver(t *testing.T) {
	t.Helper()
	f.wait(heldFor + time.Second)
	f.volume.queueRecords(f.held.popDue(f.now())...)
	check.Must(t, f.volume.addAndWait(context.Background()))
}

// TestUnhandedAfterRestart: if the master that received a record never comes back, the master with
// the copy hands it over, although that master was restarted meanwhile, or has crashed, or both.
func TestUnhandedAfterRestart(t *testing.T) {
	t.Parallel()
	for name, again := range map[string]func(t *testing.T, b *fellow, dir string) string{
		"closed":  func(t *testing.T, b *fellow, dir string) string { b.end(t); return dir },
		"crashed": func(t *testing.T, b *fellow, dir string) string { return crashed(t, dir) },
		"both": func(t *testing.T, b *fellow, dir string) string {
			b.end(t)
			member(t, "10.0.0.2", t.TempDir(), dir).end(t)
			_ = member(t, "10.0.0.2", t.TempDir(), dir)
			return crashed(t, dir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			shared, dir := t.TempDir(), t.TempDir()

			// No master reads the records that the first master hands over: it ends before that.
			a := member(t, "10.0.0.1", t.TempDir(), t.TempDir())
			b := member(t, "10.0.0.2", shared, dir)
			a.peers.to = []*Cluster{b.Cluster}
			err := b.StageCopy(context.Background(), "10.0.0.1", jid1,
				value.NewMap("jid", jid1, "fun", "test.ping", "tgt", "*"), []string{"m1", "m2"})
			check.Must(t, err)
			until(t, func() bool { // the copy is durable
				b.journal.mu.Lock()
				defer b.journal.mu.Unlock()
				return b.journal.records == 2
			})
			check.Must(t, a.save("m1", "one"))
			a.peers.to = nil
			b = member(t, "10.0.0.2", shared, again(t, b, dir))
			if n := b.ClusterStats().Held; n != 3 {
				t.Errorf("%d held, of a load, a list and a return", n)
			}

			b.handOver(t)
			c := member(t, "10.0.0.3", shared, t.TempDir())
			load, err := c.Load(context.Background(), jid1)
			if err != nil || c.has(t, "m1") != "one" || load.Str("tgt") != "*" || len(load.List("Minions")) != 2 {
				t.Errorf("the third has %q of %v, %v", c.has(t, "m1"), load, err)
			}
		})
	}
}

// TestUnhandedSeen: a record in the folder is not handed over again after a crash, whichever master
// handed it over.
func TestUnhandedSeen(t *testing.T) {
	t.Parallel()
	shared, dir := t.TempDir(), t.TempDir()
	a, b := member(t, "10.0.0.1", shared, t.TempDir()), member(t, "10.0.0.2", shared, dir)
	a.peers.to = []*Cluster{b.Cluster}
	check.Must(t, a.save("m1", "one"))
	check.Must(t, a.volume.addAndWait(context.Background()))
	check.Must(t, b.Import(context.Background()))
	check.Must(t, b.save("m2", "two"))
	check.Must(t, b.volume.addAndWait(context.Background()))

	if n := b.ClusterStats().Held; n != 0 {
		t.Fatalf("%d held", n)
	}

	after := member(t, "10.0.0.2", shared, crashed(t, dir))

	// Only b hands over the load that m1's return created. b may not have recorded yet that its
	// segment is its own.
	if s := after.ClusterStats(); s.Held > 2 || s.Imported > 1 || !after.leftover.jids[jid1] {
		t.Errorf("%+v", s)
	}

	after.held.mu.Lock()
	for k := range after.held.byKey {
		if k.kind == kindReturn {
			t.Errorf("the return of %s is held", k.id)
		}
	}
	after.held.mu.Unlock()

	after.handOver(t)
	path := after.unhandedPath()
	after.end(t)
	if b, err := os.ReadFile(path); err != nil || len(b) != 0 {
		t.Errorf("the list at the end: %q, %v", b, err)
	}
}

// TestUnhandedHostile: a damaged list does not prevent the start of a master.
func TestUnhandedHostile(t *testing.T) {
	t.Parallel()
	dir, shared := t.TempDir(), t.TempDir()
	b := member(t, "10.0.0.2", shared, dir)
	check.Must(t, b.save("m1", "one"))
	b.end(t)
	path := filepath.Join(dir, "jobs.journal", unhandedFile)
	for _, text := range []string{"../../etc\n\x00\xff\n" + jid1 + "\n20990101000000000000\n", "\n\n\n"} {
		check.Must(t, os.WriteFile(path, []byte(text), 0o600))
		b = member(t, "10.0.0.2", shared, dir)
		if len(b.leftover.jids) > 2 || b.has(t, "m1") != "one" {
			t.Errorf("%q: %v", text, b.leftover.jids)
		}
		b.end(t)
	}

	check.Must(t, os.Remove(path))
	check.Must(t, os.Mkdir(path, 0o700))
	l, err := Open(Config{Dir: filepath.Join(dir, "jobs"), Shared: true}, slog.New(slog.DiscardHandler))
	check.Must(t, err)
	check.Must(t, l.Close(context.Background()))
}

// A job may have a list of minions for each part of a batch.
func TestUnhandedListsOfAJob(t *testing.T) {
	t.Parallel()
	shared, dir := t.TempDir(), t.TempDir()
	b := member(t, "10.0.0.2", shared, dir)
	load := value.NewMap("jid", jid1, "fun", "test.ping", "tgt", "*")
	for _, list := range [][]string{{"m1", "m2"}, {"m3"}, {"m4", "m1"}} {
		check.Must(t, b.StageCopy(context.Background(), "10.0.0.1", jid1, load.Clone(), list))
	}
	b.end(t)

	b = member(t, "10.0.0.2", shared, dir)
	b.handOver(t)
	c := member(t, "10.0.0.3", shared, t.TempDir())
	got, err := c.Load(context.Background(), jid1)
	if err != nil || len(got.List("Minions")) != 4 {
		t.Errorf("the third has %v, %v", got, err)
	}
}
