package merge

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"saltern/master/internal/merge/options"
	"saltern/master/internal/repos"
	"saltern/test/check"
)

// TestNext: commits for which the server has an error come after the others that are due.
func TestNext(t *testing.T) {
	now := time.Now()
	w := &worker{
		service: &Service{cfg: Config{Now: func() time.Time { return now }}},
		record: &record{Open: []*item{
			{Commit: "twice", faults: 2, retryAt: now},
			{Commit: "once", faults: 1, retryAt: now.Add(-time.Second)},
			{Commit: "later", retryAt: now.Add(time.Second)},
			{Commit: "new"},
			{Commit: "newer"},
		}},
	}

	for _, want := range []string{"new", "newer", "once", "twice", "later"} {
		it := w.next()
		if it == nil || it.Commit != want {
			t.Fatalf("%+v, want %s", it, want)
		}
		it.faults += 3
		it.retryAt = now.Add(2 * time.Second)
		if want == "twice" {
			now = now.Add(time.Second)
		}
	}
}

// TestLongTarget: a status leads to an address that each server takes, however long the names are.
func TestLongTarget(t *testing.T) {
	commit := strings.Repeat("a", 40)
	for _, tt := range []struct {
		name, console, remote, want string
	}{
		{"short", "https://salt/console", "https://git/pillar", "https://salt/console/diff?into=&ref=" + commit + "&remote=https%3A%2F%2Fgit%2Fpillar"},
		{"a long remote", "https://salt/console", "https://git/" + strings.Repeat("ä", 60), "https://salt/console/diff"},
		{"a long console", "https://salt/" + strings.Repeat("x", 250), "https://git/pillar", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			console, err := url.Parse(tt.console)
			check.Must(t, err)
			w := &worker{to: &options.Report{Console: console}, tips: repos.Tips{URL: tt.remote}}
			if got := w.target(commit); got != tt.want {
				t.Errorf("got %q", got)
			}
		})
	}
}
