package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

const wireDir = "../testdata/wire"

const jid1 = "20261121080509316776"

func wire(t testing.TB, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(wireDir, file))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unpack(t testing.TB, b []byte) any {
	t.Helper()
	v, err := msgpack.Decode(b, msgpack.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func packed(t testing.TB, v any) string {
	t.Helper()
	b, err := msgpack.Marshal(v, msgpack.Modern)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func open(t testing.TB, cfg Config) *Local {
	t.Helper()
	if cfg.Dir == "" {
		cfg.Dir = filepath.Join(t.TempDir(), "jobs")
	}
	if cfg.retry == 0 {
		cfg.retry = time.Millisecond
	}
	cfg.Files = cfg.Files || os.Getenv("SALTERN_TEST_JOB_FILES") != ""
	c, err := Open(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(canceled()) })
	return c
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

func ret(jid, id string, v any) Return {
	return Return{JID: jid, ID: id, Data: value.NewMap("return", v, "retcode", 0, "success", true)}
}

func save(t testing.TB, c Cache, r Return) {
	t.Helper()
	stored, err := c.SaveReturn(await.Context(t), r)
	if err != nil || !stored {
		t.Fatalf("return of %s: stored %v, %v", r.ID, stored, err)
	}
}

// crash stops a cache as a kill would, with everything left in the journal.
func crash(t testing.TB, c *Local) {
	t.Helper()
	c.stop()
	c.wg.Wait()
	c.journal.close()
	c.journal.unlock()
}

// flushed waits until nothing is left to become files.
func flushed(t testing.TB, c *Local) {
	t.Helper()
	until(t, func() bool { return c.Stats().OpenJobs == 0 })
}

func until(t testing.TB, done func() bool) {
	t.Helper()
	await.That(t, "the expected state", done)
}

func TestGoldenLayout(t *testing.T) {
	c := open(t, Config{Files: true})
	load := unpack(t, wire(t, "jobcache_load_p.bin")).(*value.Map)
	check.Must(t, c.SaveLoad(await.Context(t), jid1, load, []string{"min8", "min6", "min7", "min6"}))
	r := Return{
		JID:  jid1,
		ID:   "min8",
		Data: unpack(t, wire(t, "jobcache_return_p.bin")).(*value.Map),
		Out:  unpack(t, wire(t, "jobcache_out_p.bin")),
	}

	save(t, c, r)
	checkJob := func() {
		t.Helper()
		got, err := c.Load(await.Context(t), jid1)
		check.Must(t, err)
		if packed(t, got.List("Minions")) != string(wire(t, "jobcache_minions_p.bin")) {
			t.Errorf("minions %v", got.List("Minions"))
		}

		got.Delete("Minions")
		if packed(t, got) != string(wire(t, "jobcache_load_p.bin")) {
			t.Error("the load differs")
		}

		rets, err := c.Returns(await.Context(t), jid1)
		check.Must(t, err)
		min8 := rets.Map("min8")
		if rets.Len() != 1 || min8.Str("out") != "highstate" {
			t.Fatalf("returns %v", rets.Keys())
		}

		min8.Delete("out")
		if packed(t, min8) != string(wire(t, "jobcache_return_p.bin")) {
			t.Error("the return differs")
		}
	}

	checkJob()
	flushed(t, c)
	checkJob()
	dir := filepath.Join(c.cfg.Dir, "2b", "1de2ca4d2ee2d22ee48e6960bd33e7ef07745643e19efc18dbac71390a7065")
	for file, vector := range map[string]string{
		"jid": "jobcache_jid.bin", ".load.p": "jobcache_load_p.bin", ".minions.p": "jobcache_minions_p.bin",
		"min8/return.p": "jobcache_return_p.bin", "min8/out.p": "jobcache_out_p.bin",
	} {
		b, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil || !bytes.Equal(b, wire(t, vector)) {
			t.Errorf("%s: %x, %v", file, b, err)
		}
	}

	var names []string
	filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		names = append(names, strings.TrimPrefix(p, dir))
		return err
	})

	if want := "[ /.load.p /.minions.p /jid /min8 /min8/out.p /min8/return.p]"; fmt.Sprint(names) != want {
		t.Errorf("files %v", names)
	}
}

func TestSecondReturnIsIgnored(t *testing.T) {
	c := open(t, Config{})
	save(t, c, ret(jid1, "m1", "first"))
	again := func() {
		t.Helper()
		stored, err := c.SaveReturn(await.Context(t), ret(jid1, "m1", "second"))
		if stored || !errors.Is(err, ErrOtherReturn) {
			t.Fatalf("stored %v, %v", stored, err)
		}

		got, err := c.Returns(await.Context(t), jid1)
		check.Must(t, err)
		if got.Map("m1").Str("return") != "first" {
			t.Error("the first return was replaced")
		}
	}

	again()
	flushed(t, c)
	again()
	if c.Stats().Duplicates != 2 {
		t.Errorf("%+v", c.Stats())
	}
}

func TestManyAtOnce(t *testing.T) {
	c := open(t, Config{SegmentBytes: 8 << 10})
	const n = 300
	var stored sync.Map
	var wg sync.WaitGroup
	for i := range 2 * n { // each minion twice
		wg.Go(func() {
			id := fmt.Sprintf("m%d", i%n)
			ok, err := c.SaveReturn(await.Context(t),
				Return{
					JID:  jid1,
					ID:   id,
					Data: value.NewMap("return", i),
					Load: value.NewMap("jid", jid1, "fun", "f", "id", id),
				})
			if err != nil && !errors.Is(err, ErrOtherReturn) {
				t.Error(err)
			}

			if ok {
				if _, twice := stored.LoadOrStore(id, i); twice {
					t.Errorf("%s stored twice", id)
				}
			}
		})
	}

	wg.Wait()
	checkJob := func() {
		got, err := c.Returns(await.Context(t), jid1)
		check.Must(t, err)
		if got.Len() != n {
			t.Fatalf("%d returns", got.Len())
		}

		for id, v := range got.All() {
			want, _ := stored.Load(id)
			if i, _ := v.(*value.Map).Int("return"); int(i) != want {
				t.Errorf("%s is %d, want %d", id, i, want)
			}
		}

		if load, err := c.Load(await.Context(t), jid1); err != nil || load.Str("fun") != "f" {
			t.Errorf("load %v, %v", load, err)
		}
	}

	checkJob()
	flushed(t, c)
	checkJob()
	st := c.Stats()
	if st.Records != n+2 { // and one load with its list of minions
		t.Errorf("%d records", st.Records)
	}

	check.Must(t, c.Close(await.Context(t)))
	if left, _ := filepath.Glob(filepath.Join(c.cfg.JournalDir, "*.log")); len(left) != 0 {
		t.Errorf("segments left: %v", left)
	}
}

// TestReturnsNoteTheEnd: with job_cache_store_endtime the end of a job is the time of its last
// return, both before and after the return becomes a file.
func TestReturnsNoteTheEnd(t *testing.T) {
	for _, noted := range []bool{true, false} {
		t.Run(fmt.Sprint(noted), func(t *testing.T) {
			clock := &fakeClock{now: time.Date(2026, 11, 21, 8, 5, 9, 316776000, time.UTC)}
			c := open(t, Config{Endtimes: noted, Now: clock.Now})
			check.Must(t, c.SaveLoad(await.Context(t), jid1, value.NewMap("jid", jid1), []string{"a", "b"}))
			for i, id := range []string{"a", "b", "c"} {
				clock.pass(time.Second)
				_, err := c.SaveReturn(await.Context(t), ret(jid1, id, 1))
				check.Must(t, err)
				want := ""
				if noted {
					want = fmt.Sprintf("2026, Nov 21 08:05:%02d.316776", 10+i)
				}

				for range 2 {
					text, err := c.Endtime(await.Context(t), jid1)
					if err != nil || text != want {
						t.Errorf("endtime %q after %s, %v, want %q", text, id, err, want)
					}
					flushed(t, c)
				}
			}
		})
	}
}

func TestNocacheEndtimeAndMinions(t *testing.T) {
	c := open(t, Config{})
	jid, err := c.Prep(await.Context(t), "", true)
	check.Must(t, err)
	for range 2 {
		stored, err := c.SaveReturn(await.Context(t), ret(jid, "m1", 1))
		if stored || err != nil {
			t.Fatalf("%v, %v", stored, err)
		}
		flushed(t, c)
		c.known.forget()
	}

	if given, err := c.Prep(await.Context(t), jid1, false); given != jid1 || err != nil {
		t.Error(given, err)
	}

	check.Must(t, c.SaveLoad(await.Context(t), jid1, value.NewMap("jid", jid1), []string{"b"}))
	check.Must(t, c.AddMinions(await.Context(t), jid1, []string{"a", "b"}, ""))
	check.Must(t, c.AddMinions(await.Context(t), jid1, []string{"z"}, "syndic1"))
	check.Must(t, c.UpdateEndtime(await.Context(t), jid1, "2026, Nov 21 08:05:10.000000"))

	for range 2 {
		load, err := c.Load(await.Context(t), jid1)
		check.Must(t, err)
		if fmt.Sprint(load.List("Minions")) != "[a b z]" {
			t.Errorf("minions %v", load.List("Minions"))
		}

		if text, err := c.Endtime(await.Context(t), jid1); err != nil || text != "2026, Nov 21 08:05:10.000000" {
			t.Errorf("endtime %q, %v", text, err)
		}

		flushed(t, c)
	}

	if text, err := c.Endtime(await.Context(t), FromTime(time.Unix(5, 0))); text != "" || err != nil {
		t.Error(text, err)
	}

	if load, err := c.Load(await.Context(t), FromTime(time.Unix(5, 0))); load != nil || err != nil {
		t.Error(load, err)
	}
}

// TestStageIsDurable: a job that is staged is on the disk; when the disk does not take it, the cache
// does not show it.
func TestStageIsDurable(t *testing.T) {
	full := errors.New("no space left on device")
	var failing atomic.Bool
	dir := filepath.Join(t.TempDir(), "jobs")
	c := open(t, Config{Dir: dir, fault: func(op string) error {
		if failing.Load() {
			return full
		}
		return nil
	}})

	failing.Store(true)
	if _, err := c.Stage(await.Context(t), jid1, value.NewMap("jid", jid1, "fun", "f"), []string{"m"}); !errors.Is(err, full) {
		t.Errorf("staged without a disk: %v", err)
	}
	if load, err := c.Load(await.Context(t), jid1); err != nil || load != nil {
		t.Errorf("a job that was refused shows: %v, %v", load, err)
	}

	failing.Store(false)
	_, err := c.Stage(await.Context(t), jid1, value.NewMap("jid", jid1, "fun", "f"), []string{"m"})
	check.Must(t, err)
	crash(t, c)
	again := open(t, Config{Dir: dir})
	if load, err := again.Load(await.Context(t), jid1); err != nil || load.Str("fun") != "f" {
		t.Errorf("after a crash the job is %v, %v", load, err)
	}
}

func TestStageIsVisibleAtOnce(t *testing.T) {
	block := make(chan struct{})
	c := open(t, Config{fault: func(op string) error {
		if op == "sync" {
			<-block
		}
		return nil
	}})

	_, durable, err := c.stageRecords(await.Context(t), jid1, value.NewMap("jid", jid1, "fun", "f"), []string{"m"}, true)
	check.Must(t, err)
	if load, err := c.Load(await.Context(t), jid1); err != nil || load.Str("fun") != "f" || len(load.List("Minions")) != 1 {
		t.Errorf("%v, %v", load, err)
	}

	short, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	if err := durable.wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("durable before the sync: %v", err)
	}

	// A return shows when it is durable, and its double waits for that.
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { _, err := c.SaveReturn(await.Context(t), ret(jid1, "m", 1)); first <- err }()
	until(t, func() bool {
		c.overlay.mu.RLock()
		defer c.overlay.mu.RUnlock()
		return len(c.overlay.jobs[jid1].returns) == 1
	})

	go func() { _, err := c.SaveReturn(await.Context(t), ret(jid1, "m", 2)); second <- err }()
	select {
	case <-second:
		t.Error("the double was acknowledged before the return was durable")
	case <-time.After(20 * time.Millisecond):
	}

	if got, _ := c.Returns(await.Context(t), jid1); got.Len() != 0 {
		t.Error("a return that is not durable shows")
	}

	close(block)
	check.Must(t, durable.wait(await.Context(t)))
	check.Must(t, <-first)
	if err := <-second; !errors.Is(err, ErrOtherReturn) {
		t.Errorf("the double: %v", err)
	}
}

