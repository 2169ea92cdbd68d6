package console

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"saltern/master/jobs"
	"saltern/master/value"
)

// stopWay is a way to end a job on its minions.
type stopWay struct{ Do, Function, Title, Words string }

func stopWays() []stopWay {
	return []stopWay{
		{"term", "saltutil.term_job", "Stop the job",
			"Each of these minions asks its process of this job to end (SIGTERM). What the job has done stays done."},
		{"kill", "saltutil.kill_job", "Kill the job",
			"Each of these minions ends its process of this job at once (SIGKILL), even in the middle of a step: a package manager, for example, may need a repair then. Try to stop the job first."},
	}
}

// isStop reports whether a function ends jobs.
func isStop(function string) bool {
	return slices.ContainsFunc(stopWays(), func(w stopWay) bool { return w.Function == function })
}

type stopPage struct {
	stopWay
	JID, Called string
	Minions     []string
	N           int
	Batch       bool // further minions would get the job
	StopsBatch  bool // and the user may stop that
}

// stopOfBatch is the runner with which no further minion gets the job of a batch.
const stopOfBatch = "batch.stop"

// stoppable returns the way and the job that a form names, and the minions that have not answered.
func stoppable(ctx context.Context, v *visit, q url.Values) (d stopPage, waiting []string, err error) {
	jid := q.Get("jid")
	i := slices.IndexFunc(stopWays(), func(w stopWay) bool { return w.Do == q.Get("do") })
	if !jobs.Valid(jid) || i < 0 {
		return d, nil, &Refusal{http.StatusBadRequest, "That is not the number of a job, or no way to stop it."}
	}

	got, err := v.runCommand(ctx, "runner", "jobs.list_job", "jid", jid)
	if err != nil {
		return d, nil, err
	}
	m, _ := got.(*value.Map)
	for _, r := range results(m) {
		if r.Word == wordWaiting {
			waiting = append(waiting, r.ID)
		}
	}
	goesOn := batchOf(m).GoesOn()
	stopsBatch := goesOn && v.mayCall("runner", stopOfBatch)
	if len(waiting) == 0 && !stopsBatch {
		return d, nil, &Refusal{http.StatusConflict, "No minion works on the job " + jid + " any more: all have answered."}
	}

	d = stopPage{
		stopWay:    stopWays()[i],
		JID:        jid,
		Called:     v.jobOf(jid, m).Function,
		N:          len(waiting),
		Batch:      goesOn,
		StopsBatch: stopsBatch,
	}
	for _, id := range waiting[:min(len(waiting), maxPreview)] {
		d.Minions = append(d.Minions, briefName(id))
	}
	return d, waiting, nil
}

// confirmStop shows which minions are to stop, and asks for confirmation.
func confirmStop(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d, _, err := stoppable(ctx, v, v.query)
	if err != nil {
		return Answer{}, err
	}
	return c.render(v, "stop", http.StatusOK, page{Title: d.Title, Data: d})
}

// stopJob tells the minions that have not answered yet to end the job.
func stopJob(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}
	d, waiting, err := stoppable(ctx, v, form)
	if err != nil {
		return Answer{}, err
	}

	after := url.Values{"jid": {d.JID}}
	if d.StopsBatch { // first, so that no further minion begins
		stopped, err := v.runCommand(ctx, "runner", stopOfBatch, "jid", d.JID)
		if err != nil {
			return Answer{}, err
		}
		if stopped != true {
			return Answer{}, &Refusal{http.StatusConflict,
				"This node does not run the batch of the job " + d.JID + ", or it has ended: stop it on the node where it was started. Nothing was done."}
		}
		after.Set("batch", "stopped")
	}
	if len(waiting) == 0 {
		return c.redirect("/job", after), nil
	}

	got, err := v.runCommand(ctx, "local_async", d.Function, "tgt", value.List(waiting), "tgt_type", "list", "arg", []any{d.JID})
	if isUnauthorized(err) {
		return Answer{}, &Refusal{http.StatusForbidden,
			"The master refused: external_auth does not permit you " + d.Function + " on these minions."}
	}
	if err != nil {
		return Answer{}, err
	}
	m, _ := got.(*value.Map)
	told := len(m.Texts("minions"))
	if told == 0 {
		return Answer{}, &Refusal{http.StatusConflict, "None of the minions has an accepted key any more. Nothing was done."}
	}
	after.Set("told", d.Do)
	after.Set("n", strconv.Itoa(told))
	return c.redirect("/job", after), nil
}

// stoppedNotice returns a sentence about what was done to the job. Only its number comes from the query, within
// bounds.
func stoppedNotice(q url.Values) string {
	batch := ""
	if q.Get("batch") == "stopped" {
		batch = "No further minion gets the job. "
	}
	n, err := strconv.Atoi(q.Get("n"))
	words := map[string]string{"term": "asked to end the job", "kill": "told to end the job at once"}[q.Get("told")]
	if err != nil || words == "" || n < 1 || n > 1e6 {
		return strings.TrimSpace(batch)
	}
	return batch + countWord(n, "minion was ", "minions were ") + words + ". Their answers come when they have."
}
