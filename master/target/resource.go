package target

import (
	"slices"
	"strings"

	"saltern/master/value"
)

// Resource is a thing that a minion manages. Returns about the resource carry the resource's id,
// not the minion's (Salt 3008: salt/utils/resource_registry.py).
type Resource struct {
	ID     string
	Minion string   // id of the minion that manages the resource
	Types  []string // types under which the minion has registered this id, sorted
}

// Resources holds the known resources. None of them has the id of a minion. Resources must be safe
// for concurrent use if a Matcher is used concurrently.
type Resources interface {
	// All returns the resources in the order of their ids. Callers must not change them.
	All() []Resource
	Find(id string) (Resource, bool)
	// Grains returns the grains of a resource under one of its types, or false when there are none.
	Grains(r Resource, typ string) (*value.Map, bool)
}

// reach is how a target selects resources.
type reach uint8

const (
	reachNone    reach = iota
	reachNamed         // the resources that the target names or describes
	reachManaged       // all resources of the selected minions
)

// reachOf returns how a target of a type selects resources. It follows Salt's master
// (salt/utils/minions.py check_minions), because minions of 3008.3 run a job with any other type of
// target on all their resources, even if the target does not select the minion (salt/minion.py
// _resolve_resource_targets).
func reachOf(typ, tgt string) reach {
	switch typ {
	case "list", "compound", "compound_pillar_exact", "nodegroup", "grain", "grain_pcre":
		return reachNamed
	case "glob", "":
		if strings.ContainsAny(tgt, "*?[") {
			return reachManaged
		}
		return reachNamed
	}
	return reachNone
}

// resolveResources returns the ids of the resources that a target selects, sorted. minions are the
// minions that the target selects.
func (m Matcher) resolveResources(minions []string, env Env) []string {
	if env.Resources == nil || m.reach == reachNone {
		return nil
	}

	var out []string
	if m.exactly {
		for _, id := range m.exact {
			if _, ok := env.Resources.Find(id); ok {
				out = append(out, id)
			}
		}
		slices.Sort(out)
		return slices.Compact(out)
	}

	selected := newSet(minions)
	for _, r := range env.Resources.All() {
		if !env.Effort.spendSteps(1) {
			break
		}
		if m.reach == reachManaged && selected.matches(r.Minion) || m.reach == reachNamed && m.matchResource(r, env) {
			out = append(out, r.ID)
		}
	}

	return out
}

// matchResource reports whether a target selects a resource under one of its types, by the minion's
// rules (salt/minion.py _resource_matches_compound).
func (m Matcher) matchResource(r Resource, env Env) bool {
	for _, typ := range r.Types {
		if matchesAs(m.root, r, typ, env) {
			return true
		}
	}
	return false
}

// matchesAs reports whether a part of a target selects a resource under a type. Parts that concern
// minions only, such as globs and pillars, select none.
func matchesAs(n node, r Resource, typ string, env Env) bool {
	switch n := n.(type) {
	case notNode:
		return !matchesAs(n.a, r, typ, env)
	case andNode:
		return matchesAs(n.a, r, typ, env) && matchesAs(n.b, r, typ, env)
	case orNode:
		return matchesAs(n.a, r, typ, env) || matchesAs(n.b, r, typ, env)
	case glob:
		return env.GlobsNameResources && n.matches(r.ID)
	case set:
		return n.matches(r.ID)
	case pcre:
		return n.matches(r.ID)
	case resourceTerm:
		return n.typ == typ && (n.id == "" || n.id == r.ID)
	case lookup:
		if !n.ofGrains || n.delimiter != ":" { // minions know this delimiter only
			return false
		}
		grains, ok := env.Resources.Grains(r, typ)
		return ok && subdict(grains, n.expr, n.delimiter, n.mode, n.effort)
	}
	return false
}

// resourceTerm is the word T@TYPE or T@TYPE:ID of a compound target. It selects resources only.
type resourceTerm struct{ typ, id string }

func newResourceTerm(expr string) resourceTerm {
	typ, id, _ := strings.Cut(expr, ":")
	return resourceTerm{typ, id}
}

func (resourceTerm) matches(string) bool { return false }

// managing is the word M@ID of a compound target: the minion of that id
// (salt/matchers/managing_minion_match.py).
type managing string

func (m managing) matches(id string) bool { return string(m) == id }
