package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// migrations are the versions of the schema, the first one first. They are never changed once released:
// a change is another version, and only adds things, since masters of the version before go on writing.
var migrations = []string{schema1, schema2}

// Versions of the schema that a connection needs. One that writes no events leaves a schema without them as it is, so
// that a role without the right to create tables goes on after an upgrade of the master.
const (
	schemaOfReturns = 1
	schemaOfEvents  = 2
)

// Salt's tables are as the head of salt/returners/pgjsonb.py has them, without its indexes of the
// insides of returns (gin), with which the database takes half as many returns; docs/postgresql.md has them.
const schema1 = `
CREATE TABLE IF NOT EXISTS jids (
	jid varchar(255) NOT NULL PRIMARY KEY,
	load jsonb NOT NULL
);

CREATE TABLE IF NOT EXISTS salt_returns (
	fun varchar(50) NOT NULL,
	jid varchar(255) NOT NULL,
	return jsonb NOT NULL,
	id varchar(255) NOT NULL,
	success varchar(10) NOT NULL,
	full_ret jsonb NOT NULL,
	alter_time timestamp with time zone DEFAULT now()
);
CREATE INDEX IF NOT EXISTS idx_salt_returns_id ON salt_returns (id);
CREATE INDEX IF NOT EXISTS idx_salt_returns_fun ON salt_returns (fun);
CREATE INDEX IF NOT EXISTS saltern_returns_jid_id ON salt_returns (jid, id);

CREATE SEQUENCE IF NOT EXISTS seq_salt_events_id;
CREATE TABLE IF NOT EXISTS salt_events (
	id bigint NOT NULL UNIQUE DEFAULT nextval('seq_salt_events_id'),
	tag varchar(255) NOT NULL,
	data jsonb NOT NULL,
	alter_time timestamp with time zone DEFAULT now(),
	master_id varchar(255) NOT NULL
);
CREATE INDEX IF NOT EXISTS idx_salt_events_tag ON salt_events (tag);

CREATE TABLE saltern_runs (
	jid varchar(255) NOT NULL,
	minion varchar(255) NOT NULL,
	time timestamp with time zone NOT NULL,
	user_name text NOT NULL,
	function text NOT NULL,
	result text NOT NULL,
	ok bigint NOT NULL,
	changed bigint NOT NULL,
	would_change bigint NOT NULL,
	failed bigint NOT NULL,
	seconds double precision NOT NULL,
	retcode bigint NOT NULL,
	test boolean NOT NULL,
	revision text NOT NULL,
	summary bytea NOT NULL,
	adapted text[] NOT NULL,
	node text NOT NULL,
	PRIMARY KEY (jid, minion)
);
CREATE INDEX saltern_runs_time ON saltern_runs (time DESC, jid DESC, minion);
CREATE INDEX saltern_runs_minion ON saltern_runs (minion, time DESC);

CREATE TABLE saltern_states (
	jid varchar(255) NOT NULL,
	minion varchar(255) NOT NULL,
	kind text NOT NULL,
	number smallint NOT NULL,
	id text NOT NULL,
	sls text NOT NULL,
	name text NOT NULL,
	function text NOT NULL,
	comment text NOT NULL,
	changes text NOT NULL,
	cause text NOT NULL,
	seconds double precision NOT NULL,
	PRIMARY KEY (jid, minion, kind, number)
);
CREATE INDEX saltern_states_id ON saltern_states (id);
`

// schema2 has how far each writer's events are in salt_events: see lockWriters.
const schema2 = `
CREATE TABLE saltern_event_writers (
	writer text NOT NULL PRIMARY KEY,
	master_id text NOT NULL,
	last bigint NOT NULL,
	time timestamp with time zone NOT NULL
);
`

// migrationLock is the key of the advisory lock under which one master at a time migrates: "saltern1".
const migrationLock = 0x73616c7465726e31

// neededEventColumns are neededColumns for events.
var neededEventColumns = []string{
	"salt_events.tag", "salt_events.data jsonb", "salt_events.alter_time", "salt_events.master_id",
}

// neededColumns are those of Salt's tables that this package uses, with their type where it matters. Tables that
// were there before may lack them, or be those of Salt's returner postgres, whose columns are texts.
var neededColumns = []string{
	"jids.jid", "jids.load jsonb",
	"salt_returns.fun", "salt_returns.jid", "salt_returns.return jsonb", "salt_returns.id", "salt_returns.success",
	"salt_returns.full_ret jsonb", "salt_returns.alter_time",
}

// migrate brings the schema to the newest version that this master knows. A database of a later version is
// left as it is. A role without the right to create tables can use a schema that is complete.
func migrate(ctx context.Context, conn *pgx.Conn) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		for _, statement := range []string{
			"SET LOCAL statement_timeout = 0",
			"SET LOCAL lock_timeout = 0",
			fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", int64(migrationLock)),
			`CREATE TABLE IF NOT EXISTS saltern_schema (
				version int NOT NULL PRIMARY KEY,
				applied timestamp with time zone NOT NULL DEFAULT now()
			)`,
		} {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("prepare the tables: %w", err)
			}
		}

		// Another master may have migrated meanwhile.
		version, err := schemaVersion(ctx, tx)
		if err != nil {
			return err
		}
		for ; version < len(migrations); version++ {
			if _, err := tx.Exec(ctx, migrations[version]); err != nil {
				return fmt.Errorf("create version %d of the tables: %w", version+1, err)
			}
			if _, err := tx.Exec(ctx, "INSERT INTO saltern_schema (version) VALUES ($1)", version+1); err != nil {
				return fmt.Errorf("note version %d of the tables: %w", version+1, err)
			}
		}
		return checkColumns(ctx, tx, neededColumns)
	})
}

// querier is a connection or a transaction.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// schemaVersion returns the version of the schema, or 0 if there is none.
func schemaVersion(ctx context.Context, q querier) (version int, err error) {
	var exists bool
	if err := q.QueryRow(ctx, "SELECT to_regclass('saltern_schema') IS NOT NULL").Scan(&exists); err != nil {
		return 0, fmt.Errorf("look for the tables: %w", err)
	}
	if !exists {
		return 0, nil
	}
	if err := q.QueryRow(ctx, "SELECT coalesce(max(version), 0) FROM saltern_schema").Scan(&version); err != nil {
		return 0, fmt.Errorf("read the version of the tables: %w", err)
	}
	return version, nil
}

// checkColumns returns an error if Salt's tables lack one of these columns, or have it with another type.
func checkColumns(ctx context.Context, q querier, needed []string) error {
	rows, err := q.Query(ctx, `SELECT c.relname || '.' || a.attname ||
			CASE WHEN a.atttypid = 'jsonb'::regtype THEN ' jsonb' ELSE '' END
		FROM pg_attribute a
		JOIN pg_class c ON c.oid = a.attrelid
		WHERE a.attnum > 0 AND NOT a.attisdropped
			AND c.oid IN (to_regclass('jids'), to_regclass('salt_returns'), to_regclass('salt_events'))`)
	if err != nil {
		return fmt.Errorf("look at the tables: %w", err)
	}
	columns, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("look at the tables: %w", err)
	}

	var missing []string
	for _, name := range needed {
		if !slices.Contains(columns, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("tables that were there before are not those of Salt's pgjsonb, they lack %s: "+
			"rename them, or name another database", strings.Join(missing, ", "))
	}
	return nil
}
