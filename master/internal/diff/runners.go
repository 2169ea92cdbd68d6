package diff

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/runner"
	"saltern/master/target"
	"saltern/master/value"
)

// AddRunners adds the runners pillar.diff, top.diff and pillar.readers.
func AddRunners(t *runner.Table, s *Service) {
	for _, name := range []string{pillarDiff, topDiff} {
		s.addRunner(t, name)
	}
	t.Add(pillarReaders, s.runReaders)
}

// runReaders runs pillar.readers.
func (s *Service) runReaders(ctx context.Context, env *runner.Env, args []any, named *value.Map) (any, error) {
	q, err := questionOf(args, named)
	if err != nil {
		return nil, err
	}
	if err := s.refusePatterns(q.Request); err != nil {
		return nil, err
	}
	report, err := s.Readers(ctx, q, progressOf(env))
	if err != nil {
		return nil, err
	}
	if q.Form == "" {
		return report.Data(), nil
	}
	return value.NewMap("text", report.Text(q.Form == "colour"), "code", int64(report.Code())), nil
}

// refusePatterns returns an error if the target of a request has a pattern of pillar values, which is not one
// of the administrator's nodegroups: from the minions that it selects, the caller could guess a hidden value
// letter by letter.
func (s *Service) refusePatterns(r Request) error {
	term, found := target.OwnPillarPattern(r.Target, r.TargetType, ":", s.cfg.Fleet.Groups())
	if found {
		return fmt.Errorf("the target has a pattern of pillar values, %.100q, with which hidden values can be guessed; "+
			"name the whole value, or a nodegroup", term)
	}
	return nil
}

// progressOf returns a function that tells the caller of a runner what it waits for.
func progressOf(env *runner.Env) func(string) {
	return func(text string) {
		if env.Progress != nil {
			env.Progress(value.NewMap("message", text))
		}
	}
}

func (s *Service) addRunner(t *runner.Table, name string) {
	t.Add(name, func(ctx context.Context, env *runner.Env, args []any, named *value.Map) (any, error) {
		r, err := requestOf(name, args, named)
		if err != nil {
			return nil, err
		}
		if err := s.refusePatterns(r); err != nil {
			return nil, err
		}

		report, err := s.Compare(ctx, r, progressOf(env))
		if errors.Is(err, ErrNoRef) {
			return value.NewMap("text", err.Error()+"\n", "code", int64(codeUnable), "lacks_ref", true), nil
		}
		if err != nil {
			return nil, err
		}
		return report.answer(r)
	})
}

// answer returns the report in the form that a request asks for: data, or a text with its code.
func (r *Report) answer(asked Request) (any, error) {
	junit := ""
	if asked.WithJUnit || asked.Form == "junit" {
		var err error
		if junit, err = r.JUnit(); err != nil {
			return nil, err
		}
	}

	out := value.NewMap()
	switch {
	case asked.Form == "" && !asked.WithJUnit:
		return r.Data(), nil
	case asked.Form == "":
		out.Set("report", r.Data())
	case asked.Form == "junit":
		out.Set("text", junit)
	default:
		out.Set("text", r.Text(asked.Form == "colour"))
	}
	if asked.WithJUnit {
		out.Set("junit", junit)
	}
	out.Set("code", int64(r.Code())) // last: tools print the values in this order
	return out, nil
}
