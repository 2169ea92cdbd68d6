package gpg

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"

	"saltern/internal/command"
	"saltern/master/internal/pillar/hangs"
)

// Bounds of a Decrypter.
const (
	// MaxSecret bounds one decrypted message, in bytes: a short message may be compressed.
	MaxSecret = 16 << 20
	// maxOpened bounds all that one pillar has in decrypted messages, in bytes.
	maxOpened = 64 << 20
	// defaultTakes is the time for one run of gpg.
	defaultTakes = 30 * time.Second
	// defaultIdle is how long decrypted messages are kept (gpg_cache) when nobody needs any: a
	// renderer in Python ends after the same time, and forgets them.
	defaultIdle = 30 * time.Second
	// maxRetries bounds how often gpg is run again for a message of which it has not said what is wrong.
	maxRetries = 2
	// endTakes is the time for the end of gpg's agent.
	endTakes = 5 * time.Second
	// warnAgain is how long the same message is not logged again as one that cannot be decrypted.
	warnAgain = 10 * time.Minute
	maxWarned = 1000
)

// Errors of a Decrypter. All but ErrUnavailable mean that this machine cannot decrypt now, see
// Unable.
var (
	// ErrUnavailable means that there is no program gpg. Its text is Salt's.
	ErrUnavailable = errors.New("GPG unavailable")
	errClosed      = errors.New("the master stops")
	errStopped     = errors.New("gpg was stopped by a signal")
	errHangs       = errors.New("gpg does not end in time; see whether it works by hand: gpg --homedir with the option gpg_keydir")
	errStart       = errors.New("gpg cannot be started now")
)

// Unable reports whether err means that this machine could not decrypt, although the message may be
// correct: a later try or another master may succeed.
func Unable(err error) bool {
	for _, cause := range []error{errClosed, errStopped, errHangs, errStart, context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, cause) {
			return true
		}
	}
	return false
}

// Config of a Decrypter. The zero value of a field is its default.
type Config struct {
	Keydir      string // folder of the keyring (gpg_keydir)
	MustSucceed bool   // a message that cannot be decrypted is an error (gpg_decrypt_must_succeed)
	// TTL is how long decrypted messages are kept for other callers (gpg_cache, gpg_cache_ttl). If it is
	// 0, they are kept only for callers that already wait.
	TTL    time.Duration
	AtOnce int           // largest number of gpg processes at once; 0: number of CPUs, at least 2
	Takes  time.Duration // time for one run of gpg; 0: 30 s
	Idle   time.Duration // with TTL: time without work after which nothing is kept any more; 0: 30 s
	Path   string        // PATH of gpg; "": that of this process
	Now    func() time.Time
	Log    *slog.Logger
}

// Decrypter decrypts PGP messages. It is safe for concurrent use.
type Decrypter struct {
	cfg Config
	// removeLocks removes stale locks in a folder. It does not end while the folder's file system hangs.
	removeLocks func(keydir string)

	ctx   context.Context
	stop  context.CancelFunc
	slots chan struct{} // a gpg at work holds a place
	runs  sync.WaitGroup

	mu         sync.Mutex
	results    store
	flights    map[sum]*flight
	questions  questions
	clock      uint64 // counts the questions that came and the runs that began
	closed     bool
	started    bool // gpg has run, so there may be an agent
	hangs      hangs.Hangs[sum]
	warned     map[sum]time.Time
	cleanLocks bool          // a gpg was stopped, or may have been, and may have left locks
	cleaning   chan struct{} // closed when stale locks are removed; nil: nobody removes any
	stats      Stats
}

type sum = [sha256.Size]byte

// Stats are counters since the start.
type Stats struct {
	Runs   uint64 // runs of gpg
	Shared uint64 // messages that needed no run of their own
	Failed uint64 // runs that gave nothing
}

// flight is one run of gpg, for all who wait for the same message.
type flight struct {
	key     sum
	began   uint64
	waiting int
	cancel  context.CancelFunc
	done    chan struct{} // closed when secret and err are set
	secret  string
	err     error
}

