package renderer

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"saltern/master/internal/pillar/memo"
	"saltern/master/internal/pyfork"
)

// Pool provides sessions. Create it with New, and Close it. All methods may be called concurrently.
type Pool struct {
	cfg Config
	// slots holds one token for each worker in use. Callers get slots in order of arrival.
	slots        chan struct{}
	reactionSlot chan struct{}   // slot for the worker of reactions
	ctx          context.Context // canceled by Close
	cancel       context.CancelFunc
	users        sync.WaitGroup // counts open sessions, a start and janitors

	mu         sync.Mutex
	nursery    *nursery
	starting   *start    // of a nursery, while one is being started
	idle       []*worker // idle workers, the most recently used one last
	lastWorker int64
	failed     error
	failedAt   time.Time // when the failed start ended, or when it began if it was only slow
	closed     bool
	stats      Stats
	library    string // Library's result for the nursery that was started last
	yaml       *memo.Store
}

// Stats are counters since the start, and current values, for metrics.
type Stats struct {
	Starts, Forks, Sessions, Retries, Killed uint64
	Workers                                  int  // busy and idle workers
	Running                                  bool // the nursery runs
	// YAMLInGo and YAMLInPython count the texts of templates whose YAML Go has read, and those that
	// Go has left to Salt's loader.
	YAMLInGo, YAMLInPython uint64
}

// New returns a Pool. It starts no process.
func New(cfg Config) *Pool {
	cfg.setDefaults()
	p := &Pool{
		cfg:          cfg,
		slots:        make(chan struct{}, cfg.MaxWorkers),
		reactionSlot: make(chan struct{}, 1),
		yaml:         newYAMLStore(),
	}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// Close stops all processes and waits for their end. Pending requests of open sessions fail.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()
	p.cancel()
	p.users.Wait()
	p.mu.Lock()
	n := p.nursery
	p.nursery, p.idle = nil, nil
	p.mu.Unlock()
	if n != nil {
		n.Stop(time.Second)
	}
}

// Warm starts the nursery, which takes a second or more, before it is needed.
func (p *Pool) Warm(ctx context.Context) error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return errClosed
	}
	p.users.Add(1)
	p.mu.Unlock()
	defer p.users.Done()
	_, err := p.running(ctx)
	return err
}

// SaltVersion returns the version of Salt's library, or "" while no nursery runs.
func (p *Pool) SaltVersion() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.nursery == nil {
		return ""
	}
	return p.nursery.Salt
}

// Workers returns how many sessions may be open at the same time.
func (p *Pool) Workers() int { return p.cfg.MaxWorkers }

// Known reports whether Library can return its result without starting a nursery.
func (p *Pool) Known() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.library != ""
}

// Library returns a text that identifies the packages that render templates. Results of other
// packages may differ. If the packages are not known yet, it starts the nursery.
func (p *Pool) Library(ctx context.Context) (string, error) {
	p.mu.Lock()
	library := p.library
	p.mu.Unlock()
	if library == "" {
		if err := p.Warm(ctx); err != nil {
			return "", err
		}
		p.mu.Lock()
		defer p.mu.Unlock()
		library = p.library
	}
	return p.cfg.Layer() + "\x00" + library, nil
}

// Stats returns the counters.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	s.Workers = len(p.slots) + len(p.reactionSlot) + len(p.idle)
	s.Running = p.nursery != nil && p.nursery.Alive()
	return s
}

// slotsFor returns the slots for sessions of reactions if reactions is set, otherwise the slots for
// all other sessions.
func (p *Pool) slotsFor(reactions bool) chan struct{} {
	if reactions {
		return p.reactionSlot
	}
	return p.slots
}

// acquire returns a worker for one session. The caller must call release for it.
func (p *Pool) acquire(ctx context.Context, own bool) (*worker, error) {
	places := p.slotsFor(own)
	select {
	case places <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.ctx.Done():
		return nil, errClosed
	}

	layer := p.cfg.Layer()
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		<-places
		return nil, errClosed
	}

	p.users.Add(1)
	p.stats.Sessions++
	old := p.leaveOldNursery(layer)
	var w *worker
	if k := len(p.idle); k > 0 {
		w, p.idle = p.idle[k-1], p.idle[:k-1]
	}
	p.mu.Unlock()

	for _, o := range old {
		o.discard()
	}

	if w == nil || !w.nursery.Alive() {
		var err error
		if w, err = p.forkWorker(ctx); err != nil {
			p.users.Done()
			<-places
			return nil, err
		}
	}

	return w, nil
}

