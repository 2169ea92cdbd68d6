// Package newest ensures that a job uses files that are at least as new as the start of the job.
//
// On a shared volume the master serves files from a copy on its own disk, so that state runs
// continue when the volume hangs. The supervisor updates the copy. Before the master uses the copy
// for a request, it asks the supervisor whether the copy is new enough: as new as the start of the
// job or the minion's sign-in (salt-call signs in but starts no job), and never older than a bound.
// Requests that need the copy at the same time share one query and one pass over the volume. If the
// volume does not answer, the master serves the old copy and fires an event as a warning.
package newest

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

const (
	// latelyLeast is how old the copy may be for a request that requires no particular time. If the
	// last query was slow, the copy may be older: latelyAsks times the duration of that query, but
	// at most latelyMost. So queries do not keep the volume busy all the time.
	latelyLeast = 2 * time.Second
	latelyAsks  = 6
	latelyMost  = 30 * time.Second
	// askAgain is the time, after the volume has failed to answer, during which requests do not
	// wait for the volume.
	askAgain = 10 * time.Second
	// toldAgain is the least time between two warnings about old files of a minion for the same
	// job.
	toldAgain = 30 * time.Second
	// maxMinions bounds the number of entries in each of the two maps of minions. Overflow policy:
	// the map is cleared. After that the files for minions that signed in before the clearing are
	// only as new as the last job, and warnings may be repeated.
	maxMinions = 100_000
	// maxWaiting bounds the number of requests of minions that wait for files. Overflow policy: a
	// further request gets no answer, so that its minion asks again.
	maxWaiting = 20_000
)

var errWaiting = errors.New("too many requests wait for the newest files")

// Config of a Service.
type Config struct {
	// Ask asks the supervisor to update the copy. It may be nil: there is no copy, and the master
	// serves the original files.
	Ask func(ctx context.Context, q control.NewestQuestion) (control.Newest, error)
	// Fire fires an event on the bus.
	Fire func(tag string, data *value.Map)
	// Node is the name of this node in events.
	Node string
	Now  func() time.Time
	Log  *slog.Logger
}

// Service records how new the copy is, and asks the supervisor to update it. It is safe for
// concurrent use.
type Service struct {
	cfg  Config
	end  context.CancelFunc
	ctx  context.Context
	work sync.WaitGroup

	mu       sync.Mutex
	direct   bool                 // there is no copy: the original files are served
	job      time.Time            // start of the newest job
	signedIn map[string]time.Time // time of each minion's last sign-in
	asOf     time.Time            // time as of which the copy contains the files
	copy     string               // path of the copy; "": unknown
	source   string               // path of the original files
	took     time.Duration        // duration of the last query
	asking   *question            // the query in progress; nil: none
	old      *Old                 // why the copy is not newer; nil: the last query succeeded
	except   *Old                 // files that are older than the copy; nil: none
	failed   time.Time            // time at which old was set
	waiting  int                  // number of waiting requests of minions
	toldOld  map[string]time.Time // when a warning was last fired, by minion
	warnings warnings
	stats    control.Files // counters; the fields AsOf and Old are not used
}

// question is a query to the supervisor in progress.
type question struct {
	begun time.Time
	over  chan struct{}
}

// Old describes outdated files that are served, and the reason.
type Old struct {
	AsOf time.Time // time as of which the files are current; zero: unknown
	Why  string
	Few  bool // only the files named in Why are outdated
}