func TestReplay(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	stuck := func(op string) error {
		if op == "put" {
			return syscall.ENOSPC
		}
		return nil
	}

	c := open(t, Config{Files: true, Dir: dir, fault: stuck, SegmentBytes: 600})
	check.Must(t, c.SaveLoad(await.Context(t), jid1, value.NewMap("jid", jid1, "fun", "f"), []string{"m1"}))
	check.Must(t, c.UpdateEndtime(await.Context(t), jid1, "then"))
	for i := range 20 {
		save(t, c,
			Return{
				JID:  jid1,
				ID:   fmt.Sprintf("m%d", i),
				Data: value.NewMap("return", strings.Repeat("x", i*10)),
				Out:  "nested",
			})
	}

	crash(t, c)
	if left, _ := filepath.Glob(dir + ".journal/*.log"); len(left) < 3 {
		t.Fatalf("segments %v", left)
	}

	// A file may be there and be empty after a power failure.
	empty := c.files.jobDir(jid1) + "/m7"
	check.Must(t, os.MkdirAll(empty, 0o755))
	check.Must(t, os.WriteFile(empty+"/return.p", nil, 0o600))

	c = open(t, Config{Files: true, Dir: dir})
	got, err := c.Returns(await.Context(t), jid1)
	check.Must(t, err)
	for i := range 20 {
		m := got.Map(fmt.Sprintf("m%d", i))
		if m.Str("return") != strings.Repeat("x", i*10) || m.Str("out") != "nested" {
			t.Errorf("m%d is %v", i, m)
		}
	}

	if text, _ := c.Endtime(await.Context(t), jid1); text != "then" {
		t.Error(text)
	}

	if left, _ := filepath.Glob(dir + ".journal/*.log"); len(left) != 0 {
		t.Errorf("segments left: %v", left)
	}

	if c.Stats().OpenJobs != 0 {
		t.Error("replayed records are files")
	}
}

