package runner

import (
	"slices"

	"saltern/master/keys"
	"saltern/master/value"
)

// pillarDefs returns the runners of Salt's module pillar. Sources: salt/runners/pillar.py,
// salt/utils/minions.py get_minion_data.
func pillarDefs() map[string]def {
	return map[string]def{
		"pillar.show_top":           {"minion= saltenv=", pillarTop},
		"pillar.show_pillar":        {"minion= **", pillarShow},
		"pillar.clear_pillar_cache": {"minion= **", pillarClearCache},
		"pillar.show_pillar_cache":  {"minion= **", pillarShowCache},
	}
}

// anyMinion is the argument of pillar.show_pillar for a pillar of no certain minion.
const anyMinion = "*"

// checkMinion returns an error unless an argument may be used as the id of a minion in paths and in
// commands of ext_pillar, which get ids without quotes. An id that a shell may not take for plain text
// is one of an accepted key: who may call a runner cannot choose it.
func (c *call) checkMinion(id string) error {
	if id == anyMinion || keys.IsPlainID(id) {
		return nil
	}
	if err := keys.ValidID(id); err != nil {
		return &ArgumentError{Reason: "minion: " + err.Error()}
	}
	if c.Keys == nil || !slices.Contains(c.Keys.Accepted(), id) {
		return &ArgumentError{Reason: "minion: no accepted key has this id, and it has characters that a shell may obey; see salt-key -L"}
	}
	return nil
}

func pillarTop(c *call) (any, error) {
	if err := requirePart("pillar", c.Pillar == nil); err != nil {
		return nil, err
	}

	id := c.textArgument("minion")
	if err := c.checkMinion(id); id != "" && err != nil {
		return nil, err
	}

	grains := &value.Map{}
	if c.Cache != nil {
		if id != "" {
			grains, _ = c.Cache.Get("grains", id)
		} else if ids, err := c.Cache.IDs("grains"); err == nil {
			for _, any := range ids {
				if m, ok := c.Cache.Get("grains", any); ok && m.Len() > 0 {
					grains = m
					break
				}
			}
		}
	}

	top, errs, err := c.Pillar.Top(c.ctx, id, grains.Clone(), c.textOr("saltenv", "base"))
	if err != nil {
		return nil, err
	}
	if len(errs) > 0 {
		c.progress("data", anyList(errs), "outputter", "nested")
		return anyList(errs), nil
	}

	return top, nil
}

func pillarShow(c *call) (any, error) {
	if err := requirePart("pillar", c.Pillar == nil); err != nil {
		return nil, err
	}

	id := c.textOr("minion", anyMinion)
	if err := c.checkMinion(id); err != nil {
		return nil, err
	}

	var grains *value.Map
	if c.Cache != nil {
		grains, _ = c.Cache.Get("grains", id)
	}

	if grains == nil {
		grains = value.NewMap("fqdn", id)
	}

	grains = grains.Clone()
	saltenv, pillarenv := "base", ""
	for k, v := range c.kwargs.All() {
		switch k {
		case "saltenv":
			saltenv = textOf(v)
		case "pillarenv":
			pillarenv = textOf(v)
		case Alone:
		default:
			grains.Set(k, v)
		}
	}

	return c.Pillar.Compile(c.ctx, id, grains, saltenv, pillarenv)
}

// pillarTargets returns the minions of a call that concerns the pillar cache. disabled means that
// the master does not cache pillars.
func (c *call) pillarTargets() (ids []string, disabled bool, err error) {
	if err := requirePart("pillar", c.Pillar == nil || c.Cache == nil || c.Targets == nil); err != nil {
		return nil, false, err
	}
	if !c.Pillar.Caches() {
		return nil, true, nil
	}
	ids, err = c.Targets.Match(c.textOr("minion", "*"), "glob")
	return ids, false, err
}

func pillarClearCache(c *call) (any, error) {
	ids, off, err := c.pillarTargets()
	if off || err != nil {
		return false, err
	}
	for _, id := range ids {
		if err := c.Cache.Flush("pillar", id); err != nil {
			return nil, err
		}
	}
	return true, nil
}

func pillarShowCache(c *call) (any, error) {
	ids, off, err := c.pillarTargets()
	if off || err != nil {
		return false, err
	}

	env := ""
	if v, ok := c.kwargs.Get("pillarenv"); ok && v != nil {
		env = textOf(v)
	}

	out := &value.Map{}
	for _, id := range ids {
		if p, ok := c.Pillar.Cached(id, env); ok && p.Len() > 0 {
			out.Set(id, p)
		}
	}

	return out, nil
}
