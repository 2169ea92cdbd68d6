package postgres

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"saltern/master/event"
	"saltern/master/history/summary"
	"saltern/master/internal/postgres/settings"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// addMany adds plain returns of jobs with the numbers from first up to, but not including, end.
func addMany(t testing.TB, j *Journal, first, end int) {
	t.Helper()
	for i := first; i < end; i++ {
		check.Must(t, addPlain(j, i))
	}
	check.Must(t, j.Sync())
}

func addPlain(j *Journal, number int) error {
	load := value.NewMap("fun", "test.ping", "arg", []any{}, "user", "root", "tgt", "*")
	if err := j.AddJob(jobs.ArchivedJob{JID: jid(number), Time: time.Now(), Load: load}); err != nil {
		return err
	}
	return j.Add(jobs.Archived{
		JID:    jid(number),
		Minion: "m",
		Time:   time.Now(),
		Own:    number%2 == 0,
		Return: []byte("\x81\xa6return\xc3"),
		Load:   func() *value.Map { return load },
	}, &summary.Summary{})
}

// pass lets time pass.
func pass(d time.Duration) { await.Within(d, func() bool { return false }) }

func TestDatabaseIsKilledAndComesBack(t *testing.T) {
	s := newOwnServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	events := openEventRig(t, t.TempDir(), db, nil)
	for round := range 4 {
		events.fire(1+2000*round, 1001+2000*round)
		addMany(t, r.journal, 1+200*round, 101+200*round)
		pass(time.Duration(rand.IntN(500)) * time.Millisecond) // it is killed in the middle of anything
		s.kill()
		events.fire(1001+2000*round, 2001+2000*round)
		addMany(t, r.journal, 101+200*round, 201+200*round)
		await.That(t, "error is known", func() bool { return r.sink.Stats().Error != "" })
		if since := r.sink.Stats().Since; since.IsZero() {
			t.Error("it is not known since when the database is away")
		}
		s.start()
	}
	r.drained()
	wantOnce(t, s.query(t, db), 800)
	events.taken(8000)
	wantNumbered(t, s.query(t, db), 8001)
	if st := r.sink.Stats(); st.Error != "" || st.Adapted+st.Refused+st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

func TestPausedDatabaseHoldsNobodyUp(t *testing.T) {
	s := newOwnServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addMany(t, r.journal, 1, 101)
	r.drained()
	s.signal(syscall.SIGSTOP)
	began := time.Now()
	addMany(t, r.journal, 101, 301)
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the journal waited for the database for %s", d)
	}
	await.That(t, "returns wait", func() bool { return r.sink.Stats().Waiting == 400 })
	began = time.Now()
	r.stop()
	if d := time.Since(began); d > 5*time.Second {
		t.Errorf("the stop waited for the database for %s", d)
	}
	s.signal(syscall.SIGCONT)
	again := openRig(t, filepath.Dir(r.journal.own.dir), db, 64<<20)
	again.drained()
	wantOnce(t, s.query(t, db), 300)
}

func TestLockedTableIsWaitedFor(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addMany(t, r.journal, 1, 11)
	r.drained()

	tx, err := s.query(t, db).Begin(context.Background())
	check.Must(t, err)
	_, err = tx.Exec(context.Background(), "LOCK TABLE salt_returns IN ACCESS EXCLUSIVE MODE")
	check.Must(t, err)
	addMany(t, r.journal, 11, 31)
	await.That(t, "error names the lock", func() bool { return strings.Contains(r.sink.Stats().Error, "55P03") })
	check.Must(t, tx.Rollback(context.Background()))
	r.drained()
	wantOnce(t, s.query(t, db), 30)
	if st := r.sink.Stats(); st.Adapted+st.Refused != 0 {
		t.Errorf("%+v", st)
	}
}

