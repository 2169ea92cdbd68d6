package peers

import (
	"context"
	"fmt"
	"strings"

	"saltern/master/event"
	"saltern/master/runner"
	"saltern/master/value"
)

// PausesConfig configures Pauses. All fields are required.
type PausesConfig struct {
	Others
	// Change changes the pauses of a job that is in progress on this master, and reports whether it
	// is.
	Change func(runner.PauseChange) (found bool, err error)
}

// Pauses passes changes of the pauses of orchestrations to the master that runs them, which answers
// when it has stored the change. A change that is stored twice is as one. It is safe for concurrent
// use.
type Pauses struct {
	inquiry
	change func(runner.PauseChange) (found bool, err error)
}

// NewPauses returns Pauses. The caller must call Run.
func NewPauses(cfg PausesConfig) *Pauses {
	p := &Pauses{change: cfg.Change}
	changes := newLane(1) // in the order of their arrival
	p.inquiry = inquiry{
		Others:    cfg.Others,
		questions: event.TagRunPause,
		answers:   event.TagRunPaused,
		order:     event.RunPause,
		answer:    p.answer,
		lane:      func(*value.Map) *lane { return changes },
		lanes:     []*lane{changes},
		waiting:   map[string]chan *value.Map{},
	}
	return p
}

// answer performs the change in the question of another master.
func (p *Pauses) answer(_ context.Context, data *value.Map) *value.Map {
	seconds, _ := data.Int("seconds")
	change := runner.PauseChange{
		JID:     data.Str("jid"),
		Action:  runner.PauseAction(data.Str("action")),
		Step:    data.Str("step"),
		Seconds: seconds,
	}

	found, err := p.change(change)
	if found && err == nil {
		p.Log.Info("the pauses of an orchestration were changed as another master asked", "jid", change.JID,
			"action", change.Action, "step", change.Step)
	}

	reply := value.NewMap("found", found)
	if err != nil {
		p.Log.Error("the pause of an orchestration cannot be stored", "jid", change.JID, "error", err)
		reply.Set("error", err.Error())
	}
	return reply
}

// ChangePauses implements runner.PausesElsewhere.
func (p *Pauses) ChangePauses(ctx context.Context, change runner.PauseChange) error {
	o := p.ask(ctx, value.NewMap(
		"jid", change.JID,
		"action", string(change.Action),
		"step", change.Step,
		"seconds", change.Seconds,
	), "")
	if o.found == nil {
		return noOrchestration(change.JID, o)
	}
	if text := o.found.Str("error"); text != "" {
		return fmt.Errorf("change the pauses of an orchestration on %s: %s", o.found.Str("id"), text)
	}
	return nil
}

// noOrchestration returns the error for a job that no master says it runs.
func noOrchestration(jid string, o outcome) error {
	text := "no orchestration with the job id " + jid + " is at work on this master"
	if len(o.without) > 0 {
		text += ", or on " + strings.Join(o.without, ", ")
	}
	if len(o.silent) > 0 {
		text += "; not known of " + strings.Join(o.silent, ", ") + ", which did not answer, and may have changed it: ask again, or there"
	}
	return fmt.Errorf("%s; salt-run jobs.master lists those that are, on each master of a cluster its own", text)
}
