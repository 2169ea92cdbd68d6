package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// execute runs statements of a test.
func execute(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	_, err := conn.Exec(context.Background(), sql)
	check.Must(t, err)
}

// addOf adds a plain return of a minion.
func addOf(t testing.TB, j *Journal, number int, minion string, own bool) {
	t.Helper()
	load := value.NewMap("fun", "test.ping", "arg", []any{}, "user", "root", "tgt", "*")
	check.Must(t, j.AddJob(jobs.ArchivedJob{JID: jid(number), Time: time.Now(), Load: load}))
	check.Must(t, j.Add(jobs.Archived{
		JID:    jid(number),
		Minion: minion,
		Time:   time.Now(),
		Own:    own,
		Return: []byte("\x81\xa6return\xc3"),
		Load:   func() *value.Map { return load },
	}, &summary.Summary{}))
}

// One return that the administrator's own rules refuse stops no other, whatever SQLSTATE it is refused with.
func TestReturnThatARuleRefusesStopsNoOther(t *testing.T) {
	for _, tt := range []struct {
		name, sql string
		refused   uint64 // 1: not even without its content
	}{
		{"a trigger", `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN IF NEW.id = 'bad' THEN RAISE 'no bad minions'; END IF; RETURN NEW; END $$;
			CREATE TRIGGER refuse BEFORE INSERT ON salt_returns FOR EACH ROW EXECUTE FUNCTION refuse()`, 1},
		{"a trigger that looks at the content", `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN IF NEW.id = 'bad' AND NEW.return = 'true' THEN RAISE 'no bad minions'; END IF; RETURN NEW; END $$;
			CREATE TRIGGER refuse BEFORE INSERT ON salt_returns FOR EACH ROW EXECUTE FUNCTION refuse()`, 0},
		{"a foreign key", `CREATE TABLE hosts (id varchar(255) PRIMARY KEY); INSERT INTO hosts VALUES ('good');
			ALTER TABLE salt_returns ADD FOREIGN KEY (id) REFERENCES hosts`, 1},
		{"a policy of rows", `ALTER TABLE salt_returns ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
			CREATE POLICY p ON salt_returns USING (true) WITH CHECK (id <> 'bad');
			CREATE ROLE the_role LOGIN;
			GRANT ALL ON ALL TABLES IN SCHEMA public TO the_role`, 1},
		{"the check option of a view", `ALTER TABLE salt_returns RENAME TO all_returns;
			CREATE VIEW salt_returns AS SELECT * FROM all_returns WHERE id <> 'bad' WITH CHECK OPTION`, 1},
		{"a function that is gone", `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
			BEGIN IF NEW.id = 'bad' THEN PERFORM gone(); END IF; RETURN NEW; END $$;
			CREATE TRIGGER refuse BEFORE INSERT ON salt_returns FOR EACH ROW EXECUTE FUNCTION refuse()`, 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := sharedServer(t)
			db := s.database(t)
			dir := t.TempDir()
			maker := openRig(t, dir, db, 64<<20)
			addOf(t, maker.journal, 1, "good", true)
			maker.drained()
			maker.stop()
			conn := s.query(t, db)
			execute(t, conn, strings.ReplaceAll(tt.sql, "the_role", roleFor(db)))
			if strings.Contains(tt.sql, "the_role") {
				db.User = roleFor(db)
			}

			r := openRig(t, dir, db, 64<<20)
			addOf(t, r.journal, 2, "bad", true) // the first of all after a start
			addOf(t, r.journal, 3, "good", false)
			for i := range 20 {
				addOf(t, r.journal, 4+i, "good", true)
			}
			addOf(t, r.journal, 30, "bad", false)
			check.Must(t, r.journal.Sync())
			if !await.Within(30*time.Second, func() bool { return r.sink.Stats().Waiting == 0 }) {
				t.Fatalf("it still waits: %+v", r.sink.Stats())
			}
			if n := count(t, conn, "SELECT count(*) FROM salt_returns WHERE id = 'good'"); n != 22 {
				t.Errorf("%d of 22 good returns are there", n)
			}
			if st := r.sink.Stats(); st.Refused != 2*tt.refused || st.Adapted != 2-2*tt.refused {
				t.Errorf("%+v", st)
			}
		})
	}
}

// A row that was good once tells that the database refuses everything now.
func TestTriggerThatRefusesEverythingIsWaitedFor(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addMany(t, r.journal, 1, 11)
	r.drained()
	conn := s.query(t, db)
	execute(t, conn, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'maintenance'; END $$;
		CREATE TRIGGER refuse BEFORE INSERT ON salt_returns FOR EACH ROW EXECUTE FUNCTION refuse()`)
	addMany(t, r.journal, 11, 31)
	await.That(t, "error names the trigger", func() bool { return strings.Contains(r.sink.Stats().Error, "P0001") })
	execute(t, conn, "DROP TRIGGER refuse ON salt_returns")
	r.drained()
	wantOnce(t, conn, 30)
	if st := r.sink.Stats(); st.Adapted+st.Refused != 0 {
		t.Errorf("%+v", st)
	}
}

func TestRefusalOf(t *testing.T) {
	for code, want := range map[string]refusal{
		"08006": away, "25006": away, "28P01": away, "3D000": away, "40P01": away, "53100": away, "55P03": away,
		"57P01": away, "58030": away,
		"57014": suspect, "53200": suspect, "XX000": suspect,
		"42501": unclear, "42883": unclear, "0A000": unclear,
		"22P05": refused, "23503": refused, "44000": refused, "54000": refused, "P0001": refused,
	} {
		if got := refusalOf(fmt.Errorf("write: %w", &pgconn.PgError{Code: code})); got != want {
			t.Errorf("%s is %d, not %d", code, got, want)
		}
	}
}
