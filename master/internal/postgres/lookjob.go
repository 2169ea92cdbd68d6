package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/value"
)

// lookupBounds bound a job that is read from the database.
type lookupBounds struct {
	rows  int // returns
	bytes int // of all returns as JSON
	// text bounds a load or a return as JSON, in bytes. Larger ones are shown as not read.
	text int
}

var standardBounds = lookupBounds{rows: 20_000, bytes: 64 << 20, text: 16 << 20}

const selectLoad = `
SELECT CASE WHEN octet_length(text) <= $2 THEN text END
FROM (SELECT CASE WHEN pg_column_size(load) <= $2 THEN load::text END AS text FROM jids WHERE jid = $1 OFFSET 0) l`

// Of a return this reads what the job cache keeps, too: a list of return, retcode, success and out.
const selectReturns = `
SELECT coalesce(id, ''), CASE WHEN octet_length(text) <= $2 THEN text END
FROM (
	SELECT left(id, 256) AS id, CASE WHEN pg_column_size(full_ret) <= $2 THEN
		jsonb_build_array(full_ret->'return', full_ret->'retcode', full_ret->'success', full_ret->'out')::text
	END AS text
	FROM salt_returns WHERE jid = $1 ORDER BY id, alter_time LIMIT $3
) r`

// Job returns a job as the job cache would: its load without the minions that were expected, which the database does
// not have, and its returns by minion. The load is nil, and returns is empty, if the database does not have them. With
// an error, what it returns is not whole.
func (l *Lookups) Job(ctx context.Context, jid string) (load, returns *value.Map, err error) {
	if !jobs.Valid(jid) {
		return nil, &value.Map{}, nil
	}

	var broken error
	err = l.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var err error
		load, broken = nil, nil
		if load, err = l.readLoad(ctx, conn, jid); errors.Is(err, errNoLoad) {
			broken = err
			err = nil
		}
		if err != nil {
			return err
		}
		returns, err = l.readReturns(ctx, conn, jid)
		return lateAnswer(err)
	})
	if err != nil {
		return nil, &value.Map{}, err
	}
	return load, returns, broken
}

// readLoad returns the load of a job, or nil if there is none.
func (l *Lookups) readLoad(ctx context.Context, conn *pgx.Conn, jid string) (*value.Map, error) {
	var text *string
	err := conn.QueryRow(ctx, selectLoad, jid, l.bounds.text).Scan(&text)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the load of a job: %w", err)
	}

	if text == nil {
		return nil, errNoLoad
	}
	v, err := value.ParseJSON([]byte(*text))
	load, isMap := v.(*value.Map)
	if err != nil || !isMap {
		return nil, errNoLoad
	}
	load.Delete(rankField)
	return load, nil
}

// readReturns returns the returns of a job. It leaves out rows whose minion's id no minion can have.
func (l *Lookups) readReturns(ctx context.Context, conn *pgx.Conn, jid string) (*value.Map, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	rows, err := conn.Query(ctx, selectReturns, jid, l.bounds.text, l.bounds.rows+1)
	if err != nil {
		return nil, fmt.Errorf("read the returns of a job: %w", err)
	}
	defer rows.Close()

	out := &value.Map{}
	count, bytes := 0, 0
	for rows.Next() {
		var id string
		var text *string
		if err := rows.Scan(&id, &text); err != nil {
			return nil, fmt.Errorf("read a return: %w", err)
		}
		count++
		if text != nil {
			bytes += len(*text)
		}
		if count > l.bounds.rows || bytes > l.bounds.bytes {
			cancel() // or else Close reads the rest
			return nil, errTooMuch
		}
		if _, known := out.Get(id); known || keys.ValidID(id) != nil {
			continue // Salt's returner may have written a return as well
		}
		out.Set(id, returnOf(text))
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read the returns of a job: %w", err)
	}
	return out, nil
}

// returnOf returns a return in the form of [jobs.Cache]. text is the list that selectReturns reads; it may be nil: it
// was too large.
func returnOf(text *string) *value.Map {
	reason := "it is too large: read salt_returns in PostgreSQL"
	if text != nil {
		v, err := value.ParseJSON([]byte(*text))
		list, _ := v.([]any)
		if err == nil && len(list) == len(returnFields) {
			out := value.NewMap("return", list[0])
			for i, name := range returnFields[1:] {
				if v := list[i+1]; v != nil {
					out.Set(name, v)
				}
			}
			return out
		}
		reason = "its JSON has too many values, too many levels or a number that is too large: read salt_returns in " +
			"PostgreSQL"
	}
	return value.NewMap("return", value.NewMap("saltern_not_read", reason))
}

// returnFields are the fields of a return that the job cache keeps.
var returnFields = []string{"return", "retcode", "success", "out"}