func TestRoleWithoutRights(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	conn := s.query(t, db)
	_, err := conn.Exec(context.Background(), "CREATE ROLE "+roleFor(db)+" LOGIN")
	check.Must(t, err)
	weak := *db
	weak.User = roleFor(db)
	r := openRig(t, t.TempDir(), &weak, 64<<20)
	addMany(t, r.journal, 1, 11)
	await.That(t, "error names the right", func() bool { return strings.Contains(r.sink.Stats().Error, "42501") })

	// The tables are made by somebody else, and the role may only write.
	maker := openRig(t, t.TempDir(), db, 64<<20)
	addMany(t, maker.journal, 1, 2)
	maker.drained()
	await.That(t, "error names a table", func() bool {
		return strings.Contains(r.sink.Stats().Error, "permission denied for table")
	})
	_, err = conn.Exec(context.Background(), `GRANT SELECT ON saltern_schema TO `+weak.User+`;
		GRANT SELECT, INSERT ON saltern_runs, saltern_states, salt_returns TO `+weak.User+`;
		GRANT SELECT, INSERT, UPDATE ON jids TO `+weak.User)
	check.Must(t, err)
	r.drained()
	wantOnce(t, conn, 10)
	if st := r.sink.Stats(); st.Adapted+st.Refused != 0 || st.Error != "" {
		t.Errorf("%+v", st)
	}
}

// A change of the tables makes the database refuse every row: none of the returns is at fault.
func TestDatabaseThatRefusesEverythingIsWaitedFor(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addMany(t, r.journal, 1, 11)
	r.drained()
	conn := s.query(t, db)
	_, err := conn.Exec(context.Background(), `ALTER TABLE salt_returns ADD COLUMN place text;
		ALTER TABLE salt_returns ADD CONSTRAINT place CHECK (place IS NOT NULL) NOT VALID`)
	check.Must(t, err)
	addMany(t, r.journal, 11, 31)
	await.That(t, "error names the constraint", func() bool { return strings.Contains(r.sink.Stats().Error, "23514") })
	if st := r.sink.Stats(); st.Adapted+st.Refused != 0 || st.Waiting < 20 {
		t.Errorf("%+v", st)
	}
	_, err = conn.Exec(context.Background(), "ALTER TABLE salt_returns DROP CONSTRAINT place")
	check.Must(t, err)
	r.drained()
	wantOnce(t, conn, 30)
	if st := r.sink.Stats(); st.Adapted+st.Refused != 0 {
		t.Errorf("%+v", st)
	}
}

// Nothing that fails while the master connects is the fault of a return, although the database takes the return after
// that.
func TestMigrationThatFailsMarksNothing(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	conn := s.query(t, db)
	// The first migration violates the constraint (SQLSTATE 23514), the next one does not: sequences roll nothing back.
	execute(t, conn, `CREATE SEQUENCE tries;
		CREATE TABLE saltern_schema (version int PRIMARY KEY CHECK (nextval('tries') > 1),
			applied timestamp with time zone NOT NULL DEFAULT now())`)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addMany(t, r.journal, 1, 2)
	r.drained()
	if n := count(t, conn, "SELECT last_value FROM tries"); n < 2 {
		t.Errorf("the migration did not fail: %d", n)
	}
	wantOnce(t, conn, 1)
	if st := r.sink.Stats(); st.Adapted+st.Refused != 0 {
		t.Errorf("%+v", st)
	}
}

