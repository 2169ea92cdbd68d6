package pillar

import (
	"saltern/master/cache"
	"saltern/master/internal/pillar/extpillar"
	"saltern/master/internal/pillar/memo"
	"saltern/master/value"
)

// compareTries is how often each way runs an entry of ext_pillar whose results differ. A command that
// writes one of two texts by chance counts as different in 1 of 32 comparisons.
const compareTries = 3

// compareExternals runs the entries of ext_pillar that Go may run in Go and in Salt's modules, and returns
// those with different results. pillar is what the chain begins with; the results are compared when they
// are merged over it. Entries that only Python knows, and those of git, do not run.
//
// A command runs in each way, because its environment may differ as well as the reading of its output.
// An entry with a difference runs compareTries times in each way, and counts if each way repeats its
// result. What each way runs first changes from try to try, so that a clock, a counter or an output
// that alternates is no difference.
//
// knowsGrains reports whether Salt's modules match the minion's groups by the grains of the request. If
// not, entries with groups are left out.
//
// When the compilation ends early, compareExternals returns what it has found until then.
func (c *compilation) compareExternals(pillar *value.Map, knowsGrains func() bool) (different []*extpillar.Entry) {
	for _, part := range c.compiler.chain {
		if c.isOver() {
			return different
		}
		if part.inGo == nil || c.compiler.distrusted.hasEntry(part.inGo) {
			continue
		}

		usesGroups := part.inGo.HasGroups() && c.compiler.cfg.Nodegroups.Len() > 0
		if usesGroups && !knowsGrains() {
			continue
		}

		merged, isDifferent := c.compareExternal(pillar, part)
		if isDifferent && (!usesGroups || knowsGrains()) { // the grains may have changed meanwhile
			different = append(different, part.inGo)
		}
		pillar = merged
	}
	return different
}

// compareExternal compares the two ways of one entry, and returns the pillar with what the entry adds to
// it in Go. It says nothing about an entry that Go leaves to Salt's module, or cannot run now.
func (c *compilation) compareExternal(pillar *value.Map, part chainPart) (merged *value.Map, isDifferent bool) {
	merged = pillar
	var first [2]memo.Sum
	for try := range compareTries {
		var now [2]memo.Sum
		for _, way := range waysOfTry(try) {
			result, failed, ok := pillar, false, false
			if way == saltWay {
				result, failed, ok = c.runInSalt(pillar, part)
			} else if result, ok = c.runInGo(pillar, part); ok {
				merged = result
			}
			if !ok {
				return merged, false
			}

			sum, err := memo.KeyOf(failed, result)
			if err != nil {
				return merged, false
			}
			now[way] = sum
		}

		if now[fastWay] == now[saltWay] || try > 0 && now != first {
			return merged, false
		}
		first = now
	}
	return merged, true
}

// runInGo returns the pillar with what an entry adds to it in Go. It returns false if there is nothing to
// compare.
func (c *compilation) runInGo(pillar *value.Map, part chainPart) (*value.Map, bool) {
	v, _, err := c.compiler.cfg.External.Run(c.ctx, part.inGo, c.externalMinion(), nil)
	c.giveUpIfUnable(err)
	if err != nil || c.isOver() {
		return pillar, false
	}
	return c.mergeExternal(pillar, v), true
}

// runInSalt returns the pillar with what Salt's module adds to it, and whether the module failed. It
// returns ok as false if there is nothing to compare.
func (c *compilation) runInSalt(pillar *value.Map, part chainPart) (result *value.Map, failed, ok bool) {
	before := len(c.errors)
	result = c.otherPillars(pillar, part.others, nil)
	failed = len(c.errors) > before
	c.errors = c.errors[:before]
	return result, failed, !c.isOver()
}

// hasGrains reports whether the grains that this master keeps of a minion are those of a request. Salt's
// modules match groups by the former.
func (s *Service) hasGrains(req Request) bool {
	kept, ok := s.cfg.Cache.Get(cache.Grains, req.ID)
	return ok && value.Equal(kept, req.Grains)
}
