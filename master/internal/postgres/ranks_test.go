package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// rankedLoad returns a load of a rank, from that of one without its content (-2) and that of one that was made of a
// return (-1) to jobs.TopRank. name tells loads of the same rank apart.
func rankedLoad(rank int, name string) *value.Map {
	load := value.NewMap("fun", "test.ping", "arg", []any{}, "user", "root", "name", name)
	switch rank {
	case -1:
		load.Set("return", true)
		load.Set(rankField, int64(1)) // the minion that sent the return has made it up
	case 0:
		load.Set(jobs.ChosenField, true)
		load.Set(jobs.AccountField, "bob")
	case 1:
		load.Set(jobs.ChosenField, true)
	}
	return load
}

// TestLoadOfTheHighestRankStays has three masters write loads of the same jobs at once, in generated orders and
// batches: the table ends with one of the highest rank.
func TestLoadOfTheHighestRankStays(t *testing.T) {
	s := sharedServer(t)
	db := s.database(t)
	const masters, loads = 3, 60
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	highest := map[string]int{}
	batches := make([][]record, masters)
	for m := range masters {
		j, err := OpenJournal(t.TempDir(), 16<<20, time.Now, discard())
		check.Must(t, err)
		defer j.Close()
		for i := range loads {
			id := jid(random.IntN(15))
			rank := random.IntN(jobs.TopRank+3) - 2
			if best, known := highest[id]; !known || rank > best {
				highest[id] = rank
			}
			load := rankedLoad(rank, fmt.Sprintf("%d of master %d, rank %d", i, m, rank))
			check.Must(t, j.AddJob(jobs.ArchivedJob{JID: id, Time: time.Now(), Load: load}))
			packed, end, err := j.own.reader.Read(10, 1<<20)
			check.Must(t, err)
			check.Must(t, j.own.reader.Advance(end))
			r, err := parseRecord(packed[0])
			check.Must(t, err)
			if rank == -2 {
				r.content = nil // it was too large for the spool
			}
			batches[m] = append(batches[m], r)
		}
	}

	var sizes [masters]int
	for m := range sizes {
		sizes[m] = 1 + random.IntN(20)
	}
	var writing sync.WaitGroup
	for m, all := range batches {
		writing.Go(func() {
			l, err := openLane(t.TempDir(), 1<<20, false)
			if err != nil {
				t.Error(err)
				return
			}
			defer l.spool.Close()
			f := newFeed(l, db, fmt.Sprint("node", m), time.Now, discard())
			f.firstPause = time.Millisecond
			defer f.db.close()
			for len(all) > 0 {
				n := min(sizes[m], len(all))
				if !f.deliver(t.Context(), all[:n]) {
					t.Error("a batch was not written")
				}
				all = all[n:]
			}
		})
	}
	writing.Wait()

	conn := s.query(t, db)
	for id, rank := range highest {
		var load string
		check.Must(t, conn.QueryRow(t.Context(), "SELECT load::text FROM jids WHERE jid = $1", id).Scan(&load))
		want := fmt.Sprintf(", rank %d", rank)
		if rank == -2 {
			want = "saltern_not_stored"
		}
		if !strings.Contains(load, want) {
			t.Errorf("seed %d: job %s has %s, not one with %q", seed, id, load, want)
		}
	}
}

// saltsInsert writes a return as Salt does (salt/returners/pgjsonb.py returner).
const saltsInsert = `INSERT INTO salt_returns (fun, jid, return, id, success, full_ret, alter_time)
	VALUES ('test.ping', $1, 'true', 'm', 'true', '{}', now())`

// With the key of docs/postgresql.md a return is in salt_returns once, whether Salt's returner or a master writes it
// first, or both at the same time, and Salt's returner has no error.
func TestReturnsOfSaltsReturnerAreOnceWithTheKey(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "docs", "postgresql.md"))
	check.Must(t, err)
	key := regexp.MustCompile("(?s)```sql\n(DELETE FROM salt_returns b.*?)```").FindSubmatch(text)
	if key == nil {
		t.Fatal("docs/postgresql.md has no key")
	}
	s := sharedServer(t)
	db := s.database(t)
	conn := s.query(t, db)
	r := openRig(t, t.TempDir(), db, 64<<20)
	addMany(t, r.journal, 1, 11)
	r.drained()
	salt := func(conn *pgx.Conn, first, end int) {
		for number := first; number < end; number++ {
			if _, err := conn.Exec(context.Background(), saltsInsert, jid(number)); err != nil {
				t.Error(err)
			}
		}
	}
	salt(conn, 1, 6)
	if n := count(t, conn, "SELECT count(*) FROM salt_returns"); n != 15 {
		t.Errorf("%d rows without the key", n)
	}

	execute(t, conn, string(key[1]))
	salt(conn, 1, 20)

	// A return alone in its batch meets a row that Salt has not committed yet.
	load := rankedLoad(jobs.TopRank, "plain")
	check.Must(t, r.journal.AddJob(jobs.ArchivedJob{JID: jid(20), Time: time.Now(), Load: load}))
	check.Must(t, r.journal.Sync())
	r.drained()
	other := s.query(t, db)
	tx, err := other.Begin(t.Context())
	check.Must(t, err)
	_, err = tx.Exec(t.Context(), saltsInsert, jid(20))
	check.Must(t, err)
	check.Must(t, r.journal.Add(jobs.Archived{
		JID:    jid(20),
		Minion: "m",
		Time:   time.Now(),
		Own:    true,
		Return: []byte("\x81\xa6return\xc3"),
		Load:   func() *value.Map { return load },
	}, &summary.Summary{}))
	check.Must(t, r.journal.Sync())
	await.That(t, "the master waits for Salt", func() bool {
		return count(t, conn, `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
			AND application_name = 'saltern node1' AND datname = current_database()`) > 0
	})
	check.Must(t, tx.Commit(t.Context()))
	r.drained()
	addMany(t, r.journal, 11, 20)
	addMany(t, r.journal, 21, 201)
	var writing sync.WaitGroup
	for range 2 {
		other := s.query(t, db)
		writing.Go(func() { salt(other, 21, 201) })
	}
	writing.Wait()
	r.drained()
	wantOnce(t, conn, 200)
	if st := r.sink.Stats(); st.Refused != 0 || st.Adapted != 0 {
		t.Errorf("%+v", st)
	}
}
