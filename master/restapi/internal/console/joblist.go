package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/value"
)

// jobRow is a line of the page Jobs.
type jobRow struct {
	job
	Outcome *jobOutcome // nil: unknown
}

// jobOutcome counts the returns of a job by result, of runs of states by the results that the page Fleet has.
type jobOutcome struct {
	OK, Changed, WouldChange int
	Failed, Error            int
	Absent                   int  // minions that have the job and have not answered
	NotSent                  int  // minions that a batch has not sent the job to, without LeftOut
	LeftOut                  int  // minions that did not answer the ping of a batch, and do not get the job
	Minions                  int  // all that the job is for; 0: unknown
	Live                     bool // the absent ones may still answer
}

type jobsPage struct {
	Fun, Who, Minion string // from the search form: parts of the function and of the user or target, and an id
	Failed           bool   // only jobs that failed on a minion
	All              bool   // include runs of runners on the master
	Polls            bool   // include jobs by which tools ask for others
	Rows             []jobRow
	Newest           int    // number of the newest jobs that were searched at most
	Cut              bool   // there may be older jobs than those that were searched
	OfHistory        bool   // the rows come from the history
	Older            string // URL of what comes after the rows; "" for none
	Back             string // URL of the newest jobs
	History          bool   // the user may see the history
	Stream           string // "" if the page does not follow new jobs
	pager
}

// Begun returns the number of minions that have the job. It is meant for a batch.
func (o *jobOutcome) Begun() int { return max(0, o.Minions-o.NotSent-o.LeftOut) }

// isPoll reports whether tools call a function to ask for other jobs. The master knows saltutil.find_job as
// such itself.
func isPoll(function string) bool {
	return slices.Contains([]string{"saltutil.find_job", "saltutil.running", "saltutil.is_running", "saltutil.find_cached_job"}, function)
}

func showJobs(c *Console, ctx context.Context, v *visit) (Answer, error) {
	q := v.query
	d := jobsPage{
		Fun:     strings.TrimSpace(cutText(q.Get("fun"), maxName)),
		Who:     strings.TrimSpace(cutText(q.Get("who"), maxName)),
		Minion:  strings.TrimSpace(cutText(q.Get("minion"), maxName)),
		Failed:  q.Get("failed") != "",
		All:     q.Get("all") != "",
		Polls:   q.Get("polls") != "",
		Newest:  maxJobs,
		History: v.mayCall("runner", "fleet.jobs"),
		Back:    c.base + "/jobs",
	}
	d.OfHistory = d.History && (d.Minion != "" || d.Failed || q.Has("before") || q.Has("from"))

	fill := d.fillNewest
	if d.OfHistory {
		fill = d.fillOlder
	}
	problem := ""
	err := fill(c, ctx, v)
	if r, ok := errors.AsType[*Refusal](err); ok && r.Code == http.StatusBadRequest {
		problem, err = r.Text, nil
	}
	if err != nil {
		return Answer{}, err
	}
	return c.render(v, "jobs", http.StatusOK, page{Title: "Jobs", Data: d, Problem: problem})
}

// fillNewest lists the newest jobs of the job cache.
func (d *jobsPage) fillNewest(c *Console, ctx context.Context, v *visit) error {
	d.Stream = c.newJobs()
	all, err := jobList(ctx, v, maxJobs, d.All, d.Polls)
	if err != nil {
		return err
	}

	d.Cut = len(all) >= d.Newest
	var hit []job
	for _, j := range all {
		hidden := !d.Polls && isPoll(j.Function)
		if !hidden && strings.Contains(j.Function, d.Fun) && strings.Contains(j.User+" "+j.Target, d.Who) {
			hit = append(hit, j)
		}
	}

	var lo, hi int
	lo, hi, d.pager = pageOf(len(hit), perPage, c.base+"/jobs", v.query)
	if oldest := oldestOf(all, v.now); d.History && d.Next == "" && oldest != "" {
		d.Older = c.linkTo("/jobs", v.query, "page", "", "before", oldest)
	}
	d.Rows, err = c.withOutcomes(ctx, v, hit[lo:hi])
	return err
}

// oldestOf returns the oldest job of a list, the newest first, or "". Callers may choose ids: those of times
// before any history do not count.
func oldestOf(all []job, now time.Time) string {
	const longest = 10 * 365 * 24 * time.Hour
	for _, j := range slices.Backward(all) {
		if now.Sub(jidTime(j.JID)) < longest {
			return j.JID
		}
	}
	return ""
}

