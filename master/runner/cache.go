package runner

import (
	"fmt"
	"slices"
	"strings"

	"saltern/master/value"
)

// cacheDefs returns the runners of Salt's module cache. Sources: salt/runners/cache.py,
// salt/utils/master.py MasterPillarUtil.
func cacheDefs() map[string]def {
	return map[string]def{
		"cache.grains": {"tgt tgt_type= **", func(c *call) (any, error) { return c.cached("grains", false) }},
		"cache.pillar": {"tgt= tgt_type= **", func(c *call) (any, error) { return c.cached("pillar", true) }},
		"cache.mine":   {"tgt= tgt_type= **", func(c *call) (any, error) { return c.cached("mine", true) }},

		"cache.clear_pillar": {"tgt= tgt_type=", func(c *call) (any, error) { return c.clearBanks("pillar") }},
		"cache.clear_grains": {"tgt= tgt_type=", func(c *call) (any, error) { return c.clearBanks("grains") }},
		"cache.clear_mine":   {"tgt= tgt_type=", func(c *call) (any, error) { return c.clearBanks("mine") }},
		"cache.clear_all": {"tgt= tgt_type=",
			func(c *call) (any, error) { return c.clearBanks("pillar", "grains", "mine") }},
		"cache.clear_mine_func": {"tgt= tgt_type= clear_mine_func_flag=", cacheClearMineFunc},

		"cache.list":  {"bank cachedir=", cacheList},
		"cache.fetch": {"bank key cachedir=", cacheFetch},
		"cache.flush": {"bank key= cachedir=", cacheFlush},
		"cache.store": {"bank key data cachedir=", cacheStore},
	}
}

// targetIDs returns the minions that the argument tgt matches.
func (c *call) targetIDs() ([]string, error) {
	if err := requirePart("minion cache", c.Cache == nil || c.Targets == nil); err != nil {
		return nil, err
	}
	return c.Targets.Match(c.values["tgt"], c.textOr("tgt_type", "glob"))
}

// cached returns a map from the target's minions to their data in a bank. If all is set, a call
// without a target includes all minions, which Salt allows for some functions.
func (c *call) cached(bank string, all bool) (any, error) {
	var ids []string
	var err error
	if all && !value.Truth(c.values["tgt"]) {
		if err := requirePart("minion cache", c.Cache == nil); err != nil {
			return nil, err
		}

		if ids, err = c.Cache.IDs("grains"); err == nil && bank == "pillar" {
			more, merr := c.Cache.IDs("pillar")
			ids, err = append(ids, more...), merr
		}

		slices.Sort(ids)
		ids = slices.Compact(ids)
	} else {
		ids, err = c.targetIDs()
	}

	if err != nil {
		return nil, err
	}

	only := splitInput(c.kwargs.Value(Only))
	out := &value.Map{}
	for _, id := range ids {
		m, ok := c.Cache.Get(bank, id)
		if !ok {
			m = &value.Map{}
		}
		if only != nil {
			m = chosenOf(m, only)
		}
		out.Set(id, m)
	}

	return out, nil
}

// Only is a named argument of cache.grains, cache.pillar and cache.mine that Salt lacks: a list of keys, or a
// text with commas between them, without which all data of all minions would travel for a few of them. A key
// of a nested value has colons, as in "a:b".
const Only = "saltern_only"

// chosenOf returns the entries of a map for some keys; those that it lacks are left out.
func chosenOf(m *value.Map, only []string) *value.Map {
	out := &value.Map{}
	for _, key := range only {
		v, ok := m.Get(key)
		if !ok {
			v, ok = traverse(m, strings.Split(key, ":"))
		}
		if ok {
			out.Set(key, v)
		}
	}
	return out
}

// cachedIDs returns those minions of the target that have cached grains. Salt clears the cache only
// for these minions.
func (c *call) cachedIDs() ([]string, error) {
	ids, err := c.targetIDs()
	if err != nil {
		return nil, err
	}
	have, err := c.Cache.IDs("grains")
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(ids, func(id string) bool { return !slices.Contains(have, id) }), nil
}

func (c *call) clearBanks(banks ...string) (any, error) {
	if c.values["tgt"] == nil {
		return false, nil
	}

	ids, err := c.cachedIDs()
	if err != nil {
		return nil, err
	}

	for _, id := range ids {
		for _, b := range banks {
			if err := c.Cache.Flush(b, id); err != nil {
				return nil, err
			}
		}
	}

	return true, nil
}

func cacheClearMineFunc(c *call) (any, error) {
	fun := c.textArgument("clear_mine_func_flag")
	if c.values["tgt"] == nil || fun == "" {
		return false, nil
	}

	ids, err := c.cachedIDs()
	if err != nil {
		return nil, err
	}

	for _, id := range ids {
		m, ok := c.Cache.Get("mine", id)
		if !ok {
			continue
		}

		if _, ok := m.Get(fun); !ok {
			continue
		}

		m = m.Clone()
		m.Delete(fun)
		if err := c.Cache.Set("mine", id, m); err != nil {
			return nil, err
		}
	}

	return true, nil
}

// bankArgument returns the bank that a function's arguments name.
func (c *call) bankArgument() (string, error) {
	if err := requirePart("minion cache", c.Cache == nil); err != nil {
		return "", err
	}
	b := c.textArgument("bank")
	if !slices.Contains([]string{"grains", "pillar", "mine"}, b) {
		return "", fmt.Errorf("bank %q is not grains, pillar or mine: %w", b, ErrUnavailable)
	}
	if value.Truth(c.values["cachedir"]) {
		return "", fmt.Errorf("another cachedir: %w", ErrUnavailable)
	}
	return b, nil
}

func cacheList(c *call) (any, error) {
	b, err := c.bankArgument()
	if err != nil {
		return nil, err
	}
	ids, err := c.Cache.IDs(b)
	return anyList(ids), err
}

func cacheFetch(c *call) (any, error) {
	b, err := c.bankArgument()
	if err != nil {
		return nil, err
	}
	m, ok := c.Cache.Get(b, c.textArgument("key"))
	if !ok {
		m = &value.Map{}
	}
	return m, nil
}

// cacheFlush empties a bank, or removes one entry of it. It reports, as Salt does, whether there
// was anything to remove.
func cacheFlush(c *call) (any, error) {
	b, err := c.bankArgument()
	if err != nil {
		return nil, err
	}

	ids, err := c.Cache.IDs(b)
	if err != nil {
		return nil, err
	}

	if key := c.textArgument("key"); key != "" {
		ids = slices.DeleteFunc(ids, func(id string) bool { return id != key })
	}

	for _, id := range ids {
		if err := c.Cache.Flush(b, id); err != nil {
			return nil, err
		}
	}

	return len(ids) > 0, nil
}

func cacheStore(c *call) (any, error) {
	b, err := c.bankArgument()
	if err != nil {
		return nil, err
	}
	m, ok := c.values["data"].(*value.Map)
	if !ok {
		return nil, &ArgumentError{Reason: "data must be a dictionary"}
	}
	return nil, c.Cache.Set(b, c.textArgument("key"), m)
}
