package jobs

import (
	"context"
	"slices"
	"strings"
	"time"

	"saltern/master/pattern"
	"saltern/master/value"
)

// Query selects jobs. A job must satisfy every field that is not zero.
type Query struct {
	Functions []string   // globs, one of which must match the function
	Targets   []string   // globs, one of which must match the target
	Metadata  *value.Map // pairs of name and value, one of which the job's metadata must contain
	From, To  time.Time  // earliest and latest start of the job, both included; the zero time for no bound
	NoFindJob bool       // skip jobs that run saltutil.find_job
	NoRuns    bool       // skip runs of runners and wheel functions
	Last      int        // number of the latest jobs to return; 0 for all
}

// Visit calls visit for the jobs that satisfy q, in no particular order. It ignores q.Last.
func Visit(ctx context.Context, c Cache, q Query, visit func(Job) error) error {
	return c.Each(ctx, func(j Job) error {
		if !q.matches(j) {
			return nil
		}
		return visit(j)
	})
}

// Find returns the jobs that satisfy q, sorted by job id. If q.Last is set, Find holds at most that
// number of loads in memory, otherwise the loads of all jobs; see [Visit].
func Find(ctx context.Context, c Cache, q Query) (out []Job, err error) {
	local, ok := c.(interface {
		Newest(context.Context, Query) ([]Job, error)
	})
	if ok && q.listsNewest() {
		return local.Newest(ctx, q)
	}

	err = Visit(ctx, c, q, func(j Job) error {
		if q.Last <= 0 {
			out = append(out, j)
			return nil
		}

		i, _ := slices.BinarySearchFunc(out, j, byID)
		if len(out) == q.Last {
			if i == 0 {
				return nil
			}
			copy(out, out[1:i])
			out[i-1] = j
			return nil
		}

		out = slices.Insert(out, i, j)
		return nil
	})
	if err != nil {
		return nil, err
	}

	slices.SortFunc(out, byID)
	return out, nil
}

func byID(a, b Job) int { return strings.Compare(a.JID, b.JID) }

func (q *Query) matches(j Job) bool {
	if q.NoFindJob && isFindJob(j.Load) || q.NoRuns && isRun(j.Load) {
		return false
	}

	if len(q.Functions) > 0 && !anyGlob(q.Functions, j.Load.Value("fun")) {
		return false
	}
	if len(q.Targets) > 0 {
		if target, _ := Target(j.Load); !anyGlob(q.Targets, target) {
			return false
		}
	}
	if q.Metadata != nil && !anyPair(q.Metadata, Metadata(j.Load)) {
		return false
	}
	if q.From.IsZero() && q.To.IsZero() {
		return true
	}

	t, err := Time(j.JID)
	return err == nil && (q.From.IsZero() || !t.Before(q.From)) && (q.To.IsZero() || !t.After(q.To))
}

// anyGlob reports whether one of the patterns matches a text in v, which is a text or a list of
// texts.
func anyGlob(patterns []string, v any) bool {
	switch v := v.(type) {
	case string:
		return slices.ContainsFunc(patterns, func(p string) bool { return pattern.Glob(p, v) })
	case []any:
		return slices.ContainsFunc(v, func(e any) bool { return anyGlob(patterns, e) })
	}
	return false
}

func anyPair(want *value.Map, have any) bool {
	m, ok := have.(*value.Map)
	if !ok {
		return false
	}
	for k, v := range want.All() {
		if other, ok := m.GetAny(k); ok && value.Equal(v, other) {
			return true
		}
	}
	return false
}

// Target returns the target of a job as it was asked for, and its type. The load of a batch has the minions of
// its last slice in their place. kind is nil if the load does not name it.
func Target(load *value.Map) (target, kind any) {
	if of := load.Map(BatchField); of.Value("tgt") != nil {
		return of.Value("tgt"), of.Value("tgt_type")
	}
	return load.Value("tgt"), load.Value("tgt_type")
}

// Delimiter returns what separates the parts of a job's target, or "" if it is the usual colon.
func Delimiter(load *value.Map) string {
	delimiter := load.Map("kwargs").Str("delimiter")
	if of := load.Map(BatchField); of != nil {
		delimiter = of.Str("delimiter")
	}
	if delimiter == ":" {
		return ""
	}
	return delimiter
}

// Metadata returns the metadata of a job, or nil. The metadata are a field of the load, of its
// kwargs, or of a keyword argument (salt/utils/jid.py format_job_instance).
func Metadata(load *value.Map) any {
	if v, ok := load.Get("metadata"); ok {
		return v
	}

	if v, ok := load.Map("kwargs").Get("metadata"); ok {
		return v
	}

	for _, a := range load.List("arg") {
		if m, ok := a.(*value.Map); ok && m.Bool("__kwarg__") {
			if v, ok := m.Get("metadata"); ok {
				return v
			}
		}
	}

	return nil
}
