package health

import (
	"time"

	"saltern/internal/control"
	"saltern/internal/writable"
)

const (
	// tryEvery is how often a write to the folder of the journal is tried.
	tryEvery = 3 * time.Second
	// tryTakes is how long a try may take until the disk counts as hung. Within tryEvery +
	// tryTakes, and two checks of a load balancer, nobody is sent to this master any more.
	tryTakes = 4 * time.Second
	// jobCacheQuiet is how long after its last failure the job cache counts as healthy again while
	// tries succeed: there may be no more returns that could show it.
	jobCacheQuiet = 5 * time.Second
)

// Writes tries every few seconds whether the folder of the journal accepts writes. A master whose
// folder does not cannot store jobs. It reports that where load balancers ask, since its status
// file is most likely on the same disk.
type Writes struct {
	writable.Watch
	problems *Problems
}

// NewWrites returns Writes that tries the file at path (see [writable.Try]) and maintains
// [control.JobCacheFault] in problems.
func NewWrites(path string, problems *Problems) *Writes {
	w := &Writes{problems: problems}
	w.Every = tryEvery
	w.Takes = tryTakes
	w.Try = func() error { return writable.Try(path) }
	w.Note = w.noteResult
	return w
}

func (w *Writes) noteResult(err error) {
	if err != nil {
		w.problems.Set(control.JobCacheFault, err)
		return
	}
	w.problems.clearQuiet(control.JobCacheFault, jobCacheQuiet)
}

// Reason returns why jobs cannot be stored, or "" when they can or when it is not known yet.
// Strangers may read it: it names the error and no path.
func (w *Writes) Reason() string {
	err := w.Err()
	if err == nil {
		return ""
	}
	return "this master cannot keep jobs: " + writable.Cause(err)
}
