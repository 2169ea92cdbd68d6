package postgres

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"saltern/internal/printable"
	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/keys"
)

// Bounds of a page of runs.
const (
	maxRuns    = 1000
	maxSummary = 64 << 10 // bytes of a summary; larger ones are left out
	maxRunJID  = 64       // bytes of a job id in a cursor, as for the id of a minion maxText
)

// Runs returns runs in the order of [history.Store.Query], the latest first: at most limit and at most 1,000 of those
// that the filter selects, beginning after the page whose Next is from. It leaves out rows that hold no run.
func (l *Lookups) Runs(ctx context.Context, filter history.Filter, limit int, from history.Cursor) (history.Page, error) {
	q := runsQuery{limit: min(max(limit, 1), maxRuns)}
	if err := q.build(&filter, from, l.cfg.Now()); err != nil {
		return history.Page{}, err
	}

	var page history.Page
	err := l.ask(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		var err error
		page, err = q.read(ctx, conn)
		return err
	})
	return page, err
}

// runsQuery is a question for runs.
type runsQuery struct {
	limit      int
	conditions []string
	args       []any
}

// where adds a condition with one argument, for which it has %s.
func (q *runsQuery) where(condition string, arg any) {
	q.args = append(q.args, arg)
	q.conditions = append(q.conditions, fmt.Sprintf(condition, fmt.Sprintf("$%d", len(q.args))))
}

// build makes the conditions. Times that a master cannot have written are left out: the cursor of a page holds none.
func (q *runsQuery) build(f *history.Filter, from history.Cursor, now time.Time) error {
	earliest := time.Unix(0, 0)
	if f.From.After(earliest) {
		earliest = f.From
	}
	latest := now.Add(24 * time.Hour)
	if !f.To.IsZero() && f.To.Before(latest) {
		latest = f.To
	}
	q.where("time >= %s", earliest)
	q.where("time < %s", latest)
	q.where("octet_length(jid) <= %s", maxRunJID)
	q.where("octet_length(minion) <= %s", maxText)
	// The history does not have these either: the audit record tells who called them.
	q.where("function NOT LIKE ALL (%s)", []string{"runner.%", "wheel.%"})

	for _, c := range []struct{ condition, want string }{
		{"minion = %s", f.Minion},
		{"jid = %s", f.JID},
		{"user_name = %s", f.User},
		{"%[1]s = ANY(function || string_to_array(function, ','))", f.Function},
		{`EXISTS (SELECT 1 FROM saltern_states s
			WHERE s.jid = r.jid AND s.minion = r.minion AND s.kind IN ('failed', 'changed') AND s.id = %s)`, f.State},
	} {
		if strings.Contains(c.want, "\x00") {
			q.where("%s", false) // no text in the database has one
		} else if c.want != "" {
			q.where(c.condition, c.want)
		}
	}

	var words []string
	for _, r := range f.Results {
		words = append(words, r.String())
	}
	if len(words) > 0 {
		q.where("result = ANY(%s)", words)
	}
	return q.beginAfter(from)
}

// beginAfter adds the condition that a run comes after the page of a cursor. The database keeps microseconds.
func (q *runsQuery) beginAfter(from history.Cursor) error {
	if from == "" {
		return nil
	}
	at, jid, minion, err := from.Place()
	if err != nil {
		return err
	}

	q.args = append(q.args, at.Truncate(time.Microsecond), jid, minion)
	n := len(q.args)
	q.conditions = append(q.conditions, fmt.Sprintf(`time <= $%d AND (time < $%d OR jid COLLATE "C" < $%d
		OR jid = $%d AND minion COLLATE "C" > $%d)`, n-2, n-2, n-1, n-1, n))
	return nil
}

// read returns the page of the question.
func (q *runsQuery) read(ctx context.Context, conn *pgx.Conn) (page history.Page, err error) {
	rows, err := conn.Query(ctx, fmt.Sprintf(`
		SELECT time, jid, minion, left(user_name, %d), left(function, %d),
			CASE WHEN octet_length(summary) <= %d THEN summary END
		FROM saltern_runs r WHERE %s
		ORDER BY time DESC, jid COLLATE "C" DESC, minion COLLATE "C" LIMIT %d`,
		maxText, maxText, maxSummary, strings.Join(q.conditions, " AND "), q.limit), q.args...)
	if err != nil {
		return page, fmt.Errorf("read runs: %w", err)
	}
	defer rows.Close()

	count := 0
	var last history.Run
	for rows.Next() {
		var run history.Run
		var packed []byte
		if err := rows.Scan(&run.Time, &run.JID, &run.Minion, &run.User, &run.Function, &packed); err != nil {
			return page, fmt.Errorf("read a run: %w", err)
		}
		run.Time = run.Time.UTC()
		count++
		last = run
		if completeRun(&run, packed) {
			page.Runs = append(page.Runs, run)
		}
	}
	if err := rows.Err(); err != nil {
		if count > 0 {
			err = lateAnswer(err)
		}
		return page, fmt.Errorf("read runs: %w", err)
	}
	if count == q.limit {
		page.Next = history.After(&last)
	}
	return page, nil
}

// completeRun sets the summary of a run. It returns false if the row holds no run of a master.
func completeRun(run *history.Run, packed []byte) bool {
	s, err := summary.Parse(packed)
	if err != nil || !jobs.Valid(run.JID) || keys.ValidID(run.Minion) != nil {
		return false
	}

	run.User = cleanText(run.User)
	run.Function = cleanText(run.Function)
	texts := []*string{&s.Function, &s.Revision}
	for _, list := range [][]summary.State{s.FailedStates, s.ChangedStates, s.Slowest} {
		for i := range list {
			state := &list[i]
			texts = append(texts, &state.ID, &state.SLS, &state.Name, &state.Function, &state.Comment, &state.Changes)
		}
	}
	for _, text := range texts {
		*text = printable.Text(*text)
	}
	run.Summary = s
	return true
}
