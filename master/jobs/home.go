package jobs

import (
	"cmp"
	"hash/maphash"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// home finds records in the segments that the journal keeps (Config.Files is not set). They are the
// first home of jobs and returns: a record is there as soon as it is durable, and no file is made for
// it. Each record takes 16 bytes of memory, and each load some 40 bytes more.
type home struct {
	seed  maphash.Seed
	log   *slog.Logger
	kinds *known[listedJob] // what a listing has read of jobs
	bad   badSegments

	archived bool // there is an archive
	closed   bool // it takes no further segments (Config.Files)
	most     int  // records at which it takes no further segment

	mu       sync.RWMutex
	segments []*homeSegment // oldest first
	records  int
	cutoff   int64 // records that were made before are too old, in Unix nanoseconds
}

// maxHomeRecords bounds the records of a home. Overflow policy: the records of further segments
// become files.
const maxHomeRecords = 8_000_000

// maxKinds bounds each generation of home.kinds, in jobs.
const maxKinds = 50_000

// homeSegment is a segment of the journal in a home. The lock of the home guards all fields but number and mark.
type homeSegment struct {
	number uint64
	mark   mark
	path   string
	from   int64 // time of the oldest record
	to     int64 // time of the latest record
	minJID string
	maxJID string

	refs   []ref // the first of them, as many as sorted says, are in order
	sorted int
	// loads has the ids of the jobs whose loads are here, in order unless loadsMixed is set.
	loads      []string
	loadsMixed bool

	archived   bool // the archive has its returns
	damaged    bool // it has gaps, and the file stays as it is
	unreadable bool // the log says that a part of it cannot be read
	lossy      bool // a part of it cannot be read, and no later try will change that
	stuck      bool // the log says that it cannot be removed
}

// ref is the place of a record.
type ref struct {
	job uint32 // hash of the job id; other jobs may have the same
	at  uint32 // offset in the segment
	// what is the kind of the record, and for a return a hash of job id and minion.
	what uint64
}

// isReturn is set in ref.what for returns.
const isReturn = 1 << 63

func compareRefs(a, b ref) int {
	if a.job != b.job {
		return cmp.Compare(a.job, b.job)
	}
	if a.what != b.what {
		return cmp.Compare(a.what, b.what)
	}
	return cmp.Compare(a.at, b.at)
}

// place is where a record of a job may be.
type place struct {
	segment *homeSegment
	ref
}

func newHome(log *slog.Logger) *home {
	return &home{
		seed:  maphash.MakeSeed(),
		log:   log,
		kinds: newKnown[listedJob](maxKinds),
		bad:   badSegments{log: log},
	}
}

func (h *home) jobHash(jid string) uint32 { return uint32(maphash.String(h.seed, jid)) }

func (h *home) returnHash(jid, minion string) uint64 {
	return maphash.String(h.seed, jid+"\x00"+minion) | isReturn
}

// begin adds a segment. Its records come by addRecord.
func (h *home) begin(number uint64, path string, m mark) *homeSegment {
	g := &homeSegment{
		number:   number,
		path:     path,
		mark:     m,
		archived: h.archived,
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	at, _ := slices.BinarySearchFunc(h.segments, g, func(a, b *homeSegment) int { return cmp.Compare(a.number, b.number) })
	h.segments = slices.Insert(h.segments, at, g)
	return g
}

// addRecords adds records that are durable.
func (h *home) addRecords(g *homeSegment, recs ...*record) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, r := range recs {
		h.addLocked(g, r)
	}
	if len(g.refs)-g.sorted > max(1024, len(g.refs)/16) {
		g.sort()
	}
}

func (h *home) addLocked(g *homeSegment, r *record) {
	x := ref{job: h.jobHash(r.jid), at: r.at, what: uint64(r.kind)}
	if r.kind == kindReturn {
		x.what = h.returnHash(r.jid, r.id)
	}
	if r.kind == kindLoad {
		h.kinds.drop(r.jid)
		n := len(g.loads)
		g.loadsMixed = g.loadsMixed || n > 0 && r.jid < g.loads[n-1]
		g.loads = append(g.loads, r.jid)
	}

	if len(g.refs) == 0 {
		g.from, g.to = r.time, r.time
		g.minJID, g.maxJID = r.jid, r.jid
	}
	g.from, g.to = min(g.from, r.time), max(g.to, r.time)
	g.minJID, g.maxJID = min(g.minJID, r.jid), max(g.maxJID, r.jid)
	g.refs = append(g.refs, x)
	h.records++
	// A clock that was ahead has made the cutoff; what was made now must be found.
	h.cutoff = min(h.cutoff, r.time)
}

// sort brings all refs into order: it merges those that were added since the last call with those before, from the end.
func (g *homeSegment) sort() {
	added := slices.Clone(g.refs[g.sorted:])
	slices.SortFunc(added, compareRefs)
	before := g.sorted
	for at := len(g.refs) - 1; len(added) > 0; at-- {
		last := len(added) - 1
		if before > 0 && compareRefs(g.refs[before-1], added[last]) > 0 {
			before--
			g.refs[at] = g.refs[before]
		} else {
			g.refs[at] = added[last]
			added = added[:last]
		}
	}
	g.sorted = len(g.refs)
}

// seal frees what the segment needs only as long as records are added.
func (h *home) seal(g *homeSegment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.sort()
	g.refs = slices.Clip(g.refs)
	g.loads = slices.Clip(g.loads)
}

// move notes the new name of a segment.
func (h *home) move(g *homeSegment, path string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.path = path
}

func (h *home) size(g *homeSegment) int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return len(g.refs)
}

