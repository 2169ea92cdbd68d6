package console

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/value"
)

// minionResult is the return of one minion as the page of a job shows it.
type minionResult struct {
	ID         string
	Word       string // of Result; of those without an answer others
	Class      string // in the style sheet
	Result     summary.Result
	Unanswered bool    // there is no return, and so no Result
	States     *states // states of a state run; nil for a return of another function
	Text       boundText
}

type jobPage struct {
	job
	Rows                     []minionResult
	OK, Changed, WouldChange int
	Failed, NotStarted       int
	Waiting, All             int
	Away                     int            // number of waiting minions that are not connected
	Live                     bool           // more returns may come, so the page refreshes
	Stream                   string         // URL of the stream of the job's events
	Batch                    *batchProgress // nil: all minions got the job at once
	Base                     string         // path of the console
	Stop                     bool           // minions work on the job, and the user may run functions that stop it
	StopsBatch               bool           // further minions would get the job, and the user may stop that
	Again                    string         // URL of the form to run the job again; "" if that is impossible
	SavedAgain               bool           // the user may run the saved job of this one, whose limits the form lacks
	AgainFailed              string         // the same, on the minions that failed alone
	Longest, LongestOn       string         // how long the states of the slowest minion took, and its id; "" if unknown
	Missing                  bool           // there is no such job
	Unnamed                  bool           // only minions below syndics can have it, and none is known yet
	Unknown                  bool           // there are returns, but what was run is not known
	Fault                    string         // why parts of the job cannot be read, or ""
	Only                     string         // id of the only minion to show; "" for all
	OnlyResult               string         // word for the results that are shown alone; "" for all
	pager
}

const (
	// liveFor is how long after its start a job's page refreshes.
	liveFor = time.Hour
	// maxAway bounds the waiting minions whose connections the page checks. While more of them wait,
	// the page checks none.
	maxAway = 100
)

func showJob(c *Console, ctx context.Context, v *visit) (Answer, error) {
	jid := v.query.Get("jid")
	if !jobs.Valid(jid) {
		return Answer{}, &Refusal{http.StatusBadRequest, "That is not the number of a job."}
	}

	m, err := listJob(ctx, v, jid)
	if err != nil {
		return Answer{}, err
	}

	d := jobPage{job: v.jobOf(jid, m), Base: c.base, Fault: briefName(m.Str("Fault"))}
	rows := results(m)
	if e := m.Str("Error"); e != "" {
		// A job may be missing because it has just started and is not in the job cache yet.
		d.Missing = len(rows) == 0
		d.Unknown = !d.Missing
	}
	d.Batch = batchOf(m)

	d.countResults(rows)
	d.Unnamed = d.All == 0 && !d.isOfMaster() && c.reachesBelow(target{Target: d.Target, Type: d.Type})
	d.Live = d.Waiting > 0 && c.jobAge(jid) < liveFor
	if d.Live && d.Waiting <= maxAway {
		d.Away = c.markAway(ctx, v, rows)
		d.Waiting -= d.Away
		// A minion that is not connected gets the job later, when it connects.
		d.Live = d.Waiting > 0 || c.jobAge(jid) < time.Minute
	}
	d.Live = d.Live || d.Batch.goesOnFor(c.jobAge(jid))

	if !d.Live {
		endWaiting(rows)
	}

	d.Longest, d.LongestOn = longestOf(m.Map("Result"))
	failedIDs := failedOf(rows)
	stateLimit := maxStates
	if d.Only = v.query.Get("id"); d.Only != "" {
		rows = slices.DeleteFunc(rows, func(r minionResult) bool { return r.ID != d.Only })
		stateLimit = maxPage
	}

	rows = d.ofResult(rows, v.query.Get("result"))

	var lo, hi int
	lo, hi, d.pager = pageOf(len(rows), perJobPage, c.base+"/job", v.query)
	d.Rows = rows[lo:hi]
	b := newBudget()
	for i := range d.Rows {
		d.Rows[i].fillFrom(b, m.Map("Result").Map(d.Rows[i].ID), stateLimit)
	}

	p := page{Title: d.title(), Tab: d.tab()}
	if d.Live {
		d.Stream, p.Refresh = c.base+"/stream?jid="+jid, 5
	}

	if v.rights().Run && !d.isOfMaster() && !d.Missing {
		d.fillAgain(c, m, failedIDs)
	}

	d.SavedAgain = d.Saved != "" && d.Again == "" && v.rights().Saved && (v.login.User == d.User || v.mayChangeJobs())
	d.StopsBatch = d.Batch.GoesOn() && v.mayCall("runner", stopOfBatch)
	d.Stop = d.StopsBatch || d.Waiting > 0 && v.rights().Run && !isStop(d.Function)
	p.Notice = stoppedNotice(v.query)
	p.Data = d
	return c.render(v, "job", http.StatusOK, p)
}

