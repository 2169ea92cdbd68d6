package fleet

import (
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func writeFile(path, text string) error { return os.WriteFile(path, []byte(text), 0o600) }

// sealed adds the checksum of a saved table.
func sealed(body []byte) []byte {
	return binary.BigEndian.AppendUint32(body, crc32.Checksum(body, castagnoli))
}

// slowSource is a tree of files that takes a while to walk through.
type slowSource struct {
	mu    sync.Mutex
	text  string
	err   error
	looks atomic.Int64
}

func (s *slowSource) set(text string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text, s.err = text, err
}

func (s *slowSource) Revision(context.Context) (string, error) {
	s.looks.Add(1)
	<-time.After(20 * time.Millisecond) // by the clock of synctest
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text, s.err
}

func newRevisions(s Source) *Revisions {
	return NewRevisions([]Source{s}, time.Now, slog.New(slog.DiscardHandler))
}

func TestRevisionDuringARun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &slowSource{text: "one"}
		r := newRevisions(source)
		if got := r.Latest(time.Now()); got != "" {
			t.Errorf("before the first look: %q", got)
		}
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go r.Run(ctx)
		time.Sleep(time.Minute)

		began := time.Now()
		time.Sleep(time.Minute)
		if got := r.Served(ctx, began); got != "one" {
			t.Errorf("same files: %q", got)
		}

		// The files change one second before the run ends: a look is needed to notice.
		time.Sleep(time.Second)
		source.set("two", nil)
		if got := r.Served(ctx, began); got != "" {
			t.Errorf("files changed during the run: %q", got)
		}
		began = time.Now()
		time.Sleep(time.Second)
		if got := r.Served(ctx, began); got != "two" {
			t.Errorf("run after the change: %q", got)
		}
		if got := r.Latest(began); got != "two" {
			t.Errorf("latest: %q", got)
		}

		// A run that starts right after a change counts as one with the new files.
		time.Sleep(time.Second)
		source.set("three", nil)
		began = time.Now()
		r.Started()
		time.Sleep(time.Second)
		if got := r.Served(ctx, began); got != "three" {
			t.Errorf("run right after a change: %q", got)
		}

		source.set("", errors.New("hangs"))
		if got := r.Served(ctx, began); got != "" {
			t.Errorf("files that cannot be read: %q", got)
		}
		source.set("three", nil)
		if got := r.Served(ctx, began); got != "" {
			t.Errorf("run that began before files could be read again: %q", got)
		}
	})
}

// TestManyRunsShareLooks: the runs of 3,000 minions end at once, and the last one waits no longer than
// two looks and the gap between them.
func TestManyRunsShareLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &slowSource{text: "one"}
		r := newRevisions(source)
		r.Served(t.Context(), time.Now())
		time.Sleep(time.Minute)
		looks := source.looks.Load()

		began := time.Now()
		var all sync.WaitGroup
		for range 3000 {
			all.Go(func() {
				if got := r.Served(t.Context(), began); got != "one" {
					t.Errorf("revision %q", got)
				}
			})
		}
		all.Wait()
		if n := source.looks.Load() - looks; n > 2 {
			t.Errorf("%d looks", n)
		}
		if took := time.Since(began); took > 200*time.Millisecond {
			t.Errorf("the last one waited for %v", took)
		}
	})
}

func TestWaitForALookEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := &slowSource{text: "one"}
		r := newRevisions(source)
		go r.Served(t.Context(), time.Now())
		synctest.Wait()
		ctx, stop := context.WithCancel(t.Context())
		stop()
		if got := r.Served(ctx, time.Now()); got != "" {
			t.Errorf("revision %q", got)
		}
		time.Sleep(time.Second)
	})
}

// hangingSource is a tree of files on a file system that does not answer.
type hangingSource struct{ answer chan struct{} }

func (s hangingSource) Revision(context.Context) (string, error) {
	<-s.answer
	return "one", nil
}

// TestLookThatHangs: returns wait for a look at files that does not end no longer than longestWait, those
// that come later do not wait at all, and Run ends. When the files are there again, all is as before.
func TestLookThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := hangingSource{make(chan struct{})}
		r := newRevisions(source)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			r.Run(ctx)
			close(ended)
		}()
		served := func(want string, most time.Duration) {
			t.Helper()
			began := time.Now()
			if got := r.Served(t.Context(), began); got != want {
				t.Errorf("revision %q, want %q", got, want)
			}
			if took := time.Since(began); took > most {
				t.Errorf("waited for %v", took)
			}
		}

		served("", 5*time.Second)
		time.Sleep(time.Minute)
		served("", 0)
		stop()
		time.Sleep(10 * time.Second)
		select {
		case <-ended:
		default:
			t.Error("Run did not end")
		}

		close(source.answer)
		synctest.Wait()
		served("one", 2*time.Second)
	})
}

// TestWaitOfTheOneWhoLooks: whoever begins a look waits no longer than its context, like all others.
func TestWaitOfTheOneWhoLooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		source := hangingSource{make(chan struct{})}
		r := newRevisions(source)
		ctx, stop := context.WithTimeout(t.Context(), time.Second)
		defer stop()
		began := time.Now()
		if got := r.Served(ctx, began); got != "" || time.Since(began) != time.Second {
			t.Errorf("revision %q after %v", got, time.Since(began))
		}
		close(source.answer)
	})
}
