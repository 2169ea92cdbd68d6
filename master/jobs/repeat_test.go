package jobs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"saltern/master/history/summary"
	"saltern/master/value"
	"saltern/test/await"
	"saltern/test/check"
)

// homesOfReturns are the ways in which a master keeps returns.
var homesOfReturns = map[string]bool{"segments": false, "files": true}

// repeating opens the job cache of a master that keeps returns in segments or in files.
func repeating(t *testing.T, id, shared string, files bool) *fellow {
	t.Helper()
	cfg := Config{Dir: filepath.Join(t.TempDir(), "jobs"), Files: files}
	return memberOf(t, id, shared, cfg, time.Unix(1_800_000_000, 0), 0)
}

// answer returns what a minion sends, taken while the files have a revision; "": no master knows it.
func answer(id string, result any, retcode int64, revision string) Return {
	load := value.NewMap("jid", jid1, "id", id, "fun", "state.apply", "fun_args", []any{}, "return", result,
		"retcode", retcode, "success", retcode == 0, "out", "highstate")
	if revision != "" {
		load.Set(summary.RevisionField, revision)
	}
	return ReturnOf(load)
}

// keptBy returns the return that a master keeps, once it has left the overlay.
func keptBy(t *testing.T, c *fellow, id string) *record {
	t.Helper()
	flushed(t, c.Local)
	return c.readReturn(jid1, id)
}

// expectSame reports an error unless a master keeps the same record as another.
func expectSame(t *testing.T, name string, got, want *record) {
	t.Helper()
	switch {
	case want == nil || got == nil:
		t.Errorf("%s: %v, want %v", name, got, want)
	case !bytes.Equal(got.a, want.a) || !bytes.Equal(got.b, want.b) || got.time != want.time:
		t.Errorf("%s keeps %q, %q of %d, want %q, %q of %d", name, got.a, got.b, got.time, want.a, want.b, want.time)
	}
}

// others are returns that differ from answer("m1", "fine", 0, …) in one of the things that the minion sent.
func others() map[string]Return {
	dice := rand.New(rand.NewPCG(44, 7))
	out := map[string]Return{
		"result":  answer("m1", "failed", 0, ""),
		"retcode": answer("m1", "fine", 1, ""),
		"type":    answer("m1", []byte("fine\xff"), 0, ""),
		"nothing": answer("m1", nil, 0, ""),
		"long":    answer("m1", strings.Repeat("fine", 10_000), 2, ""),
		"out":     answer("m1", "fine", 0, ""),
	}
	nested := out["out"]
	nested.Out = "nested"
	out["out"] = nested
	for i := range 4 {
		out[fmt.Sprint("random ", i)] = answer("m1", fmt.Sprint(dice.Uint64()), int64(dice.IntN(3)), fmt.Sprint(dice.Uint32()))
	}
	return out
}

// TestOtherReturnReachesNobody: a minion returns something else for the same job. Neither a peer that missed the first
// return nor one that reads the folder later keeps the second.
func TestOtherReturnReachesNobody(t *testing.T) {
	t.Parallel()
	for home, files := range homesOfReturns {
		t.Run(home, func(t *testing.T) {
			t.Parallel()
			shared := t.TempDir()
			a := repeating(t, "10.0.0.1", shared, files)
			b := repeating(t, "10.0.0.2", shared, false) // misses the first
			stored, err := a.SaveReturn(await.Context(t), answer("m1", "fine", 0, "r1"))
			if !stored || err != nil {
				t.Fatalf("stored %v, %v", stored, err)
			}

			a.peers.to = []*Cluster{b.Cluster}
			for name, other := range others() {
				for range 2 {
					a.wait(time.Second)
					if stored, err := a.SaveReturn(await.Context(t), other); stored || !errors.Is(err, ErrOtherReturn) {
						t.Errorf("%s: stored %v, %v", name, stored, err)
					}
				}
				flushed(t, a.Local) // later ones meet the first in its home
			}

			first := keptBy(t, a, "m1")
			if got := keptBy(t, b, "m1"); got != nil {
				t.Errorf("the peer keeps %q", got.a)
			}
			a.end(t)
			check.Must(t, b.Import(await.Context(t)))
			if files {
				first = keptBy(t, b, "m1") // a file has the time of its writing
				if first == nil || !strings.Contains(string(first.a), "fine") || !strings.Contains(string(first.a), "r1") {
					t.Fatalf("kept %v", first)
				}
			}
			expectSame(t, "the peer", keptBy(t, b, "m1"), first)
			expectSame(t, "a master that was away", keptBy(t, repeating(t, "10.0.0.3", shared, false), "m1"), first)
		})
	}
}

