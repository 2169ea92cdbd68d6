package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/value"
)

// firstOf returns the first minions of a list, and how many more there are.
func firstOf(minions []string) []any {
	out := value.List(minions[:min(len(minions), defaultLimit)])
	if more := len(minions) - len(out); more > 0 {
		out = append(out, fmt.Sprintf("and %d more", more))
	}
	return out
}

// wordOf returns the word for a result as a key of a map.
func wordOf(r summary.Result) string { return strings.ReplaceAll(r.String(), " ", "_") }

// timeText returns a time as text. It is UTC, as job ids are.
func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02T15:04:05Z")
}

func lastMap(last *Last) *value.Map {
	out := value.NewMap(
		"answered", timeText(last.Answer.Time),
		"answered_function", last.Answer.Function,
	)
	if last.Run.JID == "" {
		out.Set("result", "never")
		return out
	}

	run := history.Run{
		JID:      last.Run.JID,
		User:     last.Run.User,
		Function: last.Run.Function,
		Time:     last.Run.Time,
		Summary:  last.Summary,
	}
	out.Update(runMap(&run))
	out.Delete("minion")
	return out
}

// briefMap returns the last run of a minion without its states.
func briefMap(last *Last) *value.Map {
	if last.Run.JID == "" {
		return value.NewMap("answered", timeText(last.Answer.Time), "result", "never")
	}
	s := &last.Summary
	return value.NewMap(
		"answered", timeText(last.Answer.Time),
		"result", wordOf(last.Run.Result),
		"time", timeText(last.Run.Time),
		"jid", last.Run.JID,
		"function", last.Run.Function,
		"ok", int64(s.OK),
		"changed", int64(s.Changed),
		"would_change", int64(s.WouldChange),
		"failed", int64(s.Failed),
		"drifted", int64(len(s.Drifted())),
	)
}

// trendMap is the runner fleet.trend.
func trendMap(_ context.Context, f *Fleet, _ arguments) (any, error) {
	t := f.Trend()
	days := []any{}
	for i := range t.Days {
		d := &t.Days[i]
		m := value.NewMap("day", d.Day.Format(time.DateOnly))
		setResults(m, d.Results)
		m.Set("answered", int64(d.Answered))
		m.Set("absent", int64(d.Absent))
		days = append(days, m)
	}

	last := value.NewMap()
	setResults(last, t.Last)
	last.Set("never", int64(t.Never))

	drift := []any{}
	for i := range t.Drift {
		drift = append(drift, driftMap(&t.Drift[i]))
	}
	return value.NewMap(
		"minions", int64(t.Minions),
		"last_run", last,
		"drifted", int64(t.Drifted),
		"days", days,
		"worst_states", spreadMaps(t.Worst),
		"slowest_states", spreadMaps(t.Slowest),
		"drift", drift,
	), nil
}

// setResults writes how many minions, or runs, had each result.
func setResults(m *value.Map, counts map[summary.Result]int) {
	for _, r := range summary.Results() {
		m.Set(wordOf(r), int64(counts[r]))
	}
}

func spreadMaps(list []StateSpread) []any {
	out := []any{}
	for i := range list {
		s := &list[i]
		out = append(out, value.NewMap(
			"id", s.ID,
			"function", s.Function,
			"minions", int64(s.Minions),
			"minion", s.Minion,
			"comment", s.Comment,
			"seconds", s.Longest.Round(time.Microsecond).Seconds(),
		))
	}
	return out
}

func driftMap(d *Drifted) *value.Map {
	m := value.NewMap(
		"minion", d.Minion,
		"time", timeText(d.Time),
		"jid", d.JID,
		"user", d.User,
		"corrected", d.Corrected,
		"revision", d.Revision,
	)
	m.Update(stateMap(&d.State))
	m.Delete("seconds")
	return m
}

// runMap returns a run as a map.
func runMap(run *history.Run) *value.Map {
	s := &run.Summary
	out := value.NewMap(
		"minion", run.Minion,
		"time", timeText(run.Time),
		"jid", run.JID,
		"user", run.User,
		"function", run.Function,
		"result", wordOf(s.Result),
		"test", s.Test,
		"ok", int64(s.OK),
		"changed", int64(s.Changed),
		"would_change", int64(s.WouldChange),
		"failed", int64(s.Failed),
		"seconds", s.Duration.Round(time.Millisecond).Seconds(),
		"retcode", int64(s.Retcode),
	)
	if s.Revision != "" {
		out.Set("revision", s.Revision)
	}
	setStates(out, "failed_states", s.FailedStates)
	setStates(out, "changed_states", s.ChangedStates)
	setStates(out, "slowest_states", s.Slowest)
	return out
}

func setStates(m *value.Map, key string, list []summary.State) {
	var out []any
	for i := range list {
		out = append(out, stateMap(&list[i]))
	}
	if len(out) > 0 {
		m.Set(key, out)
	}
}

// stateMap returns the parts of a state that are known.
func stateMap(s *summary.State) *value.Map {
	out := value.NewMap()
	for _, part := range [][2]string{
		{"id", s.ID},
		{"sls", s.SLS},
		{"name", s.Name},
		{"function", s.Function},
		{"comment", s.Comment},
		{"changes", s.Changes},
		{"cause", s.Cause.String()},
	} {
		if part[1] != "" {
			out.Set(part[0], part[1])
		}
	}
	if s.Duration > 0 {
		out.Set("seconds", s.Duration.Round(time.Microsecond).Seconds())
	}
	return out
}
