package runner

import "saltern/master/msgpack"

// Sources: salt/runners/pillar.py, salt/utils/minions.py get_minion_data.
func pillarDefs() map[string]def {
	return map[string]def{
		"pillar.show_top":    {"minion= saltenv=", pillarTop},
		"pillar.show_pillar": {"minion= **", pillarShow},
		// This master has no pillar cache of Salt's kind; Salt says False when
		// the cache is off.
		"pillar.clear_pillar_cache": {"minion= **", func(*call) (any, error) { return false, nil }},
		"pillar.show_pillar_cache":  {"minion= **", func(*call) (any, error) { return false, nil }},
	}
}

func pillarTop(c *call) (any, error) {
	if err := need("pillar", c.Pillar == nil); err != nil {
		return nil, err
	}
	id := c.text("minion")
	grains := &msgpack.Map{}
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
		c.progress("data", list(errs), "outputter", "nested")
		return list(errs), nil
	}
	return top, nil
}

func pillarShow(c *call) (any, error) {
	if err := need("pillar", c.Pillar == nil); err != nil {
		return nil, err
	}
	id := c.textOr("minion", "*")
	var grains *msgpack.Map
	if c.Cache != nil {
		grains, _ = c.Cache.Get("grains", id)
	}
	if grains == nil {
		grains = msgpack.NewMap("fqdn", id)
	}
	grains = grains.Clone()
	saltenv, pillarenv := "base", ""
	for k, v := range c.kwargs.All() {
		switch k {
		case "saltenv":
			saltenv = text(v)
		case "pillarenv":
			pillarenv = text(v)
		default:
			grains.Set(k, v)
		}
	}
	return c.Pillar.Compile(c.ctx, id, grains, saltenv, pillarenv)
}
