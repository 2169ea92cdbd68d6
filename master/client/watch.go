package client

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"saltern/master/event"
	"saltern/master/history/summary"
	"saltern/master/value"
)

// Return is the return of one minion.
type Return struct {
	ID     string
	Ret    any
	HasRet bool   // false when the minion sent no value
	Out    string // outputter that the minion asks for; "" for none
	// Retcode is a number or, for a compound command, a map or a list of numbers. HasRetcode is false when
	// the minion sent no return code.
	Retcode    any
	HasRetcode bool
	JID        string
	Missing    bool // the minion did not answer in time; Ret is a text that says so
}

// Code returns the return code as one number. It returns 0 if there is no return code, the largest
// number of a map or a list, and 1 for a value that is not a number.
func (r Return) Code() int64 {
	if !r.HasRetcode {
		return 0
	}
	return exitCode(r.Retcode)
}

func exitCode(v any) int64 {
	switch v := v.(type) {
	case nil:
		return 0
	case bool:
		if v {
			return 1
		}
		return 0
	case int64:
		return v
	case int:
		return int64(v)
	case *value.Map, []any:
		var worst int64
		for _, e := range summary.Answers(v) {
			worst = max(worst, exitCode(e))
		}
		return worst
	}

	return 1
}

// watch decides how long to wait for the returns of one job, and which minions to ask whether they
// still run the job. It does no I/O and reads no clock: callers pass in events and the time
// (salt/client/__init__.py get_iter_returns).
type watch struct {
	jid             string
	timeout, gather time.Duration

	expected  map[string]bool
	found     map[string]bool
	missing   map[string]bool      // minions that the target names and that have no accepted key
	deadlines map[string]time.Time // time after which to ask a minion about the job, by minion
	askAt     time.Time
	running   bool            // a minion may still run the job, so the watch asks again
	questions map[string]bool // ids of the jobs that asked minions whether they run the job
	// strict is set if the watch is for one part of a batch. All parts share a job id, so the watch
	// accepts only returns of the minions that it was created with.
	strict  bool
	targets []string // the minions that the job was published to
	// syndics is how long the watch waits for syndics to report minions; 0 means that there are no
	// syndics. syndicsUntil is when that time ends.
	syndics      time.Duration
	syndicsUntil time.Time
	// onHalt may be nil. If it is not, the watch handles only the event salt/batch/<jid>/halted,
	// and calls onHalt with the reason in that event.
	onHalt func(reason string)
}

func newWatch(jid string, minions []string, timeout, gather time.Duration, now time.Time) *watch {
	w := &watch{
		jid:       jid,
		timeout:   timeout,
		gather:    gather,
		expected:  map[string]bool{},
		found:     map[string]bool{},
		missing:   map[string]bool{},
		deadlines: map[string]time.Time{},
		questions: map[string]bool{},
		askAt:     now.Add(timeout),
		running:   true,
		targets:   minions,
	}

	for _, id := range minions {
		w.expected[id] = true
		w.deadlines[id] = now.Add(timeout)
	}

	return w
}

// awaitSyndics extends the watch to minions below syndics, which the master does not list.
func (w *watch) awaitSyndics(wait time.Duration, now time.Time) {
	w.syndics = max(wait, time.Millisecond)
	w.syndicsUntil = now.Add(w.syndics)
}

// tagPrefixes returns the prefixes of the tags of all events that the watch handles.
func (w *watch) tagPrefixes() []string {
	out := []string{event.TagOldFiles, "salt/job/" + w.jid + "/"}
	for jid := range w.questions {
		out = append(out, "salt/job/"+jid+"/")
	}
	if w.syndics > 0 {
		out = append(out, syndicSpace)
	}
	return out
}

// wantsTag reports whether the watch handles events with this tag.
func (w *watch) wantsTag(tag string) bool {
	if w.onHalt != nil {
		return tag == event.Tag("batch", w.jid, "halted")
	}
	jid, _, ok := cutTag(tag)
	return ok && (jid == w.jid || w.questions[jid]) || w.ofSyndic(tag)
}

// takeEvent handles one event of the bus. If the event contains a return of the job that is new,
// takeEvent returns that return and true.
func (w *watch) takeEvent(tag string, data *value.Map, now time.Time) (Return, bool) {
	if w.onHalt != nil {
		if w.wantsTag(tag) {
			w.onHalt(cmp.Or(data.Str("reason"), "stop"))
		}
		return Return{}, false
	}

	jid, rest, ok := cutTag(tag)
	switch {
	case w.ofSyndic(tag):
		for _, id := range listOf(data.Value("minions")) {
			w.expect(id, now)
		}
	case !ok:
	case w.questions[jid]:
		w.answer(rest, data, now)
	case jid == w.jid:
		return w.takeReturn(rest, data, now)
	}

	return Return{}, false
}

// syndicSpace is the first part of the tags with which syndics report the minions of a job:
// syndic/<id of the syndic>/<jid>.
const syndicSpace = "syndic/"

func (w *watch) ofSyndic(tag string) bool {
	rest, ok := strings.CutPrefix(tag, syndicSpace)
	_, jid, _ := strings.Cut(rest, "/")
	return ok && w.syndics > 0 && !w.strict && jid == w.jid
}

// cutTag splits "salt/job/<jid>/<rest>". ok is false for a tag in another form.
func cutTag(tag string) (jid, rest string, ok bool) {
	tag, ok = strings.CutPrefix(tag, "salt/job/")
	if !ok {
		return "", "", false
	}
	return strings.Cut(tag, "/")
}

