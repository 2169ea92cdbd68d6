package alert

import (
	"fmt"
	"time"

	"saltern/master/history/summary"
	"saltern/master/internal/notify/rules"
)

// Run is a return whose summary is known.
type Run struct {
	Minion, JID, User string
	Time              time.Time
	Summary           summary.Summary
}

// OfRun returns the alert about a run that failed. ok is false for a run that did not fail.
func OfRun(run Run) (a Alert, ok bool) {
	s := run.Summary
	if s.Result != summary.Failed && s.Result != summary.Error {
		return Alert{}, false
	}

	a = ofRun(rules.Failed, run, s.FailedStates)
	switch {
	case s.Result == summary.Error:
		a.Title = fmt.Sprintf("%s did not begin on %s", s.Function, run.Minion)
	case s.Failed > 0:
		a.Title = fmt.Sprintf("%s failed on %s: %d of %d states", s.Function, run.Minion, s.Failed, s.States())
	case s.Retcode == 0: // the minion does not have the function, or it raised an exception
		a.Title = fmt.Sprintf("%s failed on %s", s.Function, run.Minion)
	default:
		a.Title = fmt.Sprintf("%s failed on %s, return code %d", s.Function, run.Minion, s.Retcode)
	}
	return standing(a), true
}

// OfDrift returns the alert about a run that found a minion changed although its files had not.
// states are the states that put the minion right, or would.
func OfDrift(run Run, states []summary.State) Alert {
	a := ofRun(rules.Drift, run, states)
	verb := "brought back"
	if run.Summary.Test {
		verb = "would bring back"
	}
	a.Title = fmt.Sprintf("%s had drifted: %s %s %d states", run.Minion, run.Summary.Function, verb, len(states))
	return standing(a)
}

// ofRun returns what alerts about runs have in common. Alerts with the same states have the same Key.
func ofRun(kind rules.Kind, run Run, states []summary.State) Alert {
	same := []string{string(kind), run.Minion, run.Summary.Function}
	var lines []string
	for _, s := range states {
		same = append(same, s.ID, s.Function)
		lines = append(lines, stateLine(s))
	}

	return Alert{
		ID:       Digest(string(kind), run.JID, run.Minion),
		Key:      Digest(same...),
		Kind:     kind,
		Time:     run.Time,
		Minion:   run.Minion,
		Function: run.Summary.Function,
		JID:      run.JID,
		User:     run.User,
		Lines:    lines,
	}
}

// stateLine returns a state on one line. It leaves out what the state changed, because that may show
// the content of a secret file, and messages go to other people's servers.
func stateLine(s summary.State) string {
	name := s.ID
	if s.Function != "" {
		name += " (" + s.Function + ")"
	}
	if name == "" {
		return s.Comment
	}
	return name + ": " + s.Comment
}
