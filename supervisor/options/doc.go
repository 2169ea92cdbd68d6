// Package options brings the administrator's options of Salt's master into force on all nodes
// of a cluster as one act. Each node reports the options it has and why it refuses new ones
// ([Node]); [Roll] makes one node after the other take them.
//
// What keeps this safe is at each node, and needs nobody who drives: a node gives
// its master new options on trial and goes back to the last good ones by itself.
// Who drives may die at any moment; the same roll begun anew goes on.
//
// The package decides and words. It reads no file and starts nothing.
package options

import (
	"context"
	"errors"
	"time"
)

// Bounds of what a node says.
const (
	MaxFiles  = 256 // of the administrator's options, and the bound of faults and notes
	maxText   = 500 // bytes of a reason
	MinLimit  = 5 * time.Second
	MaxLimit  = 10 * time.Minute
	UsualTime = time.Minute // for a master to serve
)

// File is one of the administrator's files, as a node sees it.
type File struct {
	Name   string `json:"name"`
	Digest string `json:"digest"` // SHA-256 in hexadecimal
}

// State is a node's report on its master's options.
type State struct {
	Files []File `json:"files"` // in order of their names
	// Wanted stands for all options with which the master would start now, those of
	// appliance.yaml included, Running for those it was started with, Good for those
	// with which it has served last. Empty: none, or not known.
	Wanted  string `json:"wanted"`
	Running string `json:"running"`
	Good    string `json:"good"`
	// Trying: the master was given options that it has not served with yet, and the
	// node has not decided.
	Trying bool `json:"trying"`
	// Serving: the master answers its health check and, where there is a load
	// balancer, is up in it.
	Serving bool `json:"serving"`
	// LastGood says why the master runs with its last good options; empty: it does
	// not.
	LastGood string `json:"lastGood,omitempty"`
	// Held: the options of before a roll are kept until it has ended.
	Held bool `json:"held,omitempty"`
}

// Current reports whether the master runs with the options of now.
func (s State) Current() bool {
	return s.Running != "" && s.Running == s.Wanted && s.LastGood == "" && !s.Trying
}

// Fault is something in the options that the master does not start with, or a
// note of what has no effect.
type Fault struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"` // from 1; 0: not known
	Option string `json:"option,omitempty"`
	Text   string `json:"text"` // with the place
}

// Findings holds the results of a check.
type Findings struct {
	Faults []Fault `json:"faults,omitempty"`
	Notes  []Fault `json:"notes,omitempty"`
}

// Errors of a [Node], and of a [Turn], that callers tell apart.
var (
	// ErrChanged: the options are not those that were checked.
	ErrChanged = errors.New("the options have changed since they were checked; run it again")
	// ErrTrying: another start with new options is under way there.
	ErrTrying = errors.New("its master is being started with other options just now")
	// ErrNotHeld: there are no options of before to go back to.
	ErrNotHeld = errors.New("it keeps no options of before to go back to")
	// ErrHeld: another one has the turn.
	ErrHeld = errors.New("another one is at it")
	// ErrOld: the node cannot do it.
	ErrOld = errors.New("it runs a version that cannot take options this way; upgrade it first")
)

// Node is a node whose master takes options. Its methods are safe for concurrent
// use and return before ctx ends.
type Node interface {
	// State says what the node has; fresh: after it has looked at the shared storage.
	State(ctx context.Context, fresh bool) (State, error)
	// Check has the options checked by the master's own rules.
	Check(ctx context.Context) (Findings, error)
	// Try has the master restarted with the options that mark stands for; it must
	// serve within limit, else the node goes back by itself. The options of before
	// are held until [Node.Keep].
	Try(ctx context.Context, mark string, limit time.Duration) error
	// Back has the master run with the options that are held, and remember why those
	// of mark are refused. It may be repeated.
	Back(ctx context.Context, mark, why string) error
	// Keep ends that the options of before mark are held.
	Keep(ctx context.Context, mark string) error
}
