package fleet

import (
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