// TestRepeatHandsOnWhatIsKept: a minion without an answer sends its return again, while the files have another revision.
// A peer without the first return, and the folder, get the time and the revision of the first.
func TestRepeatHandsOnWhatIsKept(t *testing.T) {
	t.Parallel()
	for _, revisions := range [][2]string{{"r1", "r2"}, {"", "r2"}, {"r1", ""}, {"r1", "r1"}} {
		t.Run(fmt.Sprint(revisions), func(t *testing.T) {
			t.Parallel()
			shared := t.TempDir()
			a := repeating(t, "10.0.0.1", shared, false)
			b := repeating(t, "10.0.0.2", shared, false)
			first := answer("m1", "fine", 0, revisions[0])
			stored, err := a.Local.SaveReturn(await.Context(t), withTime(first, a.now())) // a crash before it is handed on
			if !stored || err != nil {
				t.Fatalf("stored %v, %v", stored, err)
			}

			a.peers.to = []*Cluster{b.Cluster}
			for range 2 {
				a.wait(time.Minute)
				b.wait(time.Minute)
				stored, err := a.SaveReturn(await.Context(t), answer("m1", "fine", 0, revisions[1]))
				if stored || err != nil {
					t.Errorf("the repeat: stored %v, %v", stored, err)
				}
				flushed(t, a.Local)
			}

			want := keptBy(t, a, "m1")
			expectSame(t, "the peer", keptBy(t, b, "m1"), want)
			a.end(t)
			away := repeating(t, "10.0.0.3", shared, false)
			away.wait(2 * loadComes) // the crashed master has not handed over the load
			check.Must(t, away.Import(await.Context(t)))
			expectSame(t, "a master that was away", keptBy(t, away, "m1"), want)
		})
	}
}

// TestCopyOfAnotherReturn: two masters keep different returns of a minion. The copy that one of them holds for a lost peer
// is what it keeps itself.
func TestCopyOfAnotherReturn(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	b := repeating(t, "10.0.0.2", shared, false)
	check.Must(t, b.SaveCopy(await.Context(t), "10.0.0.1", withTime(answer("m1", "fine", 0, "r1"), b.now())))
	b.wait(time.Second)
	for _, again := range []Return{answer("m1", "failed", 1, "r1"), answer("m1", "fine", 0, "r2")} {
		check.Must(t, b.SaveCopy(await.Context(t), "10.0.0.1", withTime(again, b.now())))
	}

	want := keptBy(t, b, "m1")
	b.PeerLost("10.0.0.1")
	b.end(t)
	expectSame(t, "a master that was away", keptBy(t, repeating(t, "10.0.0.3", shared, false), "m1"), want)
}

// TestSecondReturnsAtOnce: of two returns that come at the same time all masters keep the same.
func TestSecondReturnsAtOnce(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	a := repeating(t, "10.0.0.1", shared, false)
	b := repeating(t, "10.0.0.2", shared, false)
	a.peers.to = []*Cluster{b.Cluster}
	const minions = 20
	done := make(chan error, 2*minions)
	for i := range 2 * minions {
		go func() {
			_, err := a.SaveReturn(await.Context(t), answer(fmt.Sprint("m", i/2), i, 0, ""))
			if errors.Is(err, ErrOtherReturn) {
				err = nil
			}
			done <- err
		}()
	}
	for range 2 * minions {
		check.Must(t, <-done)
	}
	for i := range minions {
		id := fmt.Sprint("m", i)
		expectSame(t, "the peer", keptBy(t, b, id), keptBy(t, a, id))
	}
}

func withTime(r Return, at time.Time) Return {
	r.Time = at
	return r
}
