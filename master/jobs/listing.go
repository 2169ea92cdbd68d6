package jobs

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// listing remembers the job of each job directory, so that a list of the newest jobs reads the loads of
// those only. A directory has the same job for ever, and a listing forgets directories that are gone.
type listing struct {
	mu   sync.Mutex
	jobs map[string]listedJob // by directory; a listing replaces the map and never changes it
}

// maxRemembered bounds the directories that a listing remembers. Overflow policy: the loads of the others are
// read each time.
const maxRemembered = 100_000

// listedJob is what a listing remembers of a job.
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
// It ignores the other fields of q, and skips and logs loads that cannot be read.
func (c *Local) Newest(ctx context.Context, q Query) ([]Job, error) {
	wants := func(l listedJob) bool { return !(q.NoFindJob && l.findJob) && !(q.NoRuns && l.isRun) }
	var all []candidate
	open := c.overlay.openLoads()
	for jid, b := range open {
		v, err := msgpack.Decode(b, msgpack.DefaultLimits)
		if load, ok := v.(*value.Map); ok && err == nil && wants(listedOf(Job{jid, load})) {
			all = append(all, candidate{jid: jid, job: Job{jid, load}})
		}
	}

	c.listing.mu.Lock()
	before := c.listing.jobs
	c.listing.mu.Unlock()
	now := make(map[string]listedJob, len(before))
	err := c.eachDir(ctx, func(dir string) error {
		l, ok := before[dir]
		if !ok {
			j, ok := c.readLoad(dir)
			if !ok {
				return nil
			}
			l = listedOf(j)
		}
		if len(now) < maxRemembered {
			now[dir] = l
		}
		if _, isOpen := open[l.jid]; !isOpen && wants(l) {
			all = append(all, candidate{jid: l.jid, dir: dir})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.listing.mu.Lock()
	c.listing.jobs = now
	c.listing.mu.Unlock()
	return c.newestOf(ctx, all, q)
}

// newestOf reads the loads of the newest candidates.
func (c *Local) newestOf(ctx context.Context, all []candidate, q Query) (out []Job, err error) {
	slices.SortFunc(all, func(a, b candidate) int { return cmp.Compare(b.jid, a.jid) })
	for _, x := range all {
		if len(out) == q.Last {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if x.dir != "" {
			var ok bool
			if x.job, ok = c.readLoad(x.dir); !ok {
				continue // removed meanwhile
			}
		}
		if q.matches(x.job) {
			out = append(out, x.job)
		}
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
