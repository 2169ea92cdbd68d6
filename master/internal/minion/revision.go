package minion

import (
	"context"
	"time"

	"saltern/master/history/summary"
	"saltern/master/internal/request"
	"saltern/master/jobs"
	"saltern/master/keys"
	"saltern/master/value"
)

// Revisions tells which revision of the files a minion was served during a run, or "".
type Revisions interface {
	// Latest answers from memory, and may miss a change of the last seconds.
	Latest(began time.Time) string
	// Served looks at the files first.
	Served(ctx context.Context, began time.Time) string
}

// preparation is how long before its first state a run of salt-call may have begun to read files.
const preparation = time.Minute

// withRevision adds the revision of the files to the load of a return, if the return is of a state
// run. adopted means that the job was made for the return, so its id does not tell when the run
// began. Only the master that took the return can tell the revision: the others of the cluster get
// it with the return. withRevision sets the field in a copy: others get the load itself as an event.
//
// The revision counts when two runs are compared, and a wrong one must not make a change of the
// files look like a change of the minion. So withRevision looks at the files after a run that changed
// something; for the others the last look is good enough.
//
// A minion below a syndic is served by a lower master, whose files this master does not know. Such a minion
// has no accepted key here.
func (s *Service) withRevision(ctx context.Context, c *request.Call, adopted bool) *value.Map {
	load := c.Load
	load.Delete(summary.RevisionField) // minions do not know it
	states := statesOf(load)
	if s.cfg.Revisions == nil || len(states) == 0 {
		return load
	}
	if key, known := s.cfg.Keys.Lookup(c.ID); !known || key.State != keys.Accepted {
		return load
	}

	millis := 0.0
	changed := false
	for _, v := range states {
		state, _ := v.(*value.Map)
		d, _ := state.Value("duration").(float64)
		millis += max(d, 0)
		result, hasResult := state.Get("result")
		changed = changed || hasResult && (result == nil || value.Truth(state.Value("changes")))
	}

	began := s.cfg.Now().Add(-preparation - time.Duration(min(millis, 1e9)*float64(time.Millisecond)))
	if started, err := jobs.Time(load.Str("jid")); err == nil && !adopted && started.Before(s.cfg.Now()) {
		began = started
	}

	revision := ""
	if changed {
		revision = s.cfg.Revisions.Served(ctx, began)
	} else {
		revision = s.cfg.Revisions.Latest(began)
	}
	if revision == "" {
		return load
	}
	load = load.Clone()
	load.Set(summary.RevisionField, revision)
	return load
}

// statesOf returns the states in a return, of each function that runs states if there are several.
func statesOf(load *value.Map) (states []any) {
	answers := load.Value("return")
	_, one := load.Value("fun").(string)
	for i, function := range summary.Functions(load) {
		if !summary.RunsStates(function) {
			continue
		}
		answer := answers
		if !one {
			answer = summary.AnswerOf(answers, function, i)
		}
		if found, ok := answer.(*value.Map); ok {
			for _, state := range found.All() {
				states = append(states, state)
			}
		}
	}
	return states
}
