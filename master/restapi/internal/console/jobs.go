package console

import (
	"context"
	"strings"

	"saltern/master/jobs"
	"saltern/master/output"
	"saltern/master/value"
)

// job is one line of a list of jobs.
type job struct {
	JID, Function, Target, Type, User string
	Start                             moment
	Args                              string
	// Saved is the saved job that started it, and Schedule the entry of the schedule that ran that; "" for none.
	Saved, Schedule string
}

// jobOf returns a job in the answer of the runner jobs.
func (v *visit) jobOf(jid string, m *value.Map) job {
	j := job{
		JID:      jid,
		Function: briefName(functionOf(m)),
		Target:   briefName(targetText(m.Value("Target"), maxName)),
		Type:     briefName(m.Str("Target-type")),
		User:     briefName(m.Str("User")),
		Start:    momentAt(v.now, jidTime(jid)),
		Saved:    briefName(m.Map("Saved").Str("job")),
		Schedule: briefName(m.Map("Saved").Str("schedule")),
	}

	for _, a := range m.List("Arguments") {
		if s, ok := a.(string); ok {
			j.Args += cutText(s, maxName) + " "
		} else {
			j.Args += argText(a) + " "
		}

		if len(j.Args) > maxName {
			break
		}
	}

	j.Args = briefName(strings.TrimSpace(j.Args))
	return j
}

// argText returns an argument that is no text, of a map of named arguments as on a command line: test=True.
func argText(a any) string {
	m, ok := a.(*value.Map)
	if !ok || m.Value("__kwarg__") != true {
		return value.StrMax(a, maxName)
	}

	text := ""
	for name, v := range m.All() {
		if name == "__kwarg__" {
			continue
		}
		text += value.StrMax(name, maxName) + "=" + value.StrMax(v, maxName) + " "
		if len(text) > maxName {
			break
		}
	}
	return strings.TrimSpace(text)
}

// targetText returns a target as a user would type it, cut after about maxBytes bytes.
func targetText(v any, maxBytes int) string {
	l, ok := v.([]any)
	if !ok {
		return value.StrMax(v, maxBytes)
	}

	var ids []string
	n := 0
	for _, e := range l {
		s := value.StrMax(e, maxName)
		ids = append(ids, s)
		if n > maxBytes {
			break
		}
		n += len(s) + 1
	}

	return strings.Join(ids, ",")
}

// jobList returns the n newest jobs, the newest first. If runs is set, the list includes runs of
// runners on the master, which each page of the console causes; with polls, also those by which tools ask
// whether a job still runs.
func jobList(ctx context.Context, v *visit, n int, runs, polls bool) ([]job, error) {
	got, err := v.runCommand(ctx, "runner", "jobs.list_jobs_filter", "count", int64(n), "filter_runs", !runs,
		"filter_find_job", !polls)
	if err != nil {
		return nil, err
	}

	l, _ := got.([]any)
	var out []job
	for i := len(l) - 1; i >= 0; i-- {
		m, _ := l[i].(*value.Map)
		if jid := m.Str("JID"); jobs.Valid(jid) {
			out = append(out, v.jobOf(jid, m))
		}
	}

	if len(out) > 1 && out[0].JID < out[len(out)-1].JID {
		for i, k := 0, len(out)-1; i < k; i, k = i+1, k-1 {
			out[i], out[k] = out[k], out[i]
		}
	}

	return out, nil
}

// plainText returns a value as salt prints it, without the minion's name.
func plainText(v any) string {
	if s, ok := v.(string); ok {
		return s
	}
	return output.Render("nested", v, output.Options{StripEscapes: true})
}
