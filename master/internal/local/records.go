package local

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/internal/past"
	"saltern/master/runner"
	"saltern/master/value"
)

// Bounds of the answer of audit.records, in number of records.
const (
	maxRecords     = 500
	defaultRecords = 50
)

// Records returns the runner audit.records. That runner returns the records of this master, its
// tools and salt-api, the oldest first. Its named arguments are: since, a duration such as 24h or
// 7d, or a time of RFC 3339; user; action, a shell pattern; last, a number; acts, to leave out what only
// reads; refused, for what was refused or failed. Only one call reads records at a time, because there may be
// 128 MiB of them; further calls wait.
func Records(from audit.Config, now func() time.Time) runner.Func {
	return records("audit.records", now, func(ctx context.Context, q audit.Query) (*value.Map, error) {
		page, err := audit.Read(ctx, from.Node, q, from.Dir)
		if err != nil {
			return nil, err
		}
		return pageMap(page, "node", from.Node), nil
	})
}

// AllRecords returns the runner audit.all. That runner returns the records of all nodes, including
// those of supervisors. It has the arguments of audit.records.
func AllRecords(ask func(context.Context, audit.Query) (audit.List, error), now func() time.Time) runner.Func {
	return records("audit.all", now, func(ctx context.Context, q audit.Query) (*value.Map, error) {
		list, err := ask(ctx, q)
		if err != nil {
			return nil, err
		}
		unasked := value.NewMap()
		for _, node := range slices.Sorted(maps.Keys(list.Unasked)) {
			unasked.Set(node, list.Unasked[node])
		}
		return pageMap(list.Page, "unasked", unasked), nil
	})
}

// records returns the runner with the given name, which calls query to read the records. Only one
// call reads at a time.
func records(
	name string,
	now func() time.Time,
	query func(context.Context, audit.Query) (*value.Map, error),
) runner.Func {
	turn := make(chan struct{}, 1)
	return func(ctx context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
		q, err := recordsQuery(args, named, now())
		if err != nil {
			return nil, &runner.ArgumentError{
				Reason: err.Error(),
				Usage:  "salt-run " + name + " [since=24h] [user=NAME] [action='key.*'] [last=50] [acts=True] [refused=True]",
			}
		}

		select {
		case turn <- struct{}{}:
			defer func() { <-turn }()
		case <-ctx.Done():
			return nil, fmt.Errorf("wait to read the audit records: %w", ctx.Err())
		}

		return query(ctx, q)
	}
}

// pageMap returns a page of records as a map. The map also contains v; the argument whose is its
// key.
func pageMap(p audit.Page, whose string, v any) *value.Map {
	out := make([]any, 0, len(p.Records))
	for _, r := range p.Records {
		out = append(out, recordMap(r))
	}
	return value.NewMap(whose, v, "records", out, "more", p.More, "damaged", int64(p.Damaged))
}

func recordsQuery(args []any, named *value.Map, now time.Time) (audit.Query, error) {
	q := audit.Query{
		User:    named.Str("user"),
		Action:  named.Str("action"),
		Last:    defaultRecords,
		Acts:    named.Bool("acts"),
		Refused: named.Bool("refused"),
	}
	if len(args) > 0 {
		return q, fmt.Errorf("records() takes 0 positional arguments but %d were given", len(args))
	}
	for _, k := range []string{"user", "action"} {
		if _, err := runner.TextArgument(k, named.Value(k)); err != nil {
			return q, err
		}
	}

	for _, k := range named.Keys() {
		switch k {
		case "since", "user", "action", "last", "acts", "refused":
		default:
			if !strings.HasPrefix(k, "__") {
				return q, fmt.Errorf("records() got an unexpected keyword argument '%.40s'", k)
			}
		}
	}

	if v, ok := named.Get("last"); ok {
		n, err := strconv.Atoi(value.StrMax(v, 20))
		if err != nil || n < 1 || n > maxRecords {
			return q, fmt.Errorf("last is a number from 1 to %d", maxRecords)
		}
		q.Last = n
	}

	var err error
	if since := named.Str("since"); since != "" {
		if q.Since, err = past.Time(since, now); err != nil {
			return q, fmt.Errorf("since: %w", err)
		}
	}

	return audit.ParseQuery(q.Values())
}

// recordMap returns a record as a map with the keys of its JSON, without empty fields.
func recordMap(r audit.Record) *value.Map {
	m := value.NewMap("time", r.Time.UTC().Format(time.RFC3339Nano), "node", r.Node, "program", r.Program)
	for _, f := range []struct{ name, text string }{
		{"user", r.User},
		{"proof", string(r.Proof)},
		{"as", r.As},
		{"eauth", r.Eauth},
		{"from", r.From},
		{"via", r.Via},
		{"action", r.Action},
		{"object", r.Object},
		{"function", r.Function},
		{"jid", r.JID},
		{"result", string(r.Result)},
		{"detail", r.Detail},
		{"op", r.Op},
		{"chain", r.Chain},
	} {
		if f.text != "" {
			m.Set(f.name, f.text)
		}
	}

	if r.Minions > 0 {
		m.Set("minions", int64(r.Minions))
	}

	if r.Limited {
		m.Set("limited", true)
	}

	for _, f := range []struct {
		name  string
		count uint64
	}{{"lost", r.Lost}, {"more", r.More}, {"seq", r.Seq}} {
		if f.count > 0 {
			m.Set(f.name, int64(min(f.count, 1<<53)))
		}
	}

	if len(r.Kinds) > 0 {
		kinds := value.NewMap()
		for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
			kinds.Set(kind, int64(min(r.Kinds[kind], 1<<53)))
		}
		m.Set("kinds", kinds)
	}

	return m
}