// endWaiting says of the minions that have not answered that nobody waits for them any more.
func endWaiting(rows []minionResult) {
	for i := range rows {
		if rows[i].Word == wordWaiting {
			rows[i].Word = "no answer"
		}
	}
}

// isOfMaster reports whether a runner or a wheel function ran, on the master.
func (j job) isOfMaster() bool {
	return strings.HasPrefix(j.Function, "runner.") || strings.HasPrefix(j.Function, "wheel.")
}

// listJob returns a job as jobs.list_job describes it. Who may not call that runner, but whom a saved job
// names, gets the jobs that he has started.
func listJob(ctx context.Context, v *visit, jid string) (*value.Map, error) {
	got, err := v.runCommand(ctx, "runner", "jobs.list_job", "jid", jid)
	r, refused := errors.AsType[*Refusal](err)
	refused = refused && r.Code == http.StatusUnauthorized
	if refused {
		own, problem, ownErr := v.askRunner(ctx, outcomeOfSaved, value.NewMap("jid", jid))
		if ownErr == nil && problem != "" {
			return nil, &Refusal{http.StatusForbidden, capital(problem) + "; external_auth does not let you look at other jobs (the runner jobs.list_job)."}
		}
		if ownErr == nil {
			got, err, refused = own, nil, false
		}
	}

	if refused && v.rights().Run {
		return nil, &Refusal{http.StatusForbidden,
			"The job " + jid + " may be running, but external_auth does not let you look at jobs (the runner jobs.list_job)."}
	}
	if err != nil {
		return nil, err
	}

	m, _ := got.(*value.Map)
	if m.Map("Result") == nil {
		return nil, &Refusal{http.StatusBadGateway,
			"The master does not describe the job: " + briefName(value.StrMax(got, maxName))}
	}
	return m, nil
}

// countResults counts the minions of a job by result.
func (d *jobPage) countResults(rows []minionResult) {
	d.All = len(rows)
	for _, r := range rows {
		switch {
		case r.Unanswered:
			d.Waiting++
		case r.Result == summary.OK:
			d.OK++
		case r.Result == summary.Changed:
			d.Changed++
		case r.Result == summary.WouldChange:
			d.WouldChange++
		case r.Result == summary.Error:
			d.NotStarted++
		default:
			d.Failed++
		}
	}
}

// Results, in the query of a job's page, of minions without a return: of those that may answer or have not, and of
// those that are not connected.
const (
	unanswered = "unanswered"
	away       = "away"
)

// ofResult returns the rows with a result, all for "" and for what is no result.
func (d *jobPage) ofResult(rows []minionResult, name string) []minionResult {
	switch name {
	case unanswered:
		d.OnlyResult = "without an answer"
		return slices.DeleteFunc(rows, func(r minionResult) bool { return !r.Unanswered || r.Word == wordAway })
	case away:
		d.OnlyResult = "that are not connected"
		return slices.DeleteFunc(rows, func(r minionResult) bool { return r.Word != wordAway })
	}
	result, err := summary.ParseResult(name)
	if err != nil {
		return rows
	}
	d.OnlyResult = "with the result " + resultOutcome(result).Word
	return slices.DeleteFunc(rows, func(r minionResult) bool { return r.Unanswered || r.Result != result })
}

// jobAge returns the time since a job was started, or liveFor when its id contains no time. Job ids
// contain times in UTC (salt/utils/jid.py gen_jid).
func (c *Console) jobAge(jid string) time.Duration {
	t, err := time.Parse("20060102150405", jid[:14])
	if err != nil {
		return liveFor
	}
	return c.cfg.Now().Sub(t).Abs()
}

// markAway marks waiting minions that are not connected and returns their number. In a cluster it
// does not mark minions that may be connected to another master.
func (c *Console) markAway(ctx context.Context, v *visit, rows []minionResult) (away int) {
	heard := minionsByID(ctx, v)
	for i := range rows {
		r := &rows[i]
		m, known := heard[r.ID]
		switch {
		case r.Word != wordWaiting || !known || m.Key != "accepted" || m.Connected:
		case c.cfg.Cluster:
			r.Word = wordWaiting + "; not at this master"
		default:
			r.Word = wordAway
			away++
		}
	}

	return away
}

// fillAgain sets the URLs of the forms to run the job again.
func (d *jobPage) fillAgain(c *Console, m *value.Map, failedIDs []any) {
	d.Again = c.runAgainURL(m)
	if d.Batch != nil {
		d.Batch.Rest = c.runRestURL(m, d.Batch)
	}
	if n := d.AllFailed(); n > 0 && n < d.All {
		d.AgainFailed = c.runFailedURL(m, failedIDs)
	}
}

