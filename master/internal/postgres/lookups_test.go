package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/internal/postgres/settings"
	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// askers is a Lookups with its log and its clock.
type askers struct {
	*Lookups
	mu  sync.Mutex
	now time.Time
	log bytes.Buffer
}

func (a *askers) clock() time.Time {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.now
}

func (a *askers) advance(d time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.now = a.now.Add(d)
}

// patient is a timeout for tests on a busy machine that need an answer.
const patient = time.Minute

// newAskers returns look-ups that run until the test ends.
func newAskers(t testing.TB, db *settings.Settings, timeout time.Duration) *askers {
	a := &askers{now: time.Now()}
	a.Lookups = NewLookups(LookupsConfig{
		Settings: db,
		Node:     "asker",
		Now:      a.clock,
		Log:      slog.New(slog.NewTextHandler(&a.log, nil)),
		timeout:  timeout,
		bounds:   lookupBounds{rows: 100, bytes: 2 << 20, text: 1 << 20},
	})
	ctx, cancel := context.WithCancel(context.Background())
	var run sync.WaitGroup
	run.Go(func() { a.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		run.Wait()
	})
	return a
}

func (a *askers) mustJob(t testing.TB, number int) (load, returns *value.Map) {
	t.Helper()
	load, returns, err := a.Job(t.Context(), jid(number))
	check.Must(t, err)
	return load, returns
}

// A job from the database is what the job cache had, but for what JSON cannot hold.
func TestJobIsReadAsTheJobCacheHadIt(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	a := newAskers(t, db, patient)
	if _, _, err := a.Job(t.Context(), jid(1)); !errors.Is(err, errRefuses) || !strings.Contains(a.log.String(), "42P01") {
		t.Errorf("without tables: %v", err)
	}

	ret := value.NewMap("answer", int64(42), "f", 1.5, "big", uint64(1<<63), "list", []any{nil, true, "ü\n"})
	addReturn(t, r.journal, 1, "web1", true, ret)
	addOf(t, r.journal, 2, "web1", true)
	content, err := msgpack.Marshal(value.NewMap("return", "x", "retcode", int64(2)), msgpack.Modern)
	check.Must(t, err)
	out, err := msgpack.Marshal("highstate", msgpack.Modern)
	check.Must(t, err)
	check.Must(t, r.journal.Add(jobs.Archived{
		JID:    jid(2),
		Minion: "web2",
		Time:   time.Now(),
		Own:    true,
		Return: content,
		Out:    out,
		Load:   func() *value.Map { return value.NewMap("fun", "test.ping") },
	}, nil))
	check.Must(t, r.journal.Sync())
	r.drained()

	load, returns := a.mustJob(t, 1)
	if load.Str("fun") != "test.arg" || load.Str("user") != "root" || len(load.List("arg")) != 2 {
		t.Errorf("load: %s", value.Repr(load))
	}
	if load.Str(jobs.AccountField) != "" {
		t.Error("the load has what only this master's cache has")
	}
	want := value.NewMap("web1", value.NewMap("return", ret, "retcode", int64(0), "success", true))
	if !value.Equal(returns, want) {
		t.Errorf("%s, not %s", value.Repr(returns), value.Repr(want))
	}
	_, returns = a.mustJob(t, 2)
	web2 := returns.Map("web2")
	if _, given := web2.Get("success"); given || web2.Value("retcode") != int64(2) || web2.Str("out") != "highstate" ||
		returns.Len() != 2 {
		t.Errorf("%s", value.Repr(returns))
	}

	for _, other := range []string{jid(3), "", "x'; DROP TABLE jids; --", strings.Repeat("9", 1<<20), jid(1) + "\x00"} {
		load, returns, err := a.Job(t.Context(), other)
		if load != nil || returns.Len() != 0 || err != nil {
			t.Errorf("%.40q: %s %s %v", other, value.Repr(load), value.Repr(returns), err)
		}
	}
}

