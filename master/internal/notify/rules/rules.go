package rules

import (
	"slices"
	"strings"
	"time"

	"saltern/master/history/summary"
	"saltern/master/pattern"
)

// Kind is what a message is about.
type Kind string

// The kinds.
const (
	Failed Kind = "failed" // the run of a function failed on a minion
	Drift  Kind = "drift"  // a minion had changed although its files had not
	Gone   Kind = "gone"   // a minion has not been connected for Rule.GoneFor
	Deaf   Kind = "deaf"   // a minion is connected and has not answered for Rule.DeafFor
	Key    Kind = "key"    // a new key waits to be accepted
	Node   Kind = "node"   // a node of the cluster has a problem with a code
	Test   Kind = "test"   // somebody tries a rule by notify.test
)

// kinds are the kinds that a rule may name.
var kinds = []Kind{Failed, Drift, Gone, Deaf, Key, Node}

// IsKind reports whether a rule may name a kind.
func IsKind(kind Kind) bool { return slices.Contains(kinds, kind) }

// Bounds and defaults of a rule.
const (
	maxRules        = 32
	maxDestinations = 8 // of one rule
	maxPatterns     = 256
	maxName         = 64 // bytes

	defaultDedupe = time.Hour
	defaultGone   = 15 * time.Minute
	defaultDeaf   = 10 * time.Minute
	defaultLimit  = 60
	// shortestAbsence bounds GoneFor and DeafFor from below. Masters look every LookEvery, and tell
	// each other what they saw, so that a minion that moves to another master is not gone.
	shortestAbsence = 6 * LookEvery
)

// LookEvery is the time from one look at connections, keys and problems to the next.
const LookEvery = 20 * time.Second

// Rule is one entry of the option.
type Rule struct {
	Name      string // unique; "rule1" for the first entry if it has no name
	On        []Kind
	Minions   []string // globs; empty: all minions
	Functions []string // globs; empty: all functions
	Codes     []string // globs of codes of problems; empty: all that are more than a notice
	// Target selects minions in addition to Minions. It may be nil: it selects all.
	Target     any
	TargetType string
	GoneFor    time.Duration
	DeafFor    time.Duration
	Dedupe     time.Duration // 0: no message is left out as a repetition
	Quiet      Quiet
	Limit      int // messages an hour to each destination
	To         []Destination
}

// Subject has the facts by which a rule selects alerts.
type Subject struct {
	Kind     Kind
	Minion   string // "" if the message is about no minion
	Function string
	Code     string
	Notice   bool          // the problem is only a notice
	After    time.Duration // of Gone and Deaf: after how long
}

// Matches reports whether the rule is about a subject. It does not look at Target.
func (r *Rule) Matches(s Subject) bool {
	if s.Kind == Test || !slices.Contains(r.On, s.Kind) {
		return false
	}

	switch s.Kind {
	case Gone:
		if s.After != r.GoneFor {
			return false
		}
	case Deaf:
		if s.After != r.DeafFor {
			return false
		}
	case Node:
		if len(r.Codes) == 0 {
			return !s.Notice
		}
		return globs(r.Codes, s.Code)
	case Failed, Drift:
		if len(r.Functions) > 0 && !r.hasFunction(s.Function) {
			return false
		}
	}

	return len(r.Minions) == 0 || globs(r.Minions, s.Minion)
}

// hasFunction reports whether one of the globs of functions matches a function, or one of several that are separated
// by commas. They match a list of them that is cut off: the message would be lost otherwise.
func (r *Rule) hasFunction(function string) bool {
	isCut := strings.Contains(function, ",") && strings.HasSuffix(function, "…")
	return isCut || summary.AnyFunction(function, func(one string) bool { return globs(r.Functions, one) })
}

func globs(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool { return pattern.Glob(p, name) })
}

// Rules are all entries of the option.
type Rules []Rule

// Matches reports whether any rule is about a subject.
func (all Rules) Matches(s Subject) bool {
	return slices.ContainsFunc(all, func(r Rule) bool { return r.Matches(s) })
}

// Has reports whether any rule names a kind.
func (all Rules) Has(kind Kind) bool {
	return slices.ContainsFunc(all, func(r Rule) bool { return slices.Contains(r.On, kind) })
}

// Absences returns the different times after which a minion counts as gone, or as deaf.
func (all Rules) Absences(kind Kind) (times []time.Duration) {
	for _, r := range all {
		after := r.GoneFor
		if kind == Deaf {
			after = r.DeafFor
		}
		if slices.Contains(r.On, kind) && !slices.Contains(times, after) {
			times = append(times, after)
		}
	}
	slices.Sort(times)
	return times
}
