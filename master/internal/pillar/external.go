package pillar

import (
	"errors"
	"slices"
	"strings"

	"saltern/master/internal/pillar/extpillar"
	"saltern/master/target"
	"saltern/master/value"
)

// parseEntry returns an entry of ext_pillar that Go may run, or nil.
func parseEntry(name, args any) *extpillar.Entry {
	text, ok := name.(string)
	if !ok {
		return nil
	}
	return extpillar.Parse(text, args)
}

// externalPillar runs a part of the ext_pillar chain that is no git entry: in Go, if the part has an
// entry for that and Go can do it exactly, otherwise in Python.
func (c *compilation) externalPillar(pillar *value.Map, part chainPart) *value.Map {
	cfg := &c.compiler.cfg
	if part.inGo == nil {
		return c.otherPillars(pillar, part.others, nil)
	}
	if c.compiler.distrusted.hasEntry(part.inGo) {
		cfg.External.Count(true)
		return c.otherPillars(pillar, part.others, nil)
	}

	v, output, err := cfg.External.Run(c.ctx, part.inGo, c.externalMinion(), c.req.asked)
	isInexact := errors.Is(err, extpillar.ErrInexact)
	if err == nil || isInexact {
		cfg.External.Count(isInexact)
	}
	if isInexact {
		return c.otherPillars(pillar, part.others, output)
	}

	c.giveUpIfUnable(err)
	if c.isOver() {
		return pillar
	}
	if err != nil {
		c.compiler.log.Error("an ext_pillar failed", "minion", c.req.ID, "error", err)
		c.errors = append(c.errors, "Failed to load ext_pillar "+err.Error())
		return pillar
	}
	return c.mergeExternal(pillar, v)
}

// externalMinion returns the minion as an entry of ext_pillar sees it.
func (c *compilation) externalMinion() extpillar.Minion {
	return extpillar.Minion{ID: c.req.ID, Groups: c.compiler.cfg.Nodegroups, InGroup: c.isInGroup}
}

// mergeExternal returns the pillar with what an entry of ext_pillar gives merged over it.
func (c *compilation) mergeExternal(pillar, v *value.Map) *value.Map {
	if v.Len() == 0 {
		return pillar
	}
	return mergeBy(pillar, v, c.compiler.cfg.Strategy, c.compiler.cfg.MergeLists)
}

// errUnsureGroup means that Salt may match a nodegroup in another way.
var errUnsureGroup = errors.New("the group may match in Salt by more than ids and grains, or in another way in each release")

// isInGroup reports whether the minion is in a nodegroup with this definition. Salt's modules ask its
// master's matcher (salt/utils/minions.py CkMinions), which matches by the grains that the minion sent
// before; here it is those of the request.
func (c *compilation) isInGroup(definition any) (bool, error) {
	groups := c.compiler.cfg.Nodegroups
	words := definition
	if text, ok := target.SpellOut(definition, "compound", groups, func(string) bool { return true }); ok {
		words = text
	}
	if isUnsureTarget(words) {
		return false, errUnsureGroup
	}

	source := singleMinion{c.grains, nil}
	m, err := target.Compile(definition, "compound", target.Env{Nodegroups: groups, Source: source})
	if err != nil {
		return false, err
	}
	return m.Match(c.req.ID), nil
}

// isUnsureTarget reports whether a word of a compound target may ask for pillars, ranges or resources,
// or is a glob with a comma: Salt 3008 takes such a glob as a list.
func isUnsureTarget(words any) bool {
	switch v := words.(type) {
	case string:
		return slices.ContainsFunc(strings.Fields(v), func(word string) bool {
			kind, _, isKind := strings.Cut(word, "@")
			if !isKind {
				return strings.Contains(word, ",")
			}
			return kind == "" || !strings.Contains("GPLESN", kind[:1])
		})
	case []any:
		return slices.ContainsFunc(v, isUnsureTarget)
	}
	return true
}
