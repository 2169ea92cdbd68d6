// Package unanswered tracks which minions have not answered which jobs since the master's start.
//
//	event bus: start of a job, return ──> Tracker ──> Of: jobs that a minion has not answered
//	                                                └─> Deaf: minions that are connected and answer nothing
//
// In a cluster the bus has the jobs and returns of all masters. A minion is deaf if this master sees it
// connected, and has heard nothing from it since two jobs: it would have answered the second one even
// while it works at the first. A minion whose requests come from another address than its subscription was known to
// be connected by its answers: it is deaf as long as there is a subscription left for it that belongs to nobody known.
//
// A syndic answers no job itself, so none is open for it.
//
// Bounds: maxMinions minions, maxJobs jobs of each, for keepFor. Jobs of further minions are not
// tracked. If events were lost, the Tracker forgets everything and begins again, because a lost return
// would make its minion seem deaf.
package unanswered

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/master/event"
	"saltern/master/history/summary"
	"saltern/master/value"
)

const (
	depth      = 16_384 // events that wait
	maxMinions = 100_000
	maxJobs    = 5 // jobs of a minion: the first, and the latest ones
	keepFor    = 24 * time.Hour
	lookEvery  = 30 * time.Second

	// deafAfter is how long a minion has not answered a job when it counts as deaf. Within that time it
	// got another job, at least askedAgain after the first one and before now.
	deafAfter  = 5 * time.Minute
	askedAgain = time.Minute
)

// Presence tells which minions are connected.
type Presence interface {
	// Connections returns the sorted ids of the minions that are connected to this master, and the number of
	// subscriptions that belong to nobody known.
	Connections() (ids []string, unattributed int)
	// LastRequest returns the address and the time of a minion's last authenticated request to this
	// master.
	LastRequest(id string) (from netip.Addr, at time.Time, ok bool)
	// SawAnswer records that a minion has answered a job that was published, to this master.
	SawAnswer(id string, at time.Time)
	// ForgetAnswer revokes what SawAnswer recorded of a minion.
	ForgetAnswer(id string)
}

// Syndics knows which minions are syndics.
type Syndics interface{ Known(id string) bool }

// Job is a job that a minion has not answered.
type Job struct {
	JID, Function, User string
	Start               time.Time
}

// pending are the jobs that a minion has not answered.
type pending struct {
	jobs []Job // the oldest first; without polls
	// first is when the minion got the oldest job, or poll, since the last sign of life, and again when it
	// got one more. They are zero if there was none.
	first, again time.Time
}

// Tracker tracks jobs that minions have not answered. It is safe for concurrent use.
type Tracker struct {
	sub      *event.Subscription
	presence Presence
	syndics  Syndics
	now      func() time.Time

	mu      sync.Mutex
	since   time.Time // since when the Tracker has all events
	minions map[string]*pending
	deaf    []string
	// doubtful are silent minions that were connected by their answers, which count no longer.
	doubtful map[string]bool
}

// New returns a Tracker of the jobs that start from now on. The caller must call Run.
func New(bus *event.Bus, presence Presence, syndics Syndics, now func() time.Time) *Tracker {
	return &Tracker{
		sub:      bus.Subscribe("unanswered jobs", depth, event.IsStartOrReturn),
		presence: presence,
		syndics:  syndics,
		now:      now,
		since:    now(),
		minions:  map[string]*pending{},
	}
}

// Run follows jobs and returns until ctx ends.
func (t *Tracker) Run(ctx context.Context) {
	defer t.sub.Close()
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for {
		select {
		case e, open := <-t.sub.C:
			if !open {
				return
			}
			t.take(e)
		case <-look.C:
			t.look()
		case <-ctx.Done():
			return
		}
	}
}

func (t *Tracker) take(e event.Event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if e.Lost > 0 {
		clear(t.minions)
		t.since = now
	}

	jid := e.Data.Str("jid")
	if minion := event.Returner(e.Tag); minion != "" {
		published := t.answered(minion, jid) || isPoll(functionOf(e.Data))
		if published && e.Origin != event.Peer {
			t.presence.SawAnswer(minion, now)
		}
		return
	}
	job := Job{JID: jid, Function: functionOf(e.Data), User: e.Data.Str("user"), Start: now}
	for _, minion := range minionsOf(e.Data) {
		t.began(minion, job)
	}
}

// functionOf returns the function of a job. Several are separated by commas.
func functionOf(data *value.Map) string {
	function := summary.FunctionOf(data)
	const longest = 255
	return strings.Clone(function[:min(len(function), longest)])
}

// minionsOf returns the minions of an event that starts a job. An event of this master has a
// []string there; an event of a peer has a decoded []any.
func minionsOf(data *value.Map) []string {
	if list, ok := data.Value("minions").([]string); ok {
		return list
	}
	return data.Texts("minions")
}

