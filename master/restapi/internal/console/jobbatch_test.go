package console

import (
	"html"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"saltern/master/value"
)

const batchJID = "20261124155900000001"

// batchJob returns a job of which two minions have returned, with pairs of name and value of its batch.
func batchJob(batch ...any) *value.Map {
	return value.NewMap("jid", batchJID, "Function", "test.ping", "Arguments", []any{}, "Target", "web*",
		"Target-type", "glob", "User", "alice", "Minions", []any{"web1", "web2"}, "Batch", value.NewMap(batch...), "Result",
		value.NewMap("web1", value.NewMap("return", true), "web2", value.NewMap("return", true)))
}

// TestPageOfBatch: the page of a job says how far its batch is, and is live while it goes on.
func TestPageOfBatch(t *testing.T) {
	c := newConsole(t, "")
	asked := value.NewMap("size", "25%", "wait", 5.0, "timeout", 1800.0, "failhard", true)
	for name, tt := range map[string]struct {
		job   *value.Map
		live  bool
		says  []string
		never string
	}{
		"goes on": {job: batchJob("minions", int64(10), "size", int64(2), "absent", int64(1), "pending", int64(6), "active", int64(0), "halted", ""),
			live: true, says: []string{"2 at a time: 2 of 10 minions have the job", "6 wait for it", "1 did not answer a ping",
				"it could not be sent to 1", "Stop the batch…"}, never: "Run again"},
		"halted": {job: batchJob("minions", int64(10), "size", int64(2), "pending", int64(8), "halted", hostile),
			says: []string{"8 do not get it any more", "&lt;"}, never: "on the others"},
		"of an older master": {job: batchJob("minions", int64(10), "size", int64(2)), live: true,
			says: []string{"The node that started it knows"}},
		"of a master that is away": {job: batchJob("minions", int64(10), "size", int64(2), "absent", int64(3), "master", "n2", "away", true,
			"tgt", "web*", "tgt_type", "glob", "asked", asked), live: true,
			says: []string{"3 did not answer a ping", "The node n2 runs the batch and does not answer: it may be at work on it", "the others run the job twice",
				"tgt=web*+and+not+L@web1,web2&", "type=compound", "batch=25%&batch_wait=5&failhard=1&", "timeout=1800"}},
		"stopped while its master is away": {job: batchJob("minions", int64(10), "size", int64(2), "absent", int64(3), "master", "n2", "away", true,
			"halted", "stop", "tgt", "web*", "tgt_type", "glob", "asked", asked), says: []string{"somebody stopped it", "tgt=web*+and+not+L@web1,web2&"},
			never: "twice"},
		"of a master that was removed": {job: batchJob("minions", int64(10), "size", int64(2), "absent", int64(3), "master", "n2", "removed", true,
			"tgt", "web*", "tgt_type", "glob", "asked", asked), says: []string{`class="problem">In a batch`, "The node n2 ran the batch and is no master",
			"tgt=web*+and+not+L@web1,web2&"}, never: "Stop…"},
		"whose rest is away": {job: batchJob("minions", int64(5), "size", int64(2), "absent", int64(3), "master", "n2", "away", true),
			never: "The node n2"},
		"stopped": {job: batchJob("minions", int64(10), "size", int64(2), "pending", int64(8), "halted", "stop", "tgt", []any{"web1", "web2", "web3"},
			"tgt_type", "list", "asked", asked), says: []string{"somebody stopped it", "tgt=web3&", "Run again"}, never: "twice"},
		"of a saved job with limits": {job: batchJob("minions", int64(10), "size", int64(2), "pending", int64(8), "halted", "stop", "tgt", "web*",
			"tgt_type", "glob"), never: "Run again"},
		"at its end": {job: batchJob("minions", int64(2), "size", int64(2), "pending", int64(0), "halted", "")},
	} {
		m := newAsking()
		m.answers["jobs.list_job"] = tt.job
		a := ask(t, c, m, http.MethodGet, "/job?jid="+batchJID, nil)
		if got := strings.Contains(a.Body, "data-stream"); got != tt.live {
			t.Errorf("%s: live: %t", name, got)
		}
		_, body, _ := strings.Cut(a.Body, "<main")
		plain, err := url.PathUnescape(html.UnescapeString(body))
		if err != nil {
			plain = html.UnescapeString(body)
		}
		for _, want := range tt.says {
			if !strings.Contains(plain+body, want) {
				t.Errorf("%s: the page lacks %q: %s", name, want, plain)
			}
		}
		if strings.Contains(body, hostile) || tt.never != "" && strings.Contains(body, tt.never) {
			t.Errorf("%s: the page has %q, or what it shall not: %s", name, tt.never, body)
		}
	}
}

