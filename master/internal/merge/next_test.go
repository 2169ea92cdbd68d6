package merge

import (
	"testing"
	"time"
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