// Rows of other programs neither take the master's memory nor hide the rows beside them.
func TestRowsOfOthersAreBounded(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addOf(t, r.journal, 1, "web1", true)
	check.Must(t, r.journal.Sync())
	r.drained()
	conn := s.query(t, db)
	a := newAskers(t, db, patient)
	insert := `INSERT INTO salt_returns (fun, jid, return, id, success, full_ret) SELECT 'f', $1, '1', id, 'true', ret FROM `

	for name, ret := range map[string]string{
		"large":       fmt.Sprintf(`jsonb_build_object('return', repeat('a', %d))`, 1<<20),
		"deep":        `jsonb_build_object('return', (repeat('[', 1000) || repeat(']', 1000))::jsonb)`,
		"many":        `jsonb_build_object('return', ('[' || repeat('1,', 200000) || '1]')::jsonb)`,
		"number":      `'{"return": 1e400}'`,
		"list":        `'["return"]'`,
		"text":        `'"return"'`,
		"empty":       `'{}'`,
		"odd":         `'{"return": 1, "retcode": {"a": []}, "success": "x", "out": [[]]}'`,
		"a/b":         `'{"return": 1}'`,
		"\x1b[2J":     `'{"return": 1}'`,
		"web1":        `'{"return": "written second"}'`,
		"web1, later": `'{"return": 1}'`,
	} {
		_, err := conn.Exec(t.Context(), insert+`(SELECT $2 AS id, `+ret+`::jsonb AS ret) n`, jid(1), name)
		check.Must(t, err)
	}
	load, returns := a.mustJob(t, 1)
	if load.Str("fun") != "test.ping" {
		t.Errorf("load: %s", value.Repr(load))
	}
	for id, want := range map[string]string{
		"large":  "saltern_not_read",
		"deep":   "saltern_not_read",
		"many":   "saltern_not_read",
		"number": "saltern_not_read",
		"list":   "'return': None",
		"text":   "'return': None",
		"empty":  "'return': None",
		"odd":    "'return': 1",
		"web1":   "'return': True",
	} {
		if got := value.Repr(returns.Map(id)); !strings.Contains(got, want) || len(got) > 200 {
			t.Errorf("%s is %.200s, not %s", id, got, want)
		}
	}
	if returns.Len() != 10 {
		t.Errorf("returns of %q", returns.Keys())
	}

	execute(t, conn, `UPDATE jids SET load = '[1]'`)
	if load, returns, err := a.Job(t.Context(), jid(1)); load != nil || returns.Len() != 10 || !errors.Is(err, errNoLoad) {
		t.Errorf("damaged load: %s, %d returns, %v", value.Repr(load), returns.Len(), err)
	}
	_, err := conn.Exec(t.Context(), insert+`(SELECT 'm' || n AS id, '{"return": 1}'::jsonb AS ret
		FROM generate_series(1, $2) n) n`, jid(2), a.bounds.rows+1)
	check.Must(t, err)
	if _, returns, err := a.Job(t.Context(), jid(2)); returns.Len() != 0 || !errors.Is(err, errTooMuch) {
		t.Errorf("%d returns: %v", returns.Len(), err)
	}
	if page, err := a.Runs(t.Context(), history.Filter{}, 10, ""); len(page.Runs) != 1 || err != nil {
		t.Errorf("the next question: %d runs, %v", len(page.Runs), err)
	}
}

