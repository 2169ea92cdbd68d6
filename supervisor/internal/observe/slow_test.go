package observe

import (
	"testing"
	"time"

	"saltern/internal/control"
)

// Only a master that has written its status before, and does not any more, is
// without a sign of life; what cannot be known speaks for it.
func TestMasterSpoke(t *testing.T) {
	t.Parallel()
	silentSince := time.Now().Add(-15 * time.Second)
	before, after := silentSince.Add(-time.Second), silentSince.Add(5*time.Second)
	for name, c := range map[string]struct {
		s    *slowFacts
		want bool
	}{
		"hung": {&slowFacts{last: after, answer: slowAnswer{master: &control.Status{PID: 7, Written: before}}},
			false},
		"busy": {&slowFacts{last: after, answer: slowAnswer{master: &control.Status{PID: 7, Written: after}}},
			true},
		"writes no status": {&slowFacts{last: after}, true},
		"the file is another's": {&slowFacts{last: after, answer: slowAnswer{master: &control.Status{PID: 6, Written: before}}},
			true},
		"not looked at since": {&slowFacts{last: before, answer: slowAnswer{master: &control.Status{PID: 7, Written: before}}},
			true},
		"the file system hangs": {&slowFacts{last: after, running: true, since: before, answer: slowAnswer{master: &control.Status{PID: 7, Written: before}}},
			true},
		"being looked at just now": {&slowFacts{last: after, running: true, since: time.Now(), answer: slowAnswer{master: &control.Status{PID: 7, Written: before}}},
			false},
	} {
		if got := c.s.masterSpoke(7, silentSince); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
