package pillar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/control"
	"saltern/master/cache"
	"saltern/master/conf"
	"saltern/master/event"
	"saltern/master/internal/pillar/gpg"
	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/queue"
	"saltern/master/runner"
	"saltern/master/value"
)

// Cleared is the tag of the event by which this master asks its peers to drop the cached pillars of
// a minion (pillar_cache), because the minion's next request may reach any of the masters.
const Cleared = event.TagPillarsCleared

// ServiceConfig of a Service.
type ServiceConfig struct {
	Compiler *Compiler
	Memo     *memo.Store // the Compiler's memo, for Stats; may be nil
	Cache    *cache.Store
	Keep     bool          // pillar_cache: store compiled pillars, and answer later requests with them
	TTL      time.Duration // pillar_cache_ttl
	Data     bool          // minion_data_cache
	// Turns is how many pillar requests may use a renderer at the same time; 0 means two.
	Turns int
	// QueueBytes bounds the pillar requests that wait for a renderer, in bytes; 0 means 256 MiB.
	QueueBytes int64
	// CheckEach is how many pillars are compiled for each one that RunChecks checks
	// (saltern_pillar_check); 0 means 1,000, a negative number none.
	CheckEach int
	// Tell fires the event Cleared with a minion's id. It may be nil: there are no peers.
	Tell func(tag string, data *value.Map)
	// Ending is canceled when the master stops, which cancels the compilations in progress. It may
	// be nil: compilations run to their end.
	Ending context.Context
	// Unable is called with the reason for each pillar request that gets no answer. It may be nil.
	Unable func(error)
	Now    func() time.Time
	Log    *slog.Logger
}

const (
	defaultTurns      = 2
	defaultQueueBytes = 256 << 20
	firstTriesPerCPU  = 4
)

// Service serves pillars to minions, and records which minions' pillars fail. A pillar request that
// needs a renderer waits in a queue for its turn, see package queue. Service is safe for concurrent
// use.
type Service struct {
	cfg         ServiceConfig
	lookUps     *queue.Queue[*value.Map] // queue for looks into the cache, which take no other work's turn
	firstTries  *queue.Queue[*value.Map] // queue for first tries, which may need no renderer
	renderTurns *queue.Queue[*value.Map] // queue for the renderers
	clearances  clearances
	faults      *faults
	checks      *checks
	pillars     atomic.Uint64 // pillars served, with or without errors
	withErrors  atomic.Uint64 // pillars that were served with errors
	// unanswered counts the pillar requests without an answer, because this master could not
	// compile the pillar
	unanswered atomic.Uint64
}

// NewService returns a Service.
func NewService(cfg ServiceConfig) *Service {
	turns := cmp.Or(cfg.Turns, defaultTurns)
	line := func(turns int) *queue.Queue[*value.Map] {
		queueBytes := cmp.Or(cfg.QueueBytes, defaultQueueBytes)
		return queue.New[*value.Map](queue.Config{Turns: turns, Bytes: queueBytes, Now: time.Now})
	}
	return &Service{
		cfg:     cfg,
		lookUps: line(firstTriesPerCPU * runtime.NumCPU()),
		// firstTries has more turns than there are renderers, because a request that finds a free
		// renderer keeps its turn of firstTries to the end.
		firstTries:  line(turns + firstTriesPerCPU*runtime.NumCPU()),
		renderTurns: line(turns),
		faults:      newFaults(),
		checks:      newChecks(cfg.CheckEach),
	}
}

// Question is a minion's request for its pillar in the form in which it waits in the queues of a
// Service.
type Question struct {
	Request
	Clean bool   // compile the pillar again instead of using the cached one
	Nonce string // as in queue.Question
	Bytes int    // as in queue.Question
	// Park stores the request packed, to save memory, and calls wait. After wait, Park decodes the
	// request and returns it. Park may be nil: the request remains decoded while it waits.
	Park func(wait func(connected context.Context) error) (Request, error)
}

