package resources

import (
	"cmp"
	"slices"

	"saltern/master/target"
	"saltern/master/value"
)

// index holds what the accepted minions have registered, in a form for look-ups. A changed
// registration costs as much as that registration is large. The caller guards the index.
type index struct {
	accepted []string // sorted ids of the accepted minions
	byMinion map[string][]claim
	byID     map[string][]claim // the claims to an id, the first one first
	count    int                // claims of all minions, including those to ids of other minions
	sorted   []target.Resource  // all resources by id; nil: must be built. It is never changed
}

// claim is a minion's registration of an id.
type claim struct {
	target.Resource
	since int64
}

func newIndex() *index {
	return &index{byMinion: map[string][]claim{}, byID: map[string][]claim{}}
}

// setAccepted replaces the ids of the accepted minions. It drops the claims of minions that are
// accepted no longer, and returns the minions whose claims must be read.
func (x *index) setAccepted(accepted []string) (unread []string) {
	before := x.accepted
	x.accepted = accepted
	x.sorted = nil

	for len(before) > 0 || len(accepted) > 0 {
		switch {
		case len(before) == 0 || len(accepted) > 0 && accepted[0] < before[0]:
			unread = append(unread, accepted[0])
			accepted = accepted[1:]
		case len(accepted) == 0 || before[0] < accepted[0]:
			x.setClaims(before[0], nil)
			before = before[1:]
		default:
			before = before[1:]
			accepted = accepted[1:]
		}
	}
	return unread
}

func (x *index) isMinion(id string) bool {
	_, found := slices.BinarySearch(x.accepted, id)
	return found
}

// setClaims replaces the claims of a minion.
func (x *index) setClaims(minion string, claims []claim) {
	for _, c := range x.byMinion[minion] {
		left := slices.DeleteFunc(x.byID[c.ID], func(other claim) bool { return other.Minion == minion })
		if len(left) == 0 {
			delete(x.byID, c.ID)
		} else {
			x.byID[c.ID] = left
		}
	}

	x.count += len(claims) - len(x.byMinion[minion])
	x.sorted = nil
	if len(claims) == 0 {
		delete(x.byMinion, minion)
		return
	}

	x.byMinion[minion] = claims
	for _, c := range claims {
		all := x.byID[c.ID]
		at, _ := slices.BinarySearchFunc(all, c, func(a, b claim) int {
			return cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(a.Minion, b.Minion))
		})
		x.byID[c.ID] = slices.Insert(all, at, c)
	}
}

// lastClaim returns when the last of the other minions that claim an id has registered it, or 0.
func (x *index) lastClaim(minion, id string) (since int64) {
	for _, c := range x.byID[id] {
		if c.Minion != minion {
			since = c.since
		}
	}
	return since
}

// find returns the resource with an id. An id that a minion has is no resource.
func (x *index) find(id string) (target.Resource, bool) {
	claims := x.byID[id]
	if len(claims) == 0 || x.isMinion(id) {
		return target.Resource{}, false
	}
	return claims[0].Resource, true
}

// managed returns the sorted ids of the resources of a minion.
func (x *index) managed(minion string) (ids []string) {
	for _, c := range x.byMinion[minion] {
		if res, ok := x.find(c.ID); ok && res.Minion == minion {
			ids = append(ids, c.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

// all returns all resources, sorted by id.
func (x *index) all() []target.Resource {
	if x.sorted != nil {
		return x.sorted
	}

	x.sorted = make([]target.Resource, 0, len(x.byID))
	for id := range x.byID {
		if res, ok := x.find(id); ok {
			x.sorted = append(x.sorted, res)
		}
	}
	slices.SortFunc(x.sorted, func(a, b target.Resource) int { return cmp.Compare(a.ID, b.ID) })
	return x.sorted
}

// claimsOf returns the ids that a minion has registered, each once with its types.
func claimsOf(minion string, entry *value.Map) []claim {
	types := map[string][]string{}
	for name := range entry.Map(typesField).All() {
		typ, _ := name.(string)
		for _, id := range entry.Map(typesField).Texts(typ) {
			types[id] = append(types[id], typ)
		}
	}

	out := make([]claim, 0, len(types))
	for id, of := range types {
		slices.Sort(of)
		since, _ := entry.Map(sinceField).Int(id)
		out = append(out, claim{target.Resource{ID: id, Minion: minion, Types: of}, since})
	}

	return out
}