func (w *watch) takeReturn(rest string, data *value.Map, now time.Time) (Return, bool) {
	if ids, ok := data.Get("minions"); ok {
		if w.strict {
			return Return{}, false
		}

		for _, id := range listOf(ids) {
			w.expect(id, now)
		}

		w.noteMissing(data.Texts("missing"))
		return Return{}, false
	}

	if !strings.HasPrefix(rest, "ret/") {
		return Return{}, false
	}

	if _, ok := data.Get("return"); !ok {
		return Return{}, false
	}

	r := returnOf(data)
	if r.ID == "" || w.found[r.ID] || w.strict && !w.expected[r.ID] {
		return Return{}, false
	}

	w.found[r.ID] = true
	return r, true
}

// noteMissing records minions that the target names but that have no accepted key.
func (w *watch) noteMissing(ids []string) {
	for _, id := range ids {
		w.missing[id] = true
	}
}

func listOf(v any) []any {
	l, _ := v.([]any)
	return l
}

func (w *watch) expect(id any, now time.Time) {
	s, ok := id.(string)
	if !ok || w.expected[s] {
		return
	}
	w.expected[s] = true
	w.deadlines[s] = now.Add(w.timeout)
}

// returnOf returns the return in an event. The return of a minion's resource is under the
// resource's own name (salt/client/__init__.py _job_ret_display_id).
func returnOf(data *value.Map) Return {
	r := Return{ID: data.Str("id"), JID: data.Str("jid"), Out: data.Str("out")}
	if rid := data.Str("resource_id"); rid != "" {
		r.ID = rid
	}
	r.Ret, r.HasRet = data.Get("return")
	r.Retcode, r.HasRetcode = data.Get("retcode")
	return r
}

// answer handles the return of a minion that was asked whether it runs the job. The return is {}
// when the minion does not run the job, otherwise a map that is not empty.
func (w *watch) answer(rest string, data *value.Map, now time.Time) {
	if !strings.HasPrefix(rest, "ret/") {
		return
	}

	id := data.Str("id")
	if n, ok := data.Int("retcode"); ok && n > 0 {
		delete(w.expected, id) // the minion cannot tell whether the job runs: stop waiting for the minion
		return
	}

	job, ok := data.Get("return")
	m, isMap := job.(*value.Map)
	if !ok || !isMap || m.Len() == 0 {
		return
	}

	if inner, ok := m.Get("return"); ok {
		if im, ok := inner.(*value.Map); ok && im.Len() == 0 {
			return
		}
	}

	w.expected[id] = true
	w.deadlines[id] = now.Add(w.timeout)
	w.running = true
}

// noteQuestion records the job id of a job that asks minions whether they still run the watched
// job.
func (w *watch) noteQuestion(jid string) {
	if jid != "" {
		w.questions[jid] = true
	}
}

// restartWait starts the wait for returns from the beginning, because answers of minions about the
// job may be lost.
func (w *watch) restartWait(now time.Time) {
	w.running, w.askAt = true, now.Add(w.timeout)
	for id := range w.deadlines {
		w.deadlines[id] = now.Add(w.timeout)
	}
}

// unanswered returns the expected minions that have not returned, sorted.
func (w *watch) unanswered() (ids []string) {
	for id := range w.expected {
		if !w.found[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// nextStep returns the next action of the caller. If stop is true, the caller must stop waiting.
// Otherwise it must ask the minions in silent whether they still run the job, and call nextStep
// again by deadline.
func (w *watch) nextStep(now time.Time) (silent []string, stop bool, deadline time.Time) {
	open := w.unanswered()
	if len(open) == 0 && w.syndics == 0 {
		return nil, true, now
	}

	complete := len(open) == 0 && len(w.expected)+len(w.found) > 0
	if complete && now.After(w.syndicsUntil) {
		return nil, true, now
	}
	if now.After(w.askAt) && w.running {
		w.running = false
		w.askAt = now.Add(w.gather + w.syndics)
		return open, false, w.askAt.Add(time.Millisecond)
	}

	if now.After(w.askAt) {
		last := w.askAt
		for _, id := range open {
			if d := w.deadlines[id]; d.After(last) {
				last = d
			}
		}

		if now.After(last) {
			return nil, true, now
		}

		return nil, false, last.Add(time.Millisecond)
	}

	deadline = w.askAt
	if complete && w.syndicsUntil.Before(deadline) {
		deadline = w.syndicsUntil
	}

	return nil, false, deadline.Add(time.Millisecond)
}

// lostMinions returns the sorted minions that have not returned: the expected minions, and minions
// that the target names but that have no accepted key.
func (w *watch) lostMinions() []string {
	ids := w.unanswered()
	for id := range w.missing {
		if !w.found[id] && !w.expected[id] {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// noReturn returns the text that is shown in place of a missing return.
func noReturn(jid string) string {
	return "Minion did not return. [No response]\nThe minions may not have all finished running and any remaining " +
		"minions will return upon completion. To look up the return data for this job later, run the following " +
		"command:\n\nsalt-run jobs.lookup_jid " + jid
}

// MissingReturn returns the Return that the command line shows for a minion that did not answer
// (salt/client/__init__.py get_cli_event_returns).
func MissingReturn(id, jid string, connected bool) Return {
	text := noReturn(jid)
	if !connected {
		text = "Minion did not return. [Not connected]"
	}

	return Return{
		ID:         id,
		Ret:        text,
		HasRet:     true,
		Out:        "no_return",
		Retcode:    int64(1),
		HasRetcode: true,
		JID:        jid,
		Missing:    true,
	}
}
