// Package summary reduces the return of a job to what people ask about it later: did it succeed,
// which states changed something or failed, and how long did it take.
//
// [Of] and [OfPacked] are pure. They read returns of state runs of Salt 3006 to 3008 (salt/state.py
// State.call and verify_ret, salt/utils/state.py check_result), the errors that a state run returns
// instead of states, and the returns of all other functions. A summary is small whatever the
// minion sends: at most [MaxStates] failed and changed states, [MaxSlowest] slow ones, and
// [MaxText] bytes for each text. The counts are exact.
//
// All texts of a summary come from minions. They are cleaned for terminals and logs, but may
// contain secrets: a difference may show what a state wrote.
package summary

import (
	"fmt"
	"time"
)

// Bounds of a summary.
const (
	MaxStates  = 20  // failed states, and also changed states
	MaxSlowest = 5   // slowest states
	MaxText    = 200 // bytes of a text
)

// Summary is the part of a return that is kept for questions.
type Summary struct {
	Function string
	Result   Result
	// Each state of a run is counted once. Failed wins over WouldChange, which wins over Changed.
	// All four are zero for other functions than state runs.
	OK, Changed, WouldChange, Failed int
	FailedStates                     []State // the first that failed, in the order of the return
	ChangedStates                    []State // the first that changed or would change something
	Slowest                          []State // the slowest first; states without duration are left out
	Duration                         time.Duration
	Retcode                          int
	Test                             bool   // the run only said what it would change
	Revision                         string // of the files that the run was served; "" means unknown
}

// State is one state of a run. In the failed states of other functions and of a run that did not
// begin, only Comment is set.
type State struct {
	ID, SLS, Name, Function string
	Comment                 string // the first line
	Duration                time.Duration
	Changes                 string // what changed: lines of a diff, "old → new", or other data, cut
	Cause                   Cause  // of the change; OfPacked does not set it
}

// Cause tells why a state changed or would change something. The numbers are stored on disk and must
// not change.
type Cause uint8

// The causes. Package fleet finds them by comparing a run with the one before of the same states.
const (
	NotCompared Cause = 0 // nothing changed, or nobody has compared the run
	Unknown     Cause = 1 // there is no run to compare with, or its files are not known
	NewFiles    Cause = 2 // the minion was served other files than in the run before
	Drift       Cause = 3 // same files: the minion was changed by something else
	Recurring   Cause = 4 // same files, and the run before found drift of the state, too
)

var causeWords = [...]string{"", "unknown", "new files", "drift", "recurring"}

// String returns the word for a cause, or "" for NotCompared.
func (c Cause) String() string {
	if int(c) < len(causeWords) {
		return causeWords[c]
	}
	return fmt.Sprintf("cause %d", uint8(c))
}

// Drifted reports whether the minion differed from the files that it had been served before.
func (c Cause) Drifted() bool { return c == Drift || c == Recurring }

// Drifted returns the states of a run by which the minion had drifted.
func (s *Summary) Drifted() (out []State) {
	for _, state := range s.ChangedStates {
		if state.Cause.Drifted() {
			out = append(out, state)
		}
	}
	return out
}

// Result is the outcome of a run. The numbers are stored on disk and must not change.
type Result uint8

// The results, from good to bad.
const (
	OK          Result = 0
	Changed     Result = 1
	WouldChange Result = 2
	Failed      Result = 3
	Error       Result = 4 // a state run returned errors instead of states
)

var resultWords = [...]string{"ok", "changed", "would change", "failed", "error"}

// Results returns all results.
func Results() []Result { return []Result{OK, Changed, WouldChange, Failed, Error} }

// String returns the word for a result.
func (r Result) String() string {
	if int(r) < len(resultWords) {
		return resultWords[r]
	}
	return fmt.Sprintf("result %d", uint8(r))
}

// ParseResult returns the result of a word that String returns. It also takes a "_" or "-" for the
// blank.
func ParseResult(word string) (Result, error) {
	for i, w := range resultWords {
		if word == w || i == int(WouldChange) && (word == "would_change" || word == "would-change") {
			return Result(i), nil
		}
	}
	return 0, fmt.Errorf("%.40q is no result of a run: ok, changed, would_change, failed or error", word)
}

// States returns the number of states of the run.
func (s *Summary) States() int { return s.OK + s.Changed + s.WouldChange + s.Failed }