// TestReplayWithoutRoom: a master starts, again and again, although its cache has no room. The
// cache shows what it had acknowledged, and writes the files when there is room.
func TestReplayWithoutRoom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	var full atomic.Bool
	full.Store(true)
	cfg := Config{Files: true, Dir: dir, SegmentBytes: 600, fault: func(op string) error {
		if op == "put" && full.Load() {
			return syscall.ENOSPC
		}
		return nil
	}}

	c := open(t, cfg)
	check.Must(t, c.SaveLoad(await.Context(t), jid1, value.NewMap("jid", jid1, "fun", "f"), []string{"m0"}))
	for run := range 4 {
		save(t, c, ret(jid1, fmt.Sprint("m", run), run))
		got, err := c.Returns(await.Context(t), jid1)
		check.Must(t, err)
		for i := range run + 1 {
			if _, there := got.Get(fmt.Sprint("m", i)); !there {
				t.Errorf("run %d: no return of m%d", run, i)
			}
		}

		crash(t, c)
		c = open(t, cfg)
		if s := c.Stats(); !s.Stalled || s.QueueBytes == 0 {
			t.Errorf("run %d: %+v", run, s)
		}

		if load, err := c.Load(await.Context(t), jid1); err != nil || load.Str("fun") != "f" {
			t.Errorf("run %d: %v, %v", run, load, err)
		}
	}

	full.Store(false)
	until(t, func() bool { return c.Stats().QueueBytes == 0 && !c.Stats().Stalled })
	for i := range 4 {
		if !exists(c.files.jobDir(jid1) + fmt.Sprintf("/m%d/%s", i, returnFile)) {
			t.Errorf("no file of m%d", i)
		}
	}

	until(t, func() bool { left, _ := filepath.Glob(dir + ".journal/*.log"); return len(left) <= 1 }) // the one in use
}

