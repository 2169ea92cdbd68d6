package postgres

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/test/await"
	"saltern/test/check"
)

const countSessions = `SELECT count(*) FROM pg_stat_activity
	WHERE application_name = 'saltern node1' AND datname = current_database()`

// A session of days would hold back the oldest transaction of the database's server by its temporary tables.
func TestSessionsEnd(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	r := openRig(t, t.TempDir(), db, 64<<20, func(f *feed) {
		f.db.maxAge = 200 * time.Millisecond
		f.idle = 300 * time.Millisecond
	})
	conn := s.query(t, db)
	var pids []int
	number := 1
	await.That(t, "sessions follow each other while returns go on", func() bool {
		addOf(t, r.journal, number, "web1", true)
		check.Must(t, r.journal.Sync())
		number++
		var pid int
		err := conn.QueryRow(context.Background(), strings.Replace(countSessions, "count(*)", "coalesce(max(pid), 0)", 1)).
			Scan(&pid)
		check.Must(t, err)
		if pid != 0 && !slices.Contains(pids, pid) {
			pids = append(pids, pid)
		}
		return len(pids) >= 3
	})
	r.drained()
	await.That(t, "no session is left", func() bool { return count(t, conn, countSessions) == 0 })
	addOf(t, r.journal, number, "web1", true)
	check.Must(t, r.journal.Sync())
	r.drained()
	wantOnce(t, conn, number)
}

// PgBouncer takes only the parameters that it tracks at the start of a connection, and refuses the others.
func TestConnectionBeginsWithFewParameters(t *testing.T) {
	s := sharedServer(t)
	db := &database{
		settings:         s.database(t),
		node:             "node1",
		lockTimeout:      3 * time.Second,
		statementTimeout: 2 * time.Minute,
		maxAge:           time.Hour,
		log:              discard(),
	}
	config, err := db.config(t.Context())
	check.Must(t, err)
	for name := range config.RuntimeParams {
		if name != "application_name" && name != "client_encoding" {
			t.Errorf("the connection begins with %s", name)
		}
	}

	check.Must(t, db.connect(t.Context()))
	defer db.close()
	for name, want := range map[string]string{
		"lock_timeout": "3s", "statement_timeout": "2min", "idle_in_transaction_session_timeout": "140s",
	} {
		var got string
		check.Must(t, db.conn.QueryRow(t.Context(), "SHOW "+name).Scan(&got))
		if got != want {
			t.Errorf("%s is %s, not %s", name, got, want)
		}
	}
}

// The tables of Salt's returner postgres have the same names and other types.
func TestTablesOfAnotherReturnerAreNotUsed(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	conn := s.query(t, db)
	execute(t, conn, `CREATE TABLE jids (jid varchar(20) PRIMARY KEY, load text NOT NULL);
		CREATE TABLE salt_returns (fun text NOT NULL, jid varchar(20) NOT NULL, return text NOT NULL, full_ret text,
			id varchar(255) NOT NULL, success varchar(10) NOT NULL, alter_time timestamp with time zone DEFAULT now())`)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addMany(t, r.journal, 1, 3)
	await.That(t, "error names what differs", func() bool {
		return strings.Contains(r.sink.Stats().Error, "jids.load jsonb, salt_returns.return jsonb, salt_returns.full_ret jsonb")
	})
	if n := count(t, conn, "SELECT count(*) FROM pg_class WHERE relname LIKE 'saltern%'"); n != 0 {
		t.Errorf("%d tables were added to a schema that is not used", n)
	}
}

// After an outage the master that took the returns writes them, and the others ask for them once it had time to.
func TestCopiesWaitForTheirOwnerAfterAnOutage(t *testing.T) {
	s := sharedServer(t)
	j, err := OpenJournal(t.TempDir(), 16<<20, time.Now, discard())
	check.Must(t, err)
	defer j.Close()
	sink := New(Config{Settings: s.database(t), Node: "node1", Journal: j, Now: time.Now, Log: discard()})

	for _, f := range sink.feeds {
		defer f.db.close()
		isCopied := f.lane == j.copied
		for _, outage := range []bool{false, true} {
			if outage {
				f.outage = true
			}
			_, err := f.try(t.Context(), nil, "")
			check.Must(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			if goesOn := f.letOwnersWrite(ctx); goesOn == (isCopied && outage) {
				t.Errorf("copies: %v, after an outage: %v, goes on at once: %v", isCopied, outage, goesOn)
			}
			cancel()
			if !f.letOwnersWrite(t.Context()) {
				t.Error("it waits once more")
			}
		}
	}
}

// Copies that are not due are not read again and again.
func TestLaneSleepsUntilCopiesAreDue(t *testing.T) {
	now := time.Now()
	f := &feed{wait: time.Minute, now: func() time.Time { return now }, log: discard()}
	packed := func(ages ...time.Duration) (all [][]byte) {
		for i, age := range ages {
			r := record{kind: kindReturn, jid: jid(i), added: now.Add(-age)}
			all = append(all, r.pack())
		}
		return all
	}
	for _, tt := range []struct {
		name  string
		ages  []time.Duration
		due   int
		later time.Duration
	}{
		{"new ones", []time.Duration{10 * time.Second, 0}, 0, 55 * time.Second},
		{"old ones", []time.Duration{time.Hour, time.Minute, 50 * time.Second}, 2, 15 * time.Second},
		{"a clock that was put back", []time.Duration{-time.Hour, 0}, 1, 65 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			records, due, later := f.parse(packed(tt.ages...))
			if len(records) != tt.due || due != tt.due || later != tt.later {
				t.Errorf("%d due, the next in %s", due, later)
			}
		})
	}
}

// A master ends with returns that no other master got, and with returns that the others write meanwhile.
func TestMasterThatComesBackWritesWhatOnlyItHas(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	away := *db
	away.Port = 1
	home := t.TempDir()
	owner := openRig(t, home, &away, 64<<20)
	others := []*rig{openRig(t, t.TempDir(), db, 64<<20), openRig(t, t.TempDir(), db, 64<<20)}
	for number := 1; number <= 40; number++ {
		addOf(t, owner.journal, number, "m", true)
		if number <= 20 {
			continue // the owner has not reached its peers
		}
		for _, r := range others {
			addOf(t, r.journal, number, "m", false)
		}
	}
	for _, r := range append(others, owner) {
		check.Must(t, r.journal.Sync())
	}
	owner.stop()

	for _, r := range others {
		r.drained()
	}
	conn := s.query(t, db)
	wantOnce(t, conn, 20)
	again := openRig(t, home, db, 64<<20)
	again.drained()
	wantOnce(t, conn, 40)
	if st := again.sink.Stats(); st.Written != 20 || st.Known != 20 {
		t.Errorf("%+v", st)
	}
}
