package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"saltern/internal/durable"
)

// Status is the report that a master writes every two seconds to <cachedir>/[StatusFile]. Readers
// ignore unknown fields, so that a newer master may add fields.
type Status struct {
	Schema       int           `json:"schema"` // version of the format: [Schema]
	PID          int           `json:"pid"`
	ID           string        `json:"id"`
	Started      time.Time     `json:"started"`
	Written      time.Time     `json:"written"`
	Accepted     int           `json:"accepted"`
	Pending      int           `json:"pending"`
	Rejected     int           `json:"rejected"`
	Denied       int           `json:"denied"`
	Subscribers  int           `json:"subscribers"`
	Connected    int           `json:"connected"`
	Requests     uint64        `json:"requests"`
	Refused      uint64        `json:"refused"`
	Failed       uint64        `json:"failed"`
	Returns      uint64        `json:"returns"`
	Jobs         uint64        `json:"jobs"`
	Pillars      uint64        `json:"pillars"`
	PillarErrors uint64        `json:"pillar_errors"`
	PillarError  *PillarError  `json:"last_pillar_error,omitempty"` // nil: every pillar compiles without errors
	PillarFaulty int           `json:"pillar_error_minions"`        // number of minions whose last pillar had errors
	PillarMemo   *PillarMemo   `json:"pillar_memo,omitempty"`       // nil: the option saltern_pillar_memo is off
	PillarChecks *PillarChecks `json:"pillar_checks,omitempty"`     // nil: an older master, which checks none
	// nil: an older master, or one that has decrypted no secret
	PillarSecrets *PillarSecrets `json:"pillar_secrets,omitempty"`
	// number of requests for pillars that this master could not answer
	PillarUnable uint64     `json:"pillars_unanswered"`
	Waiting      Waiting    `json:"waiting"`
	Runners      *Runners   `json:"runners,omitempty"` // nil: an older master, which does not report runners
	Returners    []Returner `json:"returners,omitempty"`
	Postgres     *Postgres  `json:"postgres,omitempty"` // nil: the master writes into no database
	Engines      []Engine   `json:"engines,omitempty"`
	Resources    *Resources `json:"resources,omitempty"` // nil: no minion has registered or was refused resources
	Files        *Files     `json:"files,omitempty"`     // nil: the master serves the original files, not a copy
	Fleet        *Fleet     `json:"fleet,omitempty"`     // nil: an older master without a history
	Notify       *Notify    `json:"notify,omitempty"`    // nil: there are no rules for notifications
	EventsLost   uint64     `json:"events_lost"`
	OldestMillis int64      `json:"oldest_request_ms"`
	OpenMode     bool       `json:"open_mode"`
	AutoAccept   bool       `json:"auto_accept"`
	Problems     []Problem  `json:"problems"`
	Apart        []Apart    `json:"apart,omitempty"`
}

// Files describes the copy of the shared volume from which a master serves. The counters begin at the
// master's start.
type Files struct {
	// AsOf is the time as of which the copy has the content of the shared volume. If the master
	// needs a newer copy, it asks the supervisor.
	AsOf time.Time `json:"asOf,omitzero"`
	// Old is the reason why the copy, or a file in it, was older than a caller needed, or "" if
	// neither was.
	Old       string  `json:"old,omitempty"`
	Questions uint64  `json:"questions"` // number of requests to the supervisor for the newest files
	Late      uint64  `json:"late"`      // number of those requests after which the copy was no newer
	Seconds   float64 `json:"seconds"`   // total time of those requests, in seconds
	Waits     uint64  `json:"waits"`     // minions' requests that waited for such a request; many may share one
	ServedOld uint64  `json:"servedOld"` // minions' requests that were answered with older files than needed
	Refused   uint64  `json:"refused"`   // requests refused because too many wait; minions repeat them
}

// Waiting describes the queues of a master.
type Waiting struct {
	Pillars   Queue `json:"pillars"`   // minions' requests for pillars that need a renderer
	Runners   Queue `json:"runners"`   // runners that minions call
	Reactions Queue `json:"reactions"` // events that trigger reactions, and the runners of those reactions
	Scheduled Queue `json:"scheduled"` // runs of the option schedule
}