// leaveOldNursery abandons the nursery if the directory of packages has changed since the nursery
// started. It returns the idle workers of that nursery, which the caller must end. Open sessions
// continue to use the old nursery, and the janitor of that nursery ends it after the last such
// session. The caller holds mu.
func (p *Pool) leaveOldNursery(layer string) (old []*worker) {
	if p.nursery == nil || p.nursery.layer == layer {
		return nil
	}
	old = p.idle
	p.nursery = nil
	p.idle = nil
	return old
}

// release returns a worker to the pool. It ends the worker if the worker is broken or was used for
// reactions.
func (p *Pool) release(w *worker, broken, reactions bool) {
	defer p.users.Done()
	defer func() { <-p.slotsFor(reactions) }()
	w.sessions++
	w.idle = time.Now()
	w.nursery.lastUsed.Store(w.idle.UnixNano())
	p.mu.Lock()
	keep := !broken && !reactions && !p.closed && w.nursery == p.nursery && w.sessions < p.cfg.SessionsPerWorker
	if keep {
		p.idle = append(p.idle, w)
	} else if broken {
		p.stats.Killed++
	}
	p.mu.Unlock()

	if !keep {
		w.discard()
	}
}

func (p *Pool) updateStats(f func(*Stats)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f(&p.stats)
}

// forkWorker asks the nursery to fork a worker, and returns that worker.
func (p *Pool) forkWorker(ctx context.Context) (*worker, error) {
	for try := 0; ; try++ {
		n, err := p.running(ctx)
		if err != nil {
			return nil, err
		}

		mine, theirs, err := pyfork.SocketPair(unix.SOCK_STREAM)
		if err != nil {
			return nil, fmt.Errorf("make a renderer's socket: %w", err)
		}

		p.mu.Lock()
		p.lastWorker++
		number := p.lastWorker
		p.stats.Forks++
		p.mu.Unlock()

		w := &worker{nursery: n, number: number, conn: mine, maxMessage: p.cfg.MaxMessage}
		n.workers.Add(1)
		err = n.sendOrder("fork", number, theirs)
		theirs.Close()

		if err == nil {
			return w, nil
		}

		w.discard()
		p.dropNursery(n)
		if try == 1 {
			return nil, fmt.Errorf("%w: fork a worker: %w", errDied, err)
		}
	}
}

// dropNursery ends a nursery that has failed.
func (p *Pool) dropNursery(n *nursery) {
	p.mu.Lock()
	if p.nursery == n {
		p.nursery = nil
	}
	p.mu.Unlock()
	n.Stop(0)
}

// start is the start of a nursery, which all callers that come meanwhile wait for.
type start struct {
	done    chan struct{} // closed when the fields below are set
	nursery *nursery
	err     error
}

