package saved

import (
	"context"
	"log/slog"
	"time"

	"saltern/internal/audit"
	"saltern/master/internal/acl"
	"saltern/master/internal/batch"
	"saltern/master/runner"
	"saltern/master/value"
)

// User is whoever a job runs for.
type User struct {
	Name  string // user of the job
	Eauth string // system of external_auth that proved him; "" for a key
	// Limited means that he does not have all rights: his jobs use his quota and are sent to their
	// minions by name.
	Limited bool
	// Saved tells which saved job runs, and by which entry of the schedule ([jobs.SavedField]).
	Saved *value.Map
}

// Minions starts jobs for users. It checks no permissions.
type Minions interface {
	// Start starts a job and returns its id and minions. If the target selects nobody, it starts none and jid
	// is "". With order_masters it returns the minions that are known so far: none, with a jid, means that the
	// job has started and nobody knows yet who has it.
	Start(ctx context.Context, load *value.Map, by User) (jid string, minions []string, err error)
	// Ask starts a job and returns when all minions have answered, or when a silent minion no longer
	// runs it after the timeout.
	Ask(ctx context.Context, load *value.Map, by User, timeout time.Duration) (jid string, answer runner.Answer, err error)
	// Batch starts a job that gets to a few minions at a time, and returns its id.
	Batch(ctx context.Context, own batch.Own, by User, state *batch.State) (jid string, err error)
}

// Upcoming knows the next runs of the master's schedule.
type Upcoming interface {
	// NextRuns returns the next runs of the saved schedules, at most count of each, by name.
	NextRuns(count int) (map[string][]time.Time, error)
}

// Config of a Service.
type Config struct {
	Store    *Store
	Minions  Minions
	Schedule Upcoming
	// Configured is the option nodegroups, and Scheduled the option schedule: what has a name there
	// counts before a saved object.
	Configured, Scheduled *value.Map
	Blacklist             acl.Blacklist // publisher_acl_blacklist
	Audit                 *audit.Log    // may be nil: nothing is recorded
	Now                   func() time.Time
	Log                   *slog.Logger
}

// Service answers the runners saved.*. It is safe for concurrent use.
type Service struct {
	cfg   Config
	slots *batch.Slots
}

// New returns a Service.
func New(cfg Config) *Service { return &Service{cfg: cfg, slots: batch.NewSlots()} }

// Names of the runners that users may call who have no permission for them: jobsRunner every user, and
// the others whom a saved job names.
const (
	runRunner  = "saved.run"
	jobsRunner = "saved.jobs"
)

// Admits implements local.SavedJobs. Who is named by no job may ask for his jobs, too: he gets an empty
// list, and no refusal is recorded each time he opens the console's page.
func (s *Service) Admits(fun, system, user string, groups []string) bool {
	switch fun {
	case jobsRunner:
		return true
	case runRunner, outcomeRunner:
	default:
		return false
	}

	for _, o := range s.cfg.Store.Objects().All(KindJob) {
		if o.Job != nil && o.Job.PermitsRun(system, user, groups) {
			return true
		}
	}
	return false
}

// mayRun reports whether a caller may run a job. Who has all rights may run each; a permission for the
// runner saved.run is not enough.
func mayRun(j *Job, by runner.Caller) bool {
	return by.All || by.Full || j != nil && j.PermitsRun(by.Eauth, by.Name, by.Groups)
}
