package postgres

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"saltern/master/history/summary"
	"saltern/master/internal/postgres/settings"
	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// rig is a journal and a sink that runs.
type rig struct {
	t       testing.TB
	journal *Journal
	sink    *Sink
	stop    func()
}

func openRig(t testing.TB, dir string, db *settings.Settings, maxBytes int64, changes ...func(*feed)) *rig {
	t.Helper()
	j, err := OpenJournal(dir, maxBytes, time.Now, discard())
	check.Must(t, err)
	r := &rig{t: t, journal: j}
	r.sink = New(Config{
		Settings: db,
		Node:     "node1",
		Journal:  j,
		Now:      time.Now,
		Log:      discard(),
		takeOver: 500 * time.Millisecond,
	})
	for _, f := range r.sink.feeds {
		f.db.lockTimeout = time.Second
		for _, change := range changes {
			change(f)
		}
	}

	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { r.sink.Run(ctx) })
	r.stop = sync.OnceFunc(func() {
		cancel()
		run.Wait()
		check.Must(t, j.Close())
	})
	t.Cleanup(r.stop)
	return r
}

// jid returns the number-th job id.
func jid(number int) string { return fmt.Sprintf("20261129%012d", number) }

// addReturn adds a return as the job cache does.
func addReturn(t testing.TB, j *Journal, number int, minion string, own bool, ret any) {
	t.Helper()
	load := value.NewMap("fun", "test.arg", "arg", []any{"a", int64(1)}, "user", "root", "tgt", "*", "jid", jid(number),
		jobs.AccountField, "secret account", jobs.BatchField, value.NewMap("minions", int64(9), "size", int64(1)),
		summary.RevisionField, "abc")
	now := time.Now()
	check.Must(t, j.AddJob(jobs.ArchivedJob{JID: jid(number), Time: now, Load: load}))
	content, err := msgpack.Marshal(value.NewMap("return", ret, "retcode", int64(0), "success", true), msgpack.Modern)
	check.Must(t, err)
	check.Must(t, j.Add(jobs.Archived{
		JID:    jid(number),
		Minion: minion,
		Time:   now,
		Own:    own,
		Return: content,
		Load:   func() *value.Map { return load },
	}, nil))
	check.Must(t, j.Sync())
}

// drained waits until all records are done.
func (r *rig) drained() {
	r.t.Helper()
	if !await.Within(2*time.Minute, func() bool { return r.sink.Stats().Waiting == 0 }) {
		r.t.Fatalf("it still waits: %+v", r.sink.Stats())
	}
}

// wantOnce fails unless the tables have each of the numbered jobs once.
func wantOnce(t testing.TB, conn *pgx.Conn, jobs int) {
	t.Helper()
	for _, table := range []string{"jids", "salt_returns", "saltern_runs"} {
		if n := count(t, conn, "SELECT count(*) FROM "+table); n != jobs {
			t.Errorf("%d rows of %d are in %s", n, jobs, table)
		}
	}
	if n := count(t, conn, "SELECT count(DISTINCT (jid, id)) FROM salt_returns"); n != jobs {
		t.Errorf("%d different rows of %d", n, jobs)
	}
}

func TestReturnsAreWrittenAsSaltDoes(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addReturn(t, r.journal, 1, "web1", true, value.NewMap("answer", int64(42), "f", 1.0))
	addReturn(t, r.journal, 1, "web1", true, value.NewMap("answer", int64(42), "f", 1.0)) // comes again
	addReturn(t, r.journal, 2, "web2", false, "a copy")
	r.drained()

	conn := s.query(t, db)
	wantOnce(t, conn, 2)
	var fun, ret, full, success string
	check.Must(t, conn.QueryRow(context.Background(),
		"SELECT fun, return::text, full_ret::text, success FROM salt_returns WHERE id = 'web1' AND jid = $1", jid(1)).
		Scan(&fun, &ret, &full, &success))
	if fun != "test.arg" || ret != `{"f": 1.0, "answer": 42}` || success != "true" {
		t.Error(fun, ret, success)
	}
	var parsed map[string]any
	check.Must(t, json.Unmarshal([]byte(full), &parsed))
	for key, want := range map[string]any{
		"id": "web1", "jid": jid(1), "fun": "test.arg", "retcode": 0.0, "success": true, "cmd": "_return",
	} {
		if parsed[key] != want {
			t.Errorf("%s is %v, not %v", key, parsed[key], want)
		}
	}
	if got := fmt.Sprint(parsed["fun_args"], parsed["return"]); got != "[a 1] map[answer:42 f:1]" {
		t.Error(got)
	}

	var load string
	check.Must(t, conn.QueryRow(context.Background(), "SELECT load::text FROM jids WHERE jid = $1", jid(1)).Scan(&load))
	if !strings.Contains(load, `"tgt": "*"`) || strings.Contains(load, "secret account") || strings.Contains(load, "saltern_") {
		t.Error(load)
	}
	if st := r.sink.Stats(); st.Written != 2 || st.Adapted != 0 || st.Error != "" {
		t.Errorf("%+v", st)
	}
}

