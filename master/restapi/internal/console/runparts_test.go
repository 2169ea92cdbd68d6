package console

import (
	"net/http"
	"strings"
	"testing"

	"saltern/master/value"
)

// TestStartBatch: what the form says of a batch reaches the master, with a confirmation and without.
func TestStartBatch(t *testing.T) {
	c := newConsole(t, "")
	m := newAsking()
	a := ask(t, c, m, http.MethodPost, "/run", runForm("tgt", "web*", "fun", "test.ping",
		"batch", "25%", "batch_wait", "1.5", "timeout", "60", "failhard", "1"))
	got := m.started()
	want := value.NewMap("client", "local_async", "fun", "test.ping", "tgt", "web*", "tgt_type", "glob", "arg", []any{},
		"batch", "25%", "failhard", true, "batch_wait", "1.5", "timeout", "60")
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
		"a wait of no number":  {"batch", "1", "batch_wait", "nan"},
		"a wait for ever":      {"batch", "1", "batch_wait", "inf"},
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
