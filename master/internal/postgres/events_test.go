package postgres

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"saltern/master/event"
	"saltern/master/internal/postgres/settings"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// eventRig is a bus whose events are written.
type eventRig struct {
	t      testing.TB
	bus    *event.Bus
	events *Events
	stop   func()
}

func openEventRig(t testing.TB, dir string, db *settings.Settings, wants event.Filter) *eventRig {
	t.Helper()
	r := &eventRig{t: t, bus: event.NewBus(time.Now, 0)}
	s := *db
	if s.EventsSpool == 0 {
		s.EventsSpool = 16
	}
	r.events = NewEvents(EventsConfig{
		Settings: &s,
		Dir:      dir,
		Master:   "m1",
		Bus:      r.bus,
		Wants:    wants,
		Now:      time.Now,
		Log:      discard(),
	})

	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { r.events.Run(ctx) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		run.Wait()
		r.events.Close()
	})
	t.Cleanup(r.stop)
	return r
}

// fire fires events that are numbered from first up to, but not including, end.
func (r *eventRig) fire(first, end int) {
	r.t.Helper()
	for number := first; number < end; number++ {
		check.Must(r.t, r.bus.Fire("numbered", value.NewMap("number", int64(number))))
	}
}

// taken waits until the database has taken this many events from this process.
func (r *eventRig) taken(events int) {
	r.t.Helper()
	if !await.Within(time.Minute, func() bool {
		st := r.events.Stats()
		return st.Waiting == 0 && st.Written+st.Known == uint64(events)
	}) {
		r.t.Fatalf("not %d events: %+v", events, r.events.Stats())
	}
}

// wantNumbered fails unless the table has the numbered events up to, but not including, end, once and in their order.
func wantNumbered(t testing.TB, conn *pgx.Conn, end int) {
	t.Helper()
	rows, err := conn.Query(context.Background(),
		"SELECT (data->>'number')::int FROM salt_events WHERE tag = 'numbered' ORDER BY id")
	check.Must(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[int])
	check.Must(t, err)
	var want []int
	for number := 1; number < end; number++ {
		want = append(want, number)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%d events, not those from 1 to %d: %v", len(got), end-1, got[:min(len(got), 50)])
	}
}