func TestFullDiskOfTheDatabase(t *testing.T) {
	dir := openFolder(t)
	t.Cleanup(func() { _ = os.Remove(dir) })
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=160m,mode=755"); err != nil {
		t.Skip("NOT TESTED: a small file system cannot be mounted: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	s := newServer(t, dir)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 256<<20)
	addMany(t, r.journal, 1, 11)
	r.drained()

	fill := filepath.Join(dir, "fill")
	out, err := exec.Command("dd", "if=/dev/zero", "of="+fill, "bs=64k").CombinedOutput()
	if err == nil {
		t.Fatalf("the disk is not full: %s", out)
	}
	for i := 11; i < 31; i++ {
		addReturn(t, r.journal, i, "m", true, randomText(100<<10))
	}
	await.That(t, "error names the disk", func() bool {
		e := r.sink.Stats().Error
		return strings.Contains(e, "No space left") || strings.Contains(e, "connect")
	})
	check.Must(t, os.Remove(fill))
	if !await.Within(20*time.Second, func() bool { return r.sink.Stats().Waiting == 0 }) {
		s.kill() // it has given up, as PostgreSQL does when its log has no room
		s.start()
	}
	r.drained()
	wantOnce(t, s.query(t, db), 30)
	if st := r.sink.Stats(); st.Adapted+st.Refused+st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

func randomText(size int) string {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte('a' + rand.IntN(26))
	}
	return string(b)
}

// TestConnectionIsCutAnywhere passes all bytes through a proxy that cuts each connection after a random
// number of them: in the greeting, in COPY, and between COMMIT and its answer.
func TestConnectionIsCutAnywhere(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	dir := t.TempDir()
	maker := openRig(t, dir, db, 64<<20)
	addMany(t, maker.journal, 1, 2)
	maker.drained()
	maker.stop()

	l, err := net.Listen("tcp", "127.0.63.2:0")
	check.Must(t, err)
	var cutting atomic.Bool
	var cuts atomic.Int64
	cutting.Store(true)
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go cutConnection(client, fmt.Sprintf("127.0.63.1:%d", s.port), &cutting, &cuts)
		}
	}()
	t.Cleanup(func() { l.Close() })

	proxied := *db
	proxied.Host = "127.0.63.2"
	proxied.Port = l.Addr().(*net.TCPAddr).Port
	r := openRig(t, dir, &proxied, 64<<20)
	for _, f := range r.sink.feeds {
		f.firstPause = time.Millisecond
	}
	next := 2
	await.Within(8*time.Second, func() bool {
		if next < 2000 {
			addMany(t, r.journal, next, next+20)
			next += 20
		}
		return cuts.Load() > 200
	})
	cutting.Store(false)
	r.drained()
	t.Log(cuts.Load(), "cuts,", next-1, "returns")
	wantOnce(t, s.query(t, db), next-1)
	if st := r.sink.Stats(); st.Adapted+st.Refused+st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

func cutConnection(client net.Conn, to string, cutting *atomic.Bool, cuts *atomic.Int64) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer server.Close()

	var left atomic.Int64
	left.Store(1 << 62)
	if cutting.Load() {
		left.Store(rand.Int64N(20_000))
	}
	done := make(chan struct{}, 2)
	relay := func(from, to net.Conn) {
		defer func() { done <- struct{}{} }()
		b := make([]byte, 256)
		for {
			n, err := from.Read(b)
			if err != nil {
				return
			}
			if left.Add(-int64(n)) < 0 {
				cuts.Add(1)
				return
			}
			if _, err := to.Write(b[:n]); err != nil {
				return
			}
		}
	}
	go relay(client, server)
	go relay(server, client)
	<-done
}

func TestFullSpoolDropsTheOldest(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	away := *db
	away.Port = 1
	dir := t.TempDir()
	r := openRig(t, dir, &away, 400<<10)
	addMany(t, r.journal, 1, 2500)
	st := r.sink.Stats()
	if st.Lost == 0 || st.Bytes > st.MaxBytes || st.Bytes < st.MaxBytes/2 {
		t.Errorf("%+v", st)
	}
	r.stop()
	again := openRig(t, dir, db, 400<<10)
	again.drained()
	if n := count(t, s.query(t, db), "SELECT count(*) FROM saltern_runs WHERE jid = $1", jid(2499)); n != 1 {
		t.Error("the newest return is not there")
	}
}