// Queue describes the work of one kind. The counters begin at the master's start.
type Queue struct {
	Waiting      int     `json:"waiting"`
	Working      int     `json:"working"`
	OldestMillis int64   `json:"oldest_ms"`      // how long the oldest item has waited, in milliseconds
	Begun        uint64  `json:"begun"`          // number of items that have begun; in Reactions and Scheduled, number of items done
	Waited       float64 `json:"waited_seconds"` // total time that begun items had waited, in seconds
	// number of items lost because the queue was full; callers repeat requests for pillars and
	// runners
	Lost uint64 `json:"lost"`
	Left uint64 `json:"left"` // number of items dropped because their minion disconnected while they waited
}

// PillarMemo counts, since the master's start, how pillar templates were answered.
type PillarMemo struct {
	Hits    uint64 `json:"hits"`    // times that a stored result was used
	Misses  uint64 `json:"misses"`  // times rendered, and stored for all minions with the same values
	Alone   uint64 `json:"alone"`   // times rendered for one minion only
	Dropped uint64 `json:"dropped"` // number of results dropped to make room
	Results int    `json:"results"` // number of stored results
	Bytes   int64  `json:"bytes"`   // bytes of the stored results
}

// Resources describes the resources of minions (Salt 3008).
type Resources struct {
	Known   int    `json:"known"`   // resources that minions have registered
	Refused uint64 `json:"refused"` // registrations and ids that were refused since the master's start
}

// Runners describes runner and wheel functions that run in Python. Counters begin at the master's
// start.
type Runners struct {
	Workers  int     `json:"workers"`  // number of worker processes at work
	Waiting  int     `json:"waiting"`  // number of calls that wait for a worker
	Calls    uint64  `json:"calls"`    // number of calls that got a worker
	Lost     uint64  `json:"lost"`     // number of calls whose process ended without an answer
	Left     uint64  `json:"left"`     // number of calls that got no worker in time
	Seconds  float64 `json:"seconds"`  // total time of the calls, in seconds
	Waited   float64 `json:"waited"`   // total time that calls waited for a worker, in seconds
	Running  bool    `json:"running"`  // the parent Python process, which starts the workers, runs
	Restarts uint64  `json:"restarts"` // number of restarts of the parent process after it had died
	// number of restarts of the parent process because files or packages of the library changed
	Renewals uint64 `json:"renewals"`
}

// Returner describes the data that a master passes to a returner: events (event_return), or calls
// that store jobs (master_job_cache, ext_job_cache). The counters start at zero with the master.
type Returner struct {
	Name    string `json:"name"`
	Waiting uint64 `json:"waiting"`         // number of events or calls that wait on this node's disk
	Done    uint64 `json:"done"`            // number handed over to the returner
	Lost    uint64 `json:"lost"`            // number dropped to make room for later ones
	Refused uint64 `json:"refused"`         // number that the returner refused although it took later ones
	Error   string `json:"error,omitempty"` // error of the last attempt; "" if it succeeded
}

// Postgres describes what a master writes into PostgreSQL (saltern_postgres). The counters start at
// zero with the master.
type Postgres struct {
	Waiting    uint64 `json:"waiting"`     // number of loads and returns that wait on this node's disk
	SpoolBytes int64  `json:"spool_bytes"` // bytes that they take there
	SpoolMost  int64  `json:"spool_most"`  // bound of these bytes
	Written    uint64 `json:"written"`     // number of returns that this master has written
	Known      uint64 `json:"known"`       // number of returns that the database already had, from another master
	Adapted    uint64 `json:"adapted"`     // number of loads and returns that were written with a mark
	Refused    uint64 `json:"refused"`     // number that the database did not take
	Lost       uint64 `json:"lost"`        // number dropped to make room for later ones, or damaged
	Unanswered uint64 `json:"unanswered"`  // number of look-ups that the database did not answer
	Error      string `json:"error,omitempty"`
	// Events may be nil: no events are written.
	Events *PostgresEvents `json:"events,omitempty"`
}

// PostgresEvents is Postgres for the events that a master writes into PostgreSQL.
type PostgresEvents struct {
	Waiting    uint64 `json:"waiting"`
	SpoolBytes int64  `json:"spool_bytes"`
	SpoolMost  int64  `json:"spool_most"`
	Written    uint64 `json:"written"`
	Adapted    uint64 `json:"adapted"`
	Refused    uint64 `json:"refused"`
	Lost       uint64 `json:"lost"` // number dropped to make room for later ones, damaged, or not taken by this node's disk
	Error      string `json:"error,omitempty"`
}

