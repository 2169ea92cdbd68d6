package batch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"saltern/master/value"
	"saltern/test/check"
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
		Saved:   value.NewMap("job", "apply"),
	}
	for _, c := range []struct {
		name   string
		most   int
		halted bool
	}{{"within", 3, false}, {"beyond", 2, true}} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			w.saved = "apply"
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
			_ = w.m.adoptBatch(t.Context(), jid, true)
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

// TestBeginOfATool: the slices of a batch that salt leaves to the master have the fields of its job, and a minion that is
// late does not stop it with failhard, which a return does; also after a restart of the master.
func TestBeginOfATool(t *testing.T) {
	for _, lateGoesOn := range []bool{true, false} {
		t.Run(fmt.Sprintf("late goes on %t", lateGoesOn), func(t *testing.T) {
			w := newWorld(t)
			own := Own{
				JID:     jid,
				User:    "ann",
				Fun:     "test.arg",
				Arg:     []any{"x", value.NewMap("__kwarg__", true, "k", "v")},
				Target:  "*",
				Timeout: 10 * time.Second,
				Spec:    Spec{Size: "1", Failhard: true, LateGoesOn: lateGoesOn},
				Fields:  value.NewMap("ret_kwargs", value.NewMap("password", "hunter2"), "user", "root"),
			}
			state := New([]string{"a", "b", "c", "d"}, 1)
			state.Failhard = true
			check.Must(t, w.m.begin(t.Context(), beginning{own: own, state: state}))
			w.want("a", "progress")

			w.again()
			_ = w.m.adoptBatch(t.Context(), jid, true)
			w.now = w.now.Add(15 * time.Second)
			w.m.giveUpLate(t.Context())
			if !lateGoesOn {
				w.want("", "halted")
				return
			}
			w.want("b", "progress")
			if want := "{'ret_kwargs': {'password': 'hunter2'}}"; w.fields != want {
				t.Errorf("a slice has %s, want %s", w.fields, want)
			}
			w.ret("b", 1)
			w.want("", "halted")
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

// TestBatchWhoseJobCannotBeSent: who starts a batch is told when no minion got the job. Minions of a
// later slice count as failed at once.
func TestBatchWhoseJobCannotBeSent(t *testing.T) {
	begin := func(w *world, most int) error {
		state := New([]string{"a", "b", "c", "d", "e"}, 2)
		state.Limited = true
		state.MostFailures = most
		state.Failed["away"] = "no answer to a ping"
		own := Own{JID: jid, User: "ann", Fun: "test.arg", Arg: []any{"x", "y"}, Timeout: time.Hour}
		return w.m.begin(t.Context(), beginning{own: own, state: state})
	}

	t.Run("at once", func(t *testing.T) {
		w := newWorld(t)
		w.refuse = errors.New("the disk is full")
		if err := begin(w, 5); err == nil || !strings.Contains(err.Error(), "first minions did not get the job: the disk is full") {
			t.Errorf("error %v", err)
		}
		w.want("a,b", "halted")
		if got := w.kept(); !strings.HasPrefix(got, "0/3/0/3 its first minions") || w.listed() {
			t.Errorf("kept %s", got)
		}
	})

	t.Run("when it has waited", func(t *testing.T) {
		w := newWorld(t)
		w.crowd()
		w.refuse = errors.New("the disk is full")
		if err := begin(w, 5); err != nil || !w.listed() {
			t.Errorf("a batch that waits: %v", err)
		}
		w.again()
		_ = w.m.adoptBatch(t.Context(), jid, true)
		w.want("a,b", "halted")
	})

	t.Run("no room to wait", func(t *testing.T) {
		w := newWorld(t)
		w.crowd()
		w.m.waiting = make([]string, maxWaiting)
		if err := begin(w, 5); err == nil || !strings.Contains(err.Error(), "10000 wait") {
			t.Errorf("error %v", err)
		}
	})

	t.Run("later", func(t *testing.T) {
		w := newWorld(t)
		if err := begin(w, 2); err != nil {
			t.Fatal(err)
		}
		w.want("a,b", "progress")
		w.refuse = errors.New("the disk is full")
		w.ret("a", 0)
		w.want("c", "progress")
		if got := w.kept(); got != "1/2/1/2 " {
			t.Errorf("kept %s", got)
		}
		w.refuse = nil
		w.m.giveUpLate(t.Context())
		w.want("", "")
		w.now = w.now.Add(sendPause)
		w.m.giveUpLate(t.Context())
		w.want("d", "progress")
		w.refuse = errors.New("the disk is full")
		w.ret("b", 0)
		w.want("e", "halted")
		if got := w.kept(); got != "2/3/1/0 3 minions have failed, more than 2" {
			t.Errorf("kept %s", got)
		}
	})
}

// TestBeginWhileTheMasterStops: nobody waits for a Manager that has stopped.
func TestBeginWhileTheMasterStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		ctx, stop := context.WithCancel(t.Context())
		go w.m.Run(ctx, nil)
		synctest.Wait()
		stop()

		asked, leave := context.WithTimeout(context.Background(), time.Minute)
		defer leave()
		err := w.m.Begin(asked, Own{JID: jid, Fun: "test.arg"}, New([]string{"a"}, 1))
		if err == nil || asked.Err() != nil || !strings.Contains(err.Error(), "the master stops; nothing was run") {
			t.Errorf("error %v", err)
		}
		w.want("", "")
	})
}

// TestFailhardWithoutAReturn: a batch that stops after the first minion that fails also stops when a
// minion does not return in time, or does not get the job, also after a restart.
func TestFailhardWithoutAReturn(t *testing.T) {
	begin := func(t *testing.T) *world {
		w := newWorld(t)
		own := Own{JID: jid, User: "ann", Fun: "test.arg", Arg: []any{"x", "y"}, Timeout: time.Minute}
		state := New([]string{"a", "b", "c"}, 1)
		state.Failhard = true
		if err := w.m.begin(t.Context(), beginning{own: own, state: state}); err != nil {
			t.Fatal(err)
		}
		w.want("a", "progress")
		return w
	}

	t.Run("late", func(t *testing.T) {
		w := begin(t)
		w.again()
		_ = w.m.adoptBatch(t.Context(), jid, true)
		w.now = w.now.Add(time.Minute)
		w.m.giveUpLate(t.Context())
		w.want("", "halted")
		if got := w.kept(); got != "0/1/0/2 failhard" {
			t.Errorf("kept %s", got)
		}
	})

	t.Run("not sent", func(t *testing.T) {
		w := begin(t)
		w.refuse = errors.New("the disk is full")
		w.ret("a", 0)
		w.want("b", "halted")
	})

	t.Run("not sent because the master stops", func(t *testing.T) {
		w := begin(t)
		stopped, cancel := context.WithCancel(t.Context())
		cancel()
		w.ctx = stopped
		w.refuse = stopped.Err()
		w.ret("a", 0)
		w.want("b", "progress")
		if got := w.kept(); got != "1/0/0/2 " {
			t.Errorf("kept %s", got)
		}

		w.refuse = nil
		w.again()
		_ = w.m.adoptBatch(t.Context(), jid, true)
		w.want("b", "progress")
	})
}