func TestEventsAreWritten(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openEventRig(t, t.TempDir(), db, event.ByGlobs([]string{"salt/*", "own"}, []string{"salt/auth*"}))
	fire := func(tag string, fields ...any) { check.Must(t, r.bus.Fire(tag, value.NewMap(fields...))) }
	before := time.Now().Add(-time.Second)
	fire("salt/job/1/ret/m", "return", []any{"a", int64(1), nil, true})
	fire("salt/auth", "id", "m")
	fire("other")
	peer := event.Event{Tag: "salt/peer", Data: value.NewMap(), Origin: event.Peer}
	check.Must(t, r.bus.Relay(peer))
	fire("salt/odd\x00", "nul", "a\x00b", "bytes", []byte{0xff}, "nan", math.NaN(), int64(5), "key")
	fire("salt/"+strings.Repeat("ä", 300), "long", strings.Repeat("x", 100<<10))
	fire("own")
	r.taken(4)

	conn := s.query(t, db)
	rows, err := conn.Query(t.Context(), `SELECT concat_ws(' ', tag, master_id, left((data - '_stamp')::text, 100))
		FROM salt_events WHERE alter_time > $1 AND data ? '_stamp' ORDER BY id`, before)
	check.Must(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check.Must(t, err)
	want := []string{
		`salt/job/1/ret/m m1 {"return": ["a", 1, null, true]}`,
		`salt/odd␀ m1 {"5": "key", "nan": "NaN", "nul": "a␀b", "bytes": "\\xff"}`,
		"salt/" + strings.Repeat("ä", 250) + ` m1 {"long": "` + strings.Repeat("x", 90),
		"own m1 {}",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if st := r.events.Stats(); st.Adapted != 2 || st.Written != 4 || st.Unkept+st.Refused+st.Lost != 0 {
		t.Errorf("%+v", st)
	}
}

// A commit whose answer was lost is tried again, also in halves, and by the next process.
func TestEventsThatComeAgainAreKnown(t *testing.T) {
	s := sharedServer(t)
	l, err := openLane(t.TempDir(), 1<<20, false)
	check.Must(t, err)
	defer l.spool.Close()
	db := s.database(t)
	f := newFeed(l, db, "m1", time.Now, discard())
	f.db.events = true
	defer f.db.close()

	var records []record
	for _, writer := range []string{"before", "now"} {
		for number := 1; number <= 10; number++ {
			records = append(records, record{
				kind:    kindEvent,
				writer:  writer,
				number:  uint64(number),
				tag:     "numbered",
				content: fmt.Appendf(nil, "\x81\xa6number%c", len(records)+1),
			})
		}
	}
	for _, part := range [][]record{records[:12], records[:12], records[:5], records[5:12], records[10:], records} {
		_, err := f.try(t.Context(), part, "")
		check.Must(t, err)
	}
	wantNumbered(t, s.query(t, db), 21)
	if st := f.stats; st.Written != 20 || st.Known != 12+5+7+2+20 {
		t.Errorf("%+v", st)
	}
}

// A node that is restored from an older image begins its spool, and the numbers in it, from there.
func TestEventsOfASpoolThatWasPutBackAreWritten(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	dir := t.TempDir()
	first := openEventRig(t, dir, db, nil)
	first.fire(1, 11)
	first.taken(10)
	first.stop()
	old := t.TempDir()
	check.Must(t, os.CopyFS(filepath.Join(old, "spool"), os.DirFS(dir)))

	second := openEventRig(t, dir, db, nil)
	second.fire(11, 31)
	second.taken(20)
	second.stop()

	third := openEventRig(t, filepath.Join(old, "spool"), db, nil)
	third.fire(31, 41)
	third.taken(10)
	wantNumbered(t, s.query(t, db), 41)
}

// A table that somebody has locked, as with a database that is slow, keeps events waiting, and no returns.
func TestEventsHoldNoReturnsUp(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	returns := openRig(t, t.TempDir(), db, 64<<20)
	events := openEventRig(t, t.TempDir(), db, nil)
	addMany(t, returns.journal, 1, 2)
	events.fire(1, 2)
	returns.drained()
	events.taken(1)

	conn := s.query(t, db)
	tx, err := conn.Begin(context.Background())
	check.Must(t, err)
	_, err = tx.Exec(context.Background(), "LOCK TABLE salt_events IN ACCESS EXCLUSIVE MODE")
	check.Must(t, err)
	events.fire(2, 5001)
	addMany(t, returns.journal, 2, 101)
	returns.drained()
	if st := events.events.Stats(); st.Written != 1 {
		t.Errorf("events were written into a locked table: %+v", st)
	}
	check.Must(t, tx.Rollback(context.Background()))
	events.taken(5000)
	wantNumbered(t, conn, 5001)
	wantOnce(t, conn, 100)
}

// The spool is full while the database is away: the oldest events make room, and are counted.
func TestFullSpoolOfEvents(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	away := *db
	away.Port = 1
	away.EventsSpool = 1
	dir := t.TempDir()
	r := openEventRig(t, dir, &away, nil)
	text := strings.Repeat("x", 10<<10)
	for number := 1; number <= 300; number++ {
		check.Must(t, r.bus.Fire("numbered", value.NewMap("number", int64(number), "text", text)))
	}
	await.That(t, "events make room", func() bool {
		st := r.events.Stats()
		return st.Lost > 0 && st.Waiting+st.Lost == 300
	})
	if err := r.events.Fault(r.events.Stats()); err == nil || !strings.Contains(err.Error(), "events_spool") {
		t.Errorf("status says %v", err)
	}
	r.stop()

	again := openEventRig(t, dir, db, nil)
	await.That(t, "what is left is written", func() bool {
		st := again.events.Stats()
		return st.Error == "" && st.Waiting == 0 && st.Written > 0
	})
	written := again.events.Stats().Written
	conn := s.query(t, db)
	oldest := count(t, conn, "SELECT min((data->>'number')::int) FROM salt_events")
	newest := count(t, conn, "SELECT max((data->>'number')::int) FROM salt_events")
	if newest != 300 || oldest < 150 || written != uint64(300-oldest+1) {
		t.Errorf("%d events, %d to %d", written, oldest, newest)
	}
}

// The disk of the node is nearly full: events leave the rest of it to returns.
func TestEventsLeaveRoomForReturns(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=40m"); err != nil {
		t.Skip("NOT TESTED: a small file system cannot be mounted: ", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	away := settings.Settings{Host: "127.0.63.1", Port: 1, Database: "x", User: "x", SSLMode: "disable", EventsSpool: 64}
	r := openEventRig(t, filepath.Join(dir, "events"), &away, nil)
	t.Cleanup(r.stop) // before the file system goes
	text := strings.Repeat("x", 500<<10)
	fired := 0
	await.That(t, "the disk is nearly full", func() bool {
		check.Must(t, r.bus.Fire("large", value.NewMap("text", text)))
		fired++
		return r.events.Stats().Unkept > 0
	})
	var st syscall.Statfs_t
	check.Must(t, syscall.Statfs(dir, &st))
	if free := st.Bavail * uint64(st.Bsize); free < 1<<20 {
		t.Errorf("%d bytes are left", free)
	}
	j, err := OpenJournal(filepath.Join(dir, "returns"), 16<<20, time.Now, discard())
	check.Must(t, err)
	defer j.Close()
	addMany(t, j, 1, 200)
}

// A role that may not create tables goes on with returns after an upgrade from a version without events.
func TestRoleWithoutRightsOnEventsGoesOnWithReturns(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	role := roleFor(db)
	conn := s.query(t, db)
	execute(t, conn, schema1)
	execute(t, conn, `CREATE TABLE saltern_schema (version int NOT NULL PRIMARY KEY,
			applied timestamp with time zone NOT NULL DEFAULT now());
		INSERT INTO saltern_schema (version) VALUES (1);
		CREATE ROLE `+role+` LOGIN;
		GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA public TO `+role+`; GRANT UPDATE ON jids TO `+role)
	limited := *db
	limited.User = role
	returns := openRig(t, t.TempDir(), &limited, 64<<20)
	events := openEventRig(t, t.TempDir(), &limited, nil)
	addMany(t, returns.journal, 1, 11)
	events.fire(1, 11)
	returns.drained()
	wantOnce(t, conn, 10)
	await.That(t, "the error names what to do", func() bool {
		return strings.Contains(events.events.Stats().Error, "grant the role its rights")
	})

	creator := openEventRig(t, t.TempDir(), db, nil)
	check.Must(t, creator.bus.Fire("other", value.NewMap()))
	creator.taken(1)
	execute(t, conn, `GRANT SELECT, INSERT, UPDATE ON saltern_event_writers TO `+role+`;
		GRANT USAGE ON SEQUENCE seq_salt_events_id TO `+role)
	events.taken(10)
	wantNumbered(t, conn, 11)
}

// An event that a rule of the administrator's refuses stops no other.
func TestEventThatARuleRefusesStopsNoOther(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openEventRig(t, t.TempDir(), db, nil)
	r.fire(1, 2)
	r.taken(1)
	conn := s.query(t, db)
	execute(t, conn, `ALTER TABLE salt_events ADD CHECK (tag <> 'bad'), ADD CHECK (data->>'secret' IS NULL)`)
	for number := 2; number <= 20; number++ {
		if number%5 == 0 {
			check.Must(t, r.bus.Fire("bad", value.NewMap()))
			check.Must(t, r.bus.Fire("content", value.NewMap("secret", "x")))
		}
		r.fire(number, number+1)
	}
	await.That(t, "all are done", func() bool { return r.events.Stats().Waiting == 0 && r.events.Stats().Refused == 4 })
	wantNumbered(t, conn, 21)
	if n := count(t, conn, "SELECT count(*) FROM salt_events WHERE tag = 'content' AND data ? 'saltern_not_stored'"); n != 4 {
		t.Errorf("%d events are there without their content", n)
	}
}

// A master that was started again has written no event of its own yet.
func TestEventThatARuleRefusesAfterAStartStopsNoOther(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	first := openEventRig(t, t.TempDir(), db, nil)
	first.fire(1, 2)
	first.taken(1)
	first.stop()
	conn := s.query(t, db)
	execute(t, conn, `ALTER TABLE salt_events ADD CHECK (tag = 'numbered')`)

	r := openEventRig(t, t.TempDir(), db, nil)
	check.Must(t, r.bus.Fire("bad", value.NewMap()))
	r.fire(2, 11)
	await.That(t, "all are done", func() bool { return r.events.Stats().Waiting == 0 && r.events.Stats().Refused == 1 })
	wantNumbered(t, conn, 11)
}

// Events of other masters take no place and are not counted, and own ones are counted while the spool cannot be opened.
func TestEventsThatFindNoPlaceAreCounted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "events")
	check.Must(t, os.WriteFile(dir, nil, 0o600))
	away := settings.Settings{Host: "127.0.63.1", Port: 1, Database: "x", User: "x", SSLMode: "disable"}
	r := openEventRig(t, dir, &away, nil)
	const places = eventDepth + eventDepth/8
	peer := event.Event{Tag: "salt/peer", Data: value.NewMap("_stamp", "x"), Origin: event.Peer}
	for range places {
		check.Must(t, r.bus.Relay(peer))
	}
	if st := r.events.Stats(); st.Unkept != 0 {
		t.Errorf("events of a peer count as lost: %+v", st)
	}
	r.fire(1, places+8)
	if st := r.events.Stats(); st.Unkept != 7 {
		t.Errorf("%+v", st)
	}
}
