package console

import (
	"context"
	"net/http"

	"saltern/master/history/summary"
	"saltern/master/jobs"
	"saltern/master/value"
)

// taskPage is the data of the page of a run on the master: an orchestration, a runner or a wheel
// function.
type taskPage struct {
	JID, Function, User string
	Args                string
	Start               moment
	Running             bool // the master has no result yet
	Stale               bool // there will hardly be a result any more
	Failed              bool
	Stream              string         // URL of the stream of the run's events; "" when it has ended
	Rows                []minionResult // results of states, by the master that ran them
	Text                boundText      // result of another kind
	Job                 string         // id of the job on minions that a saved job has started; "" for none
}

// showTask shows a run on the master. While it is at work, the page follows its events.
func showTask(c *Console, ctx context.Context, v *visit) (Answer, error) {
	jid := v.query.Get("jid")
	if !jobs.Valid(jid) {
		return Answer{}, &Refusal{http.StatusBadRequest, "That is not the number of a job."}
	}

	got, err := v.runCommand(ctx, "runner", "jobs.list_job", "jid", jid)
	if isUnauthorized(err) {
		return Answer{}, &Refusal{http.StatusForbidden,
			"The run " + jid + " may be at work, but external_auth does not let you look at its result (the runner jobs.list_job)."}
	}
	if err != nil {
		return Answer{}, err
	}

	m, _ := got.(*value.Map)
	d := taskPage{JID: jid, Start: c.moment(jidTime(jid))}

	found := false
	for _, x := range m.Map("Result").All() {
		if ret, ok := x.(*value.Map); ok && !found {
			found = true
			d.fillFrom(v, ret)
		}
	}

	p := page{Title: "Run " + jid}
	if !found {
		d.Running = c.jobAge(jid) < liveFor
		d.Stale = !d.Running
	}
	if d.Running {
		d.Stream, p.Refresh = c.base+"/stream?run="+jid, 5
	}

	p.Data = d
	return c.render(v, "task", http.StatusOK, p)
}

// fillFrom fills in what the job cache has of the run. The return of a runner has the data of the
// event of its end in it.
func (d *taskPage) fillFrom(v *visit, ret *value.Map) {
	data, ok := ret.Value("return").(*value.Map)
	if _, inner := data.Get("fun"); !ok || !inner {
		data = ret
	}

	d.Function = briefName(data.Str("fun"))
	d.User = briefName(data.Str("user"))
	d.Args = v.jobOf(d.JID, value.NewMap("Arguments", data.List("fun_args"))).Args
	d.Failed = data.Value("success") == false

	b := newBudget()
	result := data.Value("return")
	if byMaster := statesByMaster(result); byMaster != nil {
		for id, x := range byMaster.All() {
			row := minionResult{ID: briefName(value.Str(id))}
			row.fillFrom(b, value.NewMap("return", x), maxPage)
			if row.States != nil && row.States.Failed > 0 || row.States == nil {
				row.Result, d.Failed = summary.Failed, true
			}
			d.Rows = append(d.Rows, row)
		}
		return
	}

	if m, ok := result.(*value.Map); ok && d.Function == "runner."+runSaved && jobs.Valid(m.Str("jid")) {
		d.Job = m.Str("jid")
	}
	d.Text = b.boundedText(plainText(result))
}

// statesByMaster returns the results of an orchestration by the master that ran it, or nil for
// another result (salt/runners/state.py orchestrate: {data: {MASTER: …}, outputter: highstate}).
func statesByMaster(result any) *value.Map {
	m, ok := result.(*value.Map)
	if !ok {
		return nil
	}
	data := m.Map("data")
	if data.Len() == 0 || data.Len() > perPage || m.Str("outputter") != "highstate" {
		return nil
	}
	return data
}
