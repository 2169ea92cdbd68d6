package schedule

import (
	"context"
	"time"

	"saltern/internal/control"
	"saltern/master/runner"
	"saltern/master/value"
)

// AddRunners adds the runner schedule.list, which Salt does not have.
func (s *Schedule) AddRunners(t *runner.Table) {
	t.Add("schedule.list", func(_ context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
		count, err := countOf(args, named)
		if err != nil {
			return nil, err
		}
		list, err := s.List(count)
		if err != nil {
			return nil, err
		}
		return listOf(list), nil
	})
}

func countOf(args []any, named *value.Map) (int, error) {
	if named.Len() == 0 && len(args) == 0 {
		return control.NextRuns, nil
	}
	count, ok := named.Int("count")
	if len(args) == 1 && named.Len() == 0 {
		count, ok = args[0].(int64)
	}
	if !ok || len(args)+named.Len() != 1 || count < 0 || count > maxListed {
		return 0, &runner.ArgumentError{Reason: "list() takes count, from 0 to 100: how many runs to come of each entry"}
	}
	return int(count), nil
}

// listOf returns a list of entries in the form in which a runner returns it.
func listOf(list control.Schedule) *value.Map {
	entries := value.NewMap()
	for _, e := range list.Entries {
		next := []any{}
		for _, at := range e.Next {
			next = append(next, at.Format(time.RFC3339))
		}

		entry := value.NewMap(
			"function", e.Function,
			"trigger", e.Trigger,
			"enabled", e.Enabled,
			"running", int64(e.Running),
			"next", next,
		)

		if e.DryRun {
			entry.Set("dry_run", true)
		}

		if !e.LastRun.IsZero() {
			entry.Set("last_run", e.LastRun.Format(time.RFC3339))
		}

		if e.LastJob != "" {
			entry.Set("last_jid", e.LastJob)
		}

		if e.Skipped != "" {
			entry.Set("skipped", e.Skipped)
		}

		entries.Set(e.Name, entry)
	}

	for _, p := range list.Refused {
		text := p.Text
		if p.Key != "" {
			text = p.Key + ": " + text
		}

		name := p.Entry
		if name == "" {
			name = "schedule"
		}

		if before := entries.Map(name).Str("does_not_run"); before != "" {
			text = before + "; " + text
		}

		entries.Set(name, value.NewMap("does_not_run", text))
	}

	return value.NewMap("enabled", list.Enabled, "owner", list.Owner, "entries", entries)
}
