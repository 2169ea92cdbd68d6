package service

import "time"

// State is the state of a service. Its values appear in the status document and do not change.
type State string

// States, in the order in which a healthy service passes through them.
const (
	Waiting  State = "waiting"  // waiting for a condition, or preparing the start, also after a failed try
	Starting State = "starting" // the runner has started, but the health check has not passed yet
	Running  State = "running"  // up; the health check, if there is one, passes
	Failing  State = "failing"  // up, but the health check does not pass
	Pausing  State = "backoff"  // the run has ended; pausing before the next one
	Stopping State = "stopping" // the stop was requested
	Stopped  State = "stopped"  // stopped on request
)

// Event is one line of a service's history.
type Event struct {
	Time    time.Time `json:"time"`
	State   State     `json:"state"`
	Message string    `json:"message"`
}

// Info is a snapshot of one service.
type Info struct {
	Name     string    `json:"name"`
	State    State     `json:"state"`
	Message  string    `json:"message"`            // what the service waits for, or why it does not run
	Since    time.Time `json:"since"`              // when the service entered State
	PID      int       `json:"pid,omitempty"`      // ID of the running process; 0: none
	Restarts int       `json:"restarts"`           // number of starts after the first one
	Failures int       `json:"failures"`           // runs in a row that ended before they were stable
	LastExit string    `json:"lastExit,omitempty"` // how the last run ended
	LastLine string    `json:"lastLine,omitempty"` // last line that the process wrote before it ended
	Events   []Event   `json:"events,omitempty"`   // oldest first, at most historySize
}

// historySize is the largest number of events kept for one service. The oldest events are dropped
// first.
const historySize = 40
