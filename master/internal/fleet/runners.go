package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/past"
	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/pattern"
	"saltern/master/runner"
	"saltern/master/value"
)

// Bounds of an answer, in number of minions, runs or states.
const (
	maxLimit     = 1000
	maxBrief     = 10_000 // minions in a brief answer
	defaultLimit = 50
)

// errNoHistory is the error of all runners of a master without a history.
var errNoHistory = errors.New("this master keeps no history of runs: see job_cache, ext_job_cache and saltern_history_days")

// function is a runner and its named arguments.
type function struct {
	names string
	do    func(context.Context, *Fleet, arguments) (any, error)
}

// jobFunction is the runner fleet.jobs, which also needs the job cache.
const jobFunction = "fleet.jobs"

const jobNames = "jid minion function user result since until limit page"

var functions = map[string]function{
	"fleet.summary": {"since", summaryOf},
	"fleet.trend":   {"", trendMap},
	"fleet.last":    {"minion result state brief limit after", lastOf},
	"fleet.runs":    {"minion function user result state jid since until limit page", runsOf},
	"fleet.drift":   {"minion function user state since until limit", driftOf},
	"fleet.search":  {"text minion function user result since until limit", searchOf},
}

// AddRunners adds the runners fleet.*. f may be nil: the master keeps no history.
func AddRunners(t *runner.Table, f *Fleet) {
	for name, fn := range functions {
		t.Add(name, func(ctx context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
			return f.call(ctx, name, fn, args, named)
		})
	}
	t.Add(jobFunction, func(ctx context.Context, env *runner.Env, args []any, named *value.Map) (any, error) {
		do := func(ctx context.Context, f *Fleet, a arguments) (any, error) { return jobsOf(ctx, f, env.Jobs, a) }
		return f.call(ctx, jobFunction, function{jobNames, do}, args, named)
	})
}

// call calls a runner. While the history lacks runs that are still to come, it adds partial: True to the answer. f may
// be nil.
func (f *Fleet) call(ctx context.Context, name string, fn function, args []any, named *value.Map) (any, error) {
	if f == nil {
		return nil, errNoHistory
	}
	bound, err := bind(fn.names, args, named, f.now())
	if err == nil {
		isPartial := f.recorder.isPartial() // before it reads: what comes meanwhile may be missing
		var v any
		if v, err = fn.do(ctx, f, bound); err == nil {
			if answer, ok := v.(*value.Map); ok && isPartial {
				answer.Set("partial", true)
			}
			return v, nil
		}
	}
	var wrong argumentError
	if errors.As(err, &wrong) {
		return nil, &runner.ArgumentError{Reason: wrong.Error(), Usage: usageOf(name, fn.names)}
	}
	return nil, err
}

// argumentError is a fault in the arguments of a call.
type argumentError string

func (e argumentError) Error() string { return string(e) }

func usageOf(name, names string) string {
	words := []string{"salt-run", name}
	for n := range strings.FieldsSeq(names) {
		words = append(words, "["+n+"=...]")
	}
	return strings.Join(words, " ")
}

// namesOnly are the arguments that name something, of which each has to be a text.
var namesOnly = []string{"minion", "function", "user", "state", "after"}

// arguments are the arguments of a call by name.
type arguments struct {
	texts map[string]string
	now   time.Time
}

func bind(names string, args []any, named *value.Map, now time.Time) (arguments, error) {
	const longest = 500 // bytes of an argument
	bounds := map[string]int{"jid": maxJIDs * maxJIDBytes}
	known := strings.Fields(names)
	a := arguments{texts: map[string]string{}, now: now}
	if len(args) > len(known) {
		return a, argumentError(fmt.Sprintf("takes %d arguments but %d were given", len(known), len(args)))
	}

	set := func(name string, v any) error {
		if v == nil {
			return nil
		}
		_, isFraction := v.(float64)
		if slices.Contains(namesOnly, name) || (name == "jid" || name == "text") && isFraction {
			if _, err := runner.TextArgument(name, v); err != nil {
				return argumentError(err.Error())
			}
		}
		most := max(longest, bounds[name])
		text := value.StrMax(v, most)
		if len(text) > most {
			return argumentError(name + " is too long")
		}
		a.texts[name] = text
		return nil
	}
	for i, v := range args {
		if err := set(known[i], v); err != nil {
			return a, err
		}
	}
	for k, v := range named.All() {
		name, _ := k.(string)
		switch {
		case strings.HasPrefix(name, "__"):
		case !slices.Contains(known, name):
			return a, argumentError(fmt.Sprintf("got an unexpected keyword argument '%.40s'", name))
		default:
			if err := set(name, v); err != nil {
				return a, err
			}
		}
	}
	return a, nil
}

