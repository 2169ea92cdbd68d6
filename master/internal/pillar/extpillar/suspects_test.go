package extpillar

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// TestSuspectsLeaveRoom: commands of 40 minions that hung a while ago take a quarter of the places; those of
// other minions run beside them. One that answers is no suspect any more.
func TestSuspectsLeaveRoom(t *testing.T) {
	dir := t.TempDir()
	pipe := filepath.Join(dir, "pipe")
	r := newRunner(t, Config{AtOnce: 8})
	e := Parse("cmd_yaml", `case %s in s*) echo >>`+dir+`/%s; while [ ! -e `+pipe+` ]; do sleep 0.05; done;; esac; echo 'id: %s'`)
	for i := range 40 {
		r.suspects.note(strings.ReplaceAll(e.command, "%s", fmt.Sprint("s", i)), time.Now())
	}

	var answered, refused atomic.Int32
	var asked sync.WaitGroup
	for i := range 40 {
		asked.Go(func() {
			v, _, err := r.Run(t.Context(), e, Minion{ID: fmt.Sprint("s", i)}, nil)
			switch {
			case errors.Is(err, errHangs):
				refused.Add(1)
			case err == nil && v.Str("id") == fmt.Sprint("s", i):
				answered.Add(1)
			default:
				t.Errorf("s%d: %v %v", i, v, err)
			}
		})
	}

	ran := func() int {
		files, err := filepath.Glob(dir + "/s*")
		check.Must(t, err)
		return len(files)
	}
	await.That(t, "two suspects at work", func() bool { return refused.Load() == 38 && ran() == 2 })
	for i := range 10 {
		if v, _, err := run(t, r, e, fmt.Sprint("good", i)); err != nil || !value.Equal(v, value.NewMap("id", fmt.Sprint("good", i))) {
			t.Errorf("good%d: %v %v", i, v, err)
		}
	}

	check.Must(t, os.WriteFile(pipe, nil, 0o600))
	asked.Wait()
	if answered.Load() != 2 || ran() != 2 || len(r.suspects.until) != 38 {
		t.Errorf("%d answered, %d ran, %d are suspect", answered.Load(), ran(), len(r.suspects.until))
	}
}

// TestHangMakesSuspect: a command that does not end in time is suspect, for a while.
func TestHangMakesSuspect(t *testing.T) {
	r := newRunner(t, Config{Limit: 100 * time.Millisecond})
	if _, _, err := run(t, r, Parse("cmd_yaml", "sleep 60"), "a"); !errors.Is(err, errHangs) {
		t.Error(err)
	}
	if !isSuspect(r, "sleep 60") {
		t.Error("a command that hung is not suspect")
	}

	r.suspects.note("old", time.Now().Add(-suspectFor))
	r.suspects.note("new", time.Now())
	if isSuspect(r, "old") || !isSuspect(r, "new") {
		t.Error("a line is suspect for another time")
	}
	for i := range maxSuspects + 5 {
		r.suspects.note(fmt.Sprint(i), time.Now())
	}
	if _, known := r.suspects.until["old"]; known || len(r.suspects.until) != maxSuspects {
		t.Errorf("%d suspects; the old one is known: %v", len(r.suspects.until), known)
	}
}

// TestSomeHangAtOnce: commands run while those of two minions hang, and after they have hung at the same time.
func TestSomeHangAtOnce(t *testing.T) {
	r := newRunner(t, Config{Limit: 5 * time.Second})
	e := Parse("cmd_yaml", "case %s in hang*) sleep 60;; esac; echo 'id: %s'")
	var hanging sync.WaitGroup
	for _, id := range []string{"hang1", "hang2"} {
		hanging.Go(func() {
			if _, _, err := r.Run(t.Context(), e, Minion{ID: id}, nil); !errors.Is(err, errHangs) {
				t.Errorf("%s: %v", id, err)
			}
		})
	}
	if _, _, err := run(t, r, e, "beside"); err != nil {
		t.Error("beside them:", err)
	}
	hanging.Wait()
	if _, _, err := run(t, r, e, "after"); err != nil {
		t.Error("after them:", err)
	}
}

func isSuspect(r *Runner, line string) bool { return time.Now().Before(r.suspects.until[line]) }
