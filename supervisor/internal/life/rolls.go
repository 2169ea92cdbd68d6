package life

import (
	"context"
	"fmt"
	"sync"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/options"
)

// rolls gives all nodes the master's options, one roll at a time. A roll goes on when whoever
// asked for it is gone; it ends with this life, and may then be begun again.
type rolls struct {
	env     child.Env
	own     options.Node
	cluster optionsCluster // nil: this node is alone
	asked   chan rollRequest

	mu   sync.Mutex
	last options.Progress
	from time.Time // of last
}

type rollRequest struct {
	api.ApplyRequest
	taken chan error
}

// optionsCluster is what a roll needs of the other nodes: [member.Verbs].
type optionsCluster interface {
	Targets() []options.Target
	OptionsTurn() options.Turn
}

// newRolls returns the rolls that this node drives. cluster may be nil: the node is alone.
func newRolls(env child.Env, own options.Node, cluster optionsCluster) *rolls {
	return &rolls{env: env, own: own, cluster: cluster, asked: make(chan rollRequest)}
}

// maxSteps bounds what is kept of one roll: a few lines for each of 64 nodes.
const maxSteps = 1000

// Apply begins a roll. It is refused with [api.ErrState] while another one is under way.
func (r *rolls) Apply(ctx context.Context, q api.ApplyRequest) error {
	if q.Limit < options.MinLimit || q.Limit > options.MaxLimit {
		return fmt.Errorf("%w: a master is given %s to %s to serve, not %s", api.ErrState, options.MinLimit,
			options.MaxLimit, q.Limit)
	}

	ask := rollRequest{q, make(chan error, 1)}
	select {
	case r.asked <- ask:
		return <-ask.taken
	default:
	}

	r.mu.Lock()
	running, from := r.last.Running, r.from
	r.mu.Unlock()

	if running {
		return fmt.Errorf("%w: this node has the masters take new options already, since %s; it goes on: try again when it is done",
			api.ErrState, from.UTC().Format("15:04:05 UTC"))
	}

	select { // the loop is between two of them
	case r.asked <- ask:
		return <-ask.taken
	case <-ctx.Done():
		return fmt.Errorf("begin to apply the options: %w", ctx.Err())
	}
}

// Applying returns how far the roll is.
func (r *rolls) Applying() options.Progress {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.last
	p.Schema = options.Schema
	p.Lines = append([]string{}, p.Lines...)
	return p
}

// run makes the rolls that are asked for until ctx ends.
func (r *rolls) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-r.asked:
			r.mu.Lock()
			r.last, r.from = options.Progress{Running: true}, r.env.Now()
			r.mu.Unlock()

			q.taken <- nil
			out := r.roll(q.ApplyRequest).Run(ctx)
			r.env.Log.Info("the master's options were applied to the nodes", "result", string(out.Code),
				"reason", out.Cause)
			r.mu.Lock()
			r.last.Running, r.last.Result = false, &out
			r.mu.Unlock()
		}
	}
}

func (r *rolls) roll(q api.ApplyRequest) *options.Roll {
	out := &options.Roll{
		Limit: q.Limit,
		Force: q.Force,
		Dry:   q.Dry,
		Now:   r.env.Now,
		Tell: func(line string) {
			r.env.Log.Info("apply the master's options", "step", line)
			r.mu.Lock()
			defer r.mu.Unlock()
			if len(r.last.Lines) < maxSteps {
				r.last.Lines = append(r.last.Lines, line)
			}
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
