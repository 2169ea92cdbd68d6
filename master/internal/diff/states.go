package diff

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"saltern/master/internal/gitfs"
	"saltern/master/internal/gitremote"
	"saltern/master/internal/pillar"
	"saltern/master/value"
)

// StateFiles are the sources of the files for minions.
type StateFiles struct {
	Roots    map[string][]string // file_roots; nil: the backend roots is not used
	Git      *gitfs.Backend      // nil: gitfs is not used
	GitFirst bool                // gitfs comes before roots in fileserver_backend
	Options  pillar.States
}

// stateSide adds the compiler of states to a side. cfg is the configuration of its pillars.
func (s *Service) stateSide(ctx context.Context, r Request, what What, copied string, cfg pillar.Config, side *side) error {
	files := s.cfg.States
	env := cmp.Or(r.Env, r.Saltenv, "base")
	roots := maps.Clone(files.Roots)
	if roots == nil {
		roots = map[string][]string{}
	}

	compare := &pillar.Compare{Confined: !s.cfg.Trusted, States: &files.Options, Hide: s.names.hide}
	if copied != "" {
		roots[env] = []string{copied}
		compare.Untrusted = []string{copied}
	}
	if files.Git != nil {
		pinned, err := files.Git.Pin(ctx, env, gitremote.Pin{Ref: what.Ref, Remote: r.Remote, Into: r.Into})
		if err != nil {
			return fmt.Errorf("compare %s: %w", what, err)
		}
		side.git = pinned
		side.release = append(side.release, pinned.Release)
		side.refs += len(pinned.Refs)
		compare.Untrusted = append(compare.Untrusted, pinned.Refs...)
		if files.GitFirst {
			roots[env] = append(slices.Clone(pinned.Dirs), roots[env]...)
		} else {
			roots[env] = append(slices.Clone(roots[env]), pinned.Dirs...)
		}
	}

	cfg.Roots = roots
	cfg.Compare = compare
	cfg.ExtPillar = nil
	cfg.ExtPillarFirst = false
	cfg.Git = nil
	cfg.Strategy = "recurse"
	cfg.MergeLists = false
	cfg.IncludesOverride = false
	cfg.Pillarenv = r.Saltenv // the environment whose top file counts alone
	cfg.PillarenvFromEnv = false
	side.states = pillar.New(cfg)
	return nil
}

// states compares the states of one minion.
func (c *comparison) states(ctx context.Context, req pillar.Request) (*findings, []refusal, error) {
	before, after, ofPillars, err := c.pillarOutcomes(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	for i := range ofPillars {
		ofPillars[i].ofPillar = true
	}

	req.Pillarenv = "" // the compiler of states has its own
	pillars := map[*side]*value.Map{c.from: before.Pillar, c.to: after.Pillar}
	from, to, refused, err := c.outcomes(func(s *side, skip map[pillar.FileKey]bool) (*pillar.Outcome, error) {
		return s.states.Outcome(ctx, req, pillars[s], skip)
	})
	if err != nil {
		return nil, nil, err
	}

	from.Pillar = declarations(from.Pillar)
	to.Pillar = declarations(to.Pillar)
	refused = append(ofPillars, refused...)
	return c.findChanges(from, to, refused, before, after), refused, nil
}

// declarations returns states with the arguments of each function as a map, for a comparison one by
// one.
func declarations(states *value.Map) *value.Map {
	out := value.NewMap()
	for id, body := range states.All() {
		if fun, short := body.(string); short { // a function without arguments
			body = value.NewMap(fun, []any{})
		}
		m, ok := body.(*value.Map)
		if !ok {
			out.Set(id, body)
			continue
		}
		byFunction := value.NewMap()
		for fun, args := range m.All() {
			byFunction.Set(fun, byName(args))
		}
		out.Set(id, byFunction)
	}
	return out
}

// byName returns a list of maps with one key each as one map, and any other value as it is.
func byName(args any) any {
	list, ok := args.([]any)
	if !ok {
		return args
	}

	out := value.NewMap()
	for _, arg := range list {
		if name, isText := arg.(string); isText {
			arg = value.NewMap(name, nil)
		}
		m, ok := arg.(*value.Map)
		if !ok || m.Len() != 1 {
			return args
		}
		for k, v := range m.All() {
			if _, twice := out.GetAny(k); twice {
				return args
			}
			out.Set(k, v)
		}
	}
	return out
}
