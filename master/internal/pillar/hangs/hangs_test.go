package hangs

import (
	"testing"
	"time"
)

// TestHangs: all work rests only if none was answered between two that hang.
func TestHangs(t *testing.T) {
	var h Hangs[string]
	now := time.Unix(1000, 0)
	const a, b, c = "a", "b", "c"
	rest := func(want bool, keys ...string) {
		t.Helper()
		for _, key := range keys {
			if h.IsResting(key, now) != want {
				t.Errorf("%s rests: %v", key, !want)
			}
		}
	}

	h.NoteHang(a, now)
	h.NoteHang(a, now)
	rest(true, a)
	rest(false, b, c)

	h.NoteAnswer()
	h.NoteHang(b, now)
	rest(true, a, b)
	rest(false, c)

	h.NoteHang(a, now)
	rest(true, a, b, c)

	now = now.Add(retryAfter)
	rest(false, a, b, c)
	h.NoteHang(c, now)
	rest(true, a, b, c)
	if len(h.ofKeys) != 1 {
		t.Errorf("%d keys are kept, want one", len(h.ofKeys))
	}

	h = Hangs[string]{OfAll: 3}
	h.NoteHang(a, now)
	h.NoteHang(b, now)
	rest(false, c)
	h.NoteHang(c, now)
	rest(true, "d")
}