// Engine describes an entry of the option engines.
type Engine struct {
	Name   string    `json:"name"`
	State  string    `json:"state"` // "running", "starting", "waiting" for its next start, or "elsewhere"
	Since  time.Time `json:"since"` // when the state began
	Starts uint64    `json:"starts"`
	Error  string    `json:"error,omitempty"` // error of the engine's last end
}

// Apart is another master of the cluster to which this one has no direct connection.
type Apart struct {
	Peer    string `json:"peer"`              // the other master's name in the cluster: its address
	Through string `json:"through,omitempty"` // master that relays messages between Peer and this master; "": none
	Error   string `json:"error,omitempty"`   // error of the last attempt to connect
}

// Problem is a lasting fault of a master.
type Problem struct {
	What  Fault     `json:"what"`
	Text  string    `json:"text"`
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"` // when the fault last occurred
	Count uint64    `json:"count"`
}

// Fault is the code of a lasting fault. Status pages show it as text.
type Fault string

// The faults that a master reports.
const (
	AuditFault       Fault = "audit record"
	CacheDirFault    Fault = "cache directory"
	ClusterFault     Fault = "cluster"
	EngineFault      Fault = "engines"
	ReturnerFault    Fault = "returners"               // a returner does not accept its events
	ReturnerLoss     Fault = "events for returners"    // some events did not reach a returner
	PostgresFault    Fault = "postgres"                // PostgreSQL takes nothing, or its spool is nearly full
	PostgresLoss     Fault = "records for postgres"    // some records did not get to PostgreSQL
	DeliveryFault    Fault = "jobs were not delivered" // minions of another master missed jobs
	GitPillarFault   Fault = "git pillars"             // the copy of a git pillar, or the program git, is faulty
	GitFilesFault    Fault = "files from git"          // the copy of files from git, or the program git, is faulty
	GitAwayFault     Fault = "git remotes are unreachable"
	GitLoginFault    Fault = "git remotes refuse the login"
	GitHostKeyFault  Fault = "git remotes are not trusted"
	GitRefFault      Fault = "branches of git remotes are gone"
	GitSizeFault     Fault = "git remotes are too large"
	JobCacheFault    Fault = "job cache"    // the job cache cannot store returns
	JobSegmentsFault Fault = "job segments" // jobs and returns on the disk cannot be read
	KeyRotationFault Fault = "key rotation"
	MinionCacheFault Fault = "minion cache"
	MinionClockFault Fault = "minion clocks"
	NewKeysFault     Fault = "new keys"                // a source offers too many keys
	MergeFault       Fault = "reports in the merge"    // a git server takes no status of a commit
	NotifyFault      Fault = "notifications"           // a destination accepts no messages
	NotifyDiskFault  Fault = "outbox of notifications" // the disk takes no messages that wait
	PillarFault      Fault = "pillars"                 // this master could not compile a pillar
	ReactionFault    Fault = "reactions were lost"
	// PillarCheckFault: a check found that the fast way gives other values than Salt for some files
	// or entries of ext_pillar. The master makes these as Salt does.
	PillarCheckFault Fault = "check of pillars"
	// ScheduleFault: scheduled runners do not start, because their runs cannot be recorded for other
	// masters.
	ScheduleFault Fault = "schedule"
	// ScheduleRecordFault: the record of the schedule was broken and was set aside.
	ScheduleRecordFault Fault = "record of the schedule"
	// SavedFault: the file of saved targets, jobs and schedules cannot be read, or was damaged.
	SavedFault Fault = "saved objects"
)

// PillarChecks counts, since the start, pillars that were made once more as Salt does
// (saltern_pillar_check), and what the master did itself, or left to Python, in the pillars that it made.
type PillarChecks struct {
	Checked      uint64 `json:"checked"`
	Skipped      uint64 `json:"skipped"`        // chosen, but the renderers were busy or not running
	YAMLInGo     uint64 `json:"yaml_in_go"`     // read by the master
	YAMLInPython uint64 `json:"yaml_in_python"` // left to Salt's loader
	// Entries of ext_pillar that the master knows: run and read by it, and left to Salt's module.
	ExtPillarInGo     uint64 `json:"ext_pillar_in_go"`
	ExtPillarInPython uint64 `json:"ext_pillar_in_python"`
}

