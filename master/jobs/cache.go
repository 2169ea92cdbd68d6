package jobs

import (
	"context"
	"errors"
	"time"

	"saltern/master/history/summary"
	"saltern/master/value"
)

// Errors that a caller may need to distinguish.
var (
	// ErrJID means that a text is not a job id.
	ErrJID = errors.New("jobs: bad job id")
	// errMinion means that a minion or syndic id cannot be a file name.
	errMinion = errors.New("jobs: bad minion id")
	// ErrBrokenLoad means that a load cannot be read because a power cut left its file empty or
	// torn. So it is unknown who started the job.
	ErrBrokenLoad = errors.New("jobs: the load of the job is broken")
	// ErrOtherReturn means that the cache has a return of the minion for the job, with another content, which it keeps.
	ErrOtherReturn = errors.New("jobs: the minion has returned something else for this job before, which is kept")
	// ErrTooLarge means that a load or return exceeds Config.MaxReturn.
	ErrTooLarge = errors.New("jobs: too large")
	// errClosed means that the cache was closed.
	errClosed = errors.New("jobs: cache is closed")
	// ErrInUse means that another process has the journal open.
	ErrInUse = errors.New("jobs: journal is in use")
)

// Cache stores jobs. All methods may be called concurrently. A method that saves data returns nil
// only when the data is durable. After an error the data may or may not be saved, and saving the
// same data again does no harm.
type Cache interface {
	// Prep declares a job before its load is known and returns its id: jid, or a new id if jid is
	// empty. If nocache is set, the cache does not store the returns of the job.
	Prep(ctx context.Context, jid string, nocache bool) (string, error)
	// SaveLoad stores the publish load of a job and the minions that are expected to return. If
	// minions is nil, SaveLoad stores the load only. SaveLoad replaces an older load of the job,
	// and adds the minions to those that are stored already. The load must not contain a key or
	// token, and the caller must not change the load afterwards.
	SaveLoad(ctx context.Context, jid string, load *value.Map, minions []string) error
	// Stage is SaveLoad for a job that is about to be published. When Stage returns nil, the job is
	// durable; when it returns an error, nothing of the job must leave this master. The function
	// that Stage returns waits, for a bounded time, until tools of this host find the job; call it
	// after the publish.
	Stage(ctx context.Context, jid string, load *value.Map, minions []string) (awaitShown func(context.Context), err error)
	// AddMinions adds minions to the expected minions of the syndic, or of this master if syndic is
	// "".
	AddMinions(ctx context.Context, jid string, minions []string, syndic string) error
	// SaveReturn stores a return. stored is false, without an error, when the cache already has a
	// durable return of this minion for the job with the same content, which it keeps, or when the cache
	// does not store the job's returns. SaveReturn returns [ErrOtherReturn] when the durable return has another
	// content: sending the return again is of no use.
	SaveReturn(ctx context.Context, r Return) (stored bool, err error)
	// UpdateEndtime records when a job ended, as readable text.
	UpdateEndtime(ctx context.Context, jid, text string) error

	// Load returns the load of a job, with the sorted ids of the expected minions added as
	// "Minions". It returns nil when there is no such job. It returns [ErrBrokenLoad] when the load
	// cannot be read; the returns of that job may still be readable.
	Load(ctx context.Context, jid string) (*value.Map, error)
	// Returns returns the stored returns of a job by minion. Each return is a map with those of the
	// fields return, retcode, success and out that the minion sent.
	Returns(ctx context.Context, jid string) (*value.Map, error)
	// Endtime returns the text that UpdateEndtime recorded, or "".
	Endtime(ctx context.Context, jid string) (string, error)
	// Each calls visit for every job that has a load, in no particular order. It stops at an error
	// of visit and returns it.
	Each(ctx context.Context, visit func(Job) error) error

	// Clean removes jobs that are older than keep, at a pace that leaves others time to use the
	// disk.
	Clean(ctx context.Context, keep time.Duration) (removed int, err error)
}

// Return is the return of one minion for one job.
type Return struct {
	JID, ID string
	// Time is when a master took the return. It may be zero: this master takes it now.
	Time time.Time
	// Data holds those of the fields return, retcode and success that the minion sent, and
	// [summary.RevisionField] if the master that took the return set it.
	Data *value.Map
	// Out names the outputter that the function asked for. It may be nil: the function asked for
	// none.
	Out any
	// Load is the complete load of the return. If the job has no load, because another master
	// started it for instance, the cache stores Load as the load of the job (salt/utils/job.py
	// store_job). Load may be nil: the cache stores no load.
	Load *value.Map
}

// ReturnOf returns the parts of a _return request's load that a Cache stores. The load must name a
// job and a minion. ReturnOf does not copy the load.
func ReturnOf(load *value.Map) Return {
	r := Return{JID: load.Str("jid"), ID: load.Str("id"), Data: &value.Map{}, Load: load}
	for _, k := range []string{"return", "retcode", "success", summary.RevisionField} {
		if v, ok := load.Get(k); ok {
			r.Data.Set(k, v)
		}
	}
	r.Out, _ = load.Get("out")
	return r
}

// Job is one job in a listing.
type Job struct {
	JID  string
	Load *value.Map
}