func (h *home) pathOf(g *homeSegment) string {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return g.path
}

// isRemoved reports whether a segment was removed, or may be removed, because it is too old.
func (h *home) isRemoved(g *homeSegment) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return g.to < h.cutoff || !slices.Contains(h.segments, g)
}

// noteDamaged notes that a segment has gaps.
func (h *home) noteDamaged(g *homeSegment) {
	h.mu.Lock()
	defer h.mu.Unlock()
	g.damaged = true
}

func (h *home) isDamaged(g *homeSegment) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return g.damaged
}

// remove forgets a segment. It returns how many loads the segment had, and 0 if the segment is forgotten already: Clean
// and a full disk may remove the same one.
func (h *home) remove(g *homeSegment) (loads int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Contains(h.segments, g) {
		return 0
	}
	h.records -= len(g.refs)
	h.segments = slices.DeleteFunc(slices.Clone(h.segments), func(x *homeSegment) bool { return x == g })
	return len(g.loads)
}

// takes reports whether the records of the next segment stay in it.
func (h *home) takes() bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return !h.closed && h.records < h.most
}

// refsOf returns the places of the records of a segment that are no loads, in their order in the file.
func (h *home) refsOf(g *homeSegment) []ref {
	h.mu.RLock()
	defer h.mu.RUnlock()
	refs := slices.DeleteFunc(slices.Clone(g.refs), func(r ref) bool { return r.what == uint64(kindLoad) })
	slices.SortFunc(refs, func(a, b ref) int { return cmp.Compare(a.at, b.at) })
	return refs
}

// find returns the places of a part of the records of a job, and possibly of others, oldest first.
func (h *home) find(jid string, p part) (places []place) {
	job := h.jobHash(jid)
	h.eachOf(jid, func(g *homeSegment) bool {
		first := len(places)
		begin, _ := slices.BinarySearchFunc(g.refs[:g.sorted], ref{job: job}, compareRefs)
		for _, r := range g.refs[begin:g.sorted] {
			if r.job != job {
				break
			}
			if p.wanted(r.what) {
				places = append(places, place{g, r})
			}
		}
		for _, r := range g.refs[g.sorted:] {
			if r.job == job && p.wanted(r.what) {
				places = append(places, place{g, r})
			}
		}
		slices.SortFunc(places[first:], func(a, b place) int { return cmp.Compare(a.at, b.at) })
		return true
	})
	return places
}