// New returns a Decrypter. The caller closes it.
func New(cfg Config) *Decrypter {
	cfg.AtOnce = cmp.Or(cfg.AtOnce, max(2, runtime.NumCPU()))
	cfg.Takes = cmp.Or(cfg.Takes, defaultTakes)
	cfg.Idle = cmp.Or(cfg.Idle, defaultIdle)
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}

	d := &Decrypter{
		cfg:         cfg,
		removeLocks: removeStaleLocks,
		slots:       make(chan struct{}, cfg.AtOnce),
		flights:     map[sum]*flight{},
		warned:      map[sum]time.Time{},
		cleanLocks:  true,
	}
	d.ctx, d.stop = context.WithCancel(context.Background())
	d.results.idle = time.AfterFunc(cfg.Idle, d.forgetIdle)
	return d
}

// Close ends all runs, forgets all decrypted messages, and ends the agent that gpg has started. It
// waits for a few seconds at most.
func (d *Decrypter) Close() {
	d.mu.Lock()
	again := d.closed
	d.closed = true
	d.mu.Unlock()
	if again {
		return
	}

	d.stop()
	d.runs.Wait()

	d.mu.Lock()
	d.results.idle.Stop()
	d.results.clear()
	started := d.started
	d.mu.Unlock()
	if !started {
		return
	}

	ctx, cancel := context.WithTimeout(context.Background(), endTakes)
	defer cancel()
	kill := []string{"gpgconf", "--homedir", d.cfg.Keydir, "--kill", "gpg-agent"}
	if _, err := command.Do(ctx, command.Exec{Path: d.lookUp("gpgconf"), Env: d.env()}, kill...); err != nil {
		d.cfg.Log.Warn("gpg's agent could not be ended", "path", d.cfg.Keydir, "error", err)
	}
}

// Stats returns the counters. d may be nil.
func (d *Decrypter) Stats() Stats {
	if d == nil {
		return Stats{}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.stats
}

// forgetIdle forgets all decrypted messages after a time without work.
func (d *Decrypter) forgetIdle() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.flights) == 0 {
		d.results.clear() // who still waits for one of them has gpg run again
	} else if !d.closed {
		d.results.idle.Reset(d.cfg.Idle)
	}
}

// decrypt returns what a message says. mayRun is called before gpg runs for q; an error ends the
// decryption. mayRun may be nil.
func (d *Decrypter) decrypt(ctx context.Context, q *Question, mayRun func() error, message string) (string, error) {
	key := sha256.Sum256([]byte(message))
	if secret, err, known := d.known(key, q); known {
		return secret, err
	}
	if mayRun != nil {
		if err := mayRun(); err != nil {
			return "", err
		}
	}

	f, err := d.join(key, q, message)
	if err != nil {
		return "", err
	}

	defer d.leave(f)
	select {
	case <-f.done:
		return f.secret, f.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// known returns a result that q may use.
func (d *Decrypter) known(key sum, q *Question) (secret string, err error, known bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return "", errClosed, true
	}

	d.results.idle.Reset(d.cfg.Idle)
	r := d.usable(key, q)
	if r == nil {
		return "", nil, false
	}
	d.stats.Shared++
	return r.secret, r.err, true
}

// usable returns a kept result that q may use, or nil. The caller holds mu.
func (d *Decrypter) usable(key sum, q *Question) *result {
	r := d.results.get(key)
	if r == nil || r.began <= q.arrived && !d.cfg.Now().Before(r.until) {
		return nil
	}
	return r
}

// join returns a flight for a message: one that is under way or has just ended, or a new one.
func (d *Decrypter) join(key sum, q *Question, message string) (*flight, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil, errClosed
	}

	if f := d.flights[key]; f != nil {
		f.waiting++
		d.stats.Shared++
		return f, nil
	}
	if r := d.usable(key, q); r != nil {
		d.stats.Shared++
		return endedFlight(r), nil
	}
	if d.hangs.IsResting(key, d.cfg.Now()) {
		return nil, errHangs
	}

	ctx, cancel := context.WithCancel(d.ctx)
	d.clock++
	f := &flight{
		key:     key,
		began:   d.clock,
		waiting: 1,
		cancel:  cancel,
		done:    make(chan struct{}),
	}
	d.flights[key] = f
	d.runs.Go(func() { d.fly(ctx, f, message) })
	return f, nil
}

// endedFlight returns a flight that has brought a result.
func endedFlight(r *result) *flight {
	f := &flight{
		key:     r.key,
		waiting: 1,
		cancel:  func() {},
		done:    make(chan struct{}),
		secret:  r.secret,
		err:     r.err,
	}
	close(f.done)
	return f
}

