package runner

import (
	"context"
	"io"
	"log/slog"
	"time"

	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/target"
	"saltern/master/value"
)

// Env holds the parts of the master that runners need. A part may be nil; see the package comment.
type Env struct {
	Jobs jobs.Cache
	// Older has jobs that Jobs does not have any more. It may be nil: there are none.
	Older     OlderJobs
	JobFiles  JobFiles
	Events    Events
	Minions   Minions
	Cache     Cache
	Targets   Targets
	Resources target.Resources
	Keys      Keys
	Syndics   Syndics // may be nil: none is known
	Presence  Presence
	Files     Files
	Pillar    Pillar
	Reactor   Reactor
	// Options is the master's configuration under Salt's names.
	Options *value.Map
	// Version is the version of Salt with which manage.versions compares minions.
	Version string
	// Running returns the runners in progress in the form of Salt's proc files: maps of fun
	// ("runner.jobs.master"), fun_args, jid, pid and user. Running may be nil: no runner is in
	// progress.
	Running func() []*value.Map
	// Batches are the batches that this master runs. It may be nil: this process runs none.
	Batches Batches
	// BatchesElsewhere has those of the other masters. It may be nil: there is no other master.
	BatchesElsewhere BatchesElsewhere
	StopOrders       StopOrders // nil: there are no other masters
	// Pauses keeps which steps of orchestrations are paused.
	Pauses *Pauses
	// PausesElsewhere changes the pauses of jobs that are in progress on another master. It may be
	// nil: there is no other master.
	PausesElsewhere PausesElsewhere
	// Progress reports the progress of a long call to its caller. It may be nil: the reports are
	// dropped.
	Progress func(data *value.Map)
	// Out is the terminal of the caller, for state.event and the few runners that print. It may be
	// nil: these runners print nothing.
	Out io.Writer
	Log *slog.Logger
}

// OlderJobs has the jobs of a longer time than the job cache.
type OlderJobs interface {
	// Job returns the load and the returns of a job, as [jobs.Cache] does. It may be slow, but waits for a bounded time.
	// It may return data together with an error, which says what is missing; callers of runners may see its text.
	Job(ctx context.Context, jid string) (load, returns *value.Map, err error)
}

// Events is the event bus as runners use it.
type Events interface {
	// Fire puts an event on the bus.
	Fire(tag string, data *value.Map) error
	// Listen calls visit for each event from now on, until visit returns false or ctx ends.
	Listen(ctx context.Context, visit func(event.Event) bool) error
}

// Minions runs functions on minions.
type Minions interface {
	// Ask publishes a job and gathers the returns until all minions have answered or have failed to
	// answer in time. If Timeout or Gather is zero, the configured value applies.
	Ask(ctx context.Context, q Question) (Answer, error)
	// Tell publishes a job and waits for no return. It returns how many minions get the job: 0 if the target
	// selects none.
	Tell(ctx context.Context, q Question) (minions int, err error)
}

// Question is a job that a runner publishes to minions.
type Question struct {
	Target          any // text or list of text
	TargetType, Fun string
	Arg             []any
	Timeout, Gather time.Duration
}

// Answer is the result of a Question.
type Answer struct {
	Expected []string
	// Returns holds the loads of the returns (return, retcode, …) by minion.
	Returns map[string]*value.Map
}

// Cache holds the data that minions have reported to the master: the banks grains, pillar and mine.
// Callers must not change the returned maps.
type Cache interface {
	Get(bank, id string) (*value.Map, bool)
	Set(bank, id string, m *value.Map) error
	Flush(bank, id string) error
	IDs(bank string) ([]string, error)
}

// Targets finds the accepted minions that a target selects.
type Targets interface {
	Match(target any, targetType string) ([]string, error)
	// MatchExact works like Match for a compound target, with two differences: pillar terms match
	// only exact values, and a minion without cached data never matches
	// (CkMinions._check_compound_pillar_exact_minions, not greedy).
	MatchExact(compound string) ([]string, error)
}

// Syndics knows which minions are syndics.
type Syndics interface {
	// Known reports whether a minion is a syndic, which answers no job itself.
	Known(id string) bool
}

// Keys is the store of keys as runners use it.
type Keys interface {
	Accepted() []string
	Delete(id string) error
}

// Presence reports which minions are connected.
type Presence interface {
	// Connected returns the addresses of connected minions by id.
	Connected() map[string]string
}

// Files is the file server.
type Files interface {
	// Call answers a file server request such as _file_list; load may name backends in the field
	// "fsbackend".
	Call(ctx context.Context, cmd string, load *value.Map) (any, error)
	// Backends returns the backends that names selects. If names is nil, it returns the configured
	// backends.
	Backends(names any) []string
	// Envs returns the environments of one backend.
	Envs(ctx context.Context, backend string) ([]string, error)
	Update(ctx context.Context, backends []string) error
	// ClearCache removes the cache of one backend. exists is false when the backend has no cache.
	ClearCache(ctx context.Context, backend string) (exists bool, err error)
	// ClearLists removes the cached file lists of backends for some environments (nil: for all),
	// and returns the environments of the removed lists by backend.
	ClearLists(ctx context.Context, backends, envs []string) (map[string][]string, error)
}

// Reactor is the running reactor as runners use it.
type Reactor interface {
	// All returns the rules, in the form of the option reactor.
	All() []any
	// Add and Delete return the outcome as the text that Salt returns. files is a text or a list of
	// texts.
	Add(tag string, files any) *value.Map
	Delete(tag string) *value.Map
	Leads() bool     // reports whether the reactor reacts
	Lead(leads bool) // switches reactions on or off
}

// Pillar compiles pillars and reads and clears their cache.
type Pillar interface {
	Compile(ctx context.Context, id string, grains *value.Map, saltenv, pillarenv string) (*value.Map, error)
	// Top returns the merged top file, or the errors in it.
	Top(ctx context.Context, id string, grains *value.Map, saltenv string) (top *value.Map, errs []string, err error)
	// Cached returns the cached pillar of a minion. Caches reports whether the master caches
	// pillars.
	Cached(id, pillarenv string) (*value.Map, bool)
	Caches() bool
}

// JobFiles writes the files of a job in Salt's layout ([jobs.Local]).
type JobFiles interface {
	// LayOutAll writes the files, of all jobs if jid is [jobs.AllJobs], and returns their folder.
	LayOutAll(ctx context.Context, jid string) (folder string, err error)
}