func TestStatesAreWritten(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addReturn(t, r.journal, 1, "web1", true, "x")
	sum := summary.Summary{Result: summary.Failed, Failed: 2, Duration: 1500 * time.Millisecond}
	for i := range 2 {
		sum.FailedStates = append(sum.FailedStates, summary.State{ID: fmt.Sprint("state\x00", i), Comment: "no\nroom"})
	}
	check.Must(t, r.journal.Add(jobs.Archived{JID: jid(7), Minion: "m", Time: time.Now(), Return: []byte{0x80},
		Load: func() *value.Map { return nil }}, &sum))
	r.drained()

	conn := s.query(t, db)
	if n := count(t, conn, "SELECT count(*) FROM saltern_states WHERE kind = 'failed' AND jid = $1", jid(7)); n != 2 {
		t.Errorf("%d states", n)
	}
	if n := count(t, conn, "SELECT count(*) FROM saltern_runs WHERE result = 'failed' AND seconds = 1.5"); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// odd are values that JSON or jsonb lacks.
func odd() map[string]any {
	deep := any("end")
	for range 55 {
		deep = []any{deep}
	}
	return map[string]any{
		"nul":       "a\x00b",
		"key":       value.NewMap("k\x00", 1, "k", 2, int64(1)<<62, 3, uint64(math.MaxUint64), 4),
		"bytes":     []byte{0xff, 0xfe, 0},
		"float":     []any{math.NaN(), math.Inf(1), math.Inf(-1), 5e-324, math.MaxFloat64},
		"number":    []any{uint64(math.MaxUint64), int64(math.MinInt64)},
		"ext":       value.Ext{Type: 78, Data: []byte("2026")},
		"surrogate": []byte("\xed\xa0\x80"),
		"escaped":   `\u0000 \ud800 "`,
		"deep":      deep,
		"empty":     nil,
		"long":      strings.Repeat("äöü", 1<<20),
	}
}

func TestOddValuesAreWrittenWithAMark(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 256<<20)
	number := 0
	for _, name := range slices.Sorted(keysOf(odd())) {
		number++
		addReturn(t, r.journal, number, name, true, odd()[name])
	}
	number++
	addReturn(t, r.journal, number, "after", true, "plain")
	r.drained()

	conn := s.query(t, db)
	wantOnce(t, conn, number)
	rows, err := conn.Query(context.Background(), "SELECT minion FROM saltern_runs WHERE adapted <> '{}' ORDER BY 1")
	check.Must(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check.Must(t, err)
	if want := []string{"bytes", "ext", "float", "key", "nul", "surrogate"}; !slices.Equal(got, want) {
		t.Errorf("marked are %v, not %v", got, want)
	}
	if n := count(t, conn, "SELECT count(*) FROM saltern_runs WHERE 'not stored' = ANY (adapted)"); n != 0 {
		t.Errorf("%d are without their content", n)
	}
	if st := r.sink.Stats(); st.Adapted != 6 || st.Refused != 0 {
		t.Errorf("%+v", st)
	}
}

func keysOf(m map[string]any) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

func TestReturnsThatTheDatabaseRefusesStopNoOther(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	dir := t.TempDir()
	first := openRig(t, dir, db, 64<<20)
	addReturn(t, first.journal, 1, "m", true, "makes the tables")
	first.drained()
	first.stop()

	conn := s.query(t, db)
	_, err := conn.Exec(context.Background(),
		`ALTER TABLE salt_returns ADD CONSTRAINT first CHECK (return::text NOT LIKE '%poison%');
		 ALTER TABLE jids ADD CONSTRAINT worse CHECK (jid <> '`+jid(500)+`')`)
	check.Must(t, err)

	j, err := OpenJournal(dir, 64<<20, time.Now, discard())
	check.Must(t, err)
	for i := 2; i <= 1000; i++ {
		ret := "good"
		if i%250 == 3 {
			ret = "poison"
		}
		addReturn(t, j, i, "m", true, ret)
	}
	check.Must(t, j.Close())
	r := openRig(t, dir, db, 64<<20)
	r.drained()

	if n := count(t, conn, "SELECT count(*) FROM salt_returns"); n != 1000 {
		t.Errorf("%d returns", n)
	}
	if n := count(t, conn, "SELECT count(*) FROM salt_returns WHERE return ? 'saltern_not_stored'"); n != 4 {
		t.Errorf("%d without their content", n)
	}
	if n := count(t, conn, "SELECT count(*) FROM jids"); n != 999 {
		t.Errorf("%d loads", n)
	}
	if st := r.sink.Stats(); st.Adapted != 4 || st.Refused != 1 || st.Error != "" {
		t.Errorf("%+v", st)
	}
}

func TestLargeReturn(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 512<<20)
	var lines []any
	for i := range 50 << 10 {
		lines = append(lines, fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000)))
	}
	addReturn(t, r.journal, 1, "large", true, lines)
	addReturn(t, r.journal, 2, "control", true, strings.Repeat("\x01", 30<<20)) // 180 MiB as JSON
	addReturn(t, r.journal, 3, "small", true, "x")
	began := time.Now()
	r.drained()
	t.Log("written within", time.Since(began))

	conn := s.query(t, db)
	wantOnce(t, conn, 3)
	if n := count(t, conn, "SELECT jsonb_array_length(full_ret->'return') FROM salt_returns WHERE id = 'large'"); n != len(lines) {
		t.Errorf("%d lines", n)
	}
	if n := count(t, conn, "SELECT count(*) FROM saltern_runs WHERE 'not stored' = ANY (adapted)"); n != 1 {
		t.Errorf("%d without their content", n)
	}
}

