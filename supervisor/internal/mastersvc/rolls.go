package mastersvc

import (
	"context"
	"errors"
	"fmt"

	"saltern/supervisor/api"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/options"
	"saltern/supervisor/roll"
)

// Rolls drives rolling changes that make all nodes load the master's options, one change at a time.
// A change continues after its caller has returned. It ends with this life of the node, and may
// then be started again.
type Rolls struct {
	env     child.Env
	own     options.Node
	cluster OptionsCluster // reaches the other nodes; nil: this node has no cluster
	driver  *roll.Driver[options.Result]
}

// OptionsCluster reaches the other nodes for a rolling change of options. [member.Verbs] implements
// it.
type OptionsCluster interface {
	Targets() []options.Target
	OptionsTurn() options.Turn
}

// NewRolls returns the driver of the rolling changes that start at this node. cluster may be nil:
// the node is in no cluster.
func NewRolls(env child.Env, own options.Node, cluster OptionsCluster) *Rolls {
	return &Rolls{env: env, own: own, cluster: cluster, driver: roll.NewDriver[options.Result](env.Now)}
}

// Apply starts a rolling change. It returns [api.ErrState] while another one is running.
func (r *Rolls) Apply(ctx context.Context, q api.ApplyRequest) error {
	if q.Limit < options.MinLimit || q.Limit > options.MaxLimit {
		return fmt.Errorf("%w: a master is given %s to %s to serve, not %s", api.ErrState, options.MinLimit,
			options.MaxLimit, q.Limit)
	}

	_, err := r.driver.Begin(ctx, roll.Roll[options.Result]{
		Make: func(ctx context.Context, note func(string)) options.Result {
			out := r.newRoll(q, note).Run(ctx)
			r.env.Log.Info("the master's options were applied to the nodes", "result", string(out.Code),
				"reason", out.Cause)
			return out
		},
	})
	switch {
	case errors.Is(err, roll.ErrRunning):
		return fmt.Errorf("%w: this node has the masters take new options already, since %s; it goes on: try again when it is done",
			api.ErrState, r.driver.Progress().Since.UTC().Format("15:04:05 UTC"))
	case err != nil:
		return fmt.Errorf("begin to apply the options: %w", err)
	}
	return nil
}

// Applying returns the progress of the rolling change.
func (r *Rolls) Applying() options.Progress {
	p := r.driver.Progress()
	return options.Progress{Schema: options.Schema, Running: p.Running, Lines: p.Lines, Result: p.Result}
}

// Run carries out the rolling changes that Apply starts, until ctx ends.
func (r *Rolls) Run(ctx context.Context) { r.driver.Run(ctx) }

// newRoll returns the rolling change over all nodes that q requests. note records its steps.
func (r *Rolls) newRoll(q api.ApplyRequest, note func(string)) *options.Roll {
	out := &options.Roll{
		Limit: q.Limit,
		Force: q.Force,
		Dry:   q.Dry,
		Now:   r.env.Now,
		Tell: func(step string) {
			r.env.Log.Info("apply the master's options", "step", step)
			note(step)
		},
	}

	if r.cluster != nil {
		if out.Targets = r.cluster.Targets(); len(out.Targets) > 0 {
			out.Turn = r.cluster.OptionsTurn()
		}
	}

	out.Targets = append(out.Targets, options.Target{Name: r.env.Settings.Node, Node: r.own})
	return out
}