// TestRestOfTarget: the form that runs a job on the others has a target that selects them, or does not exist.
func TestRestOfTarget(t *testing.T) {
	c := newConsole(t, "")
	for _, tt := range []struct {
		target any
		kind   string
		want   string // "": there is no form
		parted string // delimiter of the target; "": a colon
		have   string // a further minion that has the job; "": none
	}{
		{target: "web*", kind: "glob", have: "x or E@.+"},
		{target: "web*", kind: "glob", have: "db1,db2"},
		{target: "web*", kind: "glob", have: "db1\t"},
		{target: "web*", kind: "glob", have: "db("},
		{target: []any{"web2", "db1"}, kind: "list", have: "db)"},
		{target: []any{"web2", "db1,db2"}, kind: "list"},
		{target: "web2,db1 or *", kind: "list"},
		{target: "not", kind: "glob"},
		{target: "web*\tor\t*", kind: "glob"},
		{target: "web*", kind: "glob", want: "web* and not L@web1,web2"},
		{target: "os:Debian", kind: "grain", want: "G@os:Debian and not L@web1,web2"},
		{target: "os|Debian", kind: "grain", parted: "|"},
		{target: []any{"web2", "db1"}, kind: "list", want: "db1", parted: "|"},
		{target: "web* or db*", kind: "compound", want: "( web* or db* ) and not L@web1,web2"},
		{target: []any{"web2", "db1"}, kind: "list", want: "db1"},
		{target: "web2,db1", kind: "list", want: "db1"},
		{target: []any{"web2", "web1"}, kind: "list"},
		{target: "os:Debian 12", kind: "grain"},
		{target: "G@os:x", kind: "glob"},
		{target: "web[0-9]", kind: "unknown"},
		{target: strings.Repeat("web", fieldBytes), kind: "glob"},
		{target: nil, kind: "glob"},
	} {
		job := batchJob("minions", int64(9), "pending", int64(7), "halted", "stop", "tgt", tt.target, "tgt_type", tt.kind, "asked",
			value.NewMap("size", "1"))
		if tt.have != "" {
			job.Set("Minions", append(job.List("Minions"), tt.have))
		}
		if tt.parted != "" {
			job.Set("Delimiter", tt.parted)
			job.Set("Target", tt.target)
			job.Set("Target-type", tt.kind)
			if again := c.runAgainURL(job); (again != "") != (tt.want != "") {
				t.Errorf("%v by %s: run again at %q", tt.target, tt.kind, again)
			}
		}
		u, err := url.Parse(c.runRestURL(job, batchOf(job)))
		if err != nil || u.Query().Get("tgt") != tt.want {
			t.Errorf("%v by %s: %q, want %q", tt.target, tt.kind, u.Query().Get("tgt"), tt.want)
		}
	}
}

// TestFailedMinionWithOddID: the form that runs a job again on minions that failed, or on those it was for,
// selects no others.
func TestFailedMinionWithOddID(t *testing.T) {
	c := newConsole(t, "")
	job := value.NewMap("Function", "test.ping", "Arguments", []any{})
	for id, want := range map[string]bool{"web1": true, "web1,db1": false, "web1 or *": false} {
		if got := c.runFailedURL(job, []any{id}); (got != "") != want {
			t.Errorf("%q failed: %q", id, got)
		}
		job.Set("Target", []any{id})
		job.Set("Target-type", "list")
		if got := c.runAgainURL(job); (got != "") != want {
			t.Errorf("%q again: %q", id, got)
		}
	}
}

// TestPageOfWaitingBatch: a batch that waits for others is no unknown job, and can be stopped.
func TestPageOfWaitingBatch(t *testing.T) {
	c := newConsole(t, "")
	m := newAsking()
	m.answers["jobs.list_job"] = value.NewMap("jid", batchJID, "Error", "Cannot contact returner or no job with this jid",
		"Batch", value.NewMap("minions", int64(10), "size", int64(2), "pending", int64(10), "active", int64(0), "halted", ""), "Result", value.NewMap())
	a := ask(t, c, m, http.MethodGet, "/job?jid="+batchJID, nil)
	if !strings.Contains(a.Body, "No minion has the job yet") || !strings.Contains(a.Body, "data-stream") || !strings.Contains(a.Body, "/job/stop?do=term") {
		t.Errorf("%s", a.Body)
	}
}