// holdsReturn reports whether the home has a return that is not too old. A return that cannot be read counts.
func (h *home) holdsReturn(jid, minion string) bool {
	want := ref{job: h.jobHash(jid), what: h.returnHash(jid, minion)}
	var mayBeOld []place
	found := false
	h.eachOf(jid, func(g *homeSegment) bool {
		copies := g.find(want)
		if g.from >= h.cutoff {
			found = len(copies) > 0
			return !found
		}
		for _, r := range copies {
			mayBeOld = append(mayBeOld, place{g, r})
		}
		return true
	})
	return found || slices.ContainsFunc(mayBeOld, h.isYoung)
}

// find returns the places of all records of a job and a kind.
func (g *homeSegment) find(want ref) (refs []ref) {
	same := func(r ref) bool { return r.job == want.job && r.what == want.what }
	begin, _ := slices.BinarySearchFunc(g.refs[:g.sorted], want, compareRefs)
	for _, r := range g.refs[begin:g.sorted] {
		if !same(r) {
			break
		}
		refs = append(refs, r)
	}
	for _, r := range g.refs[g.sorted:] {
		if same(r) {
			refs = append(refs, r)
		}
	}
	return refs
}

// holdsLoad reports whether the home has a load of a job.
func (h *home) holdsLoad(jid string) (found bool) {
	h.eachOf(jid, func(g *homeSegment) bool {
		found = g.holdsLoad(jid)
		return !found
	})
	return found
}

func (g *homeSegment) holdsLoad(jid string) bool {
	if g.loadsMixed {
		return slices.Contains(g.loads, jid)
	}
	_, found := slices.BinarySearch(g.loads, jid)
	return found
}

// eachOf calls visit, with the lock held, for the segments that may have records of a job, until visit returns false.
func (h *home) eachOf(jid string, visit func(*homeSegment) bool) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, g := range h.segments {
		may := len(g.refs) > 0 && g.minJID <= jid && jid <= g.maxJID && g.to >= h.cutoff
		if may && !visit(g) {
			return
		}
	}
}

// eachLoad calls visit once for each job that has a load, the highest job id first, until visit returns false. It does
// not hold the lock meanwhile. It reports whether visit has never returned false.
func (h *home) eachLoad(visit func(jid string) bool) bool { return h.mergeLoads(true, visit) }

// eachLoadUp works like eachLoad, but the lowest job id comes first.
func (h *home) eachLoadUp(visit func(jid string) bool) bool { return h.mergeLoads(false, visit) }

func (h *home) mergeLoads(down bool, visit func(jid string) bool) bool {
	next := func(list []string) int {
		if down {
			return len(list) - 1
		}
		return 0
	}

	before := ""
	lists := h.loadLists()
	for len(lists) > 0 {
		best := 0
		for i, list := range lists {
			order := strings.Compare(list[next(list)], lists[best][next(lists[best])])
			if down && order > 0 || !down && order < 0 {
				best = i
			}
		}

		list := lists[best]
		at := next(list)
		jid := list[at]
		lists[best] = list[:at]
		if !down {
			lists[best] = list[1:]
		}
		if len(lists[best]) == 0 {
			lists = slices.Delete(lists, best, best+1)
		}
		if jid != before && !visit(jid) {
			return false
		}
		before = jid
	}
	return true
}

// loadLists returns the sorted ids of the jobs of each segment. Nobody changes the lists.
func (h *home) loadLists() (lists [][]string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, g := range h.segments {
		if g.loadsMixed {
			g.loads = slices.Clone(g.loads) // somebody may be reading the former list
			slices.Sort(g.loads)
			g.loads = slices.Compact(g.loads)
			g.loadsMixed = false
		}
		if len(g.loads) > 0 && g.to >= h.cutoff {
			lists = append(lists, g.loads[:len(g.loads):len(g.loads)])
		}
	}
	return lists
}

// setCutoff sets from which time on records are found.
func (h *home) setCutoff(at int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cutoff = at
}

func (h *home) oldest() int64 {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.cutoff
}

// expired returns the segments whose records are all too old.
func (h *home) expired() (out []*homeSegment) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	for _, g := range h.segments {
		if len(g.refs) > 0 && g.to < h.cutoff {
			out = append(out, g)
		}
	}
	return out
}
