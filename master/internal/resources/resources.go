// Package resources knows the resources that minions of Salt 3008 manage: things without a minion
// of their own, such as devices. A minion registers them, runs jobs for them, and returns the
// results under the id of the resource (salt/minion.py _register_resources_with_master,
// salt/master.py _register_resources).
//
// The master cannot verify what a minion registers. So a resource never has the id of an accepted
// minion, and an id belongs to the minion that registered it first, as long as that minion
// continues to register it and the minion's key is accepted. Salt's master lets every minion return
// under every id.
package resources

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/cache"
	"saltern/master/event"
	"saltern/master/keys"
	"saltern/master/target"
	"saltern/master/value"
)

// Bounds of what minions register. Overflow policy: a registration with too many resources is
// refused, and the minion's previous registration remains; if the grains of a registration are too
// large, they are not stored.
const (
	maxPerMinion = 10_000
	maxResources = 500_000 // resources of all minions together
	maxType      = 255     // bytes of the name of a type
	maxGrains    = 8 << 20 // bytes of the grains of a minion's resources
)

var errTooMany = errors.New("too many resources")

// Fields of a minion's entry in the bank.
const (
	typesField  = "resources" // ids by type
	grainsField = "grains"    // grains by TYPE:ID
	sinceField  = "since"     // when the minion registered an id first, in microseconds since 1970
)

// Config of a Registry.
type Config struct {
	Cache *cache.Store
	// Accepted returns the sorted ids of accepted minions. As long as the ids do not change, it
	// returns the same slice.
	Accepted func() []string
	// KeepGrains is the option minion_data_cache: without that option the grains of resources are
	// not stored.
	KeepGrains bool
	Now        func() time.Time
	// Log is the logger for lines that minions can provoke.
	Log *slog.Logger
}

// Registry holds the resources of all minions. It implements [target.Resources] and is safe for
// concurrent use. A nil *Registry holds none.
type Registry struct {
	cfg         Config
	registering sync.Mutex // serialises Register, which reads an entry and replaces it

	mu      sync.Mutex
	index   *index
	unread  map[string]bool // minions whose entries in the bank have changed since they were read
	overrun bool            // an entry in the bank was left out because of maxResources

	refused atomic.Uint64
}

// New returns a Registry.
func New(cfg Config) *Registry {
	return &Registry{cfg: cfg, index: newIndex(), unread: map[string]bool{}}
}

// Stats are the metrics of a Registry.
type Stats struct {
	Resources int    // known resources
	Refused   uint64 // registrations and ids that were refused since the start
}

// Stats returns the metrics.
func (r *Registry) Stats() Stats {
	if r == nil {
		return Stats{}
	}
	return Stats{len(r.All()), r.refused.Load()}
}

// Register replaces the resources of a minion. types maps types to lists of ids, grains maps
// TYPE:ID to the grains of a resource. Ids and types that are malformed are left out and logged. If
// the minion registers no resources, its entry is removed.
func (r *Registry) Register(minion string, types, grains *value.Map) error {
	r.registering.Lock()
	defer r.registering.Unlock()

	before, known := r.cfg.Cache.Get(cache.Resources, minion)
	since := value.NewMap()
	kept := value.NewMap()
	total := 0
	for name, ids := range types.All() {
		typ, ok := name.(string)
		list, isList := ids.([]any)
		if !ok || !isList || typ == "" || len(typ) > maxType || strings.ContainsAny(typ, ": \n") {
			r.refuse(minion, "the type of resources is not valid", "type", short(name))
			continue
		}

		total += len(list)
		if total > maxPerMinion {
			r.refused.Add(1)
			return fmt.Errorf("%w: a minion may have %d", errTooMany, maxPerMinion)
		}
		if valid := r.validIDs(minion, list); len(valid) > 0 {
			kept.Set(typ, value.List(valid))
			for _, id := range valid {
				since.Set(id, r.registeredSince(minion, before, id))
			}
		}
	}

	if kept.Len() == 0 {
		if !known {
			return nil
		}
		return r.cfg.Cache.Flush(cache.Resources, minion)
	}

	if r.claimCount()-before.Map(sinceField).Len()+since.Len() > maxResources {
		r.refused.Add(1)
		return fmt.Errorf("%w: all minions together may have %d", errTooMany, maxResources)
	}

	entry := value.NewMap(typesField, kept, sinceField, since)
	if found := r.grainsOf(minion, kept, grains); found.Len() > 0 {
		entry.Set(grainsField, found)
	}

	_, err := r.cfg.Cache.Set(cache.Resources, minion, entry)
	if err != nil {
		return err
	}

	r.logForeign(minion, since)
	return nil
}

// refuse counts and logs something that a minion may not register.
func (r *Registry) refuse(minion, why string, more ...any) {
	r.refused.Add(1)
	r.cfg.Log.Warn("resource not registered: "+why, append([]any{"minion", minion}, more...)...)
}

// short returns the beginning of a value that a minion sent, for a log line.
func short(v any) string { return fmt.Sprintf("%.100q", value.StrMax(v, 100)) }