// Serve returns the pillar of a minion. With pillar_cache it returns the cached pillar, unless
// Clean is set (salt/pillar/__init__.py PillarCache). It counts and records pillars with errors,
// see Stats. If Serve returns an error, the caller must send no answer, so that the minion asks
// again. The error is queue.ErrLeft if the minion has disconnected.
func (s *Service) Serve(ctx context.Context, q Question) (*value.Map, error) {
	p, err := s.servePillar(ctx, q)
	if errors.Is(err, queue.ErrLeft) {
		return nil, err
	}
	if err != nil {
		s.noteUnanswered(q.ID, err)
		return nil, fmt.Errorf("compile the pillar: %w", err)
	}

	s.pillars.Add(1)
	if errs := p.List("_errors"); len(errs) > 0 {
		s.noteErrors(q.ID, fmt.Sprint(errs[0]), len(errs))
	} else if s.faults.forget(q.ID) {
		s.cfg.Log.Info("pillar compiles again", "minion", q.ID)
	}

	return p, nil
}

// Tops returns the result of the master_tops modules for a minion. It calls opts to get the
// minion's options when the request has its turn. The caller handles errors as for Serve.
func (s *Service) Tops(ctx context.Context, q Question, opts func() *value.Map) (*value.Map, error) {
	q.Nonce = "" // a repetition of this request has another nonce, so requests cannot share an answer
	m, err := s.runInTurn(ctx, q, func(ctx context.Context, _ Request, turn func() bool) (*value.Map, error) {
		if turn != nil && !turn() {
			return nil, errMustWait
		}
		return s.cfg.Compiler.Tops(ctx, opts())
	})
	if errors.Is(err, ErrUnable) || errors.Is(err, queue.ErrFull) {
		s.noteUnanswered(q.ID, err)
	}
	return m, err
}

// servePillar works like Serve, but counts nothing.
func (s *Service) servePillar(ctx context.Context, q Question) (*value.Map, error) {
	c := &s.cfg
	if c.Keep && q.Clean {
		s.Clear(q.ID)
	}

	if c.Keep && !q.Clean {
		// Commands of ext_pillar may hold all turns for minutes; who has a pillar does not wait for them.
		p, err := s.waitTurn(ctx, s.lookUps, &q, func(_ context.Context, r Request) (*value.Map, error) {
			return s.cachedPillar(r)
		})
		if !errors.Is(err, errNotCached) {
			return p, err
		}
	}

	var secrets *gpg.Question
	if c.Compiler.cfg.GPG != nil {
		secrets = c.Compiler.cfg.GPG.Ask()
		defer secrets.End()
	}

	asked := c.Compiler.cfg.External.Ask()
	defer asked.End()
	return s.runInTurn(ctx, q, func(ctx context.Context, r Request, turn func() bool) (*value.Map, error) {
		if c.Keep && !q.Clean {
			if p, err := s.cachedPillar(r); err == nil { // an earlier question has had it compiled meanwhile
				return p, nil
			}
		}
		r.secrets = secrets
		r.asked = asked
		return s.compileAndKeep(ctx, r, turn)
	})
}

// errNotCached means that the cache has no pillar for a request.
var errNotCached = errors.New("the pillar is not in the cache")

// cachedPillar returns the pillar for a request from the cache, or errNotCached.
func (s *Service) cachedPillar(r Request) (*value.Map, error) {
	c := &s.cfg
	p, ok := c.Cache.Compiled(r.ID, c.Compiler.Env(r), c.Now(), c.TTL)
	if !ok {
		return nil, errNotCached
	}
	return c.Compiler.Override(p, r.Override), nil
}

// questionWork is a function that does the work of a pillar request. It calls takeTurn when it
// needs a renderer. If takeTurn returns false, no renderer is free, and the function returns
// errMustWait. takeTurn may be nil: the function waits for a renderer.
type questionWork func(ctx context.Context, r Request, takeTurn func() bool) (*value.Map, error)

