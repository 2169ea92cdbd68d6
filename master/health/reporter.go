package health

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"saltern/internal/audit"
	"saltern/internal/control"
	"saltern/master/cluster"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/history"
	"saltern/master/internal/background"
	"saltern/master/internal/eauth"
	"saltern/master/internal/engine"
	"saltern/master/internal/fleet"
	"saltern/master/internal/launch"
	"saltern/master/internal/minion"
	"saltern/master/internal/notify"
	"saltern/master/internal/pillar"
	"saltern/master/internal/postgres"
	"saltern/master/internal/presence"
	"saltern/master/internal/pyhost"
	"saltern/master/internal/queue"
	"saltern/master/internal/reactor"
	"saltern/master/internal/request"
	"saltern/master/internal/resources"
	"saltern/master/internal/returner"
	"saltern/master/internal/schedule"
	"saltern/master/internal/unanswered"
	"saltern/master/jobs"
	"saltern/master/keys"
)

// Status is the content of a master's status file. Supervisors read only the embedded part.
type Status struct {
	control.Status
	// NewKeys describes keys on a shared volume that have no file of their own yet.
	NewKeys keys.IncomingStats `json:"new_keys"`
	// PendingKeys describes sources that offer too many keys.
	PendingKeys keys.PendingStats `json:"pending_keys"`
	// Logins counts log-ins by name and password.
	Logins eauth.Stats `json:"logins"`
	// Starts counts jobs that were started or refused.
	Starts launch.Stats `json:"starts"`
	// Cluster is this master's view of its peers. It is nil if the master belongs to no cluster.
	Cluster *cluster.Status `json:"cluster,omitempty"`
}

// Reporter writes the status file and the file that shows that the master runs. Only one goroutine
// may call Write.
type Reporter struct {
	Options  *conf.Master
	Keys     *keys.Store
	Requests *request.Server
	Pillars  *pillar.Service
	Presence *presence.View
	Launch   *launch.Launcher
	Minions  *minion.Service
	// Resources are the resources of minions.
	Resources *resources.Registry
	Reactor   *reactor.Engine
	Schedule  *schedule.Schedule
	Auth      *eauth.Authenticator
	Bus       *event.Bus
	Python    *pyhost.Host
	Engines   *engine.Service
	// EventReturn may be nil: no returner receives events.
	EventReturn *returner.Events
	// Fleet and History may be nil: the master keeps no history of runs.
	Fleet   *fleet.Fleet
	History *history.Store
	// Jobs are the jobs and returns on this node.
	Jobs *jobs.Local
	// Unanswered knows which minions do not answer.
	Unanswered *unanswered.Tracker
	// Notify may be nil: there are no rules for notifications.
	Notify *notify.Service
	// JobReturns may be nil: no returner stores jobs.
	JobReturns *returner.Jobs
	// Postgres may be nil: the option saltern_postgres is empty.
	Postgres *postgres.Sink
	// PostgresEvents may be nil: no events are written there.
	PostgresEvents *postgres.Events
	// PostgresUnable is why the option saltern_postgres is not obeyed until the next start, or nil.
	PostgresUnable error
	Files          func() *control.Files
	Cluster        *cluster.Pool // nil if the master runs alone
	Problems       *Problems
	Audit          *audit.Log
	Signs          Signs
	Started        time.Time

	untimely uint64 // number of requests refused because of their age, as of the last Write
	limited  uint64 // number of keys refused or evicted because their source had too many, as of the last Write
	lost     uint64 // number of lost reactions, as of the last Write
	unhanded uint64 // number of records that returners did not get, as of the last Write
	missed   uint64 // number of records that PostgreSQL did not get, as of the last Write

	sink         postgres.Stats // as of the last Write
	sinkOfEvents postgres.Stats
}

// Write writes the present status and renews the file that shows that the master runs.
func (r *Reporter) Write() {
	r.watchPending()
	r.watchReactions()
	r.watchReturners()
	r.watchEngines()
	r.watchPostgres()
	r.Problems.Report(control.AuditFault, r.Audit.Fault())
	r.Problems.Report(control.PillarCheckFault, r.Pillars.CheckFault())
	r.Problems.Report(control.JobSegmentsFault, r.Jobs.SegmentFault())
	b, err := json.Marshal(r.status())
	if err == nil {
		err = writeFile(filepath.Join(r.Options.CacheDir, control.StatusFile), append(b, '\n'))
	}
	if err == nil {
		err = r.Signs.Alive()
	}
	r.Problems.Report(control.CacheDirFault, err)
}

