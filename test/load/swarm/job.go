package main

import (
	"fmt"
	"sync"
	"time"

	"saltern/test/load/spread"
)

// jobReport is what hold says of one job. Times are milliseconds.
type jobReport struct {
	JID      string         `json:"jid"`
	Fun      string         `json:"fun"`
	Matched  int            `json:"matched"`                  // minions of the swarm that are meant
	Returned int            `json:"returned"`                 // returns that the master acknowledged
	Failed   int            `json:"failed"`                   // returns that it did not
	Start    float64        `json:"publish_ack_ms,omitempty"` // -drive: from the request for the job to its answer
	Total    float64        `json:"total_ms,omitempty"`       // -drive: from the request for the job to the last return
	FanOut   float64        `json:"fan_out_ms"`               // from the first publish that came to the last one
	Whole    float64        `json:"pub_to_last_ret_ms"`       // from the first publish that came to the last return
	Rate     float64        `json:"returns_per_s"`
	Latency  spread.Summary `json:"return_ms"`
}

// job is what the swarm knows of one.
type job struct {
	jid, fun               string
	matched, failed        int
	asked, begun           time.Time // by -drive
	heard, last, collected time.Time // first and last publish, last return
	latency                []float64 // of acknowledged returns
	complete               chan struct{}
}

func (j *job) report() jobReport {
	r := jobReport{
		JID:      j.jid,
		Fun:      j.fun,
		Matched:  j.matched,
		Returned: len(j.latency),
		Failed:   j.failed,
		Latency:  spread.Of(j.latency),
		FanOut:   millis(j.last.Sub(j.heard)),
	}
	if r.Returned == 0 {
		return r
	}

	r.Whole = millis(j.collected.Sub(j.heard))
	r.Rate = 1000 * float64(r.Returned) / r.Whole
	if !j.asked.IsZero() {
		r.Start, r.Total = millis(j.begun.Sub(j.asked)), millis(j.collected.Sub(j.asked))
	}

	return r
}

// ledger is the account of all jobs. It is safe for concurrent use.
type ledger struct {
	ids  []string      // of the swarm
	done chan struct{} // closed when enough jobs are complete

	mu   sync.Mutex
	jobs map[string]*job
	list []*job // as they came
	left int    // complete jobs until done; 0: done is never closed
}

func newLedger(ids []string, jobs int) *ledger {
	return &ledger{ids: ids, done: make(chan struct{}), jobs: map[string]*job{}, left: jobs}
}

// entry finds or makes the account of a job. The caller holds mu.
func (l *ledger) entry(jid string) *job {
	j := l.jobs[jid]
	if j == nil {
		j = &job{jid: jid, complete: make(chan struct{})}
		l.jobs[jid] = j
		l.list = append(l.list, j)
	}
	return j
}

// begun notes that the swarm has started a job. The channel is closed when
// all returns to it have been given.
func (l *ledger) begun(jid string, asked, answered time.Time) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.entry(jid)
	j.asked, j.begun = asked, answered
	return j.complete
}

// heard notes that a publish came to a minion that it is for.
func (l *ledger) heard(o *order, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.entry(o.jid)
	if j.matched == 0 {
		j.fun, j.heard = o.fun, now
		for _, id := range l.ids {
			if o.meant(id) {
				j.matched++
			}
		}
	}
	j.last = now
}

// returned notes a return that was given, and whether it was acknowledged.
func (l *ledger) returned(o *order, took time.Duration, now time.Time, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	j := l.entry(o.jid)
	if err != nil {
		j.failed++
	} else {
		j.latency = append(j.latency, millis(took))
		j.collected = now
	}

	if len(j.latency)+j.failed != j.matched {
		return
	}

	close(j.complete)
	if o.fun != findJob && l.left > 0 {
		l.left--
		if l.left == 0 {
			close(l.done)
		}
	}
}

// sum reports all jobs, and an error for each that is not complete.
func (l *ledger) sum() (jobs []jobReport, faults []error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, j := range l.list {
		r := j.report()
		jobs = append(jobs, r)
		if missing := r.Matched - r.Returned; missing > 0 {
			faults = append(faults,
				fmt.Errorf("job %s: %d of %d returns were not acknowledged", j.fun, missing, r.Matched))
		}
	}
	return jobs, faults
}