func (a arguments) limit() (int, error) { return a.limitUpTo(maxLimit) }

func (a arguments) limitUpTo(most int) (int, error) {
	text := a.texts["limit"]
	if text == "" {
		return defaultLimit, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > most {
		return 0, argumentError(fmt.Sprintf("limit is a number from 1 to %d", most))
	}
	return n, nil
}

// flag returns an argument that is true or false; without the argument, false.
func (a arguments) flag(name string) (bool, error) {
	switch strings.ToLower(a.texts[name]) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, argumentError(name + " is True or False")
}

// time returns an argument as a time. Without the argument, it returns the time def before now, or
// the zero time if def is 0.
func (a arguments) time(name string, def time.Duration) (time.Time, error) {
	text := a.texts[name]
	switch {
	case text != "":
		t, err := past.Time(text, a.now)
		if _, number := strconv.Atoi(text); err != nil && number == nil {
			// The tool reads 10:00 as YAML: a number to the base of 60.
			return t, argumentError(name + `: a number is no time; a time of today needs quotes of its own: ` + name + `="'10:00'"`)
		}
		if err != nil {
			return t, argumentError(name + ": " + err.Error())
		}
		return t, nil
	case def > 0:
		return a.now.Add(-def), nil
	}
	return time.Time{}, nil
}

func (a arguments) results() (out []summary.Result, err error) {
	for word := range strings.SplitSeq(a.texts["result"], ",") {
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		r, err := summary.ParseResult(word)
		if err != nil {
			return nil, argumentError(err.Error())
		}
		out = append(out, r)
	}
	return out, nil
}

// othersThan returns the names of the arguments that are given beside one.
func (a arguments) othersThan(one string) (others []string) {
	for name, text := range a.texts {
		if name != one && text != "" {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	return others
}

// filter returns the filter that the arguments describe. If since is not given, the filter begins
// back before its end, or with the oldest run if back is 0.
func (a arguments) filter(back time.Duration) (f history.Filter, err error) {
	f = history.Filter{
		Minion:   a.texts["minion"],
		JID:      a.texts["jid"],
		User:     a.texts["user"],
		Function: a.texts["function"],
		State:    a.texts["state"],
	}
	if f.Results, err = a.results(); err != nil {
		return f, err
	}
	if f.JID != "" && !jobs.Valid(f.JID) {
		return f, argumentError("jid is the id of one job, without globs")
	}
	if f.From, err = a.time("since", back); err != nil {
		return f, err
	}
	if f.To, err = a.time("until", 0); err != nil || f.To.IsZero() {
		return f, err
	}

	if a.texts["since"] == "" && back > 0 {
		f.From = f.To.Add(-back)
	}
	if !f.From.Before(f.To) {
		return f, argumentError("since is not before until")
	}
	return f, nil
}

const day = 24 * time.Hour

func summaryOf(ctx context.Context, f *Fleet, a arguments) (any, error) {
	since, err := a.time("since", day)
	if err != nil {
		return nil, err
	}
	s, err := f.Summary(ctx, since)
	if err != nil {
		return nil, err
	}

	last := value.NewMap()
	setResults(last, s.Results)
	last.Set("never", int64(s.NeverRun))

	worst := []any{}
	for _, w := range s.Worst {
		worst = append(worst, value.NewMap(
			"state", w.State,
			"failures", int64(w.Failures),
			"minions", int64(w.Minions),
			"comment", w.Comment,
		))
	}

	return value.NewMap(
		"minions", int64(s.Minions),
		"last_run", last,
		"silent", int64(s.Silent),
		"failed", firstOf(s.Failed),
		"drifted", firstOf(s.Drifted),
		"since", timeText(s.Since),
		"runs", int64(s.Runs),
		"states", value.NewMap(
			"ok", int64(s.States["ok"]),
			"changed", int64(s.States["changed"]),
			"would_change", int64(s.States["would change"]),
			"failed", int64(s.States["failed"]),
		),
		"worst_states", worst,
		"partial", s.Partial,
	), nil
}

func lastOf(_ context.Context, f *Fleet, a arguments) (any, error) {
	brief, err := a.flag("brief")
	if err != nil {
		return nil, err
	}
	most := maxLimit
	if brief {
		most = maxBrief
	}
	limit, err := a.limitUpTo(most)
	if err != nil {
		return nil, err
	}
	results, err := a.results()
	if err != nil {
		return nil, err
	}

	glob := a.texts["minion"]
	state := a.texts["state"]
	out := value.NewMap()
	shown, next := "", ""
	after := a.texts["after"]
	all, _ := f.recorder.table.snapshot(f.accepted())
	for i := range all {
		one := &all[i]
		if one.minion <= after || glob != "" && !pattern.Glob(glob, one.minion) {
			continue
		}
		ran := one.run.JID != ""
		if len(results) > 0 && !(ran && slices.Contains(results, one.run.Result)) {
			continue
		}
		last := one.last()
		if state != "" && !hasState(&last.Summary, state) {
			continue
		}
		if out.Len() == limit {
			next = shown
			break
		}

		if brief {
			out.Set(one.minion, briefMap(&last))
		} else {
			out.Set(one.minion, lastMap(&last))
		}
		shown = one.minion
	}
	return value.NewMap("minions", out, "next", next), nil
}

// hasState reports whether a state with this id failed or changed something in a run.
func hasState(s *summary.Summary, id string) bool {
	is := func(state summary.State) bool { return state.ID == id }
	return slices.ContainsFunc(s.FailedStates, is) || slices.ContainsFunc(s.ChangedStates, is)
}

func runsOf(ctx context.Context, f *Fleet, a arguments) (any, error) {
	filter, err := a.filter(0)
	if err != nil {
		return nil, err
	}
	limit, err := a.limit()
	if err != nil {
		return nil, err
	}

	page, problem, err := f.AllRuns(ctx, filter, limit, history.Cursor(a.texts["page"]))
	if errors.Is(err, history.ErrCursor) {
		return nil, argumentError("page is not one that an answer has named as next")
	}
	if err != nil {
		return nil, err
	}
	out := []any{}
	for i := range page.Runs {
		out = append(out, runMap(&page.Runs[i]))
	}
	answer := value.NewMap("runs", out, "next", string(page.Next))
	if problem != nil {
		answer.Set("older_missing", problem.Error())
	}
	return answer, nil
}

func driftOf(ctx context.Context, f *Fleet, a arguments) (any, error) {
	filter, err := a.filter(day)
	if err != nil {
		return nil, err
	}
	limit, err := a.limit()
	if err != nil {
		return nil, err
	}

	list, more, err := f.Drift(ctx, filter, limit)
	if err != nil {
		return nil, err
	}
	out := []any{}
	for i := range list {
		out = append(out, driftMap(&list[i]))
	}
	return value.NewMap("drift", out, "more", more, "since", timeText(filter.From)), nil
}

func searchOf(ctx context.Context, f *Fleet, a arguments) (any, error) {
	text := strings.ToLower(a.texts["text"])
	if text == "" {
		return nil, argumentError("text is missing: a part of a minion's id, a function, a user, a state, a comment or a change")
	}
	filter, err := a.filter(7 * day)
	if err != nil {
		return nil, err
	}
	limit, err := a.limit()
	if err != nil {
		return nil, err
	}

	out := []any{}
	more := false
	err = f.each(ctx, filter, func(run *history.Run) bool {
		if !contains(run, text) {
			return true
		}
		if len(out) == limit {
			more = true
			return false
		}
		out = append(out, runMap(run))
		return true
	})
	if errors.Is(err, errTooMany) {
		more = true
		err = nil
	}
	if err != nil {
		return nil, err
	}
	return value.NewMap("runs", out, "more", more, "since", timeText(filter.From)), nil
}

// contains reports whether any text of a run contains text, which must be in lower case.
func contains(run *history.Run, text string) bool {
	has := func(s string) bool { return strings.Contains(strings.ToLower(s), text) }
	if has(run.Minion) || has(run.JID) || has(run.Function) || has(run.User) {
		return true
	}
	for _, list := range [][]summary.State{run.Summary.FailedStates, run.Summary.ChangedStates} {
		for i := range list {
			s := &list[i]
			if has(s.ID) || has(s.SLS) || has(s.Name) || has(s.Function) || has(s.Comment) || has(s.Changes) {
				return true
			}
		}
	}
	return false
}