func TestRunsAreReadInTheOrderOfTheHistory(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	at := time.Now().Add(-time.Hour).Truncate(time.Second)
	for i, minion := range []string{"b", "B", "a", "Z", "_", "z-1"} {
		for n := range 3 {
			load := value.NewMap("fun", "state.apply", "arg", []any{}, "user", "alice")
			if n == 2 {
				load = value.NewMap("fun", []any{"test.ping", "state.apply"}, "arg", []any{[]any{}, []any{}}, "user", "alice")
			}
			state := summary.State{ID: "nginx", Changes: "-a\n+b"}
			made := summary.Summary{Function: "state.apply", Result: summary.Changed, Changed: 1, ChangedStates: []summary.State{state}}
			if n == 1 {
				made = summary.Summary{Function: "state.apply", Result: summary.WouldChange}
			}
			check.Must(t, r.journal.Add(jobs.Archived{
				JID:    jid(i%2 + 10*n),
				Minion: minion,
				Time:   at.Add(time.Duration(i/4) * time.Minute),
				Own:    true,
				Return: []byte("\x81\xa6return\xc3"),
				Load:   func() *value.Map { return load },
			}, &made))
		}
	}
	check.Must(t, r.journal.Sync())
	r.drained()
	conn := s.query(t, db)
	execute(t, conn, `INSERT INTO saltern_runs SELECT jid, 'infinite', 'infinity', user_name, function, result, ok, changed,
		would_change, failed, seconds, retcode, test, revision, summary, adapted, node FROM saltern_runs LIMIT 1`)
	execute(t, conn, `INSERT INTO saltern_runs SELECT jid, 'node1_master', time, user_name, 'runner.jobs.list_jobs', result, ok,
		changed, would_change, failed, seconds, retcode, test, revision, summary, adapted, node FROM saltern_runs LIMIT 1`)
	execute(t, conn, `INSERT INTO saltern_runs SELECT jid, 'damaged', time, user_name, function, result, ok, changed,
		would_change, failed, seconds, retcode, test, revision, '\x01ff', adapted, node FROM saltern_runs LIMIT 1`)
	execute(t, conn, `INSERT INTO saltern_runs SELECT jid, repeat('ü', 255), time, user_name, function, result, ok,
		changed, would_change, failed, seconds, retcode, test, revision, summary, adapted, node FROM saltern_runs LIMIT 1`)
	execute(t, conn, `INSERT INTO saltern_runs SELECT repeat('9', 200), 'long', time, user_name, function, result, ok,
		changed, would_change, failed, seconds, retcode, test, revision, summary, adapted, node FROM saltern_runs LIMIT 1`)

	a := newAskers(t, db, patient)
	for _, tt := range []struct {
		name   string
		filter history.Filter
		want   int
	}{
		{"all", history.Filter{}, 18},
		{"a minion", history.Filter{Minion: "Z"}, 3},
		{"a job", history.Filter{JID: jid(10)}, 3},
		{"a user", history.Filter{User: "alice"}, 18},
		{"several functions", history.Filter{Function: "test.ping,state.apply"}, 6},
		{"one of several functions", history.Filter{Function: "test.ping"}, 6},
		{"a part of a function", history.Filter{Function: "apply"}, 0},
		{"another user", history.Filter{User: "ali%"}, 0},
		{"a state", history.Filter{State: "nginx", Function: "state.apply"}, 12},
		{"results", history.Filter{Results: []summary.Result{summary.WouldChange, summary.Failed}}, 6},
		{"a time", history.Filter{From: at, To: at.Add(time.Minute)}, 12},
		{"NUL", history.Filter{User: "alice\x00"}, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var got []history.Run
			for from := history.Cursor(""); ; {
				page, err := a.Runs(t.Context(), tt.filter, 5, from)
				check.Must(t, err)
				got = append(got, page.Runs...)
				if from = page.Next; from == "" {
					break
				}
			}
			inOrder := slices.IsSortedFunc(got, func(a, b history.Run) int { return history.Compare(&a, &b) })
			if len(got) != tt.want || !inOrder {
				t.Errorf("%d runs, not %d, in order: %v", len(got), tt.want, inOrder)
			}
		})
	}
	page, err := a.Runs(t.Context(), history.Filter{State: "nginx"}, 1, "")
	check.Must(t, err)
	if run := page.Runs[0]; run.User != "alice" || run.Summary.ChangedStates[0].Changes != "-a\n+b" ||
		!run.Time.Equal(at.Add(time.Minute)) {
		t.Errorf("%+v", run)
	}
	if _, err := a.Runs(t.Context(), history.Filter{}, 1, "?"); !errors.Is(err, history.ErrCursor) {
		t.Errorf("damaged cursor: %v", err)
	}
}

// silentServer takes connections and says nothing.
func silentServer(t testing.TB) *settings.Settings {
	l, err := net.Listen("tcp", "127.0.63.3:0")
	check.Must(t, err)
	t.Cleanup(func() { l.Close() })
	return &settings.Settings{
		Host:     "127.0.63.3",
		Port:     l.Addr().(*net.TCPAddr).Port,
		Database: "salt",
		User:     "secret_role",
		SSLMode:  "disable",
	}
}