func TestSecondMasterIsRefused(t *testing.T) {
	c := open(t, Config{})
	if _, err := Open(c.cfg, slog.New(slog.DiscardHandler)); !errors.Is(err, ErrInUse) {
		t.Error(err)
	}
}

func TestDiskFull(t *testing.T) {
	for _, op := range []string{"write", "sync", "create"} {
		t.Run(op, func(t *testing.T) {
			var mu sync.Mutex
			full := false
			set := func(v bool) { mu.Lock(); full = v; mu.Unlock() }
			c := open(t, Config{SegmentBytes: 1, fault: func(o string) error {
				mu.Lock()
				defer mu.Unlock()
				if full && (o == op || o == "put") {
					return syscall.ENOSPC
				}
				return nil
			}})

			save(t, c, ret(jid1, "before", 1))
			set(true)
			stored, err := c.SaveReturn(await.Context(t), ret(jid1, "during", 1))
			if stored && err == nil || !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("stored %v, %v", stored, err)
			}

			if got, _ := c.Returns(await.Context(t), jid1); got.Map("before") == nil || got.Map("during") != nil {
				t.Errorf("while full: %v", got.Keys())
			}

			set(false)
			save(t, c, ret(jid1, "during", 2)) // the minion tries again
			save(t, c, ret(jid1, "after", 1))
			flushed(t, c)
			crash(t, c)
			c = open(t, Config{Dir: c.cfg.Dir})
			got, err := c.Returns(await.Context(t), jid1)
			check.Must(t, err)

			if v, _ := got.Map("during").Int("return"); got.Len() != 3 || v != 2 {
				t.Errorf("%v, during %d", got.Keys(), v)
			}
		})
	}
}

