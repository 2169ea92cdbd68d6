package peers

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/master/event"
	"saltern/master/runner"
	"saltern/master/value"
)

const (
	// pausesDepth bounds the number of changes by other masters, and of answers of theirs, that wait.
	// Overflow policy: a further one is lost, and the master that asked reports that nobody has
	// confirmed the change.
	pausesDepth = 4096
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
type Pauses struct {
	cfg PausesConfig

	mu      sync.Mutex
	waiting map[string]chan *value.Map // by the field ask of an answer: who waits for it
}

// NewPauses returns Pauses. The caller must call Run.
func NewPauses(cfg PausesConfig) *Pauses {
	return &Pauses{cfg: cfg, waiting: map[string]chan *value.Map{}}
}

// Run performs the changes that other masters ask for, and passes on their answers, until ctx ends.
func (p *Pauses) Run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()

	// A disk that hangs holds up the changes, but not the answers.
	running.Go(func() { p.follow(ctx, event.TagRunPause, p.answer) })
	running.Go(func() { p.follow(ctx, event.TagRunPaused, p.pass) })
}

// follow calls handle with the data of the events of other masters with this tag, until ctx ends.
func (p *Pauses) follow(ctx context.Context, tag string, handle func(data *value.Map)) {
	sub := p.cfg.Bus.Subscribe(tag, pausesDepth, func(other string) bool { return other == tag })
	defer sub.Close()

	eachEvent(ctx, sub, func(e event.Event) {
		if e.Lost > 0 {
			p.cfg.Log.Error("pauses of orchestrations for which another master has asked are lost: too many at once",
				"tag", tag, "lost", e.Lost)
		}
		if event.MayOrder(e, event.RunPause) {
			handle(e.Data)
		}
	})
}

// pass passes an answer to the call that waits for it.
func (p *Pauses) pass(answer *value.Map) {
	p.mu.Lock()
	defer p.mu.Unlock()

	select {
	case p.waiting[answer.Str("ask")] <- answer:
	default: // nobody waits, or a master answers again and again
	}
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
	ask := rand.Text()
	answers := make(chan *value.Map, len(peers))
	p.mu.Lock()
	p.waiting[ask] = answers
	p.mu.Unlock()

	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, ask)
	}()

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
		var answer *value.Map
		select {
		case answer = <-answers:
		case <-ctx.Done():
			return notFound(change.JID, without, othersThan(without, peers))
		}

		peer := answer.Str("id")
		if answer.Bool("found") {
			if text := answer.Str("error"); text != "" {
				return fmt.Errorf("change the pauses of an orchestration on %s: %s", peer, text)
			}
			return nil
		}

		if _, known := peers[peer]; known && !slices.Contains(without, peer) {
			without = append(without, peer)
			silent = slices.DeleteFunc(silent, func(id string) bool { return id == peer })
		}
	}

	return notFound(change.JID, without, silent)
}

// othersThan returns the peers that are not in the list.
func othersThan(list []string, peers map[string]bool) (others []string) {
	for peer := range peers {
		if !slices.Contains(list, peer) {
			others = append(others, peer)
		}
	}
	return others
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
