package runner

import "saltern/master/value"

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

func pillarTop(c *call) (any, error) {
	if err := requirePart("pillar", c.Pillar == nil); err != nil {
		return nil, err
	}

	id := c.textArgument("minion")
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

	id := c.textOr("minion", "*")
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