// The files cannot be written but the journal can: callers are served until the queue is full, then
// they get errors, and nothing is lost.
func TestFilesCannotBeWritten(t *testing.T) {
	var mu sync.Mutex
	full := true
	c := open(t, Config{Files: true, QueueBytes: 1, MaxReturn: 1 << 20, fault: func(o string) error { // a queue of 2 MiB
		mu.Lock()
		defer mu.Unlock()
		if full && o == "put" {
			return syscall.ENOSPC
		}
		return nil
	}})

	payload := strings.Repeat("x", 100<<10)
	n := 0
	for ; ; n++ {
		if n == 30 {
			t.Fatal("the queue has no bound")
		}

		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		_, err := c.SaveReturn(ctx, ret(jid1, fmt.Sprintf("m%d", n), payload))
		cancel()
		if err != nil {
			if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "busy") {
				t.Fatal(err)
			}
			break
		}
	}

	if n < 15 {
		t.Errorf("full after %d", n)
	}

	if !c.Stats().Stalled {
		t.Error("not reported")
	}

	mu.Lock()
	full = false
	mu.Unlock()

	flushed(t, c)
	got, err := c.Returns(await.Context(t), jid1)
	check.Must(t, err)
	if got.Len() != n {
		t.Errorf("%d of %d returns", got.Len(), n)
	}
}

func TestRecordThatCanNeverBeStored(t *testing.T) {
	c := open(t, Config{Files: true})
	dir := c.files.jobDir(jid1)
	check.Must(t, os.MkdirAll(dir, 0o755))
	check.Must(t, os.WriteFile(dir+"/m1", []byte("in the way"), 0o600))
	save(t, c, ret(jid1, "m1", 1))
	save(t, c, ret(jid1, "m2", 1))
	flushed(t, c)
	list, _ := filepath.Glob(c.cfg.JournalDir + "/quarantine/record-*")
	if len(list) != 1 || c.Stats().Quarantined != 1 {
		t.Errorf("quarantine %v, %+v", list, c.Stats())
	}

	if got, _ := c.Returns(await.Context(t), jid1); got.Map("m2") == nil {
		t.Error("the next record was held up")
	}
}