// title names the job by what it runs, or by its id if that is not known.
func (d jobPage) title() string {
	if d.Unknown || d.Missing || d.Function == "" {
		return "Job " + d.JID
	}
	words := strings.TrimSpace(d.Function + " " + d.Args)
	if d.Target != "" {
		words += " on " + d.Target
	}
	return briefName(words)
}

// tab returns the title of the browser's tab. It leaves out the arguments, which may hold a password: browsers keep
// titles in their history, and send them to other devices.
func (d jobPage) tab() string {
	if d.Unknown || d.Missing || d.Function == "" {
		return "Job " + d.JID
	}
	return briefName(d.Function) + " " + d.JID
}

// Answered returns the number of minions that have answered.
func (d jobPage) Answered() int { return d.All - d.Waiting - d.Away }

// HasStates reports whether a minion on the page has returned more than one state.
func (d jobPage) HasStates() bool {
	return slices.ContainsFunc(d.Rows, func(r minionResult) bool { return r.States != nil && len(r.States.Rows) > 1 })
}

// AllFailed returns the number of minions that failed or could not run states.
func (d jobPage) AllFailed() int { return d.Failed + d.NotStarted }

// failedOf returns the ids of the minions that failed or could not run states.
func failedOf(rows []minionResult) (ids []any) {
	for _, r := range rows {
		if r.Failed() {
			ids = append(ids, r.ID)
		}
	}
	return ids
}

// longestOf returns how long the states of the slowest minion took, and its id. Both are "" if no minion
// returned states.
func longestOf(got *value.Map) (took, id string) {
	longest := 0.0
	for minion, e := range got.All() {
		r, _ := e.(*value.Map)
		m, _ := r.Value("return").(*value.Map)
		if !isHighstate(m) {
			continue
		}
		if s := secondsOf(m); s > longest {
			longest = s
			took, id = durationWord(s), value.Str(minion)
		}
	}
	return took, id
}

// Words for minions without a return: wordWaiting for one that may still answer, wordAway for one that is not
// connected. The words for returns are those of the page Fleet.
const (
	wordWaiting = "no answer yet"
	wordAway    = "not connected"
)

// resultOutcome returns the outcome of a result that the history would have.
func resultOutcome(r summary.Result) outcome {
	return outcomeOf(strings.ReplaceAll(r.String(), " ", "_"))
}

// results returns the minions of a job: first those that failed, then those that have not answered,
// then the others; each group is sorted by name.
func results(m *value.Map) []minionResult {
	var out []minionResult
	got := m.Map("Result")
	function := functionOf(m)
	for id, e := range got.All() {
		r, _ := e.(*value.Map)
		result := summary.ResultOf(function, r)
		is := resultOutcome(result)
		out = append(out, minionResult{
			ID:     value.Str(id),
			Word:   is.Word,
			Class:  is.Class,
			Result: result,
		})
	}

	mute := m.Texts("Syndics") // they answer nothing
	for _, id := range m.Texts("Minions") {
		if _, ok := got.Get(id); !ok && !slices.Contains(mute, id) {
			out = append(out, minionResult{ID: id, Word: wordWaiting, Class: "differs", Unanswered: true})
		}
	}

	slices.SortStableFunc(out, func(a, b minionResult) int { return cmp.Or(a.rank()-b.rank(), cmp.Compare(a.ID, b.ID)) })
	return out
}

// functionOf returns the function of a job, or its functions with commas between them.
func functionOf(m *value.Map) string {
	if names := m.Texts("Function"); len(names) > 0 {
		return strings.Join(names, ",")
	}
	return m.Str("Function")
}

// rank orders the results of a job: what failed, what is missing, then from bad to good.
func (x minionResult) rank() int {
	const unanswered = 2
	switch {
	case x.Unanswered:
		return unanswered
	case x.Failed():
		return int(summary.Error - x.Result)
	}
	return unanswered + 1 + int(summary.WouldChange-x.Result)
}

// Failed reports whether the minion failed or could not run states.
func (x minionResult) Failed() bool { return !x.Unanswered && x.Result >= summary.Failed }

// fillFrom fills in the result from a return. It shows at most stateLimit states.
func (x *minionResult) fillFrom(b *budget, r *value.Map, stateLimit int) {
	if r == nil {
		return
	}
	ret := r.Value("return")
	if m, ok := ret.(*value.Map); ok && isHighstate(m) {
		x.States = statesOf(m, b, stateLimit)
		return
	}
	x.Text = b.boundedText(plainText(ret))
}