// runInTurn does the work of a pillar request. The first try takes a turn of firstTries. These
// turns are few, because each holds a decoded request. If the first try needs a renderer and none
// is free, it returns errMustWait. Then the request waits for a turn of renderTurns, and the work
// starts again from the beginning.
func (s *Service) runInTurn(ctx context.Context, q Question, work questionWork) (*value.Map, error) {
	m, err := s.waitTurn(ctx, s.firstTries, &q, func(ctx context.Context, r Request) (*value.Map, error) {
		return s.tryWithoutRenderer(ctx, q, r, work)
	})
	if !errors.Is(err, errMustWait) {
		return m, err
	}
	return s.waitTurn(ctx, s.renderTurns, &q, func(ctx context.Context, r Request) (*value.Map, error) { return work(ctx, r, nil) })
}

// tryWithoutRenderer does the work of a pillar request. If the work needs a renderer and none is
// free, it returns errMustWait instead of waiting.
func (s *Service) tryWithoutRenderer(ctx context.Context, q Question, r Request, work questionWork) (m *value.Map, err error) {
	var turn *queue.Turn[*value.Map]
	defer func() {
		if turn != nil {
			turn.End(m, err)
		}
	}()

	err = errCutShort
	m, err = work(ctx, r, func() bool {
		if turn == nil {
			turn, _ = s.renderTurns.Try(q.queueQuestion())
		}
		return turn != nil
	})

	return m, err
}

// waitTurn waits until the request gets a turn of renderTurns, and then calls work. If the turn of
// an equal request is waiting or at work, waitTurn returns the answer of that turn.
func (s *Service) waitTurn(
	ctx context.Context,
	line *queue.Queue[*value.Map],
	q *Question,
	work func(context.Context, Request) (*value.Map, error),
) (m *value.Map, err error) {
	turn, ok := line.Try(q.queueQuestion())
	var elsewhere error
	if !ok {
		q.Request, err = q.waitParked(ctx, func(left context.Context) (err error) {
			turn, m, err = line.Wait(left, q.queueQuestion())
			if turn == nil && goesOnElsewhere(err) { // with the request, which an error would end here
				elsewhere = err
				return nil
			}
			return err
		})
	}

	if turn == nil {
		return m, cmp.Or(err, elsewhere)
	}

	defer func() { turn.End(m, err) }()
	if err != nil {
		return nil, err
	}

	err = errCutShort
	ctx, stop := s.withWorkTime(ctx)
	defer stop()

	m, err = work(ctx, q.Request)
	return m, err
}

// goesOnElsewhere reports whether a request whose turn in one queue ended so goes on in another queue.
func goesOnElsewhere(err error) bool {
	return errors.Is(err, errNotCached) || errors.Is(err, errMustWait)
}

func (q *Question) queueQuestion() queue.Question {
	return queue.Question{Minion: q.ID, Nonce: q.Nonce, Bytes: q.Bytes}
}

// withWorkTime returns a context for the work of a pillar request. The context ends after a time
// limit, and when the master stops. It does not end when the minion disconnects, because the minion
// asks again and then gets the answer of this work.
func (s *Service) withWorkTime(ctx context.Context) (context.Context, context.CancelFunc) {
	// The time starts with the turn. A minion asks three times and waits a minute each time.
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
	if s.cfg.Ending == nil {
		return ctx, stop
	}
	release := context.AfterFunc(s.cfg.Ending, stop)
	return ctx, func() {
		release()
		stop()
	}
}

// errCutShort is the error for callers that wait for an answer when the work on that answer panics.
var errCutShort = fmt.Errorf("%w: the work on it was cut short", ErrUnable)

// waitParked calls wait. If Park is set, the request is parked while wait runs. waitParked returns
// the request.
func (q *Question) waitParked(ctx context.Context, wait func(connected context.Context) error) (Request, error) {
	if q.Park == nil {
		return q.Request, wait(ctx)
	}
	q.Grains = nil
	q.Override = nil
	q.Extra = nil // Park returns the request with its fields
	return q.Park(wait)
}

