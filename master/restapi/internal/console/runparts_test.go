package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"saltern/master/value"
)

// TestStartBatch: what the form says of a batch reaches the master, with a confirmation and without.
func TestStartBatch(t *testing.T) {
	c := newConsole(t, "")
	m := newAsking()
	a := ask(t, c, m, http.MethodPost, "/run", runForm("tgt", "web*", "fun", "test.ping",
		"batch", "25%", "batch_wait", "5", "timeout", "60", "failhard", "1"))
	got := m.started()
	want := value.NewMap("client", "local_async", "fun", "test.ping", "tgt", "web*", "tgt_type", "glob", "arg", []any{},
		"batch", "25%", "failhard", true, "batch_wait", "5", "timeout", "60")
	if a.Code != http.StatusSeeOther || !value.Equal(got, want) {
		t.Errorf("%d, asked %s", a.Code, value.Repr(got))
	}

	m = newAsking()
	form := runForm("tgt", "web1,web2,web3", "type", "list", "fun", "test.ping", "failhard", "1")
	if a := ask(t, c, m, http.MethodPost, "/run", form); a.Code != http.StatusBadRequest || m.started() != nil {
		t.Errorf("failhard without a batch: %d, asked %s", a.Code, value.Repr(m.started()))
	}
}

// TestConfirmedBatch: the confirmation sends the batch that the form had.
func TestConfirmedBatch(t *testing.T) {
	c := newConsole(t, "")
	ids := strings.TrimSuffix(strings.Repeat("web,", manyMinions+1), ",")
	m := newAsking()
	a := ask(t, c, m, http.MethodPost, "/run", runForm("tgt", ids, "type", "list", "fun", "cmd.run", "arg", "id",
		"batch", "3", "batch_wait", "7", "timeout", "9", "failhard", "1"))
	for _, want := range []string{`name="batch" value="3"`, `name="batch_wait" value="7"`, `name="timeout" value="9"`,
		`name="failhard" value="1"`, ", 3 at a time"} {
		if !strings.Contains(a.Body, want) {
			t.Errorf("the confirmation lacks %s: %s", want, a.Body)
		}
	}
	if m.started() != nil {
		t.Errorf("asked %s", value.Repr(m.started()))
	}
}

// TestRefusedBatches: a batch that the master would refuse, or not obey, is not started.
func TestRefusedBatches(t *testing.T) {
	c := newConsole(t, "")
	for name, fields := range map[string][]string{
		"no minions at a time": {"batch", "0"},
		"more than all":        {"batch", "150%"},
		"a word":               {"batch", hostile},
		"a wait of a word":     {"batch", "1", "batch_wait", "soon"},
		"a negative wait":      {"batch", "1", "batch_wait", "-1"},
		"a year":               {"batch", "1", "timeout", "31536000"},
		"a time alone":         {"timeout", "60"},
		"a wait alone":         {"batch_wait", "1"},
	} {
		m := newAsking()
		a := ask(t, c, m, http.MethodPost, "/run", runForm(append([]string{"tgt", "web1", "fun", "test.ping"}, fields...)...))
		if a.Code != http.StatusBadRequest || m.started() != nil || !strings.Contains(a.Body, `role="alert"`) {
			t.Errorf("%s: %d, asked %s", name, a.Code, value.Repr(m.started()))
		}
	}

	m := newAsking()
	m.answers["test.ping"] = &Refusal{http.StatusBadRequest, "none of the 3 minions answers"}
	a := ask(t, c, m, http.MethodPost, "/run", runForm("tgt", "web1", "fun", "test.ping", "batch", "1"))
	if a.Code != http.StatusBadRequest || !strings.Contains(a.Body, "None of the 3 minions answers") || !strings.Contains(a.Body, `value="web1"`) {
		t.Errorf("a refusal of the master: %d %s", a.Code, a.Body)
	}
}

// TestBatchOfBusyMaster: who is to try again later gets the form with what he wrote.
func TestBatchOfBusyMaster(t *testing.T) {
	c := newConsole(t, "")
	m := newAsking()
	m.answers["test.ping"] = &Refusal{http.StatusServiceUnavailable, "8 other runs wait: nothing was run; try again later"}
	a := ask(t, c, m, http.MethodPost, "/run", runForm("tgt", "web1", "fun", "test.ping", "batch", "1"))
	if a.Code != http.StatusServiceUnavailable || a.Header.Get("Retry-After") == "" ||
		!strings.Contains(a.Body, "8 other runs wait") || !strings.Contains(a.Body, `value="web1"`) {
		t.Errorf("%d %v %s", a.Code, a.Header, a.Body)
	}
}

