package glusterctl

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/glusterctl/cli"
)

// Event reports the progress of Apply.
type Event struct {
	Step Step
	// State is "start", "wait", "retry" or "done".
	State string
	// Text is what Apply waits for, or the reason why it repeats a step.
	Text string
}

// StepError is the failure of a step.
type StepError struct {
	Step Step
	Err  error
	Next string // advice for the administrator
}

func (e *StepError) Error() string {
	return fmt.Sprintf("%s: %v; next: %s", e.Step.What, e.Err, e.Next)
}

func (e *StepError) Unwrap() error { return e.Err }

// RefusedError means that a plan cannot be carried out completely.
type RefusedError struct{ Findings []Finding }

func (e *RefusedError) Error() string {
	var s []string
	for _, f := range e.Findings {
		s = append(s, fmt.Sprintf("%s (%s); next: %s", f.What, f.Code, f.Next))
	}
	return "storage: " + strings.Join(s, "; ")
}

// ErrNotApproved is wrapped by the error of Apply if the pool has changed since the plan was made,
// and a destructive step is needed that the approved plan does not contain.
var ErrNotApproved = errors.New("the step was not in the plan that was approved")

// maxRuns is how often one step may run without effect before Apply returns an error. Apply pauses
// between two runs.
const maxRuns = 3

// Apply carries out a plan. After each step it observes and plans again, so it can be stopped at
// any moment and called again. It uses plan only to decide which destructive steps are allowed. It
// returns nil when the desired state is reached, a [*RefusedError] if the remaining steps are not
// safe, and a [*StepError] if a step failed. Apply calls progress in the caller's goroutine.
// progress may be nil.
func (c *Controller) Apply(ctx context.Context, plan Plan, progress func(Event)) error {
	c.applying.Lock()
	defer c.applying.Unlock()
	if progress == nil {
		progress = func(Event) {}
	}

	a := &application{
		controller: c,
		desired:    plan.Desired,
		progress:   progress,
		approved:   map[string]bool{},
		runs:       map[string]int{},
	}
	for _, s := range plan.Steps {
		a.approved[s.ID] = true
	}

	for {
		obs, err := c.observe(ctx, a.desired, look{running: true})
		if err != nil {
			return fmt.Errorf("observe the pool: %w", err)
		}

		if a.healers != nil {
			obs.Processes = slices.DeleteFunc(obs.Processes,
				func(p cli.Process) bool { return p.Name == "" && !p.Online })
		}

		now := NewPlan(obs, a.desired)
		switch {
		case len(now.Steps) > 0:
			err = a.advance(ctx, now.Steps[0], obs)
		case len(now.Refused) > 0:
			return &RefusedError{now.Refused}
		default:
			return a.healers
		}

		if err != nil {
			return err
		}
	}
}

// application is one call of Apply.
type application struct {
	controller *Controller
	desired    Desired
	progress   func(Event)
	approved   map[string]bool // IDs of the steps in the approved plan
	runs       map[string]int  // how often each step has run, by ID

	last         string // ID of the step that ran last
	failing      string // ID of the step that is being repeated
	failingSince time.Time
	healers      error // error of self-heal daemons that did not start; nil: none so far
}

// advance runs the next step once, or waits before the step is repeated.
func (a *application) advance(ctx context.Context, s Step, obs *Observation) error {
	c := a.controller
	if s.ID == a.last {
		// glusterd reports success before a brick that glusterd has started registers with it:
		// observe again before the step runs again.
		a.last = ""
		return a.pauseBefore(ctx, s)
	}

	if s.Destructive && !a.approved[s.ID] {
		return &StepError{s, ErrNotApproved, "look at the new plan and approve it"}
	}

	if c.cfg.Lead != nil {
		if err := c.cfg.Lead(ctx); err != nil {
			return fmt.Errorf("this node may not change the pool now: %w", err)
		}
	}

	if s.ID != a.failing {
		a.progress(Event{s, "start", ""})
		c.cfg.Log.Info("storage step", "step", s.ID, "what", s.What, "why", s.Why)
	}

	err := c.runStep(ctx, a.desired, s, a.progress)
	switch {
	case ctx.Err() != nil:
		return stopped(s, ctx.Err())
	case err == nil:
		return a.stepDone(s, obs)
	}

	return a.stepFailed(ctx, s, obs, err)
}

