package postgres

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"

	"saltern/master/history/summary"
	"saltern/master/internal/postgres/settings"
	"saltern/master/jobs"
)

// database is a connection that is opened when it is needed. Only one goroutine may use it.
type database struct {
	settings *settings.Settings
	node     string    // name of this machine; id of the master if the connection writes events
	conn     *pgx.Conn // nil: not connected
	opened   time.Time // when conn was opened
	// connectTimeout bounds a connection, with the files that it needs; 0: the constant. Tests set another.
	connectTimeout time.Duration
	// maxAge bounds the age of a connection.
	maxAge time.Duration
	// lockTimeout bounds the wait for a lock in the database, statementTimeout a statement.
	lockTimeout, statementTimeout time.Duration
	// readOnly means that the connection only reads: connect leaves the schema as it is.
	readOnly bool
	// events means that the connection writes events, and nothing else.
	events    bool
	files     files
	password  string // of the last connection; error texts must not show it
	log       *slog.Logger
	announced bool // the log has told of the migration
}

// The temporary tables, into which a transaction copies its rows.
const stagingTables = `
CREATE TEMPORARY TABLE saltern_new_loads (jid text, load jsonb) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE saltern_new_runs (
	jid text, minion text, time timestamp with time zone, user_name text, function text, result text, ok bigint,
	changed bigint, would_change bigint, failed bigint, seconds double precision, retcode bigint, test boolean,
	revision text, summary bytea, adapted text[], node text, success text, ret jsonb, envelope jsonb
) ON COMMIT DELETE ROWS;
CREATE TEMPORARY TABLE saltern_new_states (
	jid text, minion text, kind text, number smallint, id text, sls text, name text, function text, comment text,
	changes text, cause text, seconds double precision
) ON COMMIT DELETE ROWS;
ALTER TABLE saltern_new_runs ALTER COLUMN ret SET STORAGE EXTERNAL, ALTER COLUMN envelope SET STORAGE EXTERNAL;
`

const stagingOfEvents = `
CREATE TEMPORARY TABLE saltern_new_events (
	place bigint, writer text, number bigint, time timestamp with time zone, tag text, data jsonb, master text
) ON COMMIT DELETE ROWS;
`

// connect connects if there is no connection or an old one, and migrates the schema if the connection is to write.
func (d *database) connect(ctx context.Context) error {
	if d.conn != nil && !d.conn.IsClosed() && time.Since(d.opened) < d.maxAge {
		return nil
	}
	d.close()

	short, cancel := context.WithTimeout(ctx, cmp.Or(d.connectTimeout, connectTimeout))
	defer cancel()
	config, err := d.config(short)
	if err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(short, config)
	if err != nil {
		return err
	}

	if !d.readOnly {
		err = d.prepare(ctx, conn)
	}
	if err != nil {
		closeConn(conn)
		return err
	}
	d.conn = conn
	d.opened = time.Now()
	return nil
}

// prepare brings the schema to the newest version, and creates the temporary tables of the session.
func (d *database) prepare(ctx context.Context, conn *pgx.Conn) error {
	short, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	version, err := schemaVersion(short, conn)
	if err != nil {
		return err
	}

	needed, tables := schemaOfReturns, stagingTables
	if d.events {
		needed, tables = schemaOfEvents, stagingOfEvents
	}
	if version < needed {
		if !d.announced {
			d.log.Info("the tables in PostgreSQL are created or changed; that takes minutes if Salt's have many rows",
				"version", version, "to", len(migrations))
			d.announced = true
		}
		long, cancel := context.WithTimeout(ctx, migrateTimeout)
		defer cancel()
		if err := migrate(long, conn); err != nil {
			return err
		}
	}

	staging, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	if d.events {
		if err := checkColumns(staging, conn, neededEventColumns); err != nil {
			return err
		}
	}
	_, err = conn.Exec(staging, tables)
	return err
}

// close ends the connection.
func (d *database) close() {
	if d.conn != nil {
		closeConn(d.conn)
		d.conn = nil
	}
}

