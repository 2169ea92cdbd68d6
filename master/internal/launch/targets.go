package launch

import (
	"slices"

	"saltern/master/cache"
	"saltern/master/internal/acl"
	"saltern/master/internal/resources"
	"saltern/master/target"
	"saltern/master/value"
)

// Targets resolves targets to accepted minions. It is safe for concurrent use.
type Targets struct {
	Accepted   func() []string // ids of the accepted minions
	Nodegroups *value.Map
	// Saved adds saved targets to the nodegroups. It may be nil: there are none.
	Saved SavedTargets
	Cache *cache.Store // cached grains and pillars of minions
	// Resources may be nil: then targets select minions only.
	Resources *resources.Registry
}

// SavedTargets are targets that are saved under a name.
type SavedTargets interface {
	// Groups returns the nodegroups of the configuration and the saved targets. The caller must not
	// change the map.
	Groups() *value.Map
}

// pinnedGroups are the nodegroups and saved targets at one time.
type pinnedGroups struct{ groups *value.Map }

// Groups implements SavedTargets.
func (p pinnedGroups) Groups() *value.Map { return p.groups }

// pinned returns Targets for which saved targets do not change any more.
func (t *Targets) pinned() *Targets {
	if t.Saved == nil {
		return t
	}
	now := *t
	now.Saved = pinnedGroups{t.groups()}
	return &now
}

// Groups returns everything that a target may name as a nodegroup. The caller must not change the map.
func (t *Targets) Groups() *value.Map { return t.groups() }

// groups returns everything that a target may name as a nodegroup.
func (t *Targets) groups() *value.Map {
	if t.Saved == nil {
		return t.Nodegroups
	}
	return t.Saved.Groups()
}

// spellOut returns a target in which saved targets are replaced by their words, because minions do
// not know them. It returns nil for any other target.
func (t *Targets) spellOut(tgt any, typ string) any {
	if t.Saved == nil {
		return nil
	}
	words, found := target.SpellOut(tgt, typ, t.groups(), func(name string) bool {
		_, configured := t.Nodegroups.Get(name)
		return !configured
	})
	if !found {
		return nil
	}
	return words
}

// minionData provides the cached grains and pillars of minions for resolving targets.
type minionData struct{ c *cache.Store }

func (d minionData) Grains(id string) (*value.Map, bool) { return d.c.Get(cache.Grains, id) }
func (d minionData) Pillar(id string) (*value.Map, bool) { return d.c.Get(cache.Pillar, id) }

// env returns what a target needs to select from. e bounds the work; nil means the default bound for
// one target.
func (t *Targets) env(e *target.Effort, delimiter string) target.Env {
	return target.Env{
		Delimiter:  delimiter,
		Nodegroups: t.groups(),
		Source:     minionData{t.Cache},
		Resources:  t.Resources,
		Effort:     e,
	}
}

// resolveAmong returns the minions in ids that a target selects. missing holds the names in a list
// target that ids does not contain. e bounds the work; nil means the default bound for one target.
func (t *Targets) resolveAmong(
	e *target.Effort,
	ids []string,
	tgt any,
	typ, delimiter string,
) (minions, missing []string, err error) {
	return target.Resolve(ids, tgt, typ, t.env(e, delimiter))
}

// Resolve returns the accepted minions that a target selects. missing holds the names in a list
// target that have no accepted key. e bounds the work; nil means the default bound for one target.
func (t *Targets) Resolve(e *target.Effort, tgt any, typ, delimiter string) (minions, missing []string, err error) {
	minions, missing, err = t.resolveAmong(e, t.Accepted(), tgt, typ, delimiter)
	if minions == nil {
		minions = []string{}
	}
	if missing == nil {
		missing = []string{}
	}
	return minions, missing, err
}

// Select works like Resolve. It also returns the resources on which minions will run a job with
// this target. fun is the field fun of the job's load.
func (t *Targets) Select(e *target.Effort, tgt any, typ, delimiter string, fun any) (target.Selection, error) {
	found, err := target.Select(t.Accepted(), tgt, typ, t.env(e, delimiter))
	if found.Minions == nil {
		found.Minions = []string{}
	}
	if found.Missing == nil {
		found.Missing = []string{}
	}

	if !resources.RunOn(fun, found.Implied) {
		if typ == "list" {
			found.Missing = append(found.Missing, found.Resources...)
		}
		found.Resources = nil
	}
	return found, err
}

// Among works like Resolve, but considers only the minions in ids. If ids is nil, it considers all
// accepted minions.
func (t *Targets) Among(e *target.Effort, tgt any, typ string, ids ...string) ([]string, error) {
	if ids == nil {
		ids = t.Accepted()
	}
	found, _, err := t.resolveAmong(e, ids, tgt, typ, ":")
	return found, err
}

// Match implements runner.Targets.
func (t *Targets) Match(tgt any, typ string) ([]string, error) {
	ids, _, err := t.Resolve(nil, tgt, typ, ":")
	return ids, err
}

// MatchExact implements runner.Targets.
func (t *Targets) MatchExact(compound string) ([]string, error) {
	return t.Among(nil, compound, "compound_pillar_exact")
}

// permissionResolver returns a function that resolves the targets in permissions. The function
// caches the result for each target, so the caller must use it for one decision only.
func (t *Targets) permissionResolver(e *target.Effort) acl.Resolver {
	known := map[string][]string{}
	return func(expr string) ([]string, error) {
		if ids, ok := known[expr]; ok {
			return ids, nil
		}
		env := t.env(e, "")
		env.GlobsNameResources = true
		found, err := target.Select(t.Accepted(), expr, "compound", env)
		if err != nil {
			return nil, err
		}

		known[expr] = slices.Concat(found.Minions, found.Resources)
		return known[expr], nil
	}
}
