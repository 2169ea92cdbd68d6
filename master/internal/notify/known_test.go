package notify

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"saltern/test/check"
)

// A destination is known since it first appeared, until it disappears.
func TestKnownSince(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "destinations.json")
	first := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	for i, ids := range [][]string{{"a"}, {"a", "b"}, {"b"}, {"b", "a"}} {
		now := first.Add(time.Duration(i) * time.Hour)
		since, err := knownSince(path, ids, now)
		check.Must(t, err)
		want := [][]time.Time{{first}, {first, now}, {now.Add(-time.Hour)}, {now.Add(-2 * time.Hour), now}}[i]
		for j, id := range ids {
			if !since[id].Equal(want[j]) {
				t.Errorf("start %d: %s is known since %s, not %s", i, id, since[id], want[j])
			}
		}
	}

	early := first.Add(-time.Hour)
	since, err := knownSince(path, []string{"a"}, early)
	check.Must(t, err)
	if !since["a"].Equal(early) {
		t.Errorf("the clock was ahead, and a is known since %s", since["a"])
	}
}

// A file that cannot be read is a fault, and keeps no message from being sent.
func TestKnownSinceOfABrokenFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "destinations.json")
	check.Must(t, os.WriteFile(path, []byte("{"), 0o600))
	since, err := knownSince(path, []string{"a"}, time.Now())
	if err == nil || !since["a"].IsZero() {
		t.Error(since, err)
	}
	if _, err := knownSince(path, []string{"a"}, time.Now()); err != nil {
		t.Error("the file stays broken:", err)
	}
}