// leave ends a caller's interest in a flight. A flight for which nobody waits is ended.
func (d *Decrypter) leave(f *flight) {
	d.mu.Lock()
	defer d.mu.Unlock()
	f.waiting--
	if f.waiting == 0 {
		f.cancel()
		d.forget(f)
	}
}

// forget keeps later callers from joining a flight. The caller holds mu.
func (d *Decrypter) forget(f *flight) {
	if d.flights[f.key] == f {
		delete(d.flights, f.key)
	}
}

// fly runs gpg for a flight and ends the flight.
func (d *Decrypter) fly(ctx context.Context, f *flight, message string) {
	defer f.cancel()
	secret, err := d.runInSlot(ctx, message)
	failure, failed := errors.AsType[*Failure](err)

	d.mu.Lock()
	defer d.mu.Unlock()
	f.secret = secret
	f.err = err
	d.forget(f)
	switch {
	case err == nil || failed:
		d.hangs.NoteAnswer()
		d.keep(f)
	case errors.Is(err, errHangs):
		d.hangs.NoteHang(f.key, d.cfg.Now())
	}
	if failed {
		d.stats.Failed++
		d.warn(f.key, failure)
	}
	close(f.done)
}

// keep keeps the result of a flight for those who wait. The caller holds mu.
func (d *Decrypter) keep(f *flight) {
	r := &result{
		key:    f.key,
		secret: f.secret,
		err:    f.err,
		began:  f.began,
	}
	if f.err == nil {
		r.until = d.cfg.Now().Add(d.cfg.TTL)
	}
	d.results.put(r)
	d.dropUseless()
}

// dropUseless drops results that nobody may use. The caller holds mu.
func (d *Decrypter) dropUseless() {
	oldest := d.questions.oldest(d.clock)
	d.results.dropOldest(func(r *result) bool {
		return r.began <= oldest && !d.cfg.Now().Before(r.until)
	})
}

// warn logs a message that cannot be decrypted, once in a while. The caller holds mu.
func (d *Decrypter) warn(key sum, f *Failure) {
	now := d.cfg.Now()
	if at, known := d.warned[key]; known && now.Sub(at) < warnAgain {
		return
	}
	if len(d.warned) >= maxWarned {
		clear(d.warned)
	}
	d.warned[key] = now
	d.cfg.Log.Warn("a secret of a pillar cannot be decrypted", "error", f.Reason, "path", d.cfg.Keydir)
}

// runInSlot runs gpg when one of the slots is free.
func (d *Decrypter) runInSlot(ctx context.Context, message string) (string, error) {
	select {
	case d.slots <- struct{}{}:
		defer func() { <-d.slots }()
	case <-ctx.Done():
		return "", errClosed
	}

	if err := d.cleanKeydir(ctx); err != nil {
		return "", fmt.Errorf("decrypt a secret: %w", err)
	}
	d.mu.Lock()
	d.started = true
	d.mu.Unlock()

	secret, err := d.run(ctx, message)
	for range maxRetries { // another program may have ended the agent
		if failure, failed := errors.AsType[*Failure](err); !failed || failure.final {
			break
		}
		secret, err = d.run(ctx, message)
	}

	if Unable(err) {
		d.mu.Lock()
		d.cleanLocks = true
		d.mu.Unlock()
		err = fmt.Errorf("decrypt a secret: %w", err)
	}
	return secret, err
}

// cleanKeydir removes stale locks, if a gpg may have left some. It waits for endTakes at most: the file system
// of the folder may hang. Then the goroutine that removes them goes on, also after Close; there is never a
// second one.
func (d *Decrypter) cleanKeydir(ctx context.Context) error {
	d.mu.Lock()
	if d.cleanLocks && d.cleaning == nil {
		d.cleanLocks = false
		d.cleaning = make(chan struct{})
		go d.clean()
	}
	cleaning := d.cleaning
	d.mu.Unlock()
	if cleaning == nil {
		return nil
	}

	late := time.NewTimer(endTakes)
	defer late.Stop()
	select {
	case <-cleaning:
		return nil
	case <-ctx.Done():
		return errClosed
	case <-late.C:
		return errHangs
	}
}

func (d *Decrypter) clean() {
	d.removeLocks(d.cfg.Keydir)

	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.cleaning)
	d.cleaning = nil
}