func closeConn(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// loadRank is an expression for the rank of a load in jids, of which the highest stays whatever the order: one without
// its content, one that was made of a return, those whose job id a caller chose (jobs.Rank), and all others, such as
// those of Salt.
const loadRank = `CASE WHEN load ? 'saltern_not_stored' THEN 0
		WHEN load ? 'return' THEN 1
		WHEN load->'saltern_rank' = '0' THEN 2
		WHEN load->'saltern_rank' = '1' THEN 3
		ELSE 4 END`

const insertLoads = `
INSERT INTO jids (jid, load)
	SELECT n.jid, n.load FROM saltern_new_loads n
	WHERE NOT EXISTS (SELECT 1 FROM jids j WHERE j.jid = n.jid)
	ORDER BY n.jid, (SELECT ` + loadRank + ` FROM (SELECT n.load) AS l) DESC
	ON CONFLICT DO NOTHING`

// Where another transaction changes the row meanwhile, the database compares with the new one.
const replaceLoads = `
UPDATE jids j SET load = n.load
	FROM (SELECT DISTINCT ON (jid) jid, load, ` + loadRank + ` AS rank FROM saltern_new_loads ORDER BY jid, rank DESC) n
	WHERE j.jid = n.jid AND n.rank > (SELECT ` + loadRank + ` FROM (SELECT j.load) AS l)`

// Rows of Salt's returner are never doubled: minions and masters of Salt may write into the same tables.
const insertRuns = `
WITH fresh AS (
	INSERT INTO saltern_runs (jid, minion, time, user_name, function, result, ok, changed, would_change, failed,
			seconds, retcode, test, revision, summary, adapted, node)
		SELECT jid, minion, time, user_name, function, result, ok, changed, would_change, failed,
			seconds, retcode, test, revision, summary, adapted, node
		FROM saltern_new_runs ORDER BY jid, minion
		ON CONFLICT (jid, minion) DO NOTHING
		RETURNING jid, minion
), returns AS (
	INSERT INTO salt_returns (fun, jid, return, id, success, full_ret, alter_time)
		SELECT left(n.function, 50), n.jid, n.ret, n.minion, n.success,
			n.envelope || jsonb_build_object('return', n.ret), n.time
		FROM saltern_new_runs n JOIN fresh f ON f.jid = n.jid AND f.minion = n.minion
		WHERE NOT EXISTS (SELECT 1 FROM salt_returns r WHERE r.jid = n.jid AND r.id = n.minion)
		ON CONFLICT DO NOTHING
), states AS (
	INSERT INTO saltern_states (jid, minion, kind, number, id, sls, name, function, comment, changes, cause, seconds)
		SELECT s.jid, s.minion, s.kind, s.number, s.id, s.sls, s.name, s.function, s.comment, s.changes, s.cause,
			s.seconds
		FROM saltern_new_states s JOIN fresh f ON f.jid = s.jid AND f.minion = s.minion
)
SELECT count(*) FROM fresh`

// The statements that write events, in this order. The row of a writer is locked first: a transaction of a connection
// that was lost has ended then, and its events are known by the last number.
const (
	lockWriters = `
INSERT INTO saltern_event_writers AS w (writer, master_id, last, time)
	SELECT DISTINCT ON (writer) writer, master, 0, now() FROM saltern_new_events ORDER BY writer
	ON CONFLICT (writer) DO UPDATE SET time = excluded.time`

	insertEvents = `
INSERT INTO salt_events (tag, data, alter_time, master_id)
	SELECT n.tag, n.data, n.time, n.master
	FROM saltern_new_events n JOIN saltern_event_writers w ON w.writer = n.writer
	WHERE n.number > w.last ORDER BY n.place`

	moveWriters = `
UPDATE saltern_event_writers w SET last = greatest(w.last, n.last)
	FROM (SELECT writer, max(number) AS last FROM saltern_new_events GROUP BY writer) n WHERE w.writer = n.writer`
)

// write writes a batch in one transaction, and returns how many of its returns and events the database did not have.
// The caller has connected.
func (d *database) write(ctx context.Context, b *batch) (fresh int, err error) {
	return d.transact(ctx, b, func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) })
}

// probe returns an error if the database does not take rows like those of sample under a new job id. It leaves
// nothing there. The caller has connected.
func (d *database) probe(ctx context.Context, sample sample) error {
	if d.events {
		return d.probeEvents(ctx, sample)
	}

	now := time.Now()
	load := record{kind: kindLoad, content: []byte(`{"fun":"test.ping"}`)}
	if sample.load != nil {
		load = *sample.load
	}
	run := record{kind: kindReturn, summary: summary.Append(nil, summary.Summary{}), content: []byte{0x80}} // an empty map
	if sample.run != nil {
		run = *sample.run
	} else if err := d.nameOfNewest(ctx, &run); err != nil {
		return err
	}

	for _, r := range []*record{&load, &run} {
		r.jid = jobs.FromTime(now)
		r.time = now
	}
	return d.tryRows(ctx, load, run)
}

// repeatEvent writes the newest event in the table again, if possible one of this master.
const repeatEvent = `
INSERT INTO salt_events (tag, data, alter_time, master_id)
	SELECT tag, data, now(), master_id
	FROM (SELECT id, tag, data, master_id FROM salt_events ORDER BY id DESC LIMIT 1000) AS newest
	ORDER BY master_id = $1 DESC NULLS LAST, id DESC LIMIT 1`

// probeEvents is probe for events. Without a sample it takes an event that the table has, since the table may refuse
// one that nobody fires.
func (d *database) probeEvents(ctx context.Context, sample sample) error {
	event := record{kind: kindEvent, tag: "salt/event/probe", master: d.node, content: []byte{0x80}} // an empty map
	if sample.event != nil {
		event = *sample.event
	} else if found, err := d.tryNewestEvent(ctx); found || err != nil {
		return err
	}
	event.writer = rand.Text()
	event.number = 1
	event.time = time.Now()
	return d.tryRows(ctx, event)
}