// running returns the nursery. If no nursery runs, it starts one. A caller that leaves gets the error
// of its context at once; the start goes on for the others, and only Close cancels it.
func (p *Pool) running(ctx context.Context) (*nursery, error) {
	p.mu.Lock()
	n, err := p.current()
	if n != nil || err != nil {
		p.mu.Unlock()
		return n, err
	}

	s := p.starting
	if s == nil {
		s = &start{done: make(chan struct{})}
		p.starting = s
		p.users.Add(1)
		go p.startShared(s)
	}
	p.mu.Unlock()

	select {
	case <-s.done:
		return s.nursery, s.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// startShared starts a nursery, and fills s in.
func (p *Pool) startShared(s *start) {
	defer p.users.Done()
	defer close(s.done)
	began := time.Now()
	n, err := p.startAny(p.ctx)

	p.mu.Lock()
	p.starting = nil
	closed := p.closed
	switch {
	case closed:
		s.err = errClosed
	case err != nil:
		s.err = err
		p.failed = err
		p.failedAt = time.Now()
		if errors.Is(err, pyfork.ErrSlow) {
			p.failedAt = began // callers have waited long enough
		}
		p.cfg.Log.Error("cannot start the renderers; templates and ext_pillar do not work until it is solved",
			"error", err)
	default:
		s.nursery = n
		p.nursery = n
		p.failed = nil
		p.library = n.Salt
		p.stats.Starts++
		p.users.Add(1)
		go p.janitor(n)
	}
	p.mu.Unlock()

	if closed && n != nil {
		n.Stop(0)
	}
}

// current returns the running nursery. If an earlier start has failed recently, it returns the
// error of that start. The caller holds p.mu.
func (p *Pool) current() (*nursery, error) {
	if p.closed {
		return nil, errClosed
	}
	if p.nursery != nil && p.nursery.Alive() {
		return p.nursery, nil
	}
	p.nursery = nil
	if p.failed != nil && time.Since(p.failedAt) < p.cfg.RetryStart {
		return nil, p.failed
	}
	return nil, nil
}

func (p *Pool) startAny(ctx context.Context) (*nursery, error) {
	var tried []string
	missing := ErrNoSalt
	slow := false
	for _, python := range p.cfg.Python {
		n, err := startNursery(ctx, &p.cfg, python)
		if err == nil {
			p.cfg.Log.Info("renderers started", "python", python, "salt", n.Salt)
			return n, nil
		}
		if ctx.Err() != nil {
			return nil, errClosed
		}

		if errors.Is(err, errStart) {
			missing = errStart
		}

		slow = slow || errors.Is(err, pyfork.ErrSlow)
		tried = append(tried, err.Error())
	}

	if slow {
		return nil, fmt.Errorf("%w: %w (tried %s)", errStart, pyfork.ErrSlow, strings.Join(tried, "; "))
	}
	if missing == errStart {
		return nil, fmt.Errorf("%w (tried %s)", errStart, strings.Join(tried, "; "))
	}

	return nil, fmt.Errorf("%w: install Salt's Python library, or name a Python that has it with saltern_renderer_python (tried %s)",
		ErrNoSalt, strings.Join(tried, "; "))
}

// janitor ends unused workers, and finally the nursery.
func (p *Pool) janitor(n *nursery) {
	defer p.users.Done()
	tick := time.NewTicker(max(10*time.Millisecond, min(p.cfg.WorkerIdle, p.cfg.IdleStop)/4))
	defer tick.Stop()

	for {
		select {
		case <-p.ctx.Done():
			p.mu.Lock()
			left := p.nursery != n
			p.mu.Unlock()
			if left {
				n.Stop(0)
			}
			return
		case <-n.Done():
			p.mu.Lock()
			if p.nursery == n {
				p.nursery = nil
				p.yaml = newYAMLStore()
				p.cfg.Log.Warn("the renderer process ended; it is started again when it is needed")
			}
			p.mu.Unlock()
			return
		case <-tick.C:
		}

		if p.endIdle(n) {
			n.Stop(time.Second)
			return
		}
	}
}

// endIdle ends idle workers, and reports whether the nursery should end as well.
func (p *Pool) endIdle(n *nursery) bool {
	p.mu.Lock()
	var old, keep []*worker
	for _, w := range p.idle {
		if w.nursery != p.nursery || time.Since(w.idle) >= p.cfg.WorkerIdle {
			old = append(old, w)
		} else {
			keep = append(keep, w)
		}
	}

	p.idle = keep
	end := len(p.slots) == 0 && len(p.reactionSlot) == 0 && len(p.idle) == 0 &&
		time.Since(time.Unix(0, n.lastUsed.Load())) >= p.cfg.IdleStop
	if end && p.nursery == n {
		p.nursery = nil
		p.yaml = newYAMLStore()
	}

	end = end || p.nursery != n && n.workers.Load() == 0
	p.mu.Unlock()
	for _, w := range old {
		w.discard()
	}

	return end
}

// transient reports whether a request that failed with err may be tried again on a new worker.
func transient(err error) bool { return errors.Is(err, errDied) }