// Attack 16: job ids and minion ids as paths, FIFOs where files should be.
func TestAttack16Paths(t *testing.T) {
	c := open(t, Config{})
	for _, jid := range []string{"", "..", "../../etc/passwd", "2026112108050931677",
		"202611210805093167761", "2026112108050931677x",
		jid1 + "_", jid1 + "_x", jid1 + "_../x", jid1 +
			"_12345678901", "２0261121080509316776", jid1 + "\x00", "\n" + jid1[1:], "req"} {
		_, e1 := c.SaveReturn(await.Context(t), ret(jid, "m1", 1))
		_, e2 := c.Load(await.Context(t), jid)
		_, e3 := c.Returns(await.Context(t), jid)
		_, e4 := c.Endtime(await.Context(t), jid)
		_, e5 := c.Stage(await.Context(t), jid, &value.Map{}, nil)
		e6 := c.AddMinions(await.Context(t), jid, nil, "")
		e7 := c.UpdateEndtime(await.Context(t), jid, "x")
		var e8 error
		if jid != "" { // asks for a new one
			_, e8 = c.Prep(await.Context(t), jid, true)
		} else {
			e8 = ErrJID
		}

		for i, err := range []error{e1, e2, e3, e4, e5, e6, e7, e8} {
			if !errors.Is(err, ErrJID) {
				t.Errorf("%q, call %d: %v", jid, i+1, err)
			}
		}
	}

	for _, id := range []string{"", ".", "..", "a/b", "/etc", `a\b`, "a\x00", "a\nb", ".load.p", "jid",
		"nocache", "endtime", strings.Repeat("x", 256), "\xff"} {
		if _, err := c.SaveReturn(await.Context(t), ret(jid1, id, 1)); !errors.Is(err, errMinion) {
			t.Errorf("%q: %v", id, err)
		}

		if id == "" {
			continue
		}

		if err := c.AddMinions(await.Context(t), jid1, nil, id); !errors.Is(err, errMinion) {
			t.Errorf("syndic %q: %v", id, err)
		}
	}

	flushed(t, c)
	if list, _ := os.ReadDir(c.cfg.Dir); len(list) != 0 {
		t.Errorf("something was written: %v", list)
	}

	dir := c.files.jobDir(jid1)
	check.Must(t, os.MkdirAll(dir+"/m1", 0o755))
	for _, name := range []string{"/.load.p", "/m1/return.p", "/.minions.p"} {
		check.Must(t, syscall.Mkfifo(dir+name, 0o600))
	}

	done := make(chan struct{})
	go func() {
		defer close(done)
		if _, err := c.Load(await.Context(t), jid1); err == nil {
			t.Error("read a FIFO")
		}

		if got, err := c.Returns(await.Context(t), jid1); err != nil || got.Len() != 0 {
			t.Error(got, err)
		}

		if list, err := Find(await.Context(t), c, Query{}); err != nil || len(list) != 0 {
			t.Error(list, err)
		}
	}()

	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("hangs on a FIFO")
	}
}

func TestBounds(t *testing.T) {
	c := open(t, Config{MaxReturn: 1000})
	big := strings.Repeat("x", 1001)
	if _, err := c.SaveReturn(await.Context(t), ret(jid1, "m1", big)); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	if err := c.SaveLoad(await.Context(t), jid1, value.NewMap("arg", big), nil); !errors.Is(err, ErrTooLarge) {
		t.Error(err)
	}
	check.Must(t, c.Close(await.Context(t)))
	if _, err := c.SaveReturn(await.Context(t), ret(jid1, "m1", 1)); !errors.Is(err, errClosed) {
		t.Error(err)
	}
}

func TestClean(t *testing.T) {
	now := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	clock := &fakeClock{now: now.Add(-25 * time.Hour)}
	old, young := FromTime(now.Add(-25*time.Hour)), FromTime(now)
	unfinished, begun := FromTime(now.Add(-26*time.Hour)), FromTime(now.Add(-27*time.Hour))
	c := open(t, Config{
		Files:      true,
		Now:        clock.Now,
		Unfinished: func() (map[string]bool, error) { return map[string]bool{unfinished: true, begun: true}, nil },
	})
	check.Must(t, c.SaveLoad(await.Context(t), old, value.NewMap("jid", old), nil))
	check.Must(t, c.SaveLoad(await.Context(t), unfinished, value.NewMap("jid", unfinished), nil))
	save(t, c, ret(old, "m1", 1))
	flushed(t, c)
	clock.pass(25 * time.Hour)

	check.Must(t, c.SaveLoad(await.Context(t), young, value.NewMap("jid", young), nil))
	flushed(t, c)
	unnamed := filepath.Join(c.cfg.Dir, "zz", "unnamed")
	fresh := filepath.Join(c.cfg.Dir, "zz", "fresh")
	check.Must(t, os.MkdirAll(unnamed, 0o755))
	check.Must(t, os.MkdirAll(fresh, 0o755))
	check.Must(t, os.Chtimes(unnamed, now.Add(-48*time.Hour), now.Add(-48*time.Hour)))
	check.Must(t, os.Chtimes(fresh, now, now))
	state := c.files.jobDir(begun) + "/.batch.p" // of a batch of the master's own, which has no jid file
	check.Must(t, os.MkdirAll(filepath.Dir(state), 0o755))
	check.Must(t, os.WriteFile(state, nil, 0o600))
	check.Must(t, os.Chtimes(filepath.Dir(state), now.Add(-48*time.Hour), now.Add(-48*time.Hour)))
	n, err := c.Clean(await.Context(t), 24*time.Hour)
	if n != 2 || err != nil {
		t.Errorf("removed %d, %v", n, err)
	}

	if load, _ := c.Load(await.Context(t), old); load != nil {
		t.Error("the old job is there")
	}

	for _, jid := range []string{young, unfinished} {
		if load, _ := c.Load(await.Context(t), jid); load == nil {
			t.Errorf("the job %s is gone", jid)
		}
	}

	for _, kept := range []string{fresh, state} {
		if _, err := os.Stat(kept); err != nil {
			t.Error(err)
		}
	}

	if _, err := os.Stat(filepath.Dir(c.files.jobDir(old))); filepath.Dir(c.files.jobDir(old)) != filepath.Dir(c.files.jobDir(young)) && err == nil {
		t.Error("the empty directory is left")
	}

	save(t, c, ret(old, "m2", 1)) // a late return
	flushed(t, c)
	if b, err := os.ReadFile(c.files.jobDir(old) + "/jid"); err != nil || string(b) != old {
		t.Errorf("jid file of a job that came back: %q, %v", b, err)
	}
}

