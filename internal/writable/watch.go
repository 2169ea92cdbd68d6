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

// Cause returns the outcome of a try as text without a path, which may be shown to unauthenticated
// readers.
func Cause(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if errors.Is(err, ErrHangs) {
		return ErrHangs.Error()
	}
	return "what is written is not what is read"
}

// ErrHangs means that a try has not returned in time.
var ErrHangs = errors.New("the disk does not answer")

// Watch tries the folder repeatedly and keeps the outcome of the newest try. Any goroutine may call
// Err.
type Watch struct {
	// Every is the pause between two tries. Takes is how long a try may take before the disk is
	// reported as hung. So a fault is noticed after at most Every plus Takes.
	Every, Takes time.Duration
	// Try makes one try, such as [Try] of a file.
	Try func() error
	// Note is called with the outcome of each try, and repeatedly with ErrHangs while a try hangs.
	// It may be nil.
	Note func(error)

	newest atomic.Pointer[error]
}

// Err returns the error of the newest try, or nil if that succeeded or none has ended yet.
func (w *Watch) Err() error {
	if err := w.newest.Load(); err != nil {
		return *err
	}
	return nil
}

// Run tries until ctx ends. A try that hangs in the kernel cannot be stopped: Run then returns
// without it, and it ends when the disk answers. There is never more than one try at a time.
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

// looks is the number of time checks in awaitTry before it reports a try as hung. After a
// suspension of the machine or the process, for example for a snapshot, only one check is due. So
// the time of a suspension is not mistaken for a hung disk.
const looks = 8

// awaitTry waits for the outcome of a try, and reports ErrHangs while the try hangs. It returns
// false when ctx has ended.
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