// compileAndKeep compiles a pillar. Unless the request has an override, it stores the pillar in the
// cache. A pillar with errors does not replace a cached pillar without errors, because targets and
// permissions depend on the cached pillar.
func (s *Service) compileAndKeep(ctx context.Context, req Request, turn func() bool) (*value.Map, error) {
	c := &s.cfg
	end := s.clearances.startCompiling(req.ID)
	p, err := c.Compiler.compile(ctx, req, turn)
	cleared := end()

	whole := len(p.List("_errors")) == 0
	if err == nil && whole {
		checked := req
		checked.secrets = nil // it ends with this request
		checked.asked = nil
		s.checks.offer(checked)
	}

	if err != nil || req.Override.Len() > 0 {
		// Salt 3008 merges the override once more over what it caches (salt/pillar/__init__.py PillarCache).
		// For other strategies than "list" that changes nothing.
		if err == nil && (c.Keep || c.Data) && c.Compiler.cfg.Strategy == "list" {
			p = c.Compiler.Override(p, req.Override)
		}
		return p, err
	}

	var kept error
	switch {
	case c.Keep && !cleared && whole:
		kept = c.Cache.KeepCompiled(req.ID, c.Compiler.Env(req), p, c.Now())
	case c.Data && (whole || !s.keepsWhole(req.ID)):
		_, kept = c.Cache.Set(cache.Pillar, req.ID, p)
	}

	if kept != nil {
		c.Log.Error("pillar cannot be kept", "minion", req.ID, "error", kept)
	}

	return p, nil
}

// keepsWhole reports whether the cache holds an error-free pillar of the minion.
func (s *Service) keepsWhole(id string) bool {
	p, ok := s.cfg.Cache.Get(cache.Pillar, id)
	return ok && len(p.List("_errors")) == 0
}

// noteUnanswered counts and logs a pillar request that gets no answer.
func (s *Service) noteUnanswered(id string, err error) {
	s.unanswered.Add(1)
	if errors.Is(err, queue.ErrFull) {
		err = fmt.Errorf("%w (saltern_pillar_queue)", err)
	}
	ending := s.cfg.Ending != nil && s.cfg.Ending.Err() != nil
	if s.cfg.Unable != nil && !ending {
		s.cfg.Unable(fmt.Errorf("minion %s: %w", id, err))
	}
}

// noteErrors counts and logs a pillar with errors. It logs only the first line of the first error,
// with passwords removed, because the rest may contain parts of the pillar.
func (s *Service) noteErrors(id, first string, errs int) {
	first, _, _ = strings.Cut(first, "\n")
	first, _ = conf.Shown(first).(string)
	s.withErrors.Add(1)
	s.NoteFault(id, first)
	s.cfg.Log.Error("pillar has errors", "minion", id, "errors", errs, "first", first)
}

// Clear drops the cached pillars of a minion, for all environments and on all masters. The next
// requests compile the pillars again.
func (s *Service) Clear(id string) {
	s.Drop(id)
	if s.cfg.Keep && s.cfg.Tell != nil {
		s.cfg.Tell(Cleared, value.NewMap("id", id))
	}
}

// Drop drops the cached pillars of a minion on this master.
func (s *Service) Drop(id string) {
	s.clearances.noteCleared(id)
	if err := s.cfg.Cache.FlushCompiled(id); err != nil {
		s.cfg.Log.Error("pillar cannot be cleared", "minion", id, "error", err)
	}
}

// NoteFault records that the pillar of a minion failed.
func (s *Service) NoteFault(id, text string) { s.faults.noteFault(id, text, s.cfg.Now()) }

// FaultOf returns the last failure of a minion's pillar, or nil if its last pillar compiled.
func (s *Service) FaultOf(id string) *control.PillarError { return s.faults.of(id, s.cfg.Now()) }

// ForgetFault drops the recorded failure of a minion whose key was removed.
func (s *Service) ForgetFault(id string) { s.faults.forget(id) }