func (a *application) stepDone(s Step, obs *Observation) error {
	a.failing = ""
	a.last = s.ID
	a.runs[s.ID]++
	if a.runs[s.ID] > maxRuns {
		return a.giveUp(obs, &StepError{s, errors.New("it ran several times without an effect"), nextFor(s, cli.Refused)})
	}

	a.progress(Event{s, "done", ""})
	return nil
}

func (a *application) stepFailed(ctx context.Context, s Step, obs *Observation, err error) error {
	c := a.controller
	kind := cli.KindOf(err)
	if s.ID != a.failing {
		a.failing = s.ID
		a.failingSince = c.cfg.Clock.Now()
	}

	if !c.retryStep(ctx, a.desired, s, kind, a.failingSince) {
		return a.giveUp(obs, &StepError{s, err, nextFor(s, kind)})
	}

	a.progress(Event{s, "retry", err.Error()})
	c.cfg.Log.Info("storage step is tried again", "step", s.ID, "error", err)
	return a.pauseBefore(ctx, s)
}

// giveUp returns the failure of a step, unless the step only starts self-heal daemons. In that case
// it returns nil, so that the other steps continue without the daemons.
func (a *application) giveUp(obs *Observation, failed *StepError) error {
	if startsBricks(failed.Step, obs) {
		return failed
	}

	a.healers = failed
	return nil
}

func (a *application) pauseBefore(ctx context.Context, s Step) error {
	if err := a.controller.pauseBetweenTries(ctx); err != nil {
		return stopped(s, err)
	}
	return nil
}

// startsBricks reports whether a step starts more than self-heal daemons. If only a self-heal
// daemon does not start, that must not keep nodes from joining, from leaving, or from getting
// another disk.
func startsBricks(s Step, obs *Observation) bool {
	return s.Kind != StartBricks || slices.ContainsFunc(obs.Volume.Bricks,
		func(b cli.Brick) bool { return slices.Contains(s.Targets, b.Name) })
}

// retryStep reports whether to try a failed step again. After a temporary refusal it returns true
// until RetryFor has passed since firstFailure. After any other refusal it observes the state, and
// returns true only if the step is no longer needed: the next plan then omits the step.
func (c *Controller) retryStep(ctx context.Context, d Desired, s Step, kind cli.Kind, firstFailure time.Time) bool {
	if kind.Retry() {
		return c.cfg.Clock.Now().Sub(firstFailure) < c.cfg.RetryFor
	}
	obs, err := c.Observe(ctx, d)
	return err == nil && !slices.ContainsFunc(NewPlan(obs, d).Steps, func(x Step) bool { return x.ID == s.ID })
}

// stopped returns the error of a step that was interrupted because ctx ended.
func stopped(s Step, err error) error {
	return &StepError{s, err, "run it again: what was done is kept"}
}

// pauseBetweenTries waits 1 to 3 s at random, so that two nodes do not always try at the same
// moments.
func (c *Controller) pauseBetweenTries(ctx context.Context) error {
	return c.cfg.Clock.Sleep(ctx, time.Second+time.Duration(c.cfg.Clock.Jitter()*float64(2*time.Second)))
}

// nextFor returns advice for the administrator after the failure of a step.
func nextFor(s Step, k cli.Kind) string {
	switch k {
	case cli.Busy:
		return "another change to the pool is running; when none is, wait three minutes for its lock to end, " +
			"then run this again"
	case cli.Waiting, cli.PoolUnknown:
		return "check with 'gluster pool list' that all members are connected, then run this again"
	case cli.DaemonDown:
		return "check 'systemctl status glusterd' and /var/log/glusterfs/glusterd.log on this node"
	case cli.Conflict:
		return "the other node belongs to another cluster, has volumes, or is a copy of this one: reset its " +
			"storage daemon, then run this again"
	case cli.BrickInUse:
		return "the brick directory was used before: give the member a fresh one, then run this again"
	case cli.RootDisk:
		return "the brick directory is on the root file system: give the member a data disk"
	}

	switch s.Kind {
	case StartBricks:
		return "look at /var/log/glusterfs on that node, at bricks and glustershd.log; if the disk of its " +
			"copy is lost, give the member a fresh brick directory"
	case WaitHeal:
		return "look at what does not heal: 'gluster volume heal " + s.volume() + " info'"
	case Mount:
		return "look at the client's log in /var/log/glusterfs on this node"
	}

	return "look at /var/log/glusterfs/glusterd.log on the nodes named, then run this again"
}

func (s Step) volume() string {
	if len(s.Command) > 2 && s.Command[0] == "volume" {
		return s.Command[2]
	}
	return "VOLUME"
}
