package launch

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"saltern/internal/durable"
	"saltern/internal/ratelimit"
	"saltern/master/event"
	"saltern/master/value"
)

const (
	// defaultUserQuota is the default of saltern_user_job_quota, in bytes. 50,000 jobs a day with
	// short arguments use 0.8 GiB.
	defaultUserQuota = 2 << 30
	// defaultWindow is the time in which a used quota is regained if jobs are kept for ever.
	defaultWindow = 24 * time.Hour
	// jobFiles is the approximate size on disk of a job without its load, in bytes: a directory and
	// three small files.
	jobFiles = 16 << 10
	// maxAccounts bounds the number of accounts. Overflow policy: the account with the least use is
	// dropped.
	maxAccounts = 65536
	// maxQuotaFile bounds the size of the file of used quotas, in bytes.
	maxQuotaFile = 16 << 20
)

// quota bounds how much each caller without all rights writes into the job cache, in bytes per
// keep_jobs. An account regains its used bytes evenly over that time, so the disk holds at most
// twice the quota of an account. quota is safe for concurrent use.
type quota struct {
	rate   ratelimit.Rate // if Burst is 0, there is no bound
	window time.Duration

	mu      sync.Mutex
	buckets map[string]*ratelimit.Bucket // buckets by account
	changed bool                         // changed since the last saveUsage
}

// newQuota returns a quota. mib is the option, in MiB: 0 means the default, a negative number means
// no bound. window is the time in which a used quota is regained.
func newQuota(mib int, window time.Duration) *quota {
	burst := float64(defaultUserQuota)
	if mib != 0 {
		burst = max(0, float64(mib)*(1<<20))
	}
	if window <= 0 {
		window = defaultWindow
	}
	return &quota{
		rate:    ratelimit.Rate{Burst: burst, PerSecond: burst / window.Seconds()},
		window:  window,
		buckets: map[string]*ratelimit.Bucket{},
	}
}

// jobCost returns the approximate size of a job on disk, in bytes. It leaves out the list of
// minions, because each minion is charged for its own return.
func jobCost(load *value.Map) int {
	sent := load.Clone()
	sent.Delete("minions")
	sent.Delete("missing")
	return event.Weight(sent) + jobFiles
}

// chargeOrRefuse charges a job to an account, or returns a Refusal if the account is over its
// quota. An empty account has no quota.
func (q *quota) chargeOrRefuse(account string, cost int, now time.Time) error {
	if account == "" || q.rate.Burst == 0 {
		return nil
	}

	q.mu.Lock()
	defer q.mu.Unlock()

	bucket, need := q.bucketOf(account, now), float64(cost)
	if bucket.Take(now, q.rate, need) {
		q.changed = true
		return nil
	}

	return q.refusal(bucket.Used(now, q.rate), need)
}

// roomOrRefuse returns a Refusal if chargeOrRefuse would refuse this cost now. It charges nothing.
func (q *quota) roomOrRefuse(account string, cost int, now time.Time) error {
	if account == "" || q.rate.Burst == 0 {
		return nil
	}

	q.mu.Lock()
	defer q.mu.Unlock()

	used := q.bucketOf(account, now).Used(now, q.rate)
	if used+float64(cost) <= q.rate.Burst {
		return nil
	}
	return q.refusal(used, float64(cost))
}

// refusal returns the Refusal of a job that needs more than an account has left.
func (q *quota) refusal(used, need float64) error {
	burst := mebibytes(q.rate.Burst)
	if need > q.rate.Burst {
		return refuse("this job takes %s of the job cache, more than a user may have there (%s, saltern_user_job_quota): send less",
			mebibytes(need), burst)
	}

	wait := time.Duration((used + need - q.rate.Burst) / q.rate.PerSecond * float64(time.Second)).Round(time.Second)
	return refuse("you have %s of jobs in the job cache, and a user may have %s within %v (saltern_user_job_quota): wait %v, or send less",
		mebibytes(used), burst, q.window, max(wait, time.Second))
}

// chargePeerJob charges an account for a job that another master of the cluster has accepted. It
// never refuses the job.
func (q *quota) chargePeerJob(account string, cost int, now time.Time) {
	if account == "" || q.rate.Burst == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.bucketOf(account, now).Charge(now, q.rate, float64(cost))
	q.changed = true
}

func mebibytes(n float64) string { return fmt.Sprintf("%.1f MiB", n/(1<<20)) }

// bucketOf returns the bucket of an account. The caller holds mu.
func (q *quota) bucketOf(account string, now time.Time) *ratelimit.Bucket {
	b := q.buckets[account]
	if b != nil {
		return b
	}
	if len(q.buckets) >= maxAccounts {
		q.evictLeast(now)
	}
	b = &ratelimit.Bucket{}
	q.buckets[account] = b
	return b
}

// evictLeast drops the account with the least use. The caller holds mu.
func (q *quota) evictLeast(now time.Time) {
	least, ofLeast := "", -1.0
	for account, b := range q.buckets {
		if used := b.Used(now, q.rate); ofLeast < 0 || used < ofLeast {
			least, ofLeast = account, used
		}
		if ofLeast == 0 {
			break
		}
	}
	delete(q.buckets, least)
}

// savedQuota is the content of the quota file: how much each account had used at the time At.
type savedQuota struct {
	At   int64            `json:"at"` // in Unix seconds
	Used map[string]int64 `json:"used"`
}

// loadUsage reads the used quotas from the file that saveUsage wrote before this start. If it
// cannot read the file, it returns an error, and the accounts start without use.
func (q *quota) loadUsage(path string, now time.Time) error {
	b, err := durable.Read(path, maxQuotaFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}

	var saved savedQuota
	if err == nil {
		err = json.Unmarshal(b, &saved)
	}

	if err != nil {
		return fmt.Errorf("read what users have used of the job cache, from now on it is counted anew: %w", err)
	}

	at := time.Unix(saved.At, 0)
	if at.After(now) {
		at = now // the clock was put back
	}

	q.mu.Lock()
	defer q.mu.Unlock()
	for account, used := range saved.Used {
		if len(q.buckets) >= maxAccounts {
			break
		}
		b := &ratelimit.Bucket{}
		b.Charge(at, q.rate, float64(max(used, 0)))
		q.buckets[account] = b
	}

	return nil
}

// saveUsage writes the used quotas for the next start, if anything has changed.
func (q *quota) saveUsage(path string, now time.Time) error {
	q.mu.Lock()
	saved := savedQuota{At: now.Unix(), Used: map[string]int64{}}
	for account, b := range q.buckets {
		if used := int64(b.Used(now, q.rate)); used > 0 {
			saved.Used[account] = used
		} else {
			delete(q.buckets, account)
		}
	}

	changed := q.changed
	q.changed = false
	q.mu.Unlock()

	if !changed {
		return nil
	}

	b, err := json.Marshal(saved)
	if err == nil {
		err = durable.Replace(path, b, 0o600)
	}

	if err != nil {
		q.mu.Lock()
		q.changed = true // so that the next call writes the file
		q.mu.Unlock()
		return fmt.Errorf("write what users have used of the job cache: %w", err)
	}

	return nil
}
