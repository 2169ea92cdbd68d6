package diff

import (
	"context"
	"errors"

	"saltern/master/runner"
	"saltern/master/value"
)

// AddRunners adds the runners pillar.diff and top.diff.
func AddRunners(t *runner.Table, s *Service) {
	for _, name := range []string{pillarDiff, topDiff} {
		s.addRunner(t, name)
	}
}

func (s *Service) addRunner(t *runner.Table, name string) {
	t.Add(name, func(ctx context.Context, env *runner.Env, args []any, named *value.Map) (any, error) {
		r, err := requestOf(name, args, named)
		if err != nil {
			return nil, err
		}

		report, err := s.Compare(ctx, r, func(text string) {
			if env.Progress != nil {
				env.Progress(value.NewMap("message", text))
			}
		})
		if errors.Is(err, ErrNoRef) {
			return value.NewMap("text", err.Error()+"\n", "code", int64(codeUnable), "lacks_ref", true), nil
		}
		if err != nil {
			return nil, err
		}
		return report.in(r.Form)
	})
}

// in returns the report in a form: data, or a text with its code.
func (r *Report) in(form string) (any, error) {
	text := ""
	switch form {
	case "":
		return r.Data(), nil
	case "junit":
		var err error
		if text, err = r.JUnit(); err != nil {
			return nil, err
		}
	default:
		text = r.Text(form == "colour")
	}
	return value.NewMap("text", text, "code", int64(r.Code())), nil
}