// withOutcomes asks the master what became of the jobs, and returns their rows.
func (c *Console) withOutcomes(ctx context.Context, v *visit, list []job) (rows []jobRow, err error) {
	var ids []string
	for _, j := range list {
		ids = append(ids, j.JID)
	}

	byJID, err := c.outcomesOf(ctx, v, ids)
	for _, j := range list {
		row := jobRow{job: j}
		if !j.isOfMaster() {
			row.Outcome = byJID[j.JID]
		}
		rows = append(rows, row)
	}
	return rows, err
}

// outcomesOf returns what became of jobs, by their ids, as far as the master knows and the user may see it.
func (c *Console) outcomesOf(ctx context.Context, v *visit, ids []string) (map[string]*jobOutcome, error) {
	if len(ids) == 0 || !v.mayCall("runner", "fleet.jobs") {
		return nil, nil
	}
	got, err := v.runCommand(ctx, "runner", "fleet.jobs", "jid", strings.Join(ids, ","))
	if isUnauthorized(err) {
		return nil, nil // the master refuses the user after all
	}
	if err != nil {
		return nil, err
	}

	m, _ := got.(*value.Map) // a master without a history returns a text
	byJID := map[string]*jobOutcome{}
	for _, e := range m.List("jobs") {
		x, _ := e.(*value.Map)
		byJID[x.Str("jid")] = c.outcomeOfJob(x)
	}
	return byJID, nil
}

// outcomeOfJob reads a job in the answer of fleet.jobs. It returns nil if the master does not say what became
// of it.
func (c *Console) outcomeOfJob(m *value.Map) *jobOutcome {
	if _, ok := m.Int("ok"); !ok {
		return nil
	}
	changed := count(m, "changed")
	wouldChange := count(m, "would_change")
	notStarted := count(m, "error")
	leftOut := count(m, "left_out")
	return &jobOutcome{
		OK:          max(0, count(m, "ok")-changed-wouldChange),
		Changed:     changed,
		WouldChange: wouldChange,
		Failed:      max(0, count(m, "failed")-notStarted),
		Error:       notStarted,
		Absent:      max(0, count(m, "absent")-leftOut),
		NotSent:     count(m, "pending"),
		LeftOut:     leftOut,
		Minions:     count(m, "minions"),
		Live:        jobs.Valid(m.Str("jid")) && c.jobAge(m.Str("jid")) < waitingFor,
	}
}

// waitingFor is how long the list of jobs says "no answer yet" of minions that have not answered.
const waitingFor = 10 * time.Minute

// fillOlder lists jobs of the history.
func (d *jobsPage) fillOlder(c *Console, ctx context.Context, v *visit) error {
	kv := []any{"limit", int64(perPage)}
	for _, field := range [][2]string{{"function", d.Fun}, {"user", d.Who}} {
		if field[1] != "" {
			kv = append(kv, field[0], "*"+strings.Trim(field[1], "*")+"*")
		}
	}
	if d.Minion != "" {
		if keys.ValidID(d.Minion) != nil {
			return &Refusal{http.StatusBadRequest, "That is not the id of a minion."}
		}
		kv = append(kv, "minion", d.Minion)
	}
	if d.Failed {
		kv = append(kv, "result", "failed,error")
	}
	before := v.query.Get("before")
	if at := jidTime(before); !at.IsZero() {
		// Returns come later than their jobs begin; jobs of the list before are left out below.
		kv = append(kv, "until", at.Add(waitingFor).UTC().Format(time.RFC3339Nano))
	} else {
		before = ""
	}
	if from := cutText(v.query.Get("from"), 2*maxName); from != "" {
		kv = append(kv, "page", from)
	}

	got, err := v.runCommand(ctx, "runner", "fleet.jobs", kv...)
	if err != nil {
		return err
	}
	m, ok := got.(*value.Map)
	if !ok {
		return &Refusal{http.StatusBadRequest, "The master cannot list these jobs: " + briefName(value.StrMax(got, maxName))}
	}
	for _, e := range m.List("jobs") {
		x, _ := e.(*value.Map)
		if jid := x.Str("jid"); jobs.Valid(jid) && (before == "" || jid < before) {
			d.Rows = append(d.Rows, jobRow{c.jobOfHistory(v, jid, x), c.outcomeOfJob(x)})
		}
	}
	if next := m.Str("next"); next != "" {
		d.Older = c.linkTo("/jobs", v.query, "page", "", "from", next)
	}
	return nil
}

func (c *Console) jobOfHistory(v *visit, jid string, m *value.Map) job {
	started, _ := time.Parse(time.RFC3339, m.Str("time"))
	return job{
		JID:      jid,
		Function: briefName(m.Str("function")),
		Target:   briefName(m.Str("target")),
		Type:     cmp.Or(briefName(m.Str("target_type")), "glob"),
		User:     briefName(m.Str("user")),
		Start:    momentAt(v.now, started),
	}
}