func TestFind(t *testing.T) {
	c := open(t, Config{})
	add := func(sec int, kv ...any) string {
		jid := FromTime(time.Date(2026, 11, 21, 8, 0, sec, 0, time.UTC))
		check.Must(t, c.SaveLoad(await.Context(t), jid, value.NewMap(append(kv, "jid", jid)...), nil))
		return jid
	}

	a := add(1, "fun", "test.ping", "tgt", "*", "metadata", value.NewMap("k", "v"))
	b := add(2, "fun", "state.apply", "tgt", "web1", "kwargs", value.NewMap("metadata", value.NewMap("k", 2)))
	flushed(t, c)
	d := add(3, "fun", "saltutil.find_job", "tgt", []any{"web1", "db1"}, "arg",
		[]any{value.NewMap("__kwarg__", true, "metadata", value.NewMap("k", 3))})
	e := add(4, "fun", []any{"test.ping", "test.echo"}, "tgt", "db*")
	f := add(5, "fun", "runner.jobs.list_jobs", "tgt", "m1_master")
	g := add(6, "fun", "wheel.key.list_all", "tgt", "m1_master")
	at := func(sec int) time.Time { return time.Date(2026, 11, 21, 8, 0, sec, 0, time.UTC) }
	for _, tc := range []struct {
		name string
		q    Query
		want []string
	}{
		{"all", Query{}, []string{a, b, d, e, f, g}},
		{"last two", Query{Last: 2}, []string{f, g}},
		{"last, no find_job", Query{Last: 5, NoFindJob: true}, []string{a, b, e, f, g}},
		{"last, no runs", Query{Last: 2, NoRuns: true}, []string{d, e}},
		{"function", Query{Functions: []string{"test.*"}}, []string{a, e}},
		{"functions", Query{Functions: []string{"x", "state.apply"}}, []string{b}},
		{"target", Query{Targets: []string{"web?"}}, []string{b, d}},
		{"metadata", Query{Metadata: value.NewMap("k", 2, "x", 1)}, []string{b}},
		{"metadata in an argument", Query{Metadata: value.NewMap("k", 3)}, []string{d}},
		{"from", Query{From: at(3)}, []string{d, e, f, g}},
		{"to", Query{To: at(2)}, []string{a, b}},
		{"both", Query{From: at(2), To: at(3)}, []string{b, d}},
		{"all conditions", Query{Functions: []string{"*"}, Targets: []string{"db*"}, From: at(4)}, []string{e}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list, err := Find(await.Context(t), c, tc.q)
			check.Must(t, err)
			var got []string
			for _, j := range list {
				got = append(got, j.JID)
			}

			if !slices.Equal(got, tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}

	stop := errors.New("stop")
	if err := c.Each(await.Context(t), func(Job) error { return stop }); err != stop {
		t.Error(err)
	}
}

func TestReturnOf(t *testing.T) {
	r := ReturnOf(value.NewMap("cmd", "_return", "id", "m", "jid", jid1, "success", true, "return", 5, "out", "txt"))
	if r.ID != "m" || r.JID != jid1 || r.Out != "txt" || fmt.Sprint(r.Data.Keys()) != "[return success]" {
		t.Errorf("%+v", r)
	}
}

// Python's salt reads the load file as soon as its publish is answered.
func TestLoadIsFileWhenTheWaitEnds(t *testing.T) {
	var slow atomic.Bool
	c := open(t, Config{fault: func(op string) error {
		if op == "put" && slow.Load() {
			time.Sleep(5 * time.Millisecond)
		}
		return nil
	}})

	slow.Store(true)
	var wg sync.WaitGroup
	for i := range 400 { // a flood of returns, two seconds of work
		wg.Go(func() { save(t, c, ret(jid1, fmt.Sprintf("m%d", i), true)) })
	}

	wg.Wait()
	for range 5 {
		jid, err := c.Prep(await.Context(t), "", false)
		check.Must(t, err)
		check.Must(t, c.SaveLoad(await.Context(t), jid, value.NewMap("fun", "test.ping", "jid", jid), []string{"m1"}))
		for _, name := range []string{loadFile, minionsFile} {
			if _, err := os.Stat(filepath.Join(c.files.jobDir(jid), name)); err != nil {
				t.Errorf("when the wait has ended: %v", err)
			}
		}
	}

	slow.Store(false)
}

// A return may be all that the cache knows of a job. Salt's get_load fails on a load without a list
// of minions.
func TestFirstReturnCanBeReadBySalt(t *testing.T) {
	c := open(t, Config{Files: true})
	r := ret(jid1, "m1", true)
	r.Load = value.NewMap("fun", "test.ping", "jid", jid1, "id", "m1")
	save(t, c, r)
	save(t, c, ret(jid1, "m2", true))
	flushed(t, c)
	dir := c.files.jobDir(jid1)
	b, err := os.ReadFile(filepath.Join(dir, minionsFile))
	check.Must(t, err)

	if list, isList := unpack(t, b).([]any); !isList || len(list) != 0 {
		t.Errorf("minions: %v", unpack(t, b))
	}

	load, err := c.Load(await.Context(t), jid1)
	check.Must(t, err)
	if _, has := load.Get("Minions"); has || load.Str("fun") != "test.ping" {
		t.Errorf("load: %v", load)
	}
}

func TestWaitEndsWithoutFiles(t *testing.T) {
	var broken atomic.Bool
	c := open(t, Config{fault: func(op string) error {
		if op == "put" && broken.Load() {
			return syscall.ENOSPC
		}
		return nil
	}})

	broken.Store(true)
	began := time.Now()
	check.Must(t, c.SaveLoad(await.Context(t), jid1, value.NewMap("fun", "test.ping"), nil))
	if took := time.Since(began); took > visibleWait+3*time.Second {
		t.Errorf("a durable job was held up for %s", took)
	}

	broken.Store(false)
	flushed(t, c)
}

// TestBrokenLoadHidesNoReturns (m5): the cache distinguishes a load that a power cut left empty or
// torn under another master from a missing load, and returns the job's returns.
func TestBrokenLoadHidesNoReturns(t *testing.T) {
	for name, text := range map[string]string{
		"empty":  "",
		"torn":   "\x83\xa3fun\xa9test.",
		"no map": "\x93\x01\x02\x03",
		"text":   "hello",
	} {
		t.Run(name, func(t *testing.T) {
			const jid = "20261121000000000001"
			c := open(t, Config{})
			folder := c.files.jobDir(jid)
			if err := os.MkdirAll(filepath.Join(folder, "m1"), 0o700); err != nil {
				t.Fatal(err)
			}

			for path, content := range map[string]string{
				loadFile:                        text,
				"jid":                           jid,
				filepath.Join("m1", "return.p"): "\x81\xa6return\xc3",
			} {
				if err := os.WriteFile(filepath.Join(folder, path), []byte(content), 0o600); err != nil {
					t.Fatal(err)
				}
			}

			load, err := c.Load(t.Context(), jid)
			if !errors.Is(err, ErrBrokenLoad) || load != nil {
				t.Errorf("load: %v, %v", load, err)
			}

			if rets, err := c.Returns(t.Context(), jid); err != nil || rets.Len() != 1 {
				t.Errorf("returns: %v, %v", rets, err)
			}
		})
	}
}

// TestCloseOutOfTime: a stop that has no time to write files is no failure, and the next start has all returns.
func TestCloseOutOfTime(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "jobs")
	const jid = "20261121000000000001"
	c := open(t, Config{Dir: dir})
	for i := range 100 {
		save(t, c, ret(jid, fmt.Sprint("m", i), i))
	}
	check.Must(t, c.Close(canceled()))

	again := open(t, Config{Dir: dir})
	returns, err := again.Returns(t.Context(), jid)
	if err != nil || returns.Len() != 100 {
		t.Errorf("%d returns after the next start, %v", returns.Len(), err)
	}
}
