package storage

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// leaseWorld is two nodes on one file, with a clock and a lock of their own.
type leaseWorld struct {
	now    time.Time
	holder *os.File            // of the lock on the first file
	locks  map[string]*os.File // on the files of later terms
	a, b   leaseHolder
}

func newLeaseWorld(t *testing.T) *leaseWorld {
	w := &leaseWorld{now: time.Unix(1e9, 0)}
	path := filepath.Join(t.TempDir(), leaseFile)
	w.locks = map[string]*os.File{}
	lock := func(f *os.File) (bool, error) {
		if f.Name() != path {
			ok := w.locks[f.Name()] == nil
			if ok {
				w.locks[f.Name()] = f
			}
			return ok, nil
		}

		if w.holder != nil {
			return false, nil
		}

		w.holder = f
		return true, nil
	}

	w.a = leaseHolder{basePath: path, self: "a", now: func() time.Time { return w.now }, tryLock: lock}
	w.b = leaseHolder{basePath: path, self: "b", now: w.a.now, tryLock: lock}
	return w
}

func (w *leaseWorld) step(t *testing.T, h *leaseHolder) leaseReply {
	t.Helper()
	r, err := h.answer(leaseQuestion{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestLease(t *testing.T) {
	w := newLeaseWorld(t)
	asked := 0
	inner := w.b.tryLock
	w.b.tryLock = func(f *os.File) (bool, error) { asked++; return inner(f) }

	for range 100 { // the first has it, and the second never asks for the lock
		if r := w.step(t, &w.a); !r.Held {
			t.Fatal("nobody has it, and it was not given")
		}

		if r := w.step(t, &w.b); r.Held || r.Holder != "a" || !r.Fresh {
			t.Fatalf("%+v", r)
		}

		if r := w.step(t, &w.b); r.Fresh {
			t.Fatalf("the same beat once more: %+v", r)
		}

		w.now = w.now.Add(time.Second)
	}

	if asked > 0 {
		t.Errorf("the lock was asked for %d times while its holder lives", asked)
	}

	// The holder is gone and its lock with it.
	w.holder = nil
	start := w.now
	for !w.step(t, &w.b).Held {
		if w.now = w.now.Add(time.Second); w.now.Sub(start) > time.Minute {
			t.Fatal("it is never taken over")
		}
	}

	if d := w.now.Sub(start); d < leaseSilence-2*time.Second || d > 15*time.Second {
		t.Errorf("taken over after %v", d)
	}

	// It comes back after its stall: it has to stand in line.
	if r := w.step(t, &w.a); r.Held || r.Holder != "b" {
		t.Errorf("two nodes have the lease: %+v", r)
	}
}

// A holder that is frozen keeps its lock. One of the others goes on without it, and
// it knows that when it thaws.
func TestLeaseOfAFrozenHolder(t *testing.T) {
	w := newLeaseWorld(t)
	c := leaseHolder{basePath: w.a.basePath, self: "c", now: w.a.now, tryLock: w.a.tryLock}
	for term := 1; term < 4; term++ {
		if r := w.step(t, &w.a); !r.Held {
			t.Fatalf("%+v", r)
		}

		w.step(t, &w.b)
		w.step(t, &c)
		start := w.now // a is frozen
		var b, other leaseReply
		for !b.Held && !other.Held {
			w.now = w.now.Add(time.Second)
			if b = w.step(t, &w.b); !b.Held {
				other = w.step(t, &c)
			}
			if w.now.Sub(start) > time.Minute {
				t.Fatal("nobody goes on")
			}
		}

		if d := w.now.Sub(start); d < 2*leaseSilence-2*time.Second || d > 30*time.Second {
			t.Errorf("taken over after %v", d)
		}

		for range 30 { // both others know who has it, and so does a, thawed
			w.now = w.now.Add(time.Second)
			if b := w.step(t, &w.b); !b.Held {
				t.Fatalf("%+v", b)
			}

			for _, h := range []*leaseHolder{&c, &w.a} {
				if r := w.step(t, h); r.Held || r.Holder != "b" {
					t.Fatalf("%s: %+v", h.self, r)
				}
			}
		}

		// A node that starts now finds the newest term.
		d := leaseHolder{basePath: w.a.basePath, self: "d", now: w.a.now, tryLock: w.a.tryLock}
		if r := w.step(t, &d); r.Held || r.Holder != "b" || d.term != term {
			t.Fatalf("%+v in term %d", r, d.term)
		}

		w.b.release()
		w.locks = map[string]*os.File{}
		w.b = leaseHolder{basePath: w.a.basePath, self: "b", now: w.a.now, tryLock: w.a.tryLock}
	}
}

// A reader that was stopped itself has not seen silence.
func TestLeaseReaderStops(t *testing.T) {
	w := newLeaseWorld(t)
	w.step(t, &w.a)
	w.step(t, &w.b)
	w.holder = nil
	for range leaseReads - 2 {
		w.now = w.now.Add(time.Minute)
		if w.step(t, &w.b).Held {
			t.Fatal("taken over after few reads")
		}
	}
}

// Who ends says so, and the next has the lease at once; who is not the quickest
// does not ask again and again.
func TestLeaseGivenBack(t *testing.T) {
	w := newLeaseWorld(t)
	w.step(t, &w.a)
	w.step(t, &w.b)
	w.a.release()
	asked := 0
	inner := w.b.tryLock
	w.b.tryLock = func(f *os.File) (bool, error) { asked++; return inner(f) }

	for range 5 { // the lock is another's, which has not written yet
		w.now = w.now.Add(time.Second)
		if r := w.step(t, &w.b); r.Held {
			t.Fatal("the lock is held, and the lease was given")
		}
	}

	if asked != 1 {
		t.Errorf("the lock was asked for %d times", asked)
	}

	w.holder = nil
	w.b = leaseHolder{basePath: w.b.basePath, self: "b", now: w.b.now, tryLock: inner} // its next life
	if r := w.step(t, &w.b); !r.Held {
		t.Errorf("not taken at once: %+v", r)
	}

	if r := w.step(t, &w.a); r.Held || r.Holder != "b" {
		t.Errorf("two nodes have the lease: %+v", r)
	}

	// One that could not write for long does not speak for who has it now.
	w.now = w.now.Add(leaseFor + time.Second)
	w.b.release()
	if b, err := readBeat(w.b.basePath); err != nil || b.Free {
		t.Errorf("%+v %v", b, err)
	}
}

// What the holder tells reaches the others, and is not forgotten when another
// takes over, whatever its clock says.
func TestLeaseTellsOfFiles(t *testing.T) {
	w := newLeaseWorld(t)
	tell := func(h *leaseHolder, mark uint64) leaseReply {
		t.Helper()
		r, err := h.answer(leaseQuestion{mark})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}

	tell(&w.a, 0)
	if r := tell(&w.b, 7); r.Held || r.Files != 0 {
		t.Errorf("told by one that does not hold the lease: %+v", r)
	}

	tell(&w.a, 5)
	if r := tell(&w.b, 0); r.Files != 5 {
		t.Errorf("%+v", r)
	}

	w.holder = nil
	for start := w.now; !tell(&w.b, 0).Held; w.now = w.now.Add(time.Second) {
		if w.now.Sub(start) > time.Minute {
			t.Fatal("it is never taken over")
		}
	}

	if r := tell(&w.a, 0); r.Holder != "b" || r.Files != 5 {
		t.Errorf("after another has taken over: %+v", r)
	}

	l := lease{newestChange: 5}
	if _, ok := l.newestMark(); ok {
		t.Error("watched although nobody holds the lease")
	}

	l.otherSeen = time.Now()
	if mark, ok := l.newestMark(); !ok || mark != 5 {
		t.Errorf("%d %v", mark, ok)
	}

	l.markChange(time.Unix(0, 3)) // a clock that is behind
	if mark, _ := l.newestMark(); mark != 5 || l.ownChange != 6 {
		t.Errorf("mark %d, to tell %d", mark, l.ownChange)
	}

	l.heldUntil = time.Now().Add(time.Hour)
	if _, ok := l.newestMark(); ok {
		t.Error("the holder itself has to look")
	}
}
