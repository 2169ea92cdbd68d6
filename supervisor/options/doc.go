// Package options changes the administrator's options of Salt's master on all nodes of a cluster in
// one operation. Each node reports the options it has and why it refuses new ones ([Node]). [Roll]
// asks the nodes to load the options, one after the other.
//
// Each node guards itself, without the node that drives the rolling change: it runs its master with
// new options on trial, and returns to the last good options if the trial fails. The driving node
// may fail at any moment: the same change, started again, continues.
//
// The package makes decisions and writes messages. It reads no file and starts no process.
package options

import (
	"context"
	"errors"
	"time"
)

// Bounds of a node's report.
const (
	MaxFiles  = 256 // largest number of files with options, of faults, and of notes
	maxText   = 500 // longest text of a reason, in bytes
	MinLimit  = 5 * time.Second
	MaxLimit  = 10 * time.Minute
	UsualTime = time.Minute // how long a master usually may take to serve
)

// File describes one of the administrator's files, as a node sees it.
type File struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // SHA-256 in hexadecimal
}

// State is a node's report on its master's options.
type State struct {
	Files []File `json:"files"` // ordered by name
	// Wanted is the mark of the options with which the master would start now, including the
	// options in appliance.yaml. Running is the mark of the options with which it was started. Good
	// is the mark of the options with which it last served. An empty mark means that there are no
	// such options, or that they are not known.
	Wanted  string `json:"wanted"`
	Running string `json:"running"`
	Good    string `json:"good"`
	// Trying reports whether the master has options with which it has not served yet, and the node
	// has not decided about them.
	Trying bool `json:"trying"`
	// Serving reports whether the master answers its health check and, if there is a load balancer,
	// is up according to the load balancer.
	Serving bool `json:"serving"`
	// LastGood says why the master runs with its last good options. It is empty if it runs with the
	// present options.
	LastGood string `json:"lastGood,omitempty"`
	// Held reports whether the node still stores the options from before a rolling change. It does
	// so until the change has ended.
	Held bool `json:"held,omitempty"`
}

// Current reports whether the master runs with the present options.
func (s State) Current() bool {
	return s.Running != "" && s.Running == s.Wanted && s.LastGood == "" && !s.Trying
}

// Fault is a fault in the options that prevents a start of the master, or a note about an option
// without effect.
type Fault struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"` // counted from 1; 0: not known
	Option string `json:"option,omitempty"`
	Text   string `json:"text"` // includes the file and the line
}

// Findings holds the results of a check.
type Findings struct {
	Faults []Fault `json:"faults,omitempty"`
	Notes  []Fault `json:"notes,omitempty"`
}

// Errors of a [Node], and of a [Turn], that callers distinguish.
var (
	// ErrChanged means that the options have changed since they were checked.
	ErrChanged = errors.New("the options have changed since they were checked; run it again")
	// ErrTrying means that a trial of other options is running on the node.
	ErrTrying = errors.New("its master is being started with other options just now")
	// ErrNotHeld means that the node keeps no earlier options to go back to.
	ErrNotHeld = errors.New("it keeps no earlier options to go back to")
	// ErrHeld means that another node has the turn.
	ErrHeld = errors.New("another one is at it")
	// ErrOld means that the node's version does not support rolling changes of options.
	ErrOld = errors.New("it runs a version that cannot take options this way; upgrade it first")
)

// Node is a node whose master takes options. Its methods are safe for concurrent
// use and return before ctx ends.
type Node interface {
	// State returns the options that the node has. If fresh is set, the node first updates its copy
	// of the shared storage.
	State(ctx context.Context, fresh bool) (State, error)
	// Check checks the options by the master's own rules.
	Check(ctx context.Context) (Findings, error)
	// Try restarts the master, on trial, with the options that mark identifies. If the master does
	// not serve within limit, the node returns by itself to the options from before the trial, the
	// earlier options. The node stores these until [Node.Keep].
	Try(ctx context.Context, mark string, limit time.Duration) error
	// Back restarts the master with the earlier options that the node has stored, and records why
	// it refuses the options of mark. Back may be repeated.
	Back(ctx context.Context, mark, why string) error
	// Keep makes the options of mark permanent: the node deletes the earlier options.
	Keep(ctx context.Context, mark string) error
}
