package request

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

// Attack row 19: what is remembered of answers is bounded in bytes, since a
// minion can choose what is in some of them.
func TestAttack19RememberedAnswers(t *testing.T) {
	r := newReplays(1000, time.Hour)
	now := time.Unix(1_700_000_000, 0)
	big := strings.Repeat("x", 1<<20)
	for i := range 500 {
		e, first := r.claimEntry("m", fmt.Sprint(i), now)
		if !first {
			t.Fatal("seen before")
		}

		switch i % 4 {
		case 0:
			e.value = big
		case 1:
			e.value = value.NewMap("a", []any{value.NewMap("b", big)})
		case 2:
			e.value = []string{big}
		case 3:
			e.value = Plain{value.NewMap(big, []byte{1})}
		}

		close(e.done)
	}

	r.claimEntry("m", "last", now)
	if n := len(r.byKey); n < 50 || n > 66 {
		t.Errorf("%d answers of a megabyte are kept", n)
	}

	if r.bytes > maxReplayBytes || r.bytes < maxReplayBytes/2 {
		t.Errorf("%d bytes are counted", r.bytes)
	}

	if _, first := r.claimEntry("m", "499", now); first {
		t.Error("the newest answer is forgotten")
	}

	if _, first := r.claimEntry("m", "0", now); !first {
		t.Error("the oldest answer is kept")
	}

	// Small ones do not count much; all goes away in the end.
	for i := range 900 {
		e, _ := r.claimEntry("n", fmt.Sprint(i), now)
		close(e.done)
	}

	e, _ := r.claimEntry("m", "later", now.Add(2*time.Hour))
	r.forget(e)
	if len(r.byKey) != 0 || r.order.Len() != 0 || r.bytes != 0 {
		t.Errorf("%d answers and %d bytes left", len(r.byKey), r.bytes)
	}
}