func TestReturnsTooLargeForTheSpoolAreMarked(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 4<<20)
	addReturn(t, r.journal, 1, "m", true, strings.Repeat("x", 3<<20))
	r.drained()
	conn := s.query(t, db)
	if n := count(t, conn, "SELECT count(*) FROM salt_returns WHERE return ? 'saltern_not_stored'"); n != 1 {
		t.Errorf("%d marked", n)
	}
	if st := r.sink.Stats(); st.Oversized != 1 || st.Adapted != 1 {
		t.Errorf("%+v", st)
	}
}

func TestThreeMastersMigrateAtOnce(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	var rigs []*rig
	for i := range 3 {
		r := openRig(t, filepath.Join(t.TempDir(), fmt.Sprint(i)), db, 64<<20)
		for n := range 50 {
			addReturn(t, r.journal, n+1, "m", i == n%3, "x")
		}
		rigs = append(rigs, r)
	}
	for _, r := range rigs {
		r.drained()
	}

	conn := s.query(t, db)
	wantOnce(t, conn, 50)
	if n := count(t, conn, "SELECT count(*) FROM saltern_schema"); n != len(migrations) {
		t.Errorf("%d versions", n)
	}
	var written uint64
	for _, r := range rigs {
		written += r.sink.Stats().Written
	}
	if written != 50 {
		t.Errorf("%d were counted as written", written)
	}
}

// saltsSchema is that of the head of Salt's pgjsonb.py.
const saltsSchema = `
CREATE TABLE jids (jid varchar(255) NOT NULL primary key, load jsonb NOT NULL);
CREATE INDEX idx_jids_jsonb on jids USING gin (load) WITH (fastupdate=on);
CREATE TABLE salt_returns (fun varchar(50) NOT NULL, jid varchar(255) NOT NULL, return jsonb NOT NULL,
	id varchar(255) NOT NULL, success varchar(10) NOT NULL, full_ret jsonb NOT NULL,
	alter_time TIMESTAMP WITH TIME ZONE DEFAULT NOW());
CREATE INDEX idx_salt_returns_id ON salt_returns (id);
CREATE INDEX idx_salt_returns_jid ON salt_returns (jid);
CREATE INDEX idx_salt_returns_fun ON salt_returns (fun);
CREATE INDEX idx_salt_returns_return ON salt_returns USING gin (return) with (fastupdate=on);
CREATE INDEX idx_salt_returns_full_ret ON salt_returns USING gin (full_ret) with (fastupdate=on);
CREATE SEQUENCE seq_salt_events_id;
CREATE TABLE salt_events (id BIGINT NOT NULL UNIQUE DEFAULT nextval('seq_salt_events_id'),
	tag varchar(255) NOT NULL, data jsonb NOT NULL, alter_time TIMESTAMP WITH TIME ZONE DEFAULT NOW(),
	master_id varchar(255) NOT NULL);`