// began notes that a minion was sent a job. The caller holds mu.
func (t *Tracker) began(minion string, job Job) {
	if t.syndics.Known(minion) {
		delete(t.minions, minion) // it may have become known after an earlier job
		return
	}

	p := t.minions[minion]
	if p == nil {
		if len(t.minions) >= maxMinions {
			return
		}
		p = &pending{}
		t.minions[minion] = p
	}

	switch {
	case p.first.IsZero():
		p.first = job.Start
	case p.again.IsZero() && job.Start.Sub(p.first) >= askedAgain:
		p.again = job.Start
	}

	if isPoll(job.Function) || slices.ContainsFunc(p.jobs, func(j Job) bool { return j.JID == job.JID }) {
		return
	}
	if len(p.jobs) == maxJobs {
		p.jobs = slices.Delete(p.jobs, 1, 2)
	}
	p.jobs = append(p.jobs, job)
}

// isPoll reports whether a function only asks whether a job still runs.
func isPoll(function string) bool {
	return function == "saltutil.find_job" || function == "saltutil.running"
}

// answered notes a return, and reports whether it belongs to a job that the minion was sent. The caller holds
// mu.
func (t *Tracker) answered(minion, jid string) (published bool) {
	p := t.minions[minion]
	if p == nil {
		return false
	}
	before := len(p.jobs)
	p.first = time.Time{}
	p.again = time.Time{}
	p.jobs = slices.DeleteFunc(p.jobs, func(j Job) bool { return j.JID == jid })
	published = len(p.jobs) < before
	if len(p.jobs) == 0 {
		delete(t.minions, minion)
	}
	return published
}

// look forgets old jobs, and finds the minions that are deaf. A minion that answers nothing any more no longer
// counts as connected because of an earlier answer.
func (t *Tracker) look() {
	silent := t.silentMinions()
	if len(silent) == 0 { // as almost always: to know who is connected takes a walk over all subscriptions
		t.mu.Lock()
		defer t.mu.Unlock()
		t.doubtful = nil
		t.deaf = nil
		return
	}

	before, _ := t.presence.Connections()
	for _, minion := range silent {
		t.presence.ForgetAnswer(minion)
	}
	connected, unattributed := t.presence.Connections()

	t.mu.Lock()
	defer t.mu.Unlock()
	doubtful := map[string]bool{}
	for _, minion := range silent {
		_, was := slices.BinarySearch(before, minion)
		_, is := slices.BinarySearch(connected, minion)
		if !is && (was || t.doubtful[minion]) {
			doubtful[minion] = true
		}
	}

	t.doubtful = doubtful
	t.deaf = slices.DeleteFunc(silent, func(minion string) bool {
		_, present := slices.BinarySearch(connected, minion)
		listens := doubtful[minion] && len(doubtful) <= unattributed
		return !present && !listens
	})
}

// silentMinions forgets old jobs, and returns the sorted ids of the minions that answer nothing.
func (t *Tracker) silentMinions() (silent []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for _, minion := range slices.Sorted(maps.Keys(t.minions)) {
		p := t.minions[minion]
		p.age(now)
		if _, at, ok := t.presence.LastRequest(minion); ok && at.After(p.first) {
			p.first = time.Time{}
			p.again = time.Time{}
		}
		if len(p.jobs) == 0 && p.first.IsZero() {
			delete(t.minions, minion)
			continue
		}

		if p.isSilent(now) {
			silent = append(silent, minion)
		}
	}
	return silent
}

// age forgets what is older than keepFor. Times that are ahead, because the clock was, become now.
func (p *pending) age(now time.Time) {
	for _, at := range []*time.Time{&p.first, &p.again} {
		if at.After(now) {
			*at = now
		}
	}
	if now.Sub(p.first) > keepFor {
		p.first = p.again
		p.again = time.Time{}
	}
	for i := range p.jobs {
		if p.jobs[i].Start.After(now) {
			p.jobs[i].Start = now
		}
	}
	p.jobs = slices.DeleteFunc(p.jobs, func(j Job) bool { return now.Sub(j.Start) > keepFor })
}

// isSilent reports whether a minion answered neither its first job nor the one after it.
func (p *pending) isSilent(now time.Time) bool {
	return !p.first.IsZero() && now.Sub(p.first) >= deafAfter &&
		!p.again.IsZero() && now.Sub(p.again) >= askedAgain
}

// Deaf returns the minions that are connected to this master and answer nothing, sorted. It is at most
// half a minute old. t may be nil: then there are none.
func (t *Tracker) Deaf() []string {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.deaf)
}

// Of returns the jobs that a minion has not answered, the oldest first: of more than maxJobs the first
// and the latest. since is when the Tracker began; it does not know earlier jobs.
func (t *Tracker) Of(minion string) (jobs []Job, since time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p := t.minions[minion]; p != nil {
		jobs = slices.Clone(p.jobs)
	}
	return jobs, t.since
}