// TestJobThatCannotBeRead: while the database of older jobs is away, a job is not called unknown, and the
// returns that are there are shown.
func TestJobThatCannotBeRead(t *testing.T) {
	c := newConsole(t, "")
	for name, tt := range map[string]struct {
		result *value.Map
		fault  string
		says   string
		never  string
	}{
		"no answer":   {value.NewMap(), "PostgreSQL does not answer " + hostile, "Not all of this job can be read now: PostgreSQL does not answer", "no such job"},
		"a part":      {value.NewMap("web1", value.NewMap("return", "a return")), "PostgreSQL does not answer", "a return", "no such job"},
		"no load":     {value.NewMap("web1", value.NewMap("return", "a return")), "", "What was run is not known", "no such job"},
		"no such job": {value.NewMap(), "", "no such job", "Not all of this job"},
	} {
		m := newAsking()
		job := value.NewMap("jid", batchJID, "Error", "Cannot contact returner or no job with this jid", "Result", tt.result)
		if tt.fault != "" {
			job.Set("Fault", tt.fault)
		}
		m.answers["jobs.list_job"] = job
		a := ask(t, c, m, http.MethodGet, "/job?jid="+batchJID, nil)
		if !strings.Contains(a.Body, tt.says) || strings.Contains(a.Body, tt.never) || strings.Contains(a.Body, hostile) {
			t.Errorf("%s: %s", name, a.Body)
		}
	}
}

// TestStopOfBatch: to stop a job stops its batch, and tells the minions that work on it. The answer says
// which of that was done.
func TestStopOfBatch(t *testing.T) {
	c := newConsole(t, "")
	away := "Exception occurred in runner batch.stop: runner batch.stop: the master n2 runs the batch and did not answer"
	for name, tt := range map[string]struct {
		stop    any // answer of batch.stop
		working bool
		tell    any // answer of saltutil.term_job; nil: one minion was told
		code    int
		says    string // in the address, or on the page
	}{
		"nobody works":       {stop: true, code: 303, says: "batch=stopped"},
		"one works":          {stop: true, working: true, code: 303, says: "batch=stopped&jid=" + batchJID + "&n=1&told=term"},
		"away, nobody works": {stop: away, code: 409, says: "The master n2 runs the batch and did not answer"},
		"away, one works": {stop: away, working: true, code: 409,
			says: "The master n2 runs the batch and did not answer. 1 minion was asked to end the job."},
		"away, not told": {stop: away, working: true, tell: &Refusal{401, "no"}, code: 403,
			says: "The master n2 runs the batch and did not answer. The minions that have the job were not told"},
		"ended, nobody works":  {stop: false, code: 409, says: "No minion works"},
		"ended, one works":     {stop: false, working: true, code: 303, says: "n=1&told=term"},
		"stopped, not told":    {stop: true, working: true, tell: &Refusal{401, "no"}, code: 403, says: "The batch is stopped: no further minion"},
		"stopped, key is gone": {stop: true, working: true, tell: value.NewMap("minions", []any{}), code: 409, says: "The batch is stopped: no further minion"},
	} {
		m := newAsking()
		m.answers["batch.stop"] = tt.stop
		m.answers["saltutil.term_job"] = value.NewMap("jid", "20261124155900000009", "minions", []any{"web2"})
		if tt.tell != nil {
			m.answers["saltutil.term_job"] = tt.tell
		}
		job := batchJob("minions", int64(10), "size", int64(1), "master", "n2", "away", true)
		if tt.working {
			job.Map("Result").Delete("web2")
		}
		m.answers["jobs.list_job"] = job
		form := url.Values{"form": runForm()["form"], "jid": {batchJID}, "do": {"term"}}
		a := ask(t, c, m, http.MethodPost, "/job/stop", form)
		if a.Code != tt.code || !strings.Contains(a.Header.Get("Location")+a.Body, tt.says) {
			t.Errorf("%s: %d to %s: %s", name, a.Code, a.Header.Get("Location"), a.Body)
		}
	}

	for query, want := range map[string]string{
		"batch=stopped":    "No further minion gets the job.",
		"batch=" + hostile: "",
	} {
		q, _ := url.ParseQuery(query)
		if got := stoppedNotice(q); !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", query, got)
		}
	}
}
