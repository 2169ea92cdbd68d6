package health

import (
	"time"

	"saltern/internal/control"
	"saltern/internal/writable"
)

const (
	// tryEvery is the pause between two test writes to the folder of the journal.
	tryEvery = 3 * time.Second
	// tryTakes is how long a test write may take before the disk is reported as hung. So a load
	// balancer stops sending clients to this master within tryEvery + tryTakes, plus the time of
	// two of its checks, after the disk has begun to hang.
	tryTakes = 4 * time.Second
	// jobCacheQuiet is how long after its last failure the job cache is reported as faulty although
	// test writes succeed. After that time it is reported as healthy, because without new returns
	// no success would ever end the report.
	jobCacheQuiet = 5 * time.Second
)

// Writes tests every few seconds whether the folder of the journal accepts writes. If it does not,
// the master cannot store jobs. The master then reports that to load balancers in answer to their
// checks, since its status file is probably on the same disk.
type Writes struct {
	writable.Watch
	problems *Problems
}

// NewWrites returns Writes that write the file at path as a test (see [writable.Try]) and that set
// and clear [control.JobCacheFault] in problems.
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

// Reason returns why this master cannot store jobs. It returns "" when the master can, and before
// the first test. The text may be shown to anybody: it names the error and no path.
func (w *Writes) Reason() string {
	err := w.Err()
	if err == nil {
		return ""
	}
	return "this master cannot keep jobs: " + writable.Cause(err)
}
