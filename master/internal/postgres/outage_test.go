package postgres

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// traffic adds returns of 20 states to a journal at a steady rate, as the job cache of a busy master does. Every second
// return is another master's.
type traffic struct {
	journal *Journal
	dir     string // of the spools

	added    atomic.Int64 // returns that are durable
	longest  atomic.Int64 // nanoseconds that the returns of one tick waited for the journal
	heap     atomic.Int64 // the most bytes in use that were seen
	spooled  atomic.Int64 // the most bytes below dir that were seen
	failures atomic.Pointer[error]
}

const (
	tick           = 50 * time.Millisecond
	returnsPerTick = 15
	minionsPerJob  = 100
)

// start adds returns until the function that it returns is called.
func (tr *traffic) start(t *testing.T) (stop func()) {
	t.Helper()
	content, err := msgpack.Marshal(value.NewMap("return", statesReturn(), "retcode", int64(0), "success", true), msgpack.Modern)
	check.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		ticker := time.NewTicker(tick)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := tr.addSome(content); err != nil {
				tr.failures.Store(&err)
				return
			}
		}
	})
	running.Go(func() {
		ticker := time.NewTicker(10 * tick)
		defer ticker.Stop()
		for {
			tr.measure()
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	t.Cleanup(stop)
	return stop
}

// addSome adds the returns of one tick.
func (tr *traffic) addSome(content []byte) error {
	began := time.Now()
	first := int(tr.added.Load())
	for number := first; number < first+returnsPerTick; number++ {
		load := value.NewMap("fun", "state.apply", "arg", []any{}, "user", "root", "tgt", "*")
		job := jid(number / minionsPerJob)
		if number%minionsPerJob == 0 {
			if err := tr.journal.AddJob(jobs.ArchivedJob{JID: job, Time: began, Load: load}); err != nil {
				return err
			}
		}
		err := tr.journal.Add(jobs.Archived{
			JID:    job,
			Minion: fmt.Sprintf("minion%09d", number),
			Time:   began,
			Own:    number%2 == 0,
			Return: content,
			Load:   func() *value.Map { return load },
		}, nil)
		if err != nil {
			return err
		}
	}
	if err := tr.journal.Sync(); err != nil {
		return err
	}
	tr.added.Add(returnsPerTick)
	tr.longest.Store(max(tr.longest.Load(), int64(time.Since(began))))
	return nil
}

func (tr *traffic) measure() {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	tr.heap.Store(max(tr.heap.Load(), int64(memory.HeapInuse)))
	var total int64
	_ = filepath.WalkDir(tr.dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return nil // a segment that is gone
		}
		if info, err := entry.Info(); err == nil {
			total += info.Size()
		}
		return nil
	})
	tr.spooled.Store(max(tr.spooled.Load(), total))
}

// mostHeap is more than the batches of both lanes take as rows and in the client of the database.
const mostHeap = 256 << 20

// log logs the figures since the last call, and fails the test if disk or memory had no bound.
func (tr *traffic) log(t *testing.T, phase string, began time.Time, st Stats) {
	t.Helper()
	spooled, heap := tr.spooled.Swap(0), tr.heap.Swap(0)
	t.Logf("%s: %.1f s, %d returns so far, %d wait; at most %d MiB in the spools (bound %d MiB), %d MiB of heap, "+
		"%d ms in the journal for %d returns", phase, time.Since(began).Seconds(), tr.added.Load(), st.Waiting,
		spooled>>20, st.MaxBytes>>20, heap>>20, tr.longest.Swap(0)/1e6, returnsPerTick)
	if spooled > st.MaxBytes+1<<20 || heap > mostHeap {
		t.Errorf("%s: %d MiB in the spools, %d MiB of heap", phase, spooled>>20, heap>>20)
	}
	if err := tr.failures.Load(); err != nil {
		t.Errorf("the journal does not take returns: %v", *err)
	}
}

// awaitBacklog waits until the sink has written what has waited, while returns go on.
func (r *rig) awaitBacklog() {
	r.t.Helper()
	if !await.Within(15*time.Minute, func() bool {
		st := r.sink.Stats()
		return st.Waiting < 2000 && st.Error == ""
	}) {
		r.t.Fatalf("it does not catch up: %+v", r.sink.Stats())
	}
}