// One master at a time migrates: two that create the same tables at once would fail.
func TestMigrationWaitsForAnother(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	other := s.query(t, db)
	execute(t, other, fmt.Sprintf("SELECT pg_advisory_lock(%d)", int64(migrationLock)))
	conn := s.query(t, db)
	ended := make(chan error, 1)
	go func() { ended <- migrate(context.Background(), conn) }()
	await.That(t, "migration waits", func() bool {
		return count(t, other, `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
			AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`) == 1 || len(ended) > 0
	})
	if len(ended) > 0 || count(t, other, "SELECT count(*) FROM pg_class WHERE relname LIKE 'saltern%'") != 0 {
		t.Error("tables are made beside another migration")
	}
	execute(t, other, fmt.Sprintf("SELECT pg_advisory_unlock(%d)", int64(migrationLock)))
	check.Must(t, <-ended)
}

// A return that this master took is in the lane that waits for nobody, all others in the one that does.
func TestReturnsOfOthersWaitInALaneOfTheirOwn(t *testing.T) {
	j, err := OpenJournal(t.TempDir(), 16<<20, time.Now, discard())
	check.Must(t, err)
	defer j.Close()
	addOf(t, j, 1, "web1", true) // a load and a return
	for range 3 {
		addOf(t, j, 1, "web2", false)
	}
	if own, copied := j.own.reader.Waiting(), j.copied.reader.Waiting(); own != 5 || copied != 3 {
		t.Errorf("%d records are the master's own, %d those of others", own, copied)
	}
	sink := New(Config{Settings: &settings.Settings{}, Node: "n", Journal: j, Now: time.Now, Log: discard()})
	for _, f := range sink.feeds {
		if waits := f.wait > 0; waits != (f.lane == j.copied) {
			t.Errorf("%s waits: %v", f.lane.dir, waits)
		}
	}
}

func TestTablesOfSaltAreUsed(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	conn := s.query(t, db)
	_, err := conn.Exec(context.Background(), saltsSchema)
	check.Must(t, err)
	for range 2 { // Salt's returner doubles rows
		_, err = conn.Exec(context.Background(),
			`INSERT INTO salt_returns (fun, jid, return, id, success, full_ret) VALUES ('f', $1, '1', 'm', 'true', '{}')`, jid(1))
		check.Must(t, err)
	}
	_, err = conn.Exec(context.Background(), `INSERT INTO jids VALUES ($1, '{"of": "salt"}')`, jid(1))
	check.Must(t, err)

	r := openRig(t, t.TempDir(), db, 64<<20)
	addReturn(t, r.journal, 1, "m", true, "x")
	addReturn(t, r.journal, 2, "m", true, "x")
	r.drained()
	if n := count(t, conn, "SELECT count(*) FROM salt_returns"); n != 3 {
		t.Errorf("%d rows: Salt's two and one", n)
	}
	if n := count(t, conn, `SELECT count(*) FROM jids WHERE load ? 'of'`); n != 1 {
		t.Error("load of Salt's was replaced")
	}
}

func TestTablesOfOthersAreNamed(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	conn := s.query(t, db)
	_, err := conn.Exec(context.Background(), `CREATE TABLE salt_returns (fun text, jid text, id text)`)
	check.Must(t, err)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addReturn(t, r.journal, 1, "m", true, "x")
	await.That(t, "error names the column", func() bool {
		return strings.Contains(r.sink.Stats().Error, "salt_returns.full_ret")
	})
	if n := count(t, conn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'saltern%'"); n != 0 {
		t.Errorf("%d tables were made nevertheless", n)
	}
}

func TestFirstLoadIsReplacedByTheRealOne(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	made := value.NewMap("fun", "f", "return", int64(1), "id", "m")
	real := value.NewMap("fun", "f", "tgt", "*")
	add := func(loads ...*value.Map) {
		for _, l := range loads {
			check.Must(t, r.journal.AddJob(jobs.ArchivedJob{JID: jid(1), Time: time.Now(), Load: l}))
		}
		r.drained()
	}
	conn := s.query(t, db)
	add(made)
	add(real, made)
	add(made)
	if n := count(t, conn, `SELECT count(*) FROM jids WHERE load ? 'tgt'`); n != 1 {
		t.Error("the real load is not there")
	}
}
