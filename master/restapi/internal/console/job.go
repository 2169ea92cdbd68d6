package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"saltern/master/jobs"
	"saltern/master/value"
)

// minionResult is the return of one minion.
type minionResult struct {
	ID     string
	Word   string // ok, failed, waiting, no return
	Failed bool
	States *states // nil: the return is no highstate
	Text   boundText
}

type jobPage struct {
	job
	Rows                     []minionResult
	OK, Failed, Waiting, All int
	Away                     int    // waiting minions that are not connected
	Live                     bool   // more returns may come
	Stream                   string // address of the job's events
	Again                    string // address of the form to run it again; "" if the user may not
	Missing                  bool   // there is no such job
	Only                     string // the only minion to show; "" for all
	pager
}

const (
	// liveFor is how long after its start the page of a job refreshes.
	liveFor = time.Hour
	// maxAway bounds the waiting minions that are checked for a connection: with more of them the
	// job is in full swing.
	maxAway = 100
)

func showJob(c *Console, ctx context.Context, v *visit) (Answer, error) {
	jid := v.query.Get("jid")
	if !jobs.Valid(jid) {
		return Answer{}, &Refusal{http.StatusBadRequest, "That is not the number of a job."}
	}

	got, err := v.runCommand(ctx, "runner", "jobs.list_job", "jid", jid)
	if r, ok := errors.AsType[*Refusal](err); ok && r.Code == http.StatusUnauthorized && v.rights().Run {
		return Answer{}, &Refusal{http.StatusForbidden,
			"The job " + jid + " may be running, but external_auth does not let you look at jobs (the runner jobs.list_job)."}
	}
	if err != nil {
		return Answer{}, err
	}

	m, _ := got.(*value.Map)
	if m.Map("Result") == nil {
		return Answer{}, &Refusal{http.StatusBadGateway,
			"The master does not describe the job: " + briefName(value.StrMax(got, maxName))}
	}

	d := jobPage{job: jobOf(jid, m)}
	if e := m.Str("Error"); e != "" {
		// A job that has just started may not be there yet.
		d.Missing = true
	}

	rows := results(m)
	d.countResults(rows)
	d.Live = d.Waiting > 0 && c.jobAge(jid) < liveFor
	if d.Live && d.Waiting <= maxAway {
		d.Away = c.markAway(ctx, v, rows)
		d.Waiting -= d.Away
		// A minion that is not connected gets later what it missed: it is sent again.
		d.Live = d.Waiting > 0 || c.jobAge(jid) < time.Minute
	}

	if !d.Live {
		for i := range rows {
			if rows[i].Word == wordWaiting {
				rows[i].Word = "no return"
			}
		}
	}

	most := maxStates
	if d.Only = v.query.Get("id"); d.Only != "" {
		rows = slices.DeleteFunc(rows, func(r minionResult) bool { return r.ID != d.Only })
		most = maxPage
	}

	var lo, hi int
	lo, hi, d.pager = pageOf(len(rows), perJobPage, c.base+"/job", v.query)
	d.Rows = rows[lo:hi]
	b := newBudget()
	for i := range d.Rows {
		d.Rows[i].fillFrom(b, m.Map("Result").Map(d.Rows[i].ID), most)
	}

	p := page{Title: "Job " + jid}
	if d.Live {
		d.Stream, p.Refresh = c.base+"/stream?jid="+jid, 5
	}

	if v.rights().Run && !strings.HasPrefix(d.Function, "runner.") &&
		!strings.HasPrefix(d.Function, "wheel.") && !d.Missing {
		d.Again = c.runAgainURL(m)
	}

	p.Data = d
	return c.render(v, "job", http.StatusOK, p)
}

// countResults counts the minions of a job by their answers.
func (d *jobPage) countResults(rows []minionResult) {
	d.All = len(rows)
	for _, r := range rows {
		switch r.Word {
		case wordOK:
			d.OK++
		case wordFailed:
			d.Failed++
		default:
			d.Waiting++
		}
	}
}

// jobAge returns how long ago a job was started, or liveFor when its id is no time. Job ids are
// times in UTC (salt/utils/jid.py gen_jid).
func (c *Console) jobAge(jid string) time.Duration {
	t, err := time.Parse("20060102150405", jid[:14])
	if err != nil {
		return liveFor
	}
	return c.cfg.Now().Sub(t).Abs()
}

// markAway marks waiting minions that are not connected, and counts them. In a cluster a minion
// that is not connected here may be at another master.
func (c *Console) markAway(ctx context.Context, v *visit, rows []minionResult) (away int) {
	heard := minionsByID(ctx, v)
	for i := range rows {
		r := &rows[i]
		m, known := heard[r.ID]
		switch {
		case r.Word != wordWaiting || !known || m.Key != "accepted" || m.Connected:
		case c.cfg.Cluster:
			r.Word = "waiting; not at this master"
		default:
			r.Word = "not connected"
			away++
		}
	}

	return away
}

// runAgainURL returns the address of the form filled in with a job, or "" when that is not
// possible.
func (c *Console) runAgainURL(m *value.Map) string {
	const most = 2048 // bytes of each field in an address
	fun, ok := m.Value("Function").(string)
	tgt, args := targetText(m.Value("Target"), most), m.List("Arguments")
	if !ok || len(tgt) >= most || len(value.StrMax(args, most)) >= most {
		return "" // several functions, or too long
	}

	text, ok := typedArgs(args)
	if !ok {
		return ""
	}

	return c.base + "/run?" + url.Values{
		"tgt":  {tgt},
		"type": {cmp.Or(m.Str("Target-type"), "glob")},
		"fun":  {fun},
		"arg":  {text},
	}.Encode()
}

const (
	wordOK      = "ok"
	wordFailed  = "failed"
	wordWaiting = "waiting"
)

// results returns the minions of a job: first those that failed, then those that have not answered,
// then the others, each sorted by name.
func results(m *value.Map) []minionResult {
	var out []minionResult
	got := m.Map("Result")
	for id, e := range got.All() {
		r, _ := e.(*value.Map)
		x := minionResult{ID: value.Str(id), Word: wordOK}
		if x.Failed = failed(r); x.Failed {
			x.Word = wordFailed
		}
		out = append(out, x)
	}

	for _, id := range m.Texts("Minions") {
		if _, ok := got.Get(id); !ok {
			out = append(out, minionResult{ID: id, Word: wordWaiting})
		}
	}

	rank := func(r minionResult) int { return slices.Index([]string{wordFailed, wordWaiting, wordOK}, r.Word) }
	slices.SortStableFunc(out, func(a, b minionResult) int { return cmp.Or(rank(a)-rank(b), cmp.Compare(a.ID, b.ID)) })
	return out
}

// failed reports whether a return is a failure.
func failed(r *value.Map) bool {
	if rc, ok := r.Get("retcode"); ok && value.Truth(rc) {
		return true
	}
	if r.Value("success") == false {
		return true
	}

	ret := r.Value("return")
	if m, ok := ret.(*value.Map); ok && isHighstate(m) {
		for _, s := range m.All() {
			if s.(*value.Map).Value("result") == false {
				return true
			}
		}
	}

	return false
}

// fillFrom fills in a return.
func (x *minionResult) fillFrom(b *budget, r *value.Map, most int) {
	if r == nil {
		return
	}
	ret := r.Value("return")
	if m, ok := ret.(*value.Map); ok && isHighstate(m) {
		x.States = statesOf(m, b, most)
		return
	}
	x.Text = b.boundedText(plainText(ret))
}
