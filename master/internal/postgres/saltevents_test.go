package postgres

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// saltsEvents passes events to the returner of a real Salt (salt/returners/pgjsonb.py event_return) as Salt's own
// EventReturn does, by the schema in the head of that file. Then it has Salt archive and purge the events that a master
// has written into the other database (clean_old_jobs).
const saltsEvents = `
import json, re, sys
question = json.load(sys.stdin)
sys.path.append(question["psycopg2"])
import psycopg2, salt.utils.event
from salt.returners import pgjsonb
def use(name):
    pgjsonb.__opts__ = {"id": "m1", "keep_jobs_seconds": 1, "archive_jobs": True}
    for key, v in {"host": "127.0.63.1", "user": "admin", "pass": "", "db": name, "port": question["port"]}.items():
        pgjsonb.__opts__["returner.pgjsonb." + key] = v
    pgjsonb.__salt__ = {}
use(question["salts"])
schema = pgjsonb.__doc__.split("CREATE DATABASE", 1)[1]
schema = schema[schema.index("DROP TABLE"):schema.index("Required python")]
with pgjsonb._get_serv(commit=True) as cur:
    cur.execute(schema)
events = []
for packed in question["events"]:
    tag, data = salt.utils.event.SaltEvent.unpack(bytes.fromhex(packed))
    events.append({"tag": tag, "data": data})
pgjsonb.event_return(events)
use(question["ours"])
pgjsonb.clean_old_jobs()
`

// someValue returns a value that events may have.
func someValue(random *rand.Rand, depth int) any {
	kinds := 8
	if depth == 0 {
		kinds = 6
	}
	switch random.IntN(kinds) {
	case 0:
		return int64(random.Uint64())
	case 1:
		return random.NormFloat64() * 1e9
	case 2:
		return random.IntN(2) == 0
	case 3:
		return nil
	case 4, 5:
		letters := []string{"a", "ä", "\"", "\\", "\n", "☃", "𝄞", "\x01", " ", "</script>", "'"}
		var text strings.Builder
		for range random.IntN(12) {
			text.WriteString(letters[random.IntN(len(letters))])
		}
		return text.String()
	case 6:
		list := []any{}
		for range random.IntN(4) {
			list = append(list, someValue(random, depth-1))
		}
		return list
	}
	return someMap(random, depth-1)
}

func someMap(random *rand.Rand, depth int) *value.Map {
	m := value.NewMap()
	for i := range random.IntN(5) {
		m.Set("key "+strconv.Itoa(i), someValue(random, depth))
	}
	return m
}

// debianPython is where Debian's python3-psycopg2 is.
const debianPython = "/usr/lib/python3/dist-packages"

// TestSaltWritesTheSameEvents compares the rows of a master with those of a real Salt for the same events. It needs
// the Python of a Salt, and psycopg2: Debian's, or that in the folder SALTERN_PSYCOPG2 (pip install --target).
func TestSaltWritesTheSameEvents(t *testing.T) {
	python := os.Getenv("SALTERN_PYTHON")
	if python == "" {
		t.Skip("SKIPPED: set SALTERN_PYTHON to a Python with Salt's library")
	}
	psycopg2 := cmp.Or(os.Getenv("SALTERN_PSYCOPG2"), debianPython)
	if found, _ := filepath.Glob(psycopg2 + "/psycopg2/_psycopg.*"); len(found) == 0 {
		t.Skipf("SKIPPED: there is no psycopg2 in %s (apt-get install python3-psycopg2)", psycopg2)
	}

	s := sharedServer(t)
	ours, salts := s.database(t), s.database(t)
	r := openEventRig(t, t.TempDir(), ours, nil)
	bodies := r.bus.Subscribe("test", 1000, nil)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	const events = 300
	var packed []string
	for i := range events {
		tag := "salt/job/" + strconv.Itoa(i) + "/ret/ä"
		check.Must(t, r.bus.Fire(tag, someMap(random, 4)))
		body, err := (<-bodies.C).Body()
		check.Must(t, err)
		packed = append(packed, hex.EncodeToString(body))
	}
	r.taken(events)

	oursBefore := rowsOfEvents(t, s.query(t, ours), "salt_events")
	old := s.query(t, ours)
	await.That(t, "events are older than keep_jobs_seconds", func() bool {
		return count(t, old, "SELECT count(*) FROM salt_events WHERE alter_time > now() - interval '1 second'") == 0
	})
	question, err := json.Marshal(map[string]any{
		"psycopg2": psycopg2,
		"port":     s.port,
		"ours":     ours.Database,
		"salts":    salts.Database,
		"events":   packed,
	})
	check.Must(t, err)
	cmd := exec.CommandContext(t.Context(), python, "-I", "-c", saltsEvents)
	cmd.Stdin = bytes.NewReader(question)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	got := rowsOfEvents(t, s.query(t, salts), "salt_events")
	if len(got) != events || !slices.Equal(got, oursBefore) {
		t.Errorf("seed %d: Salt has %d rows, the master %d", seed, len(got), len(oursBefore))
		for i := range min(len(got), len(oursBefore)) {
			if got[i] != oursBefore[i] {
				t.Fatalf("Salt:   %s\nmaster: %s", got[i], oursBefore[i])
			}
		}
	}
	conn := s.query(t, ours)
	if archived := rowsOfEvents(t, conn, "salt_events_archive"); !slices.Equal(archived, oursBefore) {
		t.Errorf("Salt has archived %d rows of %d", len(archived), len(oursBefore))
	}
	if n := count(t, conn, "SELECT count(*) FROM salt_events"); n != 0 {
		t.Errorf("Salt has left %d rows", n)
	}
}

// rowsOfEvents returns the rows of a table of events in their order.
func rowsOfEvents(t testing.TB, conn *pgx.Conn, table string) []string {
	t.Helper()
	rows, err := conn.Query(context.Background(), "SELECT concat_ws(' ', tag, master_id, data::text) FROM "+table+" ORDER BY id")
	check.Must(t, err)
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	check.Must(t, err)
	return got
}
