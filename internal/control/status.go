package control

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"saltern/internal/durable"
)

// Status is the report that a master writes every two seconds to <cachedir>/[StatusFile]. Fields that a reader does not know are left alone, so
// that a newer master may say more.
type Status struct {
	Schema       int          `json:"schema"` // [Schema]
	PID          int          `json:"pid"`
	ID           string       `json:"id"`
	Started      time.Time    `json:"started"`
	Written      time.Time    `json:"written"`
	Accepted     int          `json:"accepted"`
	Pending      int          `json:"pending"`
	Rejected     int          `json:"rejected"`
	Denied       int          `json:"denied"`
	Subscribers  int          `json:"subscribers"`
	Connected    int          `json:"connected"`
	Requests     uint64       `json:"requests"`
	Refused      uint64       `json:"refused"`
	Failed       uint64       `json:"failed"`
	Returns      uint64       `json:"returns"`
	Jobs         uint64       `json:"jobs"`
	Pillars      uint64       `json:"pillars"`
	PillarErrors uint64       `json:"pillar_errors"`
	PillarError  *PillarError `json:"last_pillar_error,omitempty"` // nil: every pillar compiles
	PillarFaulty int          `json:"pillar_error_minions"`        // minions whose last pillar had errors
	PillarMemo   *PillarMemo  `json:"pillar_memo,omitempty"`       // nil: the option saltern_pillar_memo is off
	// questions for pillars that this master could not make
	PillarUnable uint64     `json:"pillars_unanswered"`
	Waiting      Waiting    `json:"waiting"`
	Runners      *Runners   `json:"runners,omitempty"` // nil: an older master, which does not say
	Returners    []Returner `json:"returners,omitempty"`
	Engines      []Engine   `json:"engines,omitempty"`
	Files        *Files     `json:"files,omitempty"` // nil: the master serves from where files are written
	EventsLost   uint64     `json:"events_lost"`
	OldestMillis int64      `json:"oldest_request_ms"`
	OpenMode     bool       `json:"open_mode"`
	AutoAccept   bool       `json:"auto_accept"`
	Problems     []Problem  `json:"problems"`
	Apart        []Apart    `json:"apart,omitempty"`
}

// Files tells of a master that serves from a copy of the shared volume. The counters begin at
// the master's start.
type Files struct {
	// AsOf is the time of the copy. Whoever needs a later one asks for it.
	AsOf time.Time `json:"asOf,omitzero"`
	// Old says why the copy, or a file of it, is older than somebody needed; "": it is not.
	Old       string  `json:"old,omitempty"`
	Questions uint64  `json:"questions"` // to the supervisor, for the newest files
	Late      uint64  `json:"late"`      // questions after which the copy was no newer
	Seconds   float64 `json:"seconds"`   // that questions took
	Waits     uint64  `json:"waits"`     // that waited for a question; many share one
	ServedOld uint64  `json:"servedOld"` // requests of minions that were served older files than they need
	Refused   uint64  `json:"refused"`   // requests not answered because too many wait; minions ask again
}

// Waiting tells of the work that waits for its turn.
type Waiting struct {
	Pillars   Queue `json:"pillars"`   // questions of minions that need a renderer
	Runners   Queue `json:"runners"`   // runners that minions call
	Reactions Queue `json:"reactions"` // events that react, and their runners
	Scheduled Queue `json:"scheduled"` // runs of the option schedule
}

// Queue is work of one kind. The counters begin at the master's start.
type Queue struct {
	Waiting      int     `json:"waiting"`
	Working      int     `json:"working"`
	OldestMillis int64   `json:"oldest_ms"`      // how long the first has waited
	Begun        uint64  `json:"begun"`          // of reactions and runs: done
	Waited       float64 `json:"waited_seconds"` // by all that were begun
	Lost         uint64  `json:"lost"`           // that found no room; who asked for a pillar or a runner asks again
	Left         uint64  `json:"left"`           // whose minion hung up before its turn
}

// PillarMemo counts, since the master's start, what became of pillar templates.
type PillarMemo struct {
	Hits    uint64 `json:"hits"`    // a result was there
	Misses  uint64 `json:"misses"`  // rendered, for all minions with the same values
	Alone   uint64 `json:"alone"`   // rendered for one minion only
	Dropped uint64 `json:"dropped"` // results that made room for others
	Results int    `json:"results"` // that are kept
	Bytes   int64  `json:"bytes"`   // that they take
}

// Runners tells of runner and wheel functions that run in Python. Counters begin at the
// master's start.
type Runners struct {
	Workers  int     `json:"workers"`  // at work
	Waiting  int     `json:"waiting"`  // calls that wait for a place
	Calls    uint64  `json:"calls"`    // that had a place
	Lost     uint64  `json:"lost"`     // whose process ended without an answer
	Left     uint64  `json:"left"`     // that did not get a place in their time
	Seconds  float64 `json:"seconds"`  // that calls took
	Waited   float64 `json:"waited"`   // that calls waited for a place
	Running  bool    `json:"running"`  // whether the Python is there that starts them
	Restarts uint64  `json:"restarts"` // of that Python after it had died
	Renewals uint64  `json:"renewals"` // of it for changed files or packages of the library
}

