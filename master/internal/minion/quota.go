package minion

import (
	"sync"
	"time"

	"saltern/internal/ratelimit"
	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/value"
)

const (
	// defaultQuota is the default of saltern_job_cache_quota, in bytes.
	defaultQuota = 512 << 20
	// defaultWindow is the time in which a used quota is regained if jobs are kept for ever.
	defaultWindow = 24 * time.Hour
	// returnFiles is the approximate size on disk of a small return's files, in bytes.
	returnFiles = 16 << 10
	// OverQuota replaces the value in a return of a minion that is over its quota. It begins with
	// the text that Salt uses for values that are too large (salt/utils/dicttrim.py).
	OverQuota = "VALUE_TRIMMED: this minion has used up its part of the job cache (saltern_job_cache_quota)"
)

// quota bounds how much each minion writes into this master's job cache, in bytes per keep_jobs. A
// minion regains its used bytes evenly over that time, so the disk holds at most twice the quota of
// a minion. The used bytes are reset when the master restarts.
type quota struct {
	bytes  float64 // quota of one minion in bytes; 0: no bound
	window time.Duration

	mu      sync.Mutex
	buckets map[string]*ratelimit.Bucket
}

// newQuota returns a quota. mib is the option, in MiB: 0 means the default, a negative number means
// no bound. window is the time in which a used quota is regained; 0 means defaultWindow.
func newQuota(mib int, window time.Duration) *quota {
	if window <= 0 {
		window = defaultWindow
	}
	q := &quota{bytes: defaultQuota, window: window, buckets: map[string]*ratelimit.Bucket{}}
	if mib != 0 {
		q.bytes = max(0, float64(mib)*(1<<20))
	}
	return q
}

// chargeReturn charges a return to a minion, and reports whether the return may be stored with its
// value.
func (q *quota) chargeReturn(id string, size int, now time.Time) bool {
	if q.bytes == 0 {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	u := q.buckets[id]
	if u == nil {
		u = &ratelimit.Bucket{}
		q.buckets[id] = u
	}
	return u.Take(now, ratelimit.Rate{Burst: q.bytes, PerSecond: q.bytes / q.window.Seconds()}, float64(size))
}

// forget drops the entry of a minion whose key was removed.
func (q *quota) forget(id string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.buckets, id)
}

// keptReturn returns a return in the form in which it is stored: unchanged, or without its value if
// the minion is over its quota. The minion gets an acknowledgement in both cases, because it would
// repeat the return otherwise.
func (s *Service) keptReturn(id string, load *value.Map) jobs.Return {
	if s.quota.chargeReturn(id, event.Weight(load)+returnFiles, s.cfg.Now()) {
		return jobs.ReturnOf(load)
	}

	s.trimmed.Add(1)
	s.cfg.Quiet.Error("return kept without its value: the minion is over saltern_job_cache_quota", "minion",
		id, "jid", load.Str("jid"))
	short := value.NewMap()
	for _, k := range []string{"jid", "id", "fun", "retcode", "success", "tgt", "tgt_type", "user"} {
		if v, ok := load.Get(k); ok && event.Weight(value.NewMap(k, v)) < 1024 {
			short.Set(k, v)
		}
	}

	short.Set("fun_args", []any{})
	short.Set("return", OverQuota)
	return jobs.ReturnOf(short)
}