// PillarSecrets counts, since the start, secrets of pillars that the master has decrypted by gpg itself.
type PillarSecrets struct {
	Runs   uint64 `json:"runs"`   // of gpg
	Shared uint64 `json:"shared"` // secrets that needed no run of their own
	Failed uint64 `json:"failed"` // runs that could not decrypt
}

// PillarError is a pillar that had errors when it was last compiled, for one minion.
type PillarError struct {
	Minion string    `json:"minion"`
	Text   string    `json:"text"` // the first error
	At     time.Time `json:"at"`
}

const (
	// StatusFile is the name of the status in the master's cachedir.
	StatusFile = "status.json"
	// Schema is the version of the status's format. No other version exists.
	Schema = 1
	// StatusStale is the age of a status from which its master is considered silent.
	StatusStale = 10 * time.Second
	// MaxStatus bounds the file in bytes.
	MaxStatus = 64 << 10
	// MaxProblems bounds the problems, and separately the entries of Apart, that are read from a
	// status.
	MaxProblems = 20
	// maxEngines bounds the engines that are read from a status.
	maxEngines = 64
)

// errStatus means that a status cannot be used.
var errStatus = errors.New("status file of salt-master cannot be used")

// ReadStatus reads the status at path. The master's account owns the folder and may be hostile:
// ReadStatus follows no link, does not wait for a pipe, and quotes nothing of the file in its
// errors.
func ReadStatus(path string) (*Status, error) {
	b, err := durable.Read(path, MaxStatus)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStatus, err)
	}
	return ParseStatus(b)
}

// ParseStatus reads a status from the content of its file.
func ParseStatus(b []byte) (*Status, error) {
	var s Status
	if json.Unmarshal(b, &s) != nil {
		return nil, fmt.Errorf("%w: it is not as expected", errStatus)
	}
	if s.Schema != Schema {
		return nil, fmt.Errorf("%w: schema %d, known is %d", errStatus, s.Schema, Schema)
	}

	s.ID = oneLine(s.ID)
	s.Problems = s.Problems[:min(len(s.Problems), MaxProblems)]
	for i := range s.Problems {
		p := &s.Problems[i]
		p.What, p.Text = Fault(oneLine(string(p.What))), oneLine(p.Text)
	}

	s.Apart = s.Apart[:min(len(s.Apart), MaxProblems)]
	for i := range s.Apart {
		a := &s.Apart[i]
		cleanLines(&a.Peer, &a.Through, &a.Error)
	}

	s.Returners = s.Returners[:min(len(s.Returners), MaxProblems)]
	for i := range s.Returners {
		r := &s.Returners[i]
		r.Name, r.Error = oneLine(r.Name), oneLine(r.Error)
	}

	if p := s.Postgres; p != nil {
		p.Error = oneLine(p.Error)
		if p.Events != nil {
			p.Events.Error = oneLine(p.Events.Error)
		}
	}

	s.Engines = s.Engines[:min(len(s.Engines), maxEngines)]
	for i := range s.Engines {
		e := &s.Engines[i]
		cleanLines(&e.Name, &e.State, &e.Error)
	}

	if e := s.PillarError; e != nil {
		e.Minion, e.Text = oneLine(e.Minion), oneLine(e.Text)
	}

	s.PillarFaulty = max(s.PillarFaulty, 0)
	if m := s.PillarMemo; m != nil {
		m.Results, m.Bytes = max(m.Results, 0), max(m.Bytes, 0)
	}

	if r := s.Runners; r != nil {
		r.Workers, r.Waiting = max(r.Workers, 0), max(r.Waiting, 0)
		r.Seconds, r.Waited = max(r.Seconds, 0), max(r.Waited, 0)
	}

	s.OldestMillis = max(s.OldestMillis, 0)
	for _, q := range []*Queue{&s.Waiting.Pillars, &s.Waiting.Runners, &s.Waiting.Reactions, &s.Waiting.Scheduled} {
		q.Waiting = max(q.Waiting, 0)
		q.Working = max(q.Working, 0)
		q.OldestMillis = max(q.OldestMillis, 0)
		q.Waited = max(q.Waited, 0)
	}

	return &s, nil
}

// Fresh reports whether the status comes from the master with this process id and is recent enough
// for its figures to be used. A nil status is not fresh.
func (s *Status) Fresh(now time.Time, pid int) bool {
	return s != nil && s.PID == pid && pid != 0 && now.Sub(s.Written) <= StatusStale
}
