package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"

	"saltern/master/value"
)

// TestBatchIsSavedAsJob: what the page Run says of a batch is in the form of a saved job, which says what it
// does not have.
func TestBatchIsSavedAsJob(t *testing.T) {
	c := newConsole(t, "")
	for name, tt := range map[string]struct {
		query url.Values
		has   []string
		never string
	}{
		"all of it": {url.Values{"batch": {"25%"}, "batch_wait": {"5"}, "timeout": {"60"}, "failhard": {"1"}},
			[]string{`name="batch" value="25%"`, `name="stop_above" value="0"`, `name="limit" value="60"`, "with 0 it stops", "no wait between"}, ""},
		"its size": {url.Values{"batch": {"3"}, "batch_wait": {"0"}}, []string{`name="batch" value="3"`, `name="stop_above" value=""`}, "no wait between"},
		"no batch": {url.Values{"failhard": {"1"}}, []string{`name="stop_above" value=""`}, "with 0 it stops"},
		"hostile":  {url.Values{"batch": {hostile}}, []string{`name="batch" value="&lt;`}, hostile},
	} {
		tt.query.Set("fun", "test.ping")
		a := ask(t, c, newAsking(), http.MethodGet, "/saved/job?"+tt.query.Encode(), nil)
		for _, want := range tt.has {
			if !strings.Contains(a.Body, want) {
				t.Errorf("%s: the form lacks %q: %s", name, want, a.Body)
			}
		}
		if tt.never != "" && strings.Contains(a.Body, tt.never) {
			t.Errorf("%s: the form has %q", name, tt.never)
		}
	}
}

// TestWordsOfLimits: the percentage stops a batch, and no run without one.
func TestWordsOfLimits(t *testing.T) {
	for want, job := range map[string]*value.Map{
		"": value.NewMap(),
		"test=True first, and no run if one would fail or does not answer":              value.NewMap("test_first", true),
		"test=True first, and no run if more than 2.5 % would fail or do not answer":    value.NewMap("test_first", true, "stop_above", 2.5),
		"10% at a time; stops when more than 0 % have failed or do not answer":          value.NewMap("batch", "10%", "stop_above", int64(0)),
		"test=True first, and no run if one would fail or does not answer; 3 at a time": value.NewMap("test_first", true, "batch", int64(3)),
	} {
		if got := limitWords(job); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
