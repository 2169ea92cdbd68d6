package jobs

import (
	"cmp"
	"context"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// listing remembers the job of each job directory, so that a list of the newest jobs reads the loads of
// those only. A directory has the same job for ever, and a listing forgets directories that are gone.
type listing struct {
	turn chan struct{} // has an element while somebody reads the directories
	most int           // bounds remembered.jobs
	seed maphash.Seed

	mu    sync.Mutex
	begun uint64      // listings that have begun
	last  *remembered // of the last listing; nobody changes it. nil: there was none

	loads atomic.Uint64 // loads that were read to learn whose directory it is
}

// remembered contains the jobs that a listing has found in the directories.
type remembered struct {
	number uint64               // of the listing
	jobs   map[string]listedJob // by directory: the newest jobs
	// older has the hashes of the directories of jobs that are older than those in jobs, apart from jobs that
	// came later under old ids. floor is the newest id among them; "" if there are none.
	older map[uint64]struct{}
	floor string
}

const (
	// maxRemembered bounds the directories whose jobs a listing remembers. Overflow policy: of the oldest ones it
	// remembers that they are old, and reads their loads when a list goes that far back.
	maxRemembered = 100_000
	// maxOlder bounds those. Overflow policy: the loads of the others are read each time.
	maxOlder = 1_000_000
)

func newListing() listing {
	return listing{turn: make(chan struct{}, 1), most: maxRemembered, seed: maphash.MakeSeed()}
}

// listedJob is a job in a listing.
type listedJob struct {
	jid            string
	findJob, isRun bool
}

func listedOf(j Job) listedJob {
	return listedJob{jid: j.JID, findJob: isFindJob(j.Load), isRun: isRun(j.Load)}
}

// listsNewest reports whether a query asks for the newest jobs of some kinds, which [Local.Newest] answers.
func (q *Query) listsNewest() bool {
	return q.Last > 0 && len(q.Functions)+len(q.Targets) == 0 && q.Metadata == nil && q.From.IsZero() && q.To.IsZero()
}

// candidate is a job that a list may have.
type candidate struct {
	jid string
	dir string // of its load; "": load has it
	job Job
}

// Newest returns the newest q.Last jobs, sorted by job id, without those that q.NoFindJob and q.NoRuns skip.
// It ignores the other fields of q, and skips and logs loads that cannot be read. One caller at a time reads the
// directories; those who wait for him share what the next one learns.
func (c *Local) Newest(ctx context.Context, q Query) ([]Job, error) {
	wants := func(l listedJob) bool { return !(q.NoFindJob && l.findJob) && !(q.NoRuns && l.isRun) }
	var all []candidate
	open := c.overlay.openLoads() // before the directories are read, see overlay
	for jid, b := range open {
		v, err := msgpack.Decode(b, msgpack.DefaultLimits)
		if load, ok := v.(*value.Map); ok && err == nil && wants(listedOf(Job{jid, load})) {
			all = append(all, candidate{jid: jid, job: Job{jid, load}})
		}
	}
	add := func(dir string, l listedJob) {
		if _, isOpen := open[l.jid]; !isOpen && wants(l) && !c.home.holdsLoad(l.jid) {
			all = append(all, candidate{jid: l.jid, dir: dir})
		}
	}

	known, err := c.learnDirs(ctx)
	if err != nil {
		return nil, err
	}
	for dir, l := range known.jobs {
		add(dir, l)
	}

	out, err := c.newestOf(ctx, all, q, known.floor)
	if err != nil || len(out) == q.Last || known.floor == "" {
		return out, err
	}
	if err := c.readOlder(ctx, known, add); err != nil {
		return nil, err
	}
	return c.newestOf(ctx, all, q, "")
}

// learnDirs returns what is known of all directories that there were when it was called.
func (c *Local) learnDirs(ctx context.Context) (*remembered, error) {
	l := &c.listing
	l.mu.Lock()
	asked := l.begun
	l.mu.Unlock()

	leave, err := l.await(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()

	l.mu.Lock()
	before := l.last
	if before != nil && before.number > asked { // somebody who waited as well has read them meanwhile
		l.mu.Unlock()
		return before, nil
	}
	l.begun++
	number := l.begun
	l.mu.Unlock()

	if before == nil {
		before = &remembered{}
	}
	now, err := c.readDirs(ctx, before)
	if err != nil {
		// The next one need not begin from the start.
		maps.Copy(now.jobs, before.jobs)
		now.older = maps.Clone(before.older)
		now.floor = before.floor
		number = before.number
	} else if len(now.older) == 0 {
		now.floor = ""
	}
	now.number = number
	now.forgetOldest(l)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = now
	return now, err
}

// await waits for its turn to read the directories.
func (l *listing) await(ctx context.Context) (leave func(), err error) {
	select {
	case l.turn <- struct{}{}:
		return func() { <-l.turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// readDirs looks at all directories, and reads the loads of those that before does not know. With an error it
// returns those that it has come to.
func (c *Local) readDirs(ctx context.Context, before *remembered) (*remembered, error) {
	now := &remembered{
		jobs:  make(map[string]listedJob, len(before.jobs)),
		older: make(map[uint64]struct{}, len(before.older)),
		floor: before.floor,
	}
	err := c.eachDir(ctx, func(dir string) error {
		if l, ok := before.jobs[dir]; ok {
			now.jobs[dir] = l
			return nil
		}
		hash := maphash.String(c.listing.seed, dir)
		if _, ok := before.older[hash]; ok {
			now.older[hash] = struct{}{}
			return nil
		}

		c.listing.loads.Add(1)
		if j, ok := c.readLoad(dir); ok {
			now.jobs[dir] = listedOf(j)
		}
		return nil
	})
	return now, err
}

// forgetOldest moves the oldest jobs to older, so that the bounds hold.
func (r *remembered) forgetOldest(l *listing) {
	excess := len(r.jobs) - l.most
	if excess <= 0 {
		return
	}
	if r.older == nil {
		r.older = map[uint64]struct{}{}
	}
	dirs := slices.SortedFunc(maps.Keys(r.jobs), func(a, b string) int { return cmp.Compare(r.jobs[a].jid, r.jobs[b].jid) })
	// an eighth more, so that not each listing sorts all of them
	for _, dir := range dirs[:min(excess+l.most/8, len(dirs))] {
		if len(r.older) < maxOlder {
			r.older[maphash.String(l.seed, dir)] = struct{}{}
		}
		r.floor = max(r.floor, r.jobs[dir].jid)
		delete(r.jobs, dir)
	}
}

// readOlder reads the loads of the directories whose jobs are not remembered.
func (c *Local) readOlder(ctx context.Context, known *remembered, add func(string, listedJob)) error {
	leave, err := c.listing.await(ctx)
	if err != nil {
		return err
	}
	defer leave()
	return c.eachDir(ctx, func(dir string) error {
		if _, ok := known.jobs[dir]; ok {
			return nil
		}
		c.listing.loads.Add(1)
		if j, ok := c.readLoad(dir); ok {
			add(dir, listedOf(j))
		}
		return nil
	})
}

// newestOf reads the loads of the newest candidates. It returns fewer than there are if it comes to one that is
// older than floor, since others may lie between.
func (c *Local) newestOf(ctx context.Context, all []candidate, q Query, floor string) (out []Job, err error) {
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(b.jid, a.jid) })
	take := func(x candidate) error {
		ok := true
		switch {
		case x.dir != "":
			x.job, ok = c.readLoad(x.dir)
		case x.job.Load == nil:
			x.job, ok = c.readKept(x.jid, &q)
		}
		if ok && q.matches(x.job) { // else it is not wanted, or was removed meanwhile
			out = append(out, x.job)
		}
		return ctx.Err()
	}

	ended := func(jid string) bool { return len(out) == q.Last || jid < floor }
	before := ""
	c.home.eachLoad(func(jid string) bool {
		for len(all) > 0 && all[0].jid >= jid && err == nil && !ended(all[0].jid) {
			before = all[0].jid
			err = take(all[0])
			all = all[1:]
		}
		if err == nil && jid != before && !ended(jid) {
			before = jid
			err = take(candidate{jid: jid})
		}
		return err == nil && !ended(jid)
	})
	for _, x := range all {
		if err != nil || ended(x.jid) {
			break
		}
		err = take(x)
	}
	if err != nil {
		return nil, err
	}
	slices.Reverse(out)
	return out, nil
}

// readLoad returns the job of a directory, or false if there is none. It logs a load that cannot be read.
func (c *Local) readLoad(dir string) (Job, bool) {
	v, ok, err := readValue(dir + "/" + loadFile)
	if err != nil {
		c.log.Warn("job cache: job left out", "path", dir, "error", err)
		return Job{}, false
	}
	load, isMap := v.(*value.Map)
	if !ok || !isMap {
		return Job{}, false
	}
	jid := load.Str("jid")
	return Job{jid, load}, checkJID(jid) == nil
}

func isFindJob(load *value.Map) bool { return load.Str("fun") == "saltutil.find_job" }

func isRun(load *value.Map) bool {
	fun := load.Str("fun")
	return strings.HasPrefix(fun, "runner.") || strings.HasPrefix(fun, "wheel.")
}
