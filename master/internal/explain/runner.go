package explain

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"saltern/internal/control"
	"saltern/master/internal/appliance"
	"saltern/master/runner"
	"saltern/master/value"
)

const usage = "salt-run fleet.explain MINION [key=A:B] [user=NAME fun=FUNCTION] [ask=False]"

// AddRunner adds the runner fleet.explain, which Salt does not have. It returns the
// [control.Explanation] as a map.
func (s *Service) AddRunner(t *runner.Table) {
	t.Add("fleet.explain", func(ctx context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
		q, err := questionOf(args, named)
		var found control.Explanation
		if err == nil {
			found, err = s.Explain(ctx, q)
		}
		if errors.Is(err, ErrArgument) {
			return nil, &runner.ArgumentError{Reason: err.Error(), Usage: usage}
		}
		if err != nil {
			return nil, err
		}
		return appliance.Value(found)
	})
}

// questionOf reads the arguments of the runner.
func questionOf(args []any, named *value.Map) (q control.ExplainQuestion, err error) {
	texts := map[string]*string{"minion": &q.Minion, "key": &q.Key, "user": &q.User, "fun": &q.Function}
	given := named.Clone()
	if len(args) > 1 {
		return q, fmt.Errorf("%w: only the id of the minion is given by position", ErrArgument)
	}
	if len(args) == 1 {
		given.Set("minion", args[0])
	}

	for k, v := range given.All() {
		name, _ := k.(string)
		text, known := texts[name]
		switch {
		case strings.HasPrefix(name, "__"), v == nil:
		case name == "ask":
			ask, ok := truthOf(v)
			if !ok {
				return q, fmt.Errorf("%w: ask is True or False", ErrArgument)
			}
			q.Silent = !ask
		case !known:
			return q, fmt.Errorf("%w: unexpected keyword argument '%.40s'", ErrArgument, name)
		default:
			if *text, err = runner.TextArgument(name, v); err != nil {
				return q, fmt.Errorf("%w: %w", ErrArgument, err)
			}
		}
	}
	return q, nil
}

// truthOf reads True or False, which is a text in the query of the API.
func truthOf(v any) (truth, ok bool) {
	if truth, ok = v.(bool); ok {
		return truth, true
	}
	text, _ := v.(string)
	switch strings.ToLower(text) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}
