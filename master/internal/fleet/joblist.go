package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"saltern/master/history"
	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/pattern"
	"saltern/master/value"
)

// Bounds of fleet.jobs.
const (
	maxJIDs     = 200
	maxJIDBytes = 40
	// maxJobRuns bounds the runs that an answer reads to find jobs, and again those that it reads for their
	// outcomes; the last job is read to its end.
	maxJobRuns = 10_000
)

// loads are the loads of jobs, as the job cache has them.
type loads interface {
	Load(ctx context.Context, jid string) (*value.Map, error)
}

// foundJob is a job of the history.
type foundJob struct {
	jid, function, user string
	latest              time.Time // of the returns that were asked for
}

// jobsOf is the runner fleet.jobs: the outcomes of some jobs by id, or the jobs of the runs that a filter
// selects.
func jobsOf(ctx context.Context, f *Fleet, cache loads, a arguments) (any, error) {
	budget := maxJobRuns
	var list []foundJob
	var next history.Cursor
	if text := a.texts["jid"]; text != "" {
		if others := a.othersThan("jid"); len(others) > 0 {
			return nil, argumentError(fmt.Sprintf(
				"jid asks for whole jobs: leave out %s, or call fleet.runs with jid for some of the returns",
				strings.Join(others, " and "),
			))
		}
		for jid := range strings.SplitSeq(text, ",") {
			if !jobs.Valid(jid) || len(list) == maxJIDs {
				return nil, argumentError("jid is a job id, or up to 200 of them with commas between them")
			}
			list = append(list, foundJob{jid: jid})
		}
	} else {
		var err error
		if list, next, err = f.findJobs(ctx, a, &budget); err != nil {
			return nil, err
		}
		budget = maxJobRuns
	}

	out := []any{}
	for i := range list {
		m, err := f.jobMap(ctx, cache, &list[i], &budget)
		if err != nil {
			return nil, err
		}
		out = append(out, m)
	}
	return value.NewMap("jobs", out, "next", string(next)), nil
}

// findJobs returns the jobs of the runs that the arguments select, and where the next page begins. A page
// that reads maxJobRuns runs may have fewer jobs than asked for.
func (f *Fleet) findJobs(ctx context.Context, a arguments, budget *int) (list []foundJob, next history.Cursor, err error) {
	filter, err := a.filter(0)
	if err != nil {
		return nil, "", err
	}
	limit, err := a.limitUpTo(maxJIDs)
	if err != nil {
		return nil, "", err
	}
	asked := filter // with its globs
	wanted, _ := globsOf(&filter)

	from := history.Cursor(a.texts["page"])
	seen := map[string]bool{}
	for *budget > 0 {
		const pageSize = 1000
		page, err := f.Runs(ctx, filter, pageSize, from)
		if errors.Is(err, history.ErrCursor) {
			return nil, "", argumentError("page is not one that an answer has named as next")
		}
		if err != nil {
			return nil, "", err
		}

		for i := range page.Runs {
			run := &page.Runs[i]
			*budget--
			if seen[run.JID] || !wanted(run) {
				continue
			}
			if len(list) == limit || *budget < 0 { // the next page begins with this run
				if i > 0 {
					from = history.After(&page.Runs[i-1])
				}
				return list, from, nil
			}
			seen[run.JID] = true
			earlier, err := f.wasListed(ctx, run, asked, a.texts["page"], budget)
			if err != nil {
				return nil, "", err
			}
			if !earlier {
				list = append(list, foundJob{run.JID, run.Function, run.User, run.Time})
			}
		}
		if from = page.Next; from == "" {
			return list, "", nil
		}
	}
	return list, from, nil
}

// wasListed reports whether an earlier page has the job of a run, because the filter, which may have globs,
// selects another run of it that comes before this one. Runs of one minion are in one page only.
func (f *Fleet) wasListed(ctx context.Context, run *history.Run, filter history.Filter, page string, budget *int) (bool, error) {
	if page == "" || filter.Minion != "" && !pattern.HasMeta(filter.Minion) {
		return false, nil
	}

	filter.JID = run.JID
	filter.From = run.Time
	first, read, err := f.first(ctx, filter)
	*budget -= read
	if err != nil || first == nil {
		return false, err
	}
	return first.Minion != run.Minion || !first.Time.Equal(run.Time), nil
}

// jobMap returns a job with its outcome. The outcome is left out if budget is used up, and what only the load
// has if the job cache does not have the job any more.
func (f *Fleet) jobMap(ctx context.Context, cache loads, j *foundJob, budget *int) (*value.Map, error) {
	m := value.NewMap("jid", j.jid)
	load, err := cache.Load(ctx, j.jid)
	if ctx.Err() != nil {
		return nil, err
	}
	if err != nil { // damaged: the history has the rest
		load = nil
	}
	addressed := f.addressedBy(load)
	started := j.latest
	if at, err := jobs.Time(j.jid); err == nil && !isAhead(j.jid, f.now()) {
		started = at
	}
	m.Set("time", timeText(started))
	m.Set("function", cmp.Or(j.function, summary.FunctionOf(load)))
	m.Set("user", cmp.Or(j.user, load.Str("user")))
	if load != nil {
		target, kind := jobs.Target(load)
		m.Set("target", value.StrMax(target, 200))
		m.Set("target_type", value.Str(cmp.Or(kind, any(""))))
	}
	if addressed.minions > 0 {
		m.Set("minions", int64(addressed.minions))
	}
	if addressed.pending > 0 {
		m.Set("pending", int64(addressed.pending))
	}
	if addressed.leftOut > 0 {
		m.Set("left_out", int64(addressed.leftOut))
	}

	out, ok, err := f.readOutcome(ctx, j.jid, budget)
	if err != nil || !ok {
		return m, err
	}
	m.Set("ok", int64(out.OK))
	m.Set("failed", int64(out.Failed))
	m.Set("changed", int64(out.Changed))
	m.Set("would_change", int64(out.WouldChange))
	m.Set("error", int64(out.Error))
	if addressed.minions > 0 {
		m.Set("absent", int64(max(0, addressed.minions-addressed.pending-out.OK-out.Failed)))
	}
	return m, nil
}

// addressed says how many minions a job is for.
type addressed struct {
	minions int
	pending int // those that a batch has not sent the job to, without leftOut
	leftOut int // those that did not answer the ping of a batch, and do not get the job
}

// addressedBy returns the minions of a job, without syndics. The load of a batch lists those of its slices up to
// now.
func (f *Fleet) addressedBy(load *value.Map) addressed {
	sent := 0
	for _, id := range load.List("Minions") {
		if id, _ := id.(string); !f.isMute(id) {
			sent++
		}
	}
	of := load.Map(jobs.BatchField)
	all, isBatch := of.Int("minions")
	if !isBatch {
		return addressed{minions: sent}
	}

	notPinged, _ := of.Int("absent")
	leftOut := max(0, int(notPinged))
	known := sent + leftOut
	return addressed{
		minions: max(known, int(all)),
		pending: max(0, int(all)-known),
		leftOut: leftOut,
	}
}
