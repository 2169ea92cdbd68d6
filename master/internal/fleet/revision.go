package fleet

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// A Source tells the revision of some of the files that minions are served.
type Source interface {
	// Revision returns a text that is the same on all masters that serve the same files, and
	// differs after any change of a file. It is "" if there are no files.
	Revision(ctx context.Context) (string, error)
}

const (
	// lookEvery is how often Run looks at the files when nobody asks.
	lookEvery = 10 * time.Second
	// The pause after a look is lookShare times as long as the look, at most longestGap. So looks
	// take a sixth of one CPU, and more only if a look takes longer than longestGap/lookShare.
	lookShare  = 5
	longestGap = time.Second
	// firstRequest is the shortest time from the start of a job until the minion asks for the first
	// file: before that, it loads its modules and gets its pillar.
	firstRequest = 300 * time.Millisecond
	// longestWait is how long somebody waits for a look: it may hang on a network file system, and a
	// return that waits is not stored.
	longestWait = 5 * time.Second
)

// Revisions tells which revision of the files a minion was served during a run. It looks at files
// and git snapshots every ten seconds, when a run starts, and when it is asked.
//
// What it cannot tell: which of the files a minion used, so that a change of any file counts; what
// external pillars, the mine or grains contain; and a change that keeps the name and the modification
// time of a file. For a run during which files changed, and while a look hangs, it answers "".
//
// Each look has a goroutine, of which there is one at a time.
type Revisions struct {
	sources []Source
	now     func() time.Time
	log     *slog.Logger
	started chan struct{} // has an element when a run has started and nobody has looked since

	mu      sync.Mutex
	seen    observation
	looking chan struct{} // closed at the end of the look in progress; nil: there is none
	began   time.Time     // when the look in progress began
	failed  bool          // the last look failed
	slow    bool          // it was logged that looks take too long
}

// observation is the result of a look at the files.
type observation struct {
	begun    time.Time // when the look began
	took     time.Duration
	revision string    // "" if the look failed
	since    time.Time // when the first of the looks in a row with this revision began
}

// NewRevisions returns a Revisions of all sources together.
func NewRevisions(sources []Source, now func() time.Time, log *slog.Logger) *Revisions {
	return &Revisions{sources: sources, now: now, log: log, started: make(chan struct{}, 1)}
}

// Started makes Run look at the files now. Call it when a run of states starts.
func (r *Revisions) Started() {
	select {
	case r.started <- struct{}{}:
	default:
	}
}

// Run looks at the files again and again until ctx ends. Then it waits for the look in progress, but no
// longer than longestWait: nobody can end a look that hangs.
func (r *Revisions) Run(ctx context.Context) {
	defer r.awaitEnd()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		r.await(ctx, r.now())
		select {
		case <-tick.C:
		case <-r.started:
		case <-ctx.Done():
			return
		}
	}
}

// Latest returns the revision of the files that a minion was served during a run from began until
// now. It does not look at the files, so it may miss a change of the last ten seconds.
func (r *Revisions) Latest(began time.Time) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.hangsLocked() {
		return ""
	}
	return r.seen.during(began)
}

// Served works like Latest, but looks at the files first. Callers at the same time share a look.
func (r *Revisions) Served(ctx context.Context, began time.Time) string {
	return r.await(ctx, r.now()).during(began)
}

// during returns the revision if it was the same from began until the look.
func (o observation) during(began time.Time) string {
	if began.Add(firstRequest).Before(o.since) {
		return ""
	}
	return o.revision
}

// await returns an observation that began at since or later, or none when ctx ends or the look takes too
// long.
func (r *Revisions) await(ctx context.Context, since time.Time) observation {
	tooLong := time.NewTimer(longestWait)
	defer tooLong.Stop()
	for ctx.Err() == nil {
		seen, over := r.lookSince(ctx, since)
		if over == nil {
			return seen
		}

		select {
		case <-over:
		case <-ctx.Done():
		case <-tooLong.C:
			r.reportSlow()
			return observation{}
		}
	}
	return observation{}
}

// lookSince returns what a look has seen that began at since or later, or none if a look hangs. Otherwise it
// returns a channel that is closed at the end of the look in progress, which it begins if there is none.
func (r *Revisions) lookSince(ctx context.Context, since time.Time) (seen observation, over <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seen.begun.Before(since) {
		return r.seen, nil
	}
	if r.hangsLocked() {
		return observation{}, nil
	}

	if r.looking == nil {
		r.looking = make(chan struct{})
		r.began = r.now()
		// Others wait for this look, so it does not end with the context of the one who began it.
		go r.look(context.WithoutCancel(ctx), r.seen)
	}
	return observation{}, r.looking
}

// hangsLocked reports whether somebody has waited in vain for the look in progress. The caller holds mu.
func (r *Revisions) hangsLocked() bool {
	return r.looking != nil && r.now().Sub(r.began) >= longestWait
}

// reportSlow logs, once for all looks in a row that take too long, that nobody waits for them.
func (r *Revisions) reportSlow() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.slow {
		r.log.Warn("looking at the files takes too long: runs of states cannot be compared; "+
			"is a network file system away?", "waited", longestWait)
	}
	r.slow = true
}

// awaitEnd waits for the end of the look in progress, but no longer than longestWait.
func (r *Revisions) awaitEnd() {
	r.mu.Lock()
	over := r.looking
	r.mu.Unlock()
	if over == nil {
		return
	}

	tooLong := time.NewTimer(longestWait)
	defer tooLong.Stop()
	select {
	case <-over:
	case <-tooLong.C:
	}
}

// look reads the revisions of all sources, and ends the look in progress. It runs in a goroutine of its own.
func (r *Revisions) look(ctx context.Context, before observation) {
	gap := min(lookShare*before.took, longestGap) - r.now().Sub(before.begun.Add(before.took))
	if gap > 0 && !before.begun.IsZero() {
		time.Sleep(gap) // longestGap at most
	}

	seen := observation{begun: r.now(), since: before.since}
	revision, err := r.read(ctx)
	seen.took = r.now().Sub(seen.begun)
	seen.revision = revision
	if revision != before.revision || before.begun.IsZero() {
		seen.since = seen.begun
	}

	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil && !r.failed {
		r.log.Warn("the revision of the files is not known: runs of states cannot be compared", "error", err)
	}
	r.failed = err != nil
	// Who waits may wait for two looks and the gap between them.
	r.slow = r.slow && 2*seen.took+longestGap >= longestWait
	r.seen = seen
	close(r.looking)
	r.looking = nil
}

func (r *Revisions) read(ctx context.Context) (string, error) {
	var all []string
	for _, source := range r.sources {
		text, err := source.Revision(ctx)
		if err != nil {
			return "", err
		}
		if text != "" {
			all = append(all, text)
		}
	}

	if len(all) == 1 && len(all[0]) <= 64 {
		return all[0], nil
	}
	sum := sha256.Sum256([]byte(strings.Join(all, "\n")))
	return hex.EncodeToString(sum[:8]), nil
}
