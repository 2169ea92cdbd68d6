package peers

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"saltern/master/event"
	"saltern/master/runner"
	"saltern/master/value"
)

const (
	// pausesDepth bounds the number of changes by other masters that wait. Overflow policy: a
	// further change is lost, and the master that asked reports that nobody has confirmed it.
	pausesDepth = 256
	// pauseAnswers is how long a master waits for the others' answers to a change.
	pauseAnswers = 5 * time.Second
)

// PausesConfig configures Pauses. All fields are required.
type PausesConfig struct {
	ID   string // of this master
	Bus  *event.Bus
	Fire func(tag string, data *value.Map)
	// Peers returns the ids of the other masters, and whether each is connected.
	Peers func() map[string]bool
	// Change changes the pauses of a job that is in progress on this master, and reports whether it
	// is.
	Change func(runner.PauseChange) (found bool, err error)
	Log    *slog.Logger
}

// Pauses passes changes of the pauses of orchestrations to the master that runs them. A change is an
// event to all masters; each answers by an event whether it runs the job and has stored the change.
// A change that is stored twice is as one. It is safe for concurrent use.
type Pauses struct{ cfg PausesConfig }

// NewPauses returns Pauses. The caller must call Run.
func NewPauses(cfg PausesConfig) *Pauses { return &Pauses{cfg} }

// Run performs the changes that other masters ask for, until ctx ends.
func (p *Pauses) Run(ctx context.Context) {
	sub := p.cfg.Bus.Subscribe("pauses of orchestrations", pausesDepth,
		func(tag string) bool { return tag == event.TagRunPause })
	defer sub.Close()

	eachEvent(ctx, sub, func(e event.Event) {
		if e.Lost > 0 {
			p.cfg.Log.Error("pauses of orchestrations for which another master has asked are lost: too many at once",
				"lost", e.Lost)
		}
		if event.MayOrder(e, event.RunPause) {
			p.answer(e.Data)
		}
	})
}

// answer performs the change in the event of another master, and fires the answer.
func (p *Pauses) answer(data *value.Map) {
	seconds, _ := data.Int("seconds")
	change := runner.PauseChange{
		JID:     data.Str("jid"),
		Action:  runner.PauseAction(data.Str("action")),
		Step:    data.Str("step"),
		Seconds: seconds,
	}

	found, err := p.cfg.Change(change)
	if found && err == nil {
		p.cfg.Log.Info("the pauses of an orchestration were changed as another master asked", "jid", change.JID,
			"action", change.Action, "step", change.Step)
	}

	reply := value.NewMap("id", p.cfg.ID, "ask", data.Str("ask"), "found", found)
	if err != nil {
		p.cfg.Log.Error("the pause of an orchestration cannot be stored", "jid", change.JID, "error", err)
		reply.Set("error", err.Error())
	}
	p.cfg.Fire(event.TagRunPaused, reply)
}

// ChangePauses implements runner.PausesElsewhere.
func (p *Pauses) ChangePauses(ctx context.Context, change runner.PauseChange) error {
	ctx, cancel := context.WithTimeout(ctx, pauseAnswers)
	defer cancel()

	peers := p.cfg.Peers()
	sub := p.cfg.Bus.Subscribe("answers to a pause", len(peers)+pausesDepth,
		func(tag string) bool { return tag == event.TagRunPaused })
	defer sub.Close()

	ask := rand.Text()
	p.cfg.Fire(event.TagRunPause, value.NewMap(
		"ask", ask,
		"jid", change.JID,
		"action", string(change.Action),
		"step", change.Step,
		"seconds", change.Seconds,
	))

	var without, silent []string // masters that do not run the job, and those that have not answered
	for peer, connected := range peers {
		if !connected {
			silent = append(silent, peer)
		}
	}

	for len(without)+len(silent) < len(peers) {
		e, ok := nextEvent(ctx, sub)
		if !ok {
			break
		}

		peer := e.Data.Str("id")
		_, known := peers[peer]
		mine := known && event.MayOrder(e, event.RunPause) && e.Data.Str("ask") == ask
		switch {
		case !mine || slices.Contains(without, peer):
		case !e.Data.Bool("found"):
			without = append(without, peer)
			silent = slices.DeleteFunc(silent, func(id string) bool { return id == peer })
		case e.Data.Str("error") != "":
			return fmt.Errorf("change the pauses of an orchestration on %s: %s", peer, e.Data.Str("error"))
		default:
			return nil
		}
	}

	for peer := range peers {
		if !slices.Contains(without, peer) && !slices.Contains(silent, peer) {
			silent = append(silent, peer)
		}
	}

	return notFound(change.JID, without, silent)
}

// nextEvent waits for the next event of a subscription. It returns false when ctx or the subscription
// ends.
func nextEvent(ctx context.Context, sub *event.Subscription) (event.Event, bool) {
	select {
	case e, ok := <-sub.C:
		return e, ok
	case <-ctx.Done():
		return event.Event{}, false
	}
}

// notFound returns the error for a job that no master says it runs.
func notFound(jid string, without, silent []string) error {
	slices.Sort(without)
	slices.Sort(silent)
	text := "no orchestration with the job id " + jid + " is at work on this master"
	if len(without) > 0 {
		text += ", or on " + strings.Join(without, ", ")
	}
	if len(silent) > 0 {
		text += "; not known of " + strings.Join(silent, ", ") + ", which did not answer: ask again, or there"
	}
	return fmt.Errorf("%s; salt-run jobs.master lists those that are, on each master of a cluster its own", text)
}
