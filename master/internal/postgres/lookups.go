package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"saltern/master/internal/postgres/settings"
)

// lookupConnections is how many look-ups ask the database at once. Overflow policy: others wait for a part of
// lookupTimeout, and are answered without the database then.
const lookupConnections = 3

// Errors of look-ups. Callers of runners see these texts; what the client library or the database said is in the log
// only, since it names hosts and roles.
var (
	errAway    = errors.New("PostgreSQL did not answer (saltern_postgres; the log of the master has the reason)")
	errBusy    = errors.New("too many look-ups waited for PostgreSQL: ask again")
	errSlow    = errors.New("PostgreSQL needed too long: ask for less, for instance for a minion or a time")
	errRefuses = errors.New("PostgreSQL refused the question (saltern_postgres; the log of the master has the reason)")
	errTooMuch = fmt.Errorf("PostgreSQL has more than %d returns or %d MiB of this job: read salt_returns there",
		standardBounds.rows, standardBounds.bytes>>20)
	errNoLoad  = errors.New("the load of the job in PostgreSQL is too large or damaged: read jids there")
	errStopped = errors.New("the master stops")
)

// LookupsConfig configures Lookups. All fields are required.
type LookupsConfig struct {
	Settings *settings.Settings
	Node     string // name of this machine
	Now      func() time.Time
	Log      *slog.Logger

	timeout time.Duration // 0: lookupTimeout; tests set another
	bounds  lookupBounds  // the zero value: standardBounds; tests set others
}

// Lookups reads jobs and runs from the database, by connections of its own. Its methods may be called concurrently,
// and return within lookupTimeout.
//
// Other programs write the same tables, so that each value is bounded by the database before it is sent, and again
// before it is decoded.
type Lookups struct {
	cfg        LookupsConfig
	times      lookupTimes
	bounds     lookupBounds
	free       chan *database // the connections that nobody uses
	stopped    chan struct{}
	unanswered atomic.Uint64 // look-ups that the database did not answer

	mu     sync.Mutex
	outage time.Time           // when the database last did not answer; zero after an answer
	logged map[error]time.Time // the kinds of failures that the log has, and since when
}

// NewLookups returns a Lookups. The caller calls Run. It connects when it is first asked.
func NewLookups(cfg LookupsConfig) *Lookups {
	l := &Lookups{
		cfg:     cfg,
		times:   newLookupTimes(cmp.Or(cfg.timeout, lookupTimeout)),
		bounds:  cmp.Or(cfg.bounds, standardBounds),
		free:    make(chan *database, lookupConnections),
		stopped: make(chan struct{}),
		logged:  map[error]time.Time{},
	}
	for range lookupConnections {
		l.free <- &database{
			settings:         cfg.Settings,
			node:             cfg.Node,
			statementTimeout: l.times.statement,
			maxAge:           maxConnection,
			readOnly:         true,
			log:              cfg.Log,
		}
	}
	return l
}

// Run closes connections without use until ctx ends, and all of them then. Look-ups fail afterwards.
func (l *Lookups) Run(ctx context.Context) {
	ticker := time.NewTicker(idleConnection)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			l.closeIdle()
		case <-ctx.Done():
			close(l.stopped)
			for range lookupConnections {
				(<-l.free).close()
			}
			return
		}
	}
}

// closeIdle closes the connections that nobody uses now.
func (l *Lookups) closeIdle() {
	for range lookupConnections {
		select {
		case d := <-l.free:
			d.close()
			l.free <- d
		default:
			return
		}
	}
}

// ask asks a question by a connection of its own. The question may be asked twice. The error is one of those above,
// or that of ctx.
func (l *Lookups) ask(ctx context.Context, question func(context.Context, *pgx.Conn) error) error {
	short, cancel := context.WithTimeout(ctx, l.times.whole)
	defer cancel()
	d, failure := l.acquire(short)
	var reason error
	if failure == nil {
		failure, reason = d.askBoth(short, question)
	}
	if d != nil {
		l.free <- d
	}

	if failure != nil && ctx.Err() != nil {
		return fmt.Errorf("ask PostgreSQL: %w", ctx.Err())
	}
	l.note(failure, reason)
	return failure
}

// acquire waits for a connection. It returns an error at once while the database is known to be away.
func (l *Lookups) acquire(ctx context.Context) (*database, error) {
	if l.isAway() {
		return nil, errAway
	}
	ctx, cancel := context.WithTimeout(ctx, l.times.turn)
	defer cancel()
	select {
	case <-l.stopped:
		return nil, errStopped
	case <-ctx.Done():
		return nil, errBusy
	case d := <-l.free:
		if l.isAway() { // those who waited before have found out
			l.free <- d
			return nil, errAway
		}
		return d, nil
	}
}

// isAway reports whether the database did not answer lately.
func (l *Lookups) isAway() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	age := l.cfg.Now().Sub(l.outage)
	return !l.outage.IsZero() && age >= 0 && age < askAgain
}

// askBoth asks by the connection that is there, and by a new one if that has ended meanwhile. failure is for the
// caller, reason for the log.
func (d *database) askBoth(ctx context.Context, question func(context.Context, *pgx.Conn) error) (failure, reason error) {
	for {
		isOld := d.conn != nil
		if err := d.connect(ctx); err != nil {
			return errAway, wordError(err, d.password)
		}
		err := question(ctx, d.conn)
		if err == nil {
			return nil, nil
		}

		failure := d.failureOf(err)
		if failure != errAway || !isOld || ctx.Err() != nil {
			return failure, wordError(err, d.password)
		}
		d.close()
	}
}

// failureOf returns what the error of a question says about the database.
func (d *database) failureOf(err error) error {
	var answer *pgconn.PgError
	switch {
	case errors.Is(err, errTooMuch):
		return errTooMuch
	case errors.Is(err, errSlow), errors.As(err, &answer) && answer.Code == "57014": // canceled by statement_timeout
		return errSlow
	case errors.As(err, &answer) && refusalOf(err) != away:
		return errRefuses
	case answer == nil && !d.conn.IsClosed(): // the client library cannot read the answer
		return errRefuses
	}
	return errAway
}

// lateAnswer returns the error of a question to which the database has answered something already.
func lateAnswer(err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		return errSlow
	}
	return err
}

// note remembers whether the database answers, and logs each kind of failure once until it is over.
func (l *Lookups) note(failure, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.cfg.Now()
	switch failure {
	case errStopped:
		return
	case errAway:
		if reason != nil { // it was asked
			l.outage = now
		}
	case errBusy, errSlow, errRefuses:
	default:
		l.noteAnswer(now)
		return
	}

	l.unanswered.Add(1)
	if _, known := l.logged[failure]; known {
		return
	}
	l.logged[failure] = now
	if reason == nil {
		reason = failure
	}
	l.cfg.Log.Warn("PostgreSQL does not answer look-ups; they have only what this node has", "error", reason)
}

// noteAnswer notes that the database answers. Another question may still be refused, or take too long: the log tells of
// such failures again after logAgain. The caller holds mu.
func (l *Lookups) noteAnswer(now time.Time) {
	l.outage = time.Time{}
	for failure, at := range l.logged {
		age := now.Sub(at)
		if failure == errAway {
			l.cfg.Log.Info("PostgreSQL answers look-ups again")
		}
		if failure == errAway || age < 0 || age >= logAgain {
			delete(l.logged, failure)
		}
	}
}