func (r *Reporter) status() Status {
	oldest, _ := r.Requests.Oldest()
	pillars, req := r.Pillars.Stats(), r.Requests.Stats()
	if req.Untimely > r.untimely {
		r.untimely = req.Untimely
		r.Problems.Set(control.MinionClockFault, errors.New(req.UntimelyWhy))
	}

	subscribers, connected := r.Presence.Count(r.Presence.Subs)
	starts := r.Launch.Stats()
	s := Status{
		Status: control.Status{
			Schema:        control.Schema,
			PID:           os.Getpid(),
			ID:            r.Options.ID,
			Started:       r.Started,
			Written:       r.Signs.Now(),
			Accepted:      r.Keys.Count(keys.Accepted),
			Pending:       r.Keys.Count(keys.Pending),
			Rejected:      r.Keys.Count(keys.Rejected),
			Denied:        r.Keys.Count(keys.Denied),
			Subscribers:   subscribers,
			Connected:     connected,
			Requests:      req.Requests,
			Refused:       req.Refused,
			Failed:        req.Failed,
			Returns:       r.Minions.Stats().Returns,
			Jobs:          starts.Jobs,
			Pillars:       pillars.Pillars,
			PillarErrors:  pillars.Errors,
			PillarError:   pillars.Last,
			PillarFaulty:  pillars.Faulty,
			PillarMemo:    pillars.Memo,
			PillarChecks:  pillars.Checks,
			PillarSecrets: pillars.Secrets,
			PillarUnable:  pillars.Unable,
			Waiting:       r.waiting(pillars.Queue),
			EventsLost:    r.Bus.Stats().Lost,
			OldestMillis:  oldest.Milliseconds(),
			OpenMode:      r.Options.OpenMode,
			AutoAccept:    r.Options.AutoAccept,
			Problems:      r.Problems.List(),
		},
		NewKeys:     r.Keys.Incoming(),
		PendingKeys: r.Keys.Pendings(),
		Logins:      r.Auth.Stats(),
		Starts:      starts,
	}

	s.Runners = r.runners()
	s.Returners = r.returners()
	s.Postgres = r.postgres()
	s.Engines = r.engines()
	if known := r.Resources.Stats(); known != (resources.Stats{}) {
		s.Resources = &control.Resources{Known: known.Resources, Refused: known.Refused}
	}
	s.Files = r.Files()
	s.Fleet = r.fleet()
	s.Notify = r.Notify.Figures()

	if r.Cluster != nil {
		c := r.Cluster.Status()
		s.Cluster = &c
		for _, p := range c.Peers {
			if p.Own && (!p.Connected || p.Through != "") && len(s.Apart) < control.MaxProblems {
				s.Apart = append(s.Apart, control.Apart{Peer: p.ID, Through: p.Through, Error: p.Error})
			}
		}
	}

	return s
}

// waiting returns how much work waits in the queues.
func (r *Reporter) waiting(pillars queue.Stats) control.Waiting {
	reactions := r.Reactor.Stats()
	w := control.Waiting{
		Pillars:   questions(pillars),
		Runners:   questions(r.Minions.Stats().Runners),
		Reactions: taskQueue(reactions.BacklogStats),
		Scheduled: taskQueue(r.Schedule.Stats()),
	}
	w.Reactions.Waiting += reactions.Events
	w.Reactions.Lost = reactions.Lost
	return w
}

func questions(s queue.Stats) control.Queue {
	return control.Queue{
		Waiting:      s.Waiting,
		Working:      s.Working,
		OldestMillis: s.Oldest.Milliseconds(),
		Begun:        s.Turns,
		Waited:       s.Waited.Seconds(),
		Lost:         s.Full,
		Left:         s.Left,
	}
}

func taskQueue(s background.BacklogStats) control.Queue {
	return control.Queue{
		Waiting:      s.Waiting,
		Working:      s.Running,
		OldestMillis: s.Oldest.Milliseconds(),
		Begun:        s.Done,
		Waited:       s.Waited.Seconds(),
	}
}

// watchReactions reports a problem when events to which the reactor should have reacted were lost.
func (r *Reporter) watchReactions() {
	lost := r.Reactor.Stats().Lost
	if lost == r.lost {
		return
	}
	r.lost = lost
	r.Problems.Set(control.ReactionFault,
		fmt.Errorf("%d events since the start of the master found no room among those that wait (reactor_worker_hwm) and will not react",
			lost))
}

func (r *Reporter) runners() *control.Runners {
	s := r.Python.Stats()
	return &control.Runners{
		Workers:  s.Workers,
		Waiting:  s.Waiting,
		Calls:    s.Tasks,
		Lost:     s.Lost,
		Left:     s.Left,
		Seconds:  s.Seconds,
		Waited:   s.Waited,
		Running:  s.Running,
		Restarts: s.Restarts,
		Renewals: s.Renewals,
	}
}

// fleet returns the figures of runs. If the master keeps no history, they have only the minions that answer
// nothing.
func (r *Reporter) fleet() *control.Fleet {
	deaf := len(r.Unanswered.Deaf())
	out := r.Fleet.Figures()
	if out == nil {
		return &control.Fleet{Deaf: deaf}
	}

	out.Deaf = deaf
	s := r.History.Stats()
	out.History = &control.History{
		Runs:         s.Runs,
		Segments:     s.Segments,
		Bytes:        s.Bytes,
		Oldest:       s.Oldest,
		Damaged:      s.Damaged,
		LeftOut:      r.Fleet.LeftOut(),
		DroppedOld:   s.DroppedOld,
		DroppedLarge: s.DroppedLarge,
		DroppedFull:  s.DroppedFull,
		JobSegments:  r.Jobs.Stats().RemovedEarly,
	}
	return out
}

// watchPending reports a problem while a source offers more new keys than it may.
func (r *Reporter) watchPending() {
	p := r.Keys.Pendings()
	n := p.Refused + p.Evicted
	if n == r.limited {
		return
	}
	r.limited = n
	from := p.Worst
	from = cmp.Or(from, "sources that are not known any more")
	r.Problems.Set(control.NewKeysFault,
		fmt.Errorf("too many from %s, of which %d wait (%d refused, %d evicted in all); salt-key -l un lists them, and a stranger belongs blocked in front of the master",
			from, p.Keys, p.Refused, p.Evicted))
}
