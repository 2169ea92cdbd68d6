package writable

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"saltern/internal/pause"
)

// Cause words what a try found in words that strangers may read: it names the error and no path.
func Cause(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if errors.Is(err, ErrHangs) {
		return ErrHangs.Error()
	}
	return "what is written is not what is read"
}

// ErrHangs means that a try has not come back in time.
var ErrHangs = errors.New("the disk does not answer")

// Watch tries again and again, and knows the outcome of the newest try. Err may be called
// from any goroutine.
type Watch struct {
	// Every is the pause between two tries, Takes how long one may take until the disk counts
	// as hung: a fault is known after both.
	Every, Takes time.Duration
	// Try is what is tried, such as [Try] of a file.
	Try func() error
	// Note is told of each outcome, and again and again that a try hangs. It may be nil.
	Note func(error)

	newest atomic.Pointer[error]
}

// Err returns what the newest try met; nil: nothing, or there was none yet.
func (w *Watch) Err() error {
	if err := w.newest.Load(); err != nil {
		return *err
	}
	return nil
}

// Run tries until ctx ends. A try that hangs in the kernel cannot be ended: it is left
// behind then, and ends when the disk answers. There is never more than one.
func (w *Watch) Run(ctx context.Context) {
	for {
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- w.Try() }()
		if !w.awaitTry(ctx, done, began) || pause.About(ctx, w.Every) != nil {
			return
		}
	}
}

// looks is how often await looks at the time while a try takes until it counts as hung. A
// machine or a process that was stopped, as for a snapshot, finds one look due when it goes
// on, and not all of them: the time that it did not run is none that the disk took.
const looks = 8

// awaitTry takes the outcome of a try, and says meanwhile that it does not come. It
// reports false when ctx has ended.
func (w *Watch) awaitTry(ctx context.Context, done <-chan error, began time.Time) bool {
	late := time.NewTicker(w.Takes / looks)
	defer late.Stop()
	for seen := 0; ; {
		select {
		case err := <-done:
			w.noteOutcome(err)
			return true
		case <-late.C:
			seen++
			if seen%looks > 0 {
				continue
			}
			w.noteOutcome(fmt.Errorf("%w: a file of %d KiB was not written in %d s", ErrHangs, tryBytes>>10,
				int(time.Since(began).Seconds())))
		case <-ctx.Done():
			return false
		}
	}
}

func (w *Watch) noteOutcome(err error) {
	w.newest.Store(&err)
	if w.Note != nil {
		w.Note(err)
	}
}
