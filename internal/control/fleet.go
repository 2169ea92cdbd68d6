package control

import "time"

// Fleet describes the last runs of states of all minions, and all returns since the master's start.
type Fleet struct {
	// LastRuns is the number of minions by the result of their last run: "ok", "changed", "would_change",
	// "failed", "error", or "never". It is nil if the master keeps no history: then only Deaf is known.
	LastRuns map[string]int `json:"last_runs"`
	// Ages is the number of minions by the age of their last run: "hour" (at most), "day", "week" or
	// "older".
	Ages      map[string]int  `json:"ages"`
	Drifted   int             `json:"drifted"` // number of minions whose last run found drift
	Functions []FleetFunction `json:"functions,omitempty"`
	// FailedStates are the states that failed in the last runs of most minions, and of two at least,
	// the worst first. The list is short: the last one, "other", has all further ones.
	FailedStates []FailedState `json:"failed_states,omitempty"`
	// Deaf is the number of minions that are connected to this master and answer nothing.
	Deaf int `json:"deaf"`
	// History describes the files of the history.
	History *History `json:"history,omitempty"`
}

// FailedState is a state that failed.
type FailedState struct {
	State   string `json:"state"`   // function and id, such as "pkg.installed nginx"
	Minions int    `json:"minions"` // number of minions in whose last run it failed
}

// History describes the history of runs on this node's disk. Counters begin at the master's start.
type History struct {
	Runs       int       `json:"runs"`
	Segments   int       `json:"segments"` // files
	Bytes      int64     `json:"bytes"`    // of all files
	Oldest     time.Time `json:"oldest,omitzero"`
	Damaged    uint64    `json:"damaged"`     // places that could not be read
	LeftOut    uint64    `json:"left_out"`    // returns that the history did not take because of their ids
	DroppedOld uint64    `json:"dropped_old"` // runs removed because of saltern_history_days
	// DroppedLarge and DroppedFull are runs removed because of saltern_history_bytes, and because the
	// disk was full.
	DroppedLarge uint64 `json:"dropped_large"`
	DroppedFull  uint64 `json:"dropped_full"`
	// JobSegments are the segments of jobs and returns that made room on a full disk before they were old: the history
	// has their returns.
	JobSegments uint64 `json:"job_segments_removed,omitempty"`
}

// Destination describes one destination of a rule of notifications. The counts begin at the master's
// start, and include what other masters of the cluster did.
type Destination struct {
	Name    string            `json:"name"`    // name of the rule, a slash, and a number
	By      string            `json:"by"`      // how it is reached: "webhook", "mail" or "syslog"
	Waiting int               `json:"waiting"` // alerts that are still to be sent
	Settled map[string]uint64 `json:"settled"` // alerts by what became of them, such as "sent"
	Failing bool              `json:"failing"` // the last try of this master failed
}

// Notify describes the notifications.
type Notify struct {
	Destinations []Destination `json:"destinations"`
	Lost         uint64        `json:"lost"` // alerts and events that found no room
}

// FleetFunction counts the returns of one function, such as state.apply, since the master's start.
// Every master of a cluster counts all returns. The list is short: the last one, "other", counts
// the returns of all further functions.
type FleetFunction struct {
	Function string            `json:"function"`
	Runs     map[string]uint64 `json:"runs"`             // by result, as in Fleet.LastRuns
	States   map[string]uint64 `json:"states,omitempty"` // by result: "ok", "changed", "would_change" or "failed"
}

// RestoredHistory begins the names of files that a restore puts into the folder of the history. The rest is
// a stamp of the restore and the name in the backup, such as "-0000000000000001.seg". The master takes them
// in when it starts.
const RestoredHistory = "restored-"
