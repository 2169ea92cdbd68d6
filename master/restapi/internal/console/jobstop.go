package console

import (
	"context"
	"errors"
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
			"Each minion that has the job when you press the button, and has not answered, asks its process of the job to end (SIGTERM). What the job has done stays done."},
		{"kill", "saltutil.kill_job", "Kill the job",
			"Each minion that has the job when you press the button, and has not answered, ends its process of the job at once (SIGKILL), even in the middle of a step: a package manager, for example, may need a repair then. Try to stop the job first."},
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

	m, waiting, err := minionsAtWork(ctx, v, jid)
	if err != nil {
		return d, nil, err
	}
	goesOn := batchOf(m).GoesOn()
	stopsBatch := goesOn && v.mayCall("runner", stopOfBatch)
	if len(waiting) == 0 && !stopsBatch {
		return d, nil, nobodyWorks(jid)
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

// minionsAtWork returns a job as jobs.list_job describes it, and those of its minions that have not answered.
func minionsAtWork(ctx context.Context, v *visit, jid string) (m *value.Map, waiting []string, err error) {
	got, err := v.runCommand(ctx, "runner", "jobs.list_job", "jid", jid)
	if err != nil {
		return nil, nil, err
	}
	m, _ = got.(*value.Map)
	for _, r := range results(m) {
		if r.Word == wordWaiting {
			waiting = append(waiting, r.ID)
		}
	}
	return m, waiting, nil
}

func nobodyWorks(jid string) *Refusal {
	return &Refusal{http.StatusConflict, "No minion works on the job " + jid + " any more: all have answered."}
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
	var outcome, problem string
	if d.StopsBatch { // first, so that no further minion begins
		if outcome, problem, err = stopBatch(ctx, v, d.JID); err != nil {
			return Answer{}, err
		}
		after.Set("batch", outcome)

		// Further minions may have got the job meanwhile.
		if _, waiting, err = minionsAtWork(ctx, v, d.JID); err != nil {
			return Answer{}, sayStopped(outcome, problem, err)
		}
	}

	if len(waiting) == 0 {
		switch outcome {
		case batchStopped:
			return c.redirect("/job", after), nil
		case batchUnconfirmed:
			return Answer{}, &Refusal{http.StatusConflict, problem}
		}
		return Answer{}, nobodyWorks(d.JID)
	}

	told, err := tellMinions(ctx, v, d, waiting)
	if err != nil {
		return Answer{}, sayStopped(outcome, problem, err)
	}
	after.Set("told", d.Do)
	after.Set("n", strconv.Itoa(told))
	if outcome == batchUnconfirmed {
		return Answer{}, &Refusal{http.StatusConflict, problem + " " + stoppedNotice(after)}
	}
	return c.redirect("/job", after), nil
}

// tellMinions tells minions to end a job, and returns how many were told: at least one.
func tellMinions(ctx context.Context, v *visit, d stopPage, waiting []string) (told int, err error) {
	got, err := v.runCommand(ctx, "local_async", d.Function, "tgt", value.List(waiting), "tgt_type", "list", "arg", []any{d.JID})
	if isUnauthorized(err) {
		return 0, &Refusal{http.StatusForbidden,
			"The master refused: external_auth does not permit you " + d.Function + " on these minions."}
	}
	if err != nil {
		return 0, err
	}

	m, _ := got.(*value.Map)
	if told = len(m.Texts("minions")); told == 0 {
		return 0, &Refusal{http.StatusConflict, "None of the minions has an accepted key any more: none was told."}
	}
	return told, nil
}

// What became of the order to stop a batch.
const (
	batchStopped     = "stopped"
	batchEnded       = "ended"       // it had ended before
	batchUnconfirmed = "unconfirmed" // the master that runs it did not confirm that
)

// stopBatch stops a batch. problem is a sentence that says why it is unconfirmed.
func stopBatch(ctx context.Context, v *visit, jid string) (outcome, problem string, err error) {
	got, err := v.runCommand(ctx, "runner", stopOfBatch, "jid", jid)
	switch {
	case err != nil:
		return "", "", err
	case got == true:
		return batchStopped, "", nil
	case got == false:
		return batchEnded, "", nil
	}
	return batchUnconfirmed, strings.TrimRight(capital(runnerProblem(value.StrMax(got, maxText))), ".") + ".", nil
}

// sayStopped adds to an error what became of the order to stop a batch before it.
func sayStopped(outcome, problem string, err error) error {
	said := map[string]string{
		batchStopped:     "The batch is stopped: no further minion gets the job.",
		batchUnconfirmed: problem,
	}[outcome]
	if said == "" {
		return err
	}

	refusal := Refusal{http.StatusBadGateway, "The master did not answer."}
	if r, ok := errors.AsType[*Refusal](err); ok {
		refusal = *r
	}
	refusal.Text = said + " The minions that have the job were not told to end it: " + refusal.Text
	return &refusal
}

// stoppedNotice returns a sentence about what was done to the job. Only its number comes from the query, within
// bounds.
func stoppedNotice(q url.Values) string {
	batch := map[string]string{batchStopped: "No further minion gets the job. "}[q.Get("batch")]
	n, err := strconv.Atoi(q.Get("n"))
	words := map[string]string{"term": "asked to end the job", "kill": "told to end the job at once"}[q.Get("told")]
	if err != nil || words == "" || n < 1 || n > 1e6 {
		return strings.TrimSpace(batch)
	}
	return batch + countWord(n, "minion was ", "minions were ") + words + ". Their answers come when they have."
}
