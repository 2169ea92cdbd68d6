package batch

import (
	"slices"
	"strings"
	"testing"
	"time"

	"saltern/master/value"
)

// TestOwnBatchWithALimit: a batch of the master itself ends when too many minions have failed, also
// when some of them failed before a restart.
func TestOwnBatchWithALimit(t *testing.T) {
	own := Own{
		JID:     jid,
		User:    "ann",
		Eauth:   "pam",
		Fun:     "test.arg",
		Arg:     []any{"x", value.NewMap("__kwarg__", true, "k", "v")},
		Target:  "*",
		Timeout: time.Minute,
	}
	for _, c := range []struct {
		name   string
		most   int
		halted bool
	}{{"within", 3, false}, {"beyond", 2, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			state := New([]string{"a", "b", "c", "d", "e"}, 1)
			state.Limited = true
			state.MostFailures = c.most
			state.Failed["away"] = "no answer to a ping"
			if err := w.m.begin(t.Context(), beginning{own: own, state: state}); err != nil {
				t.Fatal(err)
			}
			if w.adopted != "" {
				t.Error("whoever starts the batch records it, and so does the manager")
			}

			w.ret("a", 1)
			w.again() // the master was restarted
			w.m.adoptBatch(t.Context(), jid, true)
			w.ret("b", 1)
			w.ret("c", 0)
			w.ret("d", 0)
			w.ret("e", 0)

			want := "a b c d e"
			if c.halted {
				want = "a b"
			}
			if got := strings.Join(w.published, " "); got != want {
				t.Errorf("published to %s, want %s", got, want)
			}
			if slices.Contains(w.fired, "halted") != c.halted || slices.Contains(w.fired, "complete") == c.halted {
				t.Errorf("events %v", w.fired)
			}
			kept, err := w.m.readState(jid)
			if err != nil || kept.Bool("halted") != c.halted {
				t.Errorf("kept %v, %v", kept, err)
			}
		})
	}
}

// TestBeginIsAnswered: who asks for a batch gets an answer, and no minion has the job when there is
// no place for its state.
func TestBeginIsAnswered(t *testing.T) {
	w := newWorld(t)
	own := Own{JID: "not a job id", Fun: "test.arg"}
	if err := w.m.begin(t.Context(), beginning{own: own, state: New([]string{"a"}, 1)}); err == nil || len(w.published) > 0 {
		t.Errorf("error %v, published %v", err, w.published)
	}
}