// ServiceStats holds counters since the start, and the current failures.
type ServiceStats struct {
	Pillars, Errors uint64
	Last            *control.PillarError // nil: every pillar compiles
	Faulty          int                  // minions whose last pillar had errors
	Memo            *control.PillarMemo  // nil: there is no memo
	Checks          *control.PillarChecks
	Secrets         *control.PillarSecrets // nil: none was decrypted
	// Unable counts the pillar requests without an answer, because this master could not compile
	// the pillar.
	Unable uint64
	Queue  queue.Stats // queue of the requests that need a renderer
}

// Stats returns the counters.
func (s *Service) Stats() ServiceStats {
	st := ServiceStats{
		Pillars: s.pillars.Load(),
		Errors:  s.withErrors.Load(),
		Unable:  s.unanswered.Load(),
		Queue:   s.renderTurns.Stats(),
		Checks:  s.checkStats(),
	}

	if secrets := s.cfg.Compiler.cfg.GPG.Stats(); secrets != (gpg.Stats{}) {
		st.Secrets = &control.PillarSecrets{
			Runs:   secrets.Runs,
			Shared: secrets.Shared,
			Failed: secrets.Failed,
		}
	}

	st.Last, st.Faulty = s.faults.lastFault(s.cfg.Now())
	if s.cfg.Memo != nil {
		m := s.cfg.Memo.Stats()
		st.Memo = &control.PillarMemo{
			Hits:    m.Hits,
			Misses:  m.Misses,
			Alone:   m.Alone,
			Dropped: m.Dropped,
			Results: m.Results,
			Bytes:   m.Bytes,
		}
	}

	return st
}

// Runners implements the runners pillar.* on a Service.
type Runners struct {
	Service *Service
	Newest  func(context.Context) // waits until this node's copy of the files is up to date
}

// Compile compiles a pillar without storing it in the cache.
func (r Runners) Compile(
	ctx context.Context,
	id string,
	grains *value.Map,
	saltenv, pillarenv string,
) (*value.Map, error) {
	r.Newest(ctx)
	return r.Service.cfg.Compiler.Compile(ctx, Request{ID: id, Grains: grains, Saltenv: saltenv, Pillarenv: pillarenv})
}

// Top always returns an error, because this runner runs in Python.
func (Runners) Top(context.Context, string, *value.Map, string) (*value.Map, []string, error) {
	return nil, nil, runner.ErrUnavailable
}

// Cached returns the cached pillar of a minion for an environment, or false if there is none.
func (r Runners) Cached(id, pillarenv string) (*value.Map, bool) {
	c := &r.Service.cfg
	if !c.Keep && pillarenv == "" {
		return c.Cache.Get(cache.Pillar, id)
	}
	return c.Cache.Compiled(id, c.Compiler.Env(Request{Saltenv: "base", Pillarenv: pillarenv}), c.Now(), c.TTL)
}

// Caches reports whether pillars are cached.
func (r Runners) Caches() bool { return r.Service.cfg.Keep || r.Service.cfg.Data }

// clearances detects that a pillar was cleared while it was being compiled. Such a pillar may
// contain old values. clearances is safe for concurrent use.
type clearances struct {
	mu        sync.Mutex
	compiling map[string]*underWay // running compilations by minion
}

type underWay struct{ running, cleared int }

// startCompiling records the start of a compilation. The caller must call end once, at the end of
// the compilation; end reports whether the pillar was cleared during the compilation.
func (c *clearances) startCompiling(id string) (end func() (cleared bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.compiling == nil {
		c.compiling = map[string]*underWay{}
	}

	now := c.compiling[id]
	if now == nil {
		now = &underWay{}
		c.compiling[id] = now
	}

	now.running++
	before := now.cleared
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		now.running--
		if now.running == 0 {
			delete(c.compiling, id)
		}
		return now.cleared != before
	}
}

func (c *clearances) noteCleared(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now := c.compiling[id]; now != nil {
		now.cleared++
	}
}