// All look-ups at once wait no longer than one, and those after them do not wait at all.
func TestDatabaseThatSaysNothingHoldsNobodyUp(t *testing.T) {
	a := newAskers(t, silentServer(t), lookupTimeout)
	began := time.Now()
	var all sync.WaitGroup
	for range 3000 {
		all.Go(func() {
			if _, _, err := a.Job(t.Context(), jid(1)); !errors.Is(err, errAway) && !errors.Is(err, errBusy) ||
				strings.Contains(err.Error(), "secret_role") {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if d := time.Since(began); d > lookupTimeout+5*time.Second {
		t.Errorf("the last one waited for %s", d)
	}

	began = time.Now()
	if _, err := a.Runs(t.Context(), history.Filter{}, 1, ""); !errors.Is(err, errAway) || time.Since(began) > lookupTimeout {
		t.Errorf("the next one waited for %s: %v", time.Since(began), err)
	}
	if n := strings.Count(a.log.String(), "level=WARN"); n < 1 || n > 2 || a.unanswered.Load() != 3001 {
		t.Errorf("%d lines, %d unanswered:\n%s", n, a.unanswered.Load(), a.log.String())
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := a.Job(ctx, jid(1)); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller has left: %v", err)
	}
}

func TestLookupsEndWithTheServerAndComeBack(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addOf(t, r.journal, 1, "web1", true)
	check.Must(t, r.journal.Sync())
	r.drained()
	a := newAskers(t, db, patient)
	conn := s.query(t, db)
	const sessions = `SELECT %s FROM pg_stat_activity WHERE application_name = 'saltern asker' AND datname = current_database()`
	useAll := func() {
		for range lookupConnections {
			a.mustJob(t, 1)
		}
	}
	useAll()

	// The server has ended the connections, as at its restart.
	if n := count(t, conn, fmt.Sprintf(sessions, "count(pg_terminate_backend(pid))")); n != lookupConnections {
		t.Errorf("%d connections", n)
	}
	useAll()

	// The server hangs.
	signal := func(sig syscall.Signal) {
		rows, err := conn.Query(t.Context(), fmt.Sprintf(sessions, "pid"))
		check.Must(t, err)
		pids, err := pgx.CollectRows(rows, pgx.RowTo[int])
		check.Must(t, err)
		for _, pid := range pids {
			check.Must(t, syscall.Kill(pid, sig))
		}
	}
	a.times.whole = time.Second
	signal(syscall.SIGSTOP)
	_, _, err := a.Job(t.Context(), jid(1))
	signal(syscall.SIGCONT)
	if !errors.Is(err, errAway) {
		t.Errorf("it hangs: %v", err)
	}
	a.times.whole = patient
	if _, _, err := a.Job(t.Context(), jid(1)); !errors.Is(err, errAway) {
		t.Errorf("it is asked again at once: %v", err)
	}
	a.advance(askAgain)
	a.mustJob(t, 1)

	// A question takes long.
	for range lookupConnections {
		d := <-a.free
		d.close()
		d.statementTimeout = time.Second
		a.free <- d
	}
	execute(t, conn, "BEGIN; LOCK TABLE jids IN ACCESS EXCLUSIVE MODE")
	if _, _, err := a.Job(t.Context(), jid(1)); !errors.Is(err, errSlow) {
		t.Errorf("slow: %v", err)
	}
	if _, err := a.Runs(t.Context(), history.Filter{}, 1, ""); err != nil {
		t.Errorf("another question is refused: %v", err)
	}
	execute(t, conn, "ROLLBACK")
	a.mustJob(t, 1)
	if text := a.log.String(); strings.Count(text, "level=WARN") != 2 || strings.Count(text, "answers look-ups again") != 1 {
		t.Error(text)
	}

	a.closeIdle()
	await.That(t, "connections without use end", func() bool { return count(t, conn, fmt.Sprintf(sessions, "count(*)")) == 0 })
}

// What the last of many look-ups gets: LOOKUPS=3000 measures as many at once.
func TestManyLookupsAtOnce(t *testing.T) {
	many := 300
	if text := os.Getenv("LOOKUPS"); text != "" {
		var err error
		many, err = strconv.Atoi(text)
		check.Must(t, err)
	}
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addMany(t, r.journal, 1, 101)
	r.drained()
	a := newAskers(t, db, lookupTimeout)
	_, _, _ = a.Job(t.Context(), jid(1)) // connects, if the machine is not too busy

	began := time.Now()
	var all sync.WaitGroup
	for i := range many {
		all.Go(func() {
			_, returns, err := a.Job(t.Context(), jid(1+i%100))
			unanswered := errors.Is(err, errBusy) || errors.Is(err, errSlow) || errors.Is(err, errAway)
			if !unanswered && (err != nil || returns.Len() != 1) {
				t.Errorf("%s %v", value.Repr(returns), err)
			}
		})
	}
	all.Wait()
	d := time.Since(began)
	if d > lookupTimeout+5*time.Second {
		t.Errorf("the last one waited for %s", d)
	}
	conn := s.query(t, db)
	n := count(t, conn, "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'saltern asker' AND datname = current_database()")
	if n > lookupConnections {
		t.Errorf("%d connections", n)
	}
	t.Logf("%d look-ups in %s, %d of them without an answer", many, d, a.unanswered.Load())
}