// New returns a Service.
func New(cfg Config) *Service {
	s := &Service{cfg: cfg, direct: cfg.Ask == nil, signedIn: map[string]time.Time{}, toldOld: map[string]time.Time{}}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// Close cancels the query in progress, and fires the waiting warnings.
func (s *Service) Close() {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.work.Wait()
}

// Stats returns the state of the copy, or nil if there is no copy.
func (s *Service) Stats() *control.Files {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.direct {
		return nil
	}
	stats := s.stats
	stats.AsOf = s.asOf
	if old := cmp.Or(s.old, s.except); old != nil {
		stats.Old = old.Why
	}
	return &stats
}

// readsNothing reports whether a function is one that tools call repeatedly while they wait for a
// job. Such functions read no files.
func readsNothing(fun string) bool {
	return fun == "saltutil.find_job" || fun == "saltutil.running" || fun == "test.ping"
}

// JobBegan records that this master or another one has started a job with this function.
func (s *Service) JobBegan(fun string) {
	if readsNothing(fun) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.job = s.cfg.Now()
}

// SignedIn records that a minion, or a tool such as salt-call on its machine, has signed in.
func (s *Service) SignedIn(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.signedIn) >= maxMinions {
		clear(s.signedIn)
	}
	s.signedIn[id] = s.cfg.Now()
}

// Since returns the time as of which a minion's files must be current: the start of the newest job,
// the minion's sign-in, or the result of Lately, whichever is latest. If minion is "", which means
// the master itself, it returns the result of Now.
func (s *Service) Since(minion string) time.Time {
	if minion == "" {
		return s.Now()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sinceFor(minion)
}

func (s *Service) sinceFor(minion string) time.Time {
	since := s.lately()
	if s.job.After(since) {
		since = s.job
	}
	if in := s.signedIn[minion]; in.After(since) {
		since = in
	}
	return since
}

// Lately returns the time as of which files must be current for frequent events, such as reactions.
func (s *Service) Lately() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lately()
}

func (s *Service) lately() time.Time {
	return s.cfg.Now().Add(-min(max(latelyLeast, latelyAsks*s.took), latelyMost))
}

// Now returns the time as of which files must be current for a user who waits for them.
func (s *Service) Now() time.Time { return s.cfg.Now() }

// Due reports whether Serve would have to wait until the copy is as new as since, or would fire a
// warning about the minion.
func (s *Service) Due(minion string, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.knownNow(since)
	return !known || old != nil && s.isUntold(minion)
}

// knownNow returns the result that Await would return without a query to the supervisor. known is
// false if Await would need a query. The caller holds mu.
func (s *Service) knownNow(since time.Time) (old *Old, known bool) {
	switch {
	case s.direct, s.ctx.Err() != nil:
		return nil, true
	case !s.asOf.Before(since):
		return s.except, true
	case s.old != nil && s.cfg.Now().Sub(s.failed) < askAgain:
		return s.old, true
	}
	return nil, false
}

// Await waits until the copy is as new as since, and then returns nil. If the copy, or a file in
// it, is still older after the wait, Await returns the reason. It waits for as long as the
// supervisor may take to renew the copy, see [control.NewestTakes], or until ctx ends.
func (s *Service) Await(ctx context.Context, since time.Time) *Old {
	for waits := uint64(1); ; waits = 0 {
		s.mu.Lock()
		old, known := s.knownNow(since)
		if known {
			s.mu.Unlock()
			return old
		}

		q := s.asking
		if q == nil {
			q = s.startQuestion()
		}

		s.stats.Waits += waits
		s.mu.Unlock()

		select {
		case <-q.over:
		case <-ctx.Done():
			return nil // the caller no longer waits
		}
	}
}

// Renew updates the copy from the shared volume. It returns an error if the copy could not be
// updated.
func (s *Service) Renew(ctx context.Context) error {
	old := s.Await(ctx, s.Now())
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case old != nil && !old.Few:
		return errors.New(old.Why)
	}
	return nil
}

// Source returns the directory on the shared volume that corresponds to dir in the copy. If dir is
// not in the copy, it returns dir. It returns an error if the volume does not answer.
func (s *Service) Source(ctx context.Context, dir string) (string, error) {
	if err := s.Renew(ctx); err != nil {
		return "", err
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.direct:
		return dir, nil
	case s.copy == "":
		return "", errors.New("applianced of this node does not say where the files are copied from; next: applianced upgrade")
	}

	rel, err := filepath.Rel(s.copy, dir)
	if err != nil || !filepath.IsLocal(rel) {
		return dir, nil
	}

	return filepath.Join(s.source, rel), nil
}