// TestLongOutage kills the database for as long as SALTERN_POSTGRES_AWAY says, and makes it slow later for a quarter of
// that, while 300 returns a second go on.
func TestLongOutage(t *testing.T) {
	text := os.Getenv("SALTERN_POSTGRES_AWAY")
	if text == "" {
		t.Skip("an outage of minutes, by hand: make test-postgres")
	}
	away, err := time.ParseDuration(text)
	check.Must(t, err)
	s := newOwnServer(t)
	db := s.database(t)
	dir := t.TempDir()
	r := openRig(t, dir, db, 1<<30, func(f *feed) { f.db.statementTimeout = 5 * time.Second })
	addMany(t, r.journal, 1, 2) // makes the tables
	r.drained()
	conn := s.query(t, db)
	execute(t, conn, `DELETE FROM jids; DELETE FROM salt_returns; DELETE FROM saltern_runs;
		ALTER TABLE saltern_runs ADD COLUMN transaction xid8 DEFAULT pg_current_xact_id();
		CREATE TABLE slowness (seconds double precision);
		INSERT INTO slowness VALUES (0);
		CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
			$$BEGIN PERFORM pg_sleep(seconds) FROM slowness WHERE seconds > 0; RETURN NEW; END$$;
		CREATE TRIGGER slow BEFORE INSERT ON saltern_runs FOR EACH ROW EXECUTE FUNCTION slow()`)

	began := time.Now()
	tr := &traffic{journal: r.journal, dir: dir}
	stop := tr.start(t)
	await.That(t, "returns are written", func() bool { return r.sink.Stats().Written > 100 })
	tr.log(t, "the database is there", began, r.sink.Stats())

	began = time.Now()
	s.kill()
	pass(away)
	if st := r.sink.Stats(); st.Error == "" || st.Waiting == 0 {
		t.Errorf("nothing waits for the killed database: %+v", st)
	}
	tr.log(t, "away", began, r.sink.Stats())

	began = time.Now()
	s.start()
	r.awaitBacklog()
	tr.log(t, "back", began, r.sink.Stats())

	// A full batch takes longer than a statement may, and both lanes together take less than comes.
	conn = s.query(t, db)
	began = time.Now()
	execute(t, conn, "UPDATE slowness SET seconds = 0.01")
	pass(away / 4)
	tr.log(t, "slow", began, r.sink.Stats())
	began = time.Now()
	execute(t, conn, "UPDATE slowness SET seconds = 0")
	r.awaitBacklog()
	tr.log(t, "fast again", began, r.sink.Stats())
	stop()
	r.drained()

	wantTraffic(t, conn, int(tr.added.Load()))
	if st := r.sink.Stats(); st.Error != "" || st.Adapted+st.Refused+st.Lost+st.LostCopies+st.Unkept != 0 {
		t.Errorf("%+v", st)
	}
}

// wantTraffic fails unless the tables have each return once, written in the order in which each lane got them.
func wantTraffic(t *testing.T, conn *pgx.Conn, returns int) {
	t.Helper()
	for table, want := range map[string]int{
		"jids": (returns + minionsPerJob - 1) / minionsPerJob, "salt_returns": returns, "saltern_runs": returns,
	} {
		if n := count(t, conn, "SELECT count(*) FROM "+table); n != want {
			t.Errorf("%d rows of %d are in %s", n, want, table)
		}
	}
	if n := count(t, conn, "SELECT count(DISTINCT (jid, id)) FROM salt_returns"); n != returns {
		t.Errorf("%d different rows of %d", n, returns)
	}
	disorder := count(t, conn, `
		SELECT count(*) FROM (
			SELECT min(minion) AS first, lag(max(minion)) OVER (PARTITION BY right(minion, 1)::int % 2 ORDER BY transaction) AS before
			FROM saltern_runs GROUP BY transaction, right(minion, 1)::int % 2
		) AS batches WHERE first <= before`)
	if disorder != 0 {
		t.Errorf("%d batches have returns that came before those of the batch before", disorder)
	}
}

// The disk of the node is full before the spool is. The job cache asks again for each return that was not taken.
func TestFullDiskUnderTheSpool(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=8m"); err != nil {
		t.Skip("NOT TESTED: a small file system cannot be mounted: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, dir, db, 64<<20, func(f *feed) { f.firstPause = time.Millisecond })
	t.Cleanup(r.stop) // before the file system goes
	addMany(t, r.journal, 1, 2)
	r.drained()

	tx, err := s.query(t, db).Begin(context.Background())
	check.Must(t, err)
	_, err = tx.Exec(context.Background(), "LOCK TABLE saltern_runs IN ACCESS EXCLUSIVE MODE")
	check.Must(t, err)
	number := 2
	full := 0
	content, err := msgpack.Marshal(value.NewMap("return", randomText(100<<10)), msgpack.Modern)
	check.Must(t, err)
	load := value.NewMap("fun", "test.echo", "arg", []any{}, "user", "root", "tgt", "*")
	loads := 1 // that the journal has
	addNext := func() {
		var err error
		if loads < number {
			err = r.journal.AddJob(jobs.ArchivedJob{JID: jid(number), Time: time.Now(), Load: load})
		}
		if err == nil {
			loads = number
			err = r.journal.Add(jobs.Archived{
				JID:    jid(number),
				Minion: "m",
				Time:   time.Now(),
				Own:    number%2 == 0,
				Return: content,
				Load:   func() *value.Map { return load },
			}, nil)
		}
		if err == nil {
			check.Must(t, r.journal.Sync())
			number++
			return
		}
		full++
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("return %d: %v", number, err)
		}
	}
	for full < 20 {
		addNext()
	}
	if st := r.sink.Stats(); st.Lost+st.LostCopies != 0 || number < 40 {
		t.Errorf("return %d: %+v", number, st)
	}

	check.Must(t, tx.Rollback(context.Background()))
	for until := number + 40; number < until; {
		await.That(t, "returns are taken again", func() bool {
			before := number
			addNext()
			return number > before
		})
	}
	r.drained()
	wantOnce(t, s.query(t, db), number-1)
	if st := r.sink.Stats(); st.Error != "" || st.Adapted+st.Refused+st.Lost+st.LostCopies+st.Unkept != 0 {
		t.Errorf("%+v", st)
	}
}
