package health

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"saltern/control"
	"saltern/durable"
	"saltern/pause"
)

const (
	// tryEvery is how often a folder is tried.
	tryEvery = 3 * time.Second
	// tryTakes is how long a try may take until the disk counts as hung. Within
	// tryEvery + tryTakes, and two checks of a load balancer, nobody is sent here any more.
	tryTakes = 4 * time.Second
	// jobCacheQuiet is how long after its last failure the job cache counts as well again
	// when tries succeed: perhaps nobody returns anything any more.
	jobCacheQuiet = 5 * time.Second
)

// errDiskHangs: a try has not come back.
var errDiskHangs = errors.New("the disk does not answer")

// Writes tries every few seconds whether the folder of jobs takes writes. A master
// whose folder does not can keep no job: it says so where load balancers ask it,
// since its status file is most likely on the same disk. Reason is for any goroutine.
type Writes struct {
	path     string // of the file that is written
	problems *Problems
	try      func(path string) error
	every    time.Duration
	takes    time.Duration
	trouble  atomic.Pointer[string]
}

// NewWrites returns Writes that tries the file at path, see [durable.Try], and keeps
// [control.JobCacheFault] among problems.
func NewWrites(path string, problems *Problems) *Writes {
	return &Writes{path: path, problems: problems, try: durable.Try, every: tryEvery, takes: tryTakes}
}

// Run tries until ctx ends. A try that hangs in the kernel cannot be ended: it is left
// behind then, and ends when the disk answers. There is never more than one.
func (w *Writes) Run(ctx context.Context) {
	for {
		done := make(chan error, 1)
		began := time.Now()
		go func() { done <- w.try(w.path) }()
		if !w.await(ctx, done, began) || pause.About(ctx, w.every) != nil {
			return
		}
	}
}

// await takes the outcome of a try, and says meanwhile that it does not come. It
// reports false when ctx has ended.
func (w *Writes) await(ctx context.Context, done <-chan error, began time.Time) bool {
	late := time.NewTicker(w.takes)
	defer late.Stop()
	for {
		select {
		case err := <-done:
			w.note(err)
			return true
		case <-late.C:
			w.note(fmt.Errorf("%w: %s was not written in %d s", errDiskHangs, w.path, int(time.Since(began).Seconds())))
		case <-ctx.Done():
			return false
		}
	}
}

func (w *Writes) note(err error) {
	trouble := ""
	if err == nil {
		w.problems.clearQuiet(control.JobCacheFault, jobCacheQuiet)
	} else {
		w.problems.Set(control.JobCacheFault, err)
		trouble = "this master cannot keep jobs: " + cause(err)
	}
	w.trouble.Store(&trouble)
}

// cause is the cause of err, for strangers: they learn no path.
func cause(err error) string {
	if errno, ok := errors.AsType[syscall.Errno](err); ok {
		return errno.Error()
	}
	if errors.Is(err, errDiskHangs) {
		return errDiskHangs.Error()
	}
	return "what is written is not what is read"
}

// Reason returns why jobs cannot be kept, without a path; "": they can, or it is not
// known yet.
func (w *Writes) Reason() string {
	if s := w.trouble.Load(); s != nil {
		return *s
	}
	return ""
}
