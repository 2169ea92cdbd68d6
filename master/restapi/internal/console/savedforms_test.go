package console

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
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
