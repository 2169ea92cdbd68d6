// Package newest makes sure that a job is served files as new as its start.
//
// On a shared volume the master serves from a copy on its own disk, so that a volume that hangs
// stops no state runs. The supervisor makes the copy. Before the master reads it for somebody, it
// asks whether the copy is as new as required: as the start of a job, or as the sign-in of a minion
// (salt-call signs in, and starts no job), and never older than a bound. All that need the copy at
// the same time share one question, and one pass over the volume. When the volume does not answer,
// the old copy is served, and a warning says so.
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
	// latelyLeast is how old the copy may be where no time is required. It is extended to
	// latelyAsks times the duration of the last question, latelyMost at most: so much of the time
	// is left to others.
	latelyLeast = 2 * time.Second
	latelyAsks  = 6
	latelyMost  = 30 * time.Second
	// askAgain is how long nobody waits after the volume did not answer.
	askAgain = 10 * time.Second
	// toldAgain is after how long the warning that a minion is served an old copy is repeated
	// within the same job.
	toldAgain = 30 * time.Second
	// maxMinions bounds each of the two maps of minions. Overflow policy: the map is cleared. A
	// minion that signed in is then served by the time of the last job, and the warning is
	// repeated.
	maxMinions = 100_000
	// maxWaiting bounds the requests of minions that wait. Overflow policy: one more gets no
	// answer, and its minion asks again.
	maxWaiting = 20_000
)

var errWaiting = errors.New("too many requests wait for the newest files")

// Config of a Service.
type Config struct {
	// Ask asks the supervisor to copy changes. It may be nil: there is no copy.
	Ask func(ctx context.Context, q control.NewestQuestion) (control.Newest, error)
	// Fire puts an event on the bus.
	Fire func(tag string, data *value.Map)
	// Node is the name of this node for administrators.
	Node string
	Now  func() time.Time
	Log  *slog.Logger
}

// Service knows how new the copy is. It is safe for concurrent use.
type Service struct {
	cfg  Config
	end  context.CancelFunc
	ctx  context.Context
	work sync.WaitGroup

	mu       sync.Mutex
	direct   bool                 // files are served without a copy
	job      time.Time            // when the newest job began
	signedIn map[string]time.Time // when minions signed in
	asOf     time.Time            // how new the copy is
	copy     string               // path of the copy; empty: not known
	source   string               // path of the original
	took     time.Duration        // duration of the last question
	asking   *question            // question under way; nil: none
	old      *Old                 // why the copy is not newer; nil: the last question was answered
	except   *Old                 // files that are older all the same; nil: none
	failed   time.Time            // when old was set
	waiting  int                  // waiting requests of minions
	toldOld  map[string]time.Time // minions for which a warning was fired
	warnings warnings
	stats    control.Files // but for AsOf and Old
}

// question is a question under way.
type question struct {
	begun time.Time
	over  chan struct{}
}

// Old says that somebody is served outdated files.
type Old struct {
	AsOf time.Time // how new the files are; zero: not known
	Why  string
	Few  bool // only the files named in Why are older
}

// New returns a Service.
func New(cfg Config) *Service {
	s := &Service{cfg: cfg, direct: cfg.Ask == nil, signedIn: map[string]time.Time{}, toldOld: map[string]time.Time{}}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// Close ends the question under way, and fires the waiting warnings.
func (s *Service) Close() {
	s.mu.Lock()
	s.end()
	s.mu.Unlock()
	s.work.Wait()
}

// Stats returns the state of the copy. It may be nil: there is none.
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
// job. Those read no files.
func readsNothing(fun string) bool {
	return fun == "saltutil.find_job" || fun == "saltutil.running" || fun == "test.ping"
}

// JobBegan notes that a job goes out to minions, from this master or another one.
func (s *Service) JobBegan(fun string) {
	if readsNothing(fun) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.job = s.cfg.Now()
}

// SignedIn notes that a minion, or a tool on it, signed in.
func (s *Service) SignedIn(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.signedIn) >= maxMinions {
		clear(s.signedIn)
	}
	s.signedIn[id] = s.cfg.Now()
}

// Since returns how new the files for a minion must be: as the newest job, its own sign-in, or
// Lately. For the master itself, "", it is Now.
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

// Lately returns how new files must be for events that happen all the time, such as reactions.
func (s *Service) Lately() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lately()
}

func (s *Service) lately() time.Time {
	return s.cfg.Now().Add(-min(max(latelyLeast, latelyAsks*s.took), latelyMost))
}

// Now returns how new files must be for a person who waits for them.
func (s *Service) Now() time.Time { return s.cfg.Now() }

// Due reports whether Serve would have to wait.
func (s *Service) Due(minion string, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	old, known := s.knownNow(since)
	return !known || old != nil && s.isUntold(minion)
}

// knownNow returns the result of Await if no question is needed.
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

// Await returns when the copy is as new as since, or returns why it, or a file of it, is older. It
// waits as long as the supervisor needs, see [control.NewestTakes], and until ctx ends.
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
			return nil // the caller has gone
		}
	}
}

// Renew brings the copy up to date with the shared volume. The error says why that is not possible.
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

// Source returns the place of a directory of the copy on the shared volume, or a directory outside
// the copy unchanged. The error says why the volume does not answer.
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

// Enter takes a place among the waiting requests, until leave is called.
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

// startQuestion begins a question. The caller holds mu.
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

// Serve is Await for a request of a minion. When its files are old, the event [event.TagOldFiles]
// says so before Serve returns, once for each job. One event covers all minions that were found
// within warnEvery.
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

// isUntold reports whether no warning was fired yet that a minion is served old files for the
// newest job. The caller holds mu.
func (s *Service) isUntold(minion string) bool {
	last := s.toldOld[minion]
	return last.Before(s.job) || last.Before(s.signedIn[minion]) || s.cfg.Now().Sub(last) >= toldAgain
}

// Data returns the data of an event about old files. minion is the minion that is served them; "":
// a runner reads them. The event about minions lists more of them in "minions", see warnings.
func (s *Service) Data(old *Old, minion string) *value.Map {
	data := value.NewMap("node", s.cfg.Node, "why", old.Why, "as_of", "")
	if minion != "" {
		data.Set("id", minion)
	}
	if !old.AsOf.IsZero() {
		data.Set("as_of", old.AsOf.UTC().Format(time.RFC3339))
	}
	return data
}