// tryNewestEvent writes an event again that the table has, and takes it back. found is false if the table has none.
func (d *database) tryNewestEvent(ctx context.Context) (found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()

	tx, err := d.conn.Begin(ctx)
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	// A connection that cannot roll back is closed by the client.
	defer func() { _ = tx.Rollback(ctx) }()
	inserted, err := tx.Exec(ctx, repeatEvent, clipRunes(cleanLines(d.node), maxTag))
	if err != nil {
		return false, fmt.Errorf("write the newest event again: %w", err)
	}
	return inserted.RowsAffected() > 0, nil
}

// tryRows writes records, and takes them back.
func (d *database) tryRows(ctx context.Context, records ...record) error {
	b := newBatch(records, d.node, "")
	_, err := d.transact(ctx, b, func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) })
	return err
}

// nameOfNewest sets the minion and the function of a record to those of the newest return in the database, since
// the tables may refuse minions that their administrator does not know.
func (d *database) nameOfNewest(ctx context.Context, r *record) error {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	r.minion = d.node
	r.function = "test.ping"
	err := d.conn.QueryRow(ctx, "SELECT minion, function FROM saltern_runs ORDER BY time DESC, jid DESC LIMIT 1").
		Scan(&r.minion, &r.function)
	if err != nil && !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("look for the newest return: %w", err)
	}
	return nil
}

// transact writes a batch in a transaction, which end ends.
func (d *database) transact(
	ctx context.Context,
	b *batch,
	end func(context.Context, pgx.Tx) error,
) (fresh int, err error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()

	tx, err := d.conn.Begin(ctx)
	if err != nil {
		return 0, fmt.Errorf("begin: %w", err)
	}
	err = copyRows(ctx, tx, b)
	if err == nil {
		fresh, err = insertRows(ctx, tx, b)
	}
	if err == nil {
		err = end(ctx, tx)
	}
	if err != nil {
		// A connection that cannot roll back is closed by the client.
		_ = tx.Rollback(ctx)
		return 0, err
	}
	return fresh, nil
}

func copyRows(ctx context.Context, tx pgx.Tx, b *batch) error {
	for _, t := range []struct {
		table   string
		columns []string
		rows    [][]any
	}{
		{"saltern_new_loads", loadColumns, b.loads},
		{"saltern_new_runs", runColumns, b.runs},
		{"saltern_new_states", stateColumns, b.states},
		{"saltern_new_events", eventColumns, b.events},
	} {
		if len(t.rows) == 0 {
			continue
		}
		if _, err := tx.CopyFrom(ctx, pgx.Identifier{t.table}, t.columns, pgx.CopyFromRows(t.rows)); err != nil {
			return fmt.Errorf("copy rows: %w", err)
		}
	}
	return nil
}

func insertRows(ctx context.Context, tx pgx.Tx, b *batch) (fresh int, err error) {
	if len(b.loads) > 0 {
		for _, statement := range []string{insertLoads, replaceLoads} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return 0, fmt.Errorf("write loads: %w", err)
			}
		}
	}
	if len(b.runs) > 0 {
		if err := tx.QueryRow(ctx, insertRuns).Scan(&fresh); err != nil {
			return 0, fmt.Errorf("write returns: %w", err)
		}
	}
	if len(b.events) > 0 {
		return writeEvents(ctx, tx)
	}
	return fresh, nil
}

// writeEvents writes the events of a batch, and returns how many the database did not have.
func writeEvents(ctx context.Context, tx pgx.Tx) (fresh int, err error) {
	if _, err := tx.Exec(ctx, lockWriters); err != nil {
		return 0, fmt.Errorf("note who writes events: %w", err)
	}
	inserted, err := tx.Exec(ctx, insertEvents)
	if err != nil {
		return 0, fmt.Errorf("write events: %w", err)
	}
	if _, err := tx.Exec(ctx, moveWriters); err != nil {
		return 0, fmt.Errorf("note which events are written: %w", err)
	}
	return int(inserted.RowsAffected()), nil
}

// missing returns those of the records whose returns the database does not have.
func (d *database) missing(ctx context.Context, records []record) ([]record, error) {
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	jids := make([]string, len(records))
	minions := make([]string, len(records))
	for i := range records {
		jids[i] = records[i].jid
		minions[i] = records[i].minion
	}

	rows, err := d.conn.Query(ctx, `
		SELECT n.place - 1 FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS n (jid, minion, place)
		WHERE NOT EXISTS (SELECT 1 FROM saltern_runs r WHERE r.jid = n.jid AND r.minion = n.minion)`, jids, minions)
	if err != nil {
		return nil, fmt.Errorf("ask which returns are missing: %w", err)
	}
	places, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, fmt.Errorf("ask which returns are missing: %w", err)
	}

	var out []record
	for _, place := range places {
		out = append(out, records[place])
	}
	return out, nil
}