// TestRandomKills kills the process of the sink again and again while it adds and writes returns.
func TestRandomKills(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	rounds := 60
	if text := os.Getenv("ROUNDS"); text != "" {
		var err error
		rounds, err = strconv.Atoi(text)
		check.Must(t, err)
	}

	dir := t.TempDir()
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	acknowledged := map[int]bool{}
	first := 1
	for range rounds {
		first = runAndKill(t, dir, db, first, time.Duration(random.IntN(150))*time.Millisecond, acknowledged)
	}

	r := openRig(t, dir, db, 256<<20)
	r.drained()
	conn := s.query(t, db)
	all := count(t, conn, "SELECT count(*) FROM salt_returns")
	if n := count(t, conn, "SELECT count(DISTINCT (jid, id)) FROM salt_returns"); n != all {
		t.Errorf("seed %d: %d rows are doubled", seed, all-n)
	}
	if n := count(t, conn, "SELECT count(*) FROM saltern_runs"); n != all {
		t.Errorf("seed %d: %d runs, %d returns", seed, n, all)
	}
	for number := range acknowledged {
		if n := count(t, conn, "SELECT count(*) FROM salt_returns WHERE jid = $1", jid(number)); n != 1 {
			t.Errorf("seed %d: return %d is there %d times", seed, number, n)
		}
	}
	t.Logf("%d kills, %d returns acknowledged, %d rows", rounds, len(acknowledged), all)
	if len(acknowledged) < rounds {
		t.Error("the processes hardly ran")
	}
	wantEventsOnce(t, dir, db, len(acknowledged)-2*rounds)
}

// wantEventsOnce waits until the events in the spool are written, and fails unless each is there once and this many
// are. Lost are those of a process that was killed before they were in the spool.
func wantEventsOnce(t *testing.T, dir string, db *settings.Settings, least int) {
	t.Helper()
	r := openEventRig(t, filepath.Join(dir, "events"), db, nil)
	await.That(t, "events are written", func() bool {
		st := r.events.Stats()
		return st.MaxBytes > 0 && st.Waiting == 0
	})
	conn := sharedServer(t).query(t, db)
	written := count(t, conn, "SELECT count(*) FROM salt_events")
	if n := count(t, conn, "SELECT count(DISTINCT data->>'number') FROM salt_events"); n != written {
		t.Errorf("%d of %d events are doubled", written-n, written)
	}
	if written < least {
		t.Errorf("%d events, not %d", written, least)
	}
}

// killedProcess is set in the environment of the process that TestRandomKills kills.
const killedProcess = "SALTERN_POSTGRES_KILLED"

// runAndKill starts the process and kills it after some time from its first return on. It returns the number
// at which the next process begins.
func runAndKill(t *testing.T, dir string, db *settings.Settings, first int, after time.Duration, got map[int]bool) int {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%s %d %s %d", killedProcess, dir, db.Port, db.Database, first))
	out, err := cmd.StdoutPipe()
	check.Must(t, err)
	check.Must(t, cmd.Start())
	scan := bufio.NewScanner(out)
	next := first
	for scan.Scan() {
		if next == first {
			time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
		}
		number, err := strconv.Atoi(scan.Text())
		if err == nil {
			got[number] = true
			next = number + 1
		}
	}
	_ = cmd.Wait()
	return next + 1 // a number may have been added and not printed
}

// runUntilKilled adds returns, and prints the number of each that is durable.
func runUntilKilled() {
	db := settings.Settings{Host: "127.0.63.1", User: "admin", SSLMode: "disable"}
	var dir string
	var first int
	if _, err := fmt.Sscan(os.Getenv(killedProcess), &dir, &db.Port, &db.Database, &first); err != nil {
		panic(err)
	}
	j, err := OpenJournal(dir, 256<<20, time.Now, discard())
	if err != nil {
		panic(err)
	}
	s := New(Config{Settings: &db, Node: "n", Journal: j, Now: time.Now, Log: discard(), takeOver: time.Millisecond})
	go s.Run(context.Background())
	bus := event.NewBus(time.Now, 0)
	db.EventsSpool = 16
	events := NewEvents(EventsConfig{
		Settings: &db,
		Dir:      filepath.Join(dir, "events"),
		Master:   "n",
		Bus:      bus,
		Now:      time.Now,
		Log:      discard(),
	})
	go events.Run(context.Background())
	for number := first; ; number++ {
		if err := bus.Fire("numbered", value.NewMap("number", int64(number))); err != nil {
			panic(err)
		}
		err := addPlain(j, number)
		if err == nil {
			err = j.Sync()
		}
		if err != nil {
			panic(err)
		}
		fmt.Println(number)
		pass(time.Millisecond)
	}
}