// Enter registers a waiting request. The caller must call leave when the request no longer waits.
// Enter returns an error if too many requests wait.
func (s *Service) Enter() (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting >= maxWaiting {
		s.stats.Refused++
		return nil, errWaiting
	}
	s.waiting++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.waiting--
	}, nil
}

// startQuestion starts a query. The caller holds mu.
func (s *Service) startQuestion() *question {
	q := &question{begun: s.cfg.Now(), over: make(chan struct{})}
	s.asking = q
	s.stats.Questions++
	s.work.Go(func() {
		answer, err := s.cfg.Ask(s.ctx, control.NewestQuestion{})
		s.answered(q, answer, err)
	})
	return q
}

func (s *Service) answered(q *question, answer control.Newest, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asking = nil
	close(q.over)
	s.stats.Seconds += s.cfg.Now().Sub(q.begun).Seconds()

	if filepath.IsAbs(answer.Copy) && filepath.IsAbs(answer.Source) {
		s.copy = filepath.Clean(answer.Copy)
		s.source = filepath.Clean(answer.Source)
	}

	before := s.old
	switch {
	case err != nil:
		s.old = &Old{AsOf: s.asOf, Why: err.Error()}
	case answer.Why != "":
		s.old = &Old{AsOf: answer.AsOf, Why: answer.Why}
		if s.old.AsOf.IsZero() {
			s.old.AsOf = s.asOf
		}
	default:
		s.old = nil
		s.except = nil
		if answer.Except != "" {
			s.except = &Old{AsOf: answer.AsOf, Why: answer.Except, Few: true}
		}

		s.direct = answer.Direct
		s.asOf = q.begun
		s.took = s.cfg.Now().Sub(q.begun)
	}

	switch {
	case s.old != nil:
		s.stats.Late++
		s.failed = s.cfg.Now()
		if before == nil && s.ctx.Err() == nil {
			s.cfg.Log.Warn("minions are served files of before: what is new cannot be copied", "as_of",
				s.old.AsOf, "error", s.old.Why)
		}
	case before != nil:
		s.cfg.Log.Info("minions are served the newest files again")
	}
}

// Serve works like Await, for a request of a minion. If the minion gets old files, Serve fires the
// event [event.TagOldFiles] before it returns, once for each job. One event covers all minions that
// got old files within warnEvery.
func (s *Service) Serve(ctx context.Context, minion string, since time.Time) {
	old := s.Await(ctx, since)
	if old == nil {
		return
	}

	s.mu.Lock()
	s.stats.ServedOld++
	if !s.isUntold(minion) {
		s.mu.Unlock()
		return
	}

	if len(s.toldOld) >= maxMinions {
		clear(s.toldOld)
	}

	s.toldOld[minion] = s.cfg.Now()
	w, due := s.addWarning(old, minion)
	s.mu.Unlock()

	if due {
		s.fireWarnings()
	}

	select {
	case <-w.fired:
	case <-ctx.Done():
	}
}

// isUntold reports whether a warning about old files of a minion is due: none was fired for the
// minion since the start of the newest job. The caller holds mu.
func (s *Service) isUntold(minion string) bool {
	last := s.toldOld[minion]
	return last.Before(s.job) || last.Before(s.signedIn[minion]) || s.cfg.Now().Sub(last) >= toldAgain
}

// Data returns the data of an event about the outdated files that the argument outdated describes.
// minion is the minion that gets the files; "" means that a runner reads them. An event about
// several minions lists them in the field "minions", see warnings.
func (s *Service) Data(outdated *Old, minion string) *value.Map {
	data := value.NewMap("node", s.cfg.Node, "why", outdated.Why, "as_of", "")
	if minion != "" {
		data.Set("id", minion)
	}
	if !outdated.AsOf.IsZero() {
		data.Set("as_of", outdated.AsOf.UTC().Format(time.RFC3339))
	}
	return data
}