// Returner tells of the events that the master hands to a returner (event_return). The counters begin at
// the master's start.
type Returner struct {
	Name    string `json:"name"`
	Waiting uint64 `json:"waiting"`         // on the disk of this node
	Done    uint64 `json:"done"`            // that it has taken
	Lost    uint64 `json:"lost"`            // that made room for later ones
	Refused uint64 `json:"refused"`         // that it did not take, but took later ones
	Error   string `json:"error,omitempty"` // of the last try; "": it succeeded
}

// Engine tells of an entry of the option engines.
type Engine struct {
	Name   string    `json:"name"`
	State  string    `json:"state"` // "running", "starting", "waiting" for its next start, or "elsewhere"
	Since  time.Time `json:"since"` // of the state
	Starts uint64    `json:"starts"`
	Error  string    `json:"error,omitempty"` // of its last end
}

// Apart is another master of the cluster to which this one has no connection of
// its own.
type Apart struct {
	Peer    string `json:"peer"`              // its name in the cluster: the address
	Through string `json:"through,omitempty"` // the master that passes on what they have for each other; "": none does
	Error   string `json:"error,omitempty"`   // of the last attempt
}

// Problem is a lasting fault of a master.
type Problem struct {
	What  Fault     `json:"what"`
	Text  string    `json:"text"`
	Since time.Time `json:"since"`
	Last  time.Time `json:"last"` // when it last occurred
	Count uint64    `json:"count"`
}

// Fault is the code of a lasting fault; people read it as well.
type Fault string

// The faults that a master reports.
const (
	AuditFault       Fault = "audit record"
	CacheDirFault    Fault = "cache directory"
	ClusterFault     Fault = "cluster"
	EngineFault      Fault = "engines"
	ReturnerFault    Fault = "returners"               // one does not take what it is to get
	ReturnerLoss     Fault = "events for returners"    // some did not get to one
	DeliveryFault    Fault = "jobs were not delivered" // to minions of another master
	GitPillarFault   Fault = "git pillars"             // this master's copy, or the program git
	GitFilesFault    Fault = "files from git"          // the same
	GitAwayFault     Fault = "git remotes are unreachable"
	GitLoginFault    Fault = "git remotes refuse the login"
	GitHostKeyFault  Fault = "git remotes are not trusted"
	GitRefFault      Fault = "branches of git remotes are gone"
	GitSizeFault     Fault = "git remotes are too large"
	JobCacheFault    Fault = "job cache" // returns cannot be kept
	KeyRotationFault Fault = "key rotation"
	MinionCacheFault Fault = "minion cache"
	MinionClockFault Fault = "minion clocks"
	NewKeysFault     Fault = "new keys" // a source offers too many
	PillarFault      Fault = "pillars"  // this master could not make one
	ReactionFault    Fault = "reactions were lost"
	// ScheduleFault: scheduled runners wait, since their runs cannot be noted for other masters.
	ScheduleFault Fault = "schedule"
	// ScheduleRecordFault: a broken record was set aside.
	ScheduleRecordFault Fault = "record of the schedule"
)

// PillarError is a pillar that could not be compiled whole: the latest try of
// one minion.
type PillarError struct {
	Minion string    `json:"minion"`
	Text   string    `json:"text"` // the first error
	At     time.Time `json:"at"`
}

const (
	// StatusFile is the name of the status in the master's cachedir.
	StatusFile = "status.json"
	// Schema is the only one there is.
	Schema = 1
	// StatusStale is how old a status may be until its master counts as silent.
	StatusStale = 10 * time.Second
	// MaxStatus bounds the file in bytes.
	MaxStatus = 64 << 10
	// MaxProblems bounds the problems, and the masters apart, that are read from a
	// status.
	MaxProblems = 20
	// maxEngines bounds the engines that are.
	maxEngines = 64
)

// errStatus says that a status cannot be used.
var errStatus = errors.New("status file of salt-master cannot be used")

// ReadStatus reads the status at path. The master's account owns the folder and
// may be hostile: no link is followed, no pipe waited for, and no error quotes
// what the file holds.
func ReadStatus(path string) (*Status, error) {
	b, err := durable.Read(path, MaxStatus)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errStatus, err)
	}
	return ParseStatus(b)
}

// ParseStatus is [ReadStatus] for the content of the file.
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

// Fresh reports whether the status comes from the master with this process id and is new enough
// to believe its figures. A nil status is not fresh.
func (s *Status) Fresh(now time.Time, pid int) bool {
	return s != nil && s.PID == pid && pid != 0 && now.Sub(s.Written) <= StatusStale
}
