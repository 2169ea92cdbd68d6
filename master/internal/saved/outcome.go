package saved

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/runner"
	"saltern/master/value"
)

// outcomeRunner is the runner by which users see the returns of their own jobs.
const outcomeRunner = "saved.outcome"

// addOutcome adds the runner saved.outcome. It returns what jobs.list_job returns, but only of a job that
// the caller has started, as saved.run starts jobs for him. Thus it shows him no more than the events that
// he may read.
func (s *Service) addOutcome(t *runner.Table) {
	const params = "jid"
	t.Add(outcomeRunner, func(ctx context.Context, env *runner.Env, args []any, named *value.Map) (any, error) {
		order := runner.OrderOf(ctx)
		if order.Minion != "" {
			return nil, errors.New("outcomes of saved jobs are not for minions")
		}

		c := call{by: order.By}
		err := c.bind(params, args, named)
		jid, isText := c.args["jid"].(string)
		if err == nil && (!isText || !jobs.Valid(jid)) {
			err = badf("jid must be the id of a job")
		}
		if err != nil {
			return nil, &runner.ArgumentError{Reason: err.Error(), Usage: runner.UsageOf(outcomeRunner, params)}
		}

		load, err := env.Jobs.Load(ctx, jid)
		if err != nil {
			return nil, fmt.Errorf("read the job %s: %w", jid, err)
		}
		// A user of one system is not the user of the same name of another one.
		system, user := load.Str(event.EauthField), load.Str("user")
		own := system != "" && system == c.by.Eauth && user != "" && user == userOf(c.by).Name
		if !own && !c.by.All && !c.by.Full {
			return nil, badf("there is no job %s that %s has started", jid, who(c.by))
		}

		got, err := t.Call(ctx, env, "jobs.list_job", []any{jid}, nil)
		if errors.Is(err, runner.ErrUnavailable) {
			return nil, errors.New("this master keeps its jobs with a returner, which saved.outcome does not read: ask an administrator")
		}
		return got, err
	})
}