// TestPageOfBatch: the page of a job says how far its batch is, and is live while it goes on.
func TestPageOfBatch(t *testing.T) {
	c := newConsole(t, "")
	job := func(batch *value.Map) *value.Map {
		return value.NewMap("jid", "20261124155900000001", "Function", "test.ping", "Arguments", []any{}, "Target", "*",
			"Target-type", "glob", "User", "alice", "Minions", []any{"web1", "web2"}, "Batch", batch, "Result",
			value.NewMap("web1", value.NewMap("return", true), "web2", value.NewMap("return", true)))
	}
	for name, tt := range map[string]struct {
		batch *value.Map
		live  bool
		says  []string
	}{
		"goes on": {value.NewMap("minions", int64(10), "size", int64(2), "pending", int64(7), "active", int64(0), "halted", ""), true,
			[]string{"2 at a time: 2 of 10 minions have the job", "7 get it later", "1 did not answer a ping", "Stop…"}},
		"halted": {value.NewMap("minions", int64(10), "size", int64(2), "pending", int64(8), "halted", hostile), false,
			[]string{"8 do not get it any more", "&lt;"}},
		"of another node": {value.NewMap("minions", int64(10), "size", int64(2)), true,
			[]string{"The node that started it knows"}},
		"at its end": {value.NewMap("minions", int64(2), "size", int64(2), "pending", int64(0), "halted", ""), false, nil},
	} {
		m := newAsking()
		m.answers["jobs.list_job"] = job(tt.batch)
		a := ask(t, c, m, http.MethodGet, "/job?jid=20261124155900000001", nil)
		if got := strings.Contains(a.Body, "data-stream"); got != tt.live {
			t.Errorf("%s: live: %t", name, got)
		}
		for _, want := range tt.says {
			if !strings.Contains(a.Body, want) {
				t.Errorf("%s: the page lacks %q: %s", name, want, a.Body)
			}
		}
		if strings.Contains(a.Body, hostile) {
			t.Errorf("%s: the page has it as it is", name)
		}
	}
}

// TestPageOfWaitingBatch: a batch that waits for others is no unknown job.
func TestPageOfWaitingBatch(t *testing.T) {
	c := newConsole(t, "")
	m := newAsking()
	m.answers["jobs.list_job"] = value.NewMap("jid", "20261124155900000001", "Error", "Cannot contact returner or no job with this jid",
		"Batch", value.NewMap("minions", int64(10), "size", int64(2), "pending", int64(10), "active", int64(0), "halted", ""), "Result", value.NewMap())
	a := ask(t, c, m, http.MethodGet, "/job?jid=20261124155900000001", nil)
	if !strings.Contains(a.Body, "No minion has the job yet") || !strings.Contains(a.Body, "data-stream") {
		t.Errorf("%s", a.Body)
	}
}

// TestStopOfBatch: to stop a job of which nobody has a part just now stops its batch.
func TestStopOfBatch(t *testing.T) {
	c := newConsole(t, "")
	for _, stops := range []bool{true, false} {
		m := newAsking()
		m.answers["batch.stop"] = stops
		m.answers["jobs.list_job"] = value.NewMap("jid", "20261124155900000001", "Function", "test.ping", "Minions", []any{"web1"},
			"Batch", value.NewMap("minions", int64(10), "size", int64(1), "pending", int64(9), "halted", ""),
			"Result", value.NewMap("web1", value.NewMap("return", true)))
		form := url.Values{"form": runForm()["form"], "jid": {"20261124155900000001"}, "do": {"term"}}
		a := ask(t, c, m, http.MethodPost, "/job/stop", form)
		if stops && (a.Code != http.StatusSeeOther || !strings.Contains(a.Header.Get("Location"), "batch=stopped")) {
			t.Errorf("%d to %s: %s", a.Code, a.Header.Get("Location"), a.Body)
		}
		if !stops && (a.Code != http.StatusConflict || !strings.Contains(a.Body, "Nothing was done")) {
			t.Errorf("a batch of another node: %d %s", a.Code, a.Body)
		}
	}
}
