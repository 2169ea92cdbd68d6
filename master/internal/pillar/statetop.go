package pillar

import (
	"cmp"
	"slices"

	"saltern/master/value"
)

// mergeStateTops merges the top files of states as a minion does (salt/state.py merge_tops). Its
// three strategies differ in which sections of which file count.
func (c *compilation) mergeStateTops(envs []string, files map[string][]*value.Map) (*topFile, error) {
	states := c.compiler.cfg.Compare.States
	top := &topFile{targets: map[string][]*chosen{}}
	for _, from := range envs {
		for _, file := range files[from] {
			if err := addSections(top, file, from, states.Merging); err != nil {
				return nil, err
			}
		}
	}

	if states.Merging == "same" {
		return top, c.addDefaultTop(top, envs, files[cmp.Or(states.DefaultTop, "base")])
	}
	return top, nil
}

// addSections adds the sections of a top file that count. With the strategy merge a section of
// another environment's top file counts only if no file before it has that section.
func addSections(top *topFile, file *value.Map, from, merging string) error {
	had := slices.Clone(top.envs)
	for k, body := range file.All() {
		env, ok := k.(string)
		switch {
		case !ok || env == "include":
			continue
		case merging == "merge_all":
		case merging == "same" && env != from:
			continue
		case merging != "same" && from != "base" && (env != from || slices.Contains(had, env)):
			continue
		}
		if err := addSection(top, env, body, merging == "merge_all"); err != nil {
			return err
		}
	}
	return nil
}

// addDefaultTop adds the sections of the default top file for environments without a top file.
func (c *compilation) addDefaultTop(top *topFile, having []string, files []*value.Map) error {
	for _, env := range c.envNames() {
		if slices.Contains(having, env) {
			continue
		}
		for _, file := range files {
			if body, ok := file.Get(env); ok {
				if err := addSection(top, env, body, false); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// addSection adds the targets of one section. With join the SLS of a target that is there already
// are kept.
func addSection(top *topFile, env string, body any, join bool) error {
	targets, ok := body.(*value.Map)
	if !ok {
		if emptyIterable(body) {
			return nil
		}
		return errTop
	}

	for target, list := range targets.All() {
		if one, isText := list.(string); isText {
			list = []any{one}
		}
		ch, _, err := choose(target, list)
		if err != nil {
			return err
		}

		i := slices.IndexFunc(top.targets[env], func(old *chosen) bool { return old.target == ch.target })
		if join && i >= 0 {
			old := top.targets[env][i]
			ch.sls = append(slices.Clone(old.sls), slices.DeleteFunc(ch.sls, func(s string) bool {
				return slices.Contains(old.sls, s)
			})...)
			if ch.typ == "compound" {
				ch.typ = old.typ
			}
		}
		top.setTarget(env, ch)
	}
	return nil
}