// validIDs returns the elements of a list that are valid ids, each once.
func (r *Registry) validIDs(minion string, list []any) []string {
	out := make([]string, 0, len(list))
	for _, v := range list {
		id, ok := v.(string)
		if !ok || keys.ValidID(id) != nil || strings.ContainsRune(id, ',') {
			r.refuse(minion, "its id is not valid", "resource", short(v))
			continue
		}
		out = append(out, id)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// registeredSince returns when a minion first registered an id. before is the minion's entry from
// its last registration. If another minion has the id, the time is later than that minion's, whatever
// the clock of this master says: otherwise the id would change hands.
func (r *Registry) registeredSince(minion string, before *value.Map, id string) int64 {
	if at, ok := before.Map(sinceField).Int(id); ok {
		return at
	}
	return max(r.cfg.Now().UnixMicro(), r.lastClaim(minion, id)+1)
}

// grainsOf returns the grains of the resources in types.
func (r *Registry) grainsOf(minion string, types, grains *value.Map) *value.Map {
	out := value.NewMap()
	if !r.cfg.KeepGrains {
		return out
	}

	for name := range types.All() {
		typ, _ := name.(string)
		for _, id := range types.Texts(typ) {
			if g, ok := grains.Value(typ + ":" + id).(*value.Map); ok {
				out.Set(typ+":"+id, g)
			}
		}
	}

	if size := event.Weight(out); size > maxGrains {
		r.refuse(minion, "the grains of its resources are too large", "bytes", size, "bound", maxGrains)
		return value.NewMap()
	}
	return out
}

// logForeign logs the ids that a minion has registered but that do not belong to it.
func (r *Registry) logForeign(minion string, since *value.Map) {
	for _, id := range since.Keys() {
		if known, ok := r.Find(id); !ok {
			r.refuse(minion, "a minion has this id", "resource", id)
		} else if known.Minion != minion {
			r.refuse(minion, "another minion has registered it before", "resource", id, "owner", known.Minion)
		}
	}
}

// update brings the index up to date with the bank and the accepted minions. The caller holds mu.
func (r *Registry) update() {
	if accepted := r.cfg.Accepted(); !sameSlice(accepted, r.index.accepted) {
		for _, id := range r.index.setAccepted(accepted) {
			r.unread[id] = true
		}
	}

	for _, id := range r.cfg.Cache.TakeResourceChanges() {
		r.unread[id] = true
	}

	if len(r.unread) > 0 {
		r.readEntries()
	}
}

// readEntries reads the entries that have changed. The caller holds mu.
func (r *Registry) readEntries() {
	before := r.index.count
	for _, id := range slices.Sorted(maps.Keys(r.unread)) {
		var claims []claim
		if entry, ok := r.cfg.Cache.Get(cache.Resources, id); ok && r.index.isMinion(id) {
			claims = claimsOf(id, entry)
		}

		r.index.setClaims(id, nil)
		if r.index.count+len(claims) > maxResources {
			r.overrun = true // another master of the cluster may have registered them
			continue
		}
		r.index.setClaims(id, claims)
	}
	clear(r.unread)

	if r.overrun && r.index.count < before {
		r.overrun = false
		for _, id := range r.index.accepted { // there may be room for what was left out
			r.unread[id] = true
		}
	}
}

// sameSlice reports whether two slices have the same length and share their elements.
func sameSlice(a, b []string) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// claimCount returns how many ids the accepted minions have registered.
func (r *Registry) claimCount() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	return r.index.count
}

// lastClaim returns when the last of the other minions that claim an id has registered it, or 0.
func (r *Registry) lastClaim(minion, id string) int64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	return r.index.lastClaim(minion, id)
}

// All implements target.Resources.
func (r *Registry) All() []target.Resource {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	return r.index.all()
}

// Find implements target.Resources.
func (r *Registry) Find(id string) (target.Resource, bool) {
	if r == nil {
		return target.Resource{}, false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	return r.index.find(id)
}

// Grains implements target.Resources.
func (r *Registry) Grains(res target.Resource, typ string) (*value.Map, bool) {
	if r == nil {
		return nil, false
	}
	entry, ok := r.cfg.Cache.Get(cache.Resources, res.Minion)
	if !ok {
		return nil, false
	}
	grains, ok := entry.Map(grainsField).Value(typ + ":" + res.ID).(*value.Map)
	return grains, ok
}

// Manager returns the minion that manages a resource, or "" when there is no such resource.
func (r *Registry) Manager(id string) string {
	res, _ := r.Find(id)
	return res.Minion
}

// Managed returns the ids of the resources of a minion, sorted.
func (r *Registry) Managed(minion string) []string {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.update()
	return r.index.managed(minion)
}

// notOnResources holds the functions that minions never run on resources (salt/minion.py
// _NO_RESOURCE_FUNS).
var notOnResources = map[string]bool{
	"saltutil.find_job":       true,
	"saltutil.running":        true,
	"saltutil.is_running":     true,
	"saltutil.kill_job":       true,
	"saltutil.signal_job":     true,
	"saltutil.term_job":       true,
	"saltutil.refresh_grains": true,
	"saltutil.sync_all":       true,
	"saltutil.sync_grains":    true,
	"saltutil.sync_modules":   true,
	"sys.reload_modules":      true,
}

// merged holds the functions that minions do not run on resources when a target, such as a
// wildcard, selects the resources only through their minions (salt/utils/minions.py
// _MERGE_RESOURCE_FUNS).
var merged = map[string]bool{
	"state.apply":     true,
	"state.highstate": true,
	"state.sls":       true,
	"state.sls_id":    true,
	"state.single":    true,
}

// RunOn reports whether minions run a function on the resources that a target selects. fun is the
// function of a load, or the list of functions of a compound job. implied means that the target
// selects the minions of the resources, see [target.Selection].
func RunOn(fun any, implied bool) bool {
	name, one := fun.(string)
	return one && !notOnResources[name] && !(implied && merged[name])
}
