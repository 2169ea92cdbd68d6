package restapi

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"saltern/internal/ratelimit"
	"saltern/internal/writable"
	"saltern/master/client"
)

// readyPath is the path at which load balancers check whether salt-api can serve. Salt has no such
// path.
const readyPath = "/readyz"

// minionConfPath is the path at which everybody can get the lines of configuration that a minion
// needs to find the cluster. Salt has no such path.
const minionConfPath = "/minion.conf"

const (
	signTimeout  = 3 * time.Second // longest wait for the master's answer
	signValidFor = time.Second     // age up to which an answer is reused
)

// life checks whether the master answers, and caches the result. Its methods may be called
// concurrently: however many callers wait, the master gets one request at a time.
type life struct {
	ask    func(ctx context.Context) error
	now    func() time.Time
	ctx    context.Context // context of the requests
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	asked    chan struct{} // closed when the running request has ended; nil when no request runs
	answered time.Time     // time at which the last request ended
	err      error         // result of the last request; nil: the master answered
}

func newLife(ask func(ctx context.Context) error, now func() time.Time) *life {
	l := &life{ask: ask, now: now}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// stop cancels the running request and waits until it has ended. awaitSign must not be called after
// stop.
func (l *life) stop() {
	l.cancel()
	l.wg.Wait()
}

// awaitSign returns nil if the master answers, or why it does not answer. It returns ctx's error if
// the result is not known before ctx ends.
func (l *life) awaitSign(ctx context.Context) error {
	for {
		l.mu.Lock()
		if !l.answered.IsZero() && l.now().Sub(l.answered) < signValidFor {
			defer l.mu.Unlock()
			return l.err
		}

		if l.asked == nil {
			asked := make(chan struct{})
			l.asked = asked
			l.wg.Go(func() { l.askMaster(asked) })
		}

		asked := l.asked
		l.mu.Unlock()

		select {
		case <-asked:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lastSign returns the result of the last request, or nil if that result is older than 20 seconds.
// It sends no request.
func (l *life) lastSign() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A load balancer causes several requests in 20 s. Without a load balancer the last answer may
	// be old.
	if l.now().Sub(l.answered) > 20*time.Second {
		return nil
	}
	return l.err
}

// askMaster sends the master a request and closes ended when it has recorded the result.
func (l *life) askMaster(ended chan struct{}) {
	ctx, cancel := context.WithTimeout(l.ctx, signTimeout)
	defer cancel()
	err := l.ask(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = l.now()
	l.err = err
	l.asked = nil
	close(ended)
}

// pingMaster returns nil if the master answers a ping.
func (s *Server) pingMaster(ctx context.Context) error {
	if !s.isMarked() {
		return errors.New("the master does not serve")
	}
	c := client.New(client.Config{
		Interface: s.master.Interface,
		RetPort:   s.master.RetPort,
		SockDir:   s.master.SockDir,
		NoKey:     true,
	})
	defer c.Close()
	return c.Answers(ctx)
}

// isMarked reports whether the master's socket exists in the socket directory. If so, a master is
// running, or was killed.
func (s *Server) isMarked() bool {
	_, err := os.Stat(filepath.Join(s.master.SockDir, "workers.ipc"))
	return err == nil
}

// masterIsUp reports whether a command may succeed. It returns true for a master that does not
// answer in time: such a master may be busy, and the command itself will show whether it answers.
func (s *Server) masterIsUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, signValidFor)
	defer cancel()
	return s.isMarked() && !errors.Is(s.life.awaitSign(ctx), syscall.ECONNREFUSED)
}

const (
	// trySessions is how often salt-api writes to the folder of sessions as a test. sessionsTake is
	// how long such a test may take before the folder's disk is reported as hung.
	trySessions  = 5 * time.Second
	sessionsTake = 4 * time.Second
)

// watchSessions returns a watch of the folder in which log-ins are stored. The watch logs when the
// folder stops accepting writes, and when it accepts them again. It writes a file that is named
// after this machine, since other machines may store their log-ins in the same folder.
func watchSessions(dir, machine string, log *slog.Logger) *writable.Watch {
	file := filepath.Join(dir, ".try-salt-api-"+machine)
	unkept := false
	return &writable.Watch{
		Note: func(err error) {
			if err != nil && !unkept {
				log.Error("log-ins cannot be kept: the folder of sessions takes no writes", "path", dir,
					"error", writable.Advise(err))
			} else if err == nil && unkept {
				log.Info("log-ins can be kept again", "path", dir)
			}
			unkept = err != nil
		},
		Every: trySessions,
		Takes: sessionsTake,
		Try: func() error {
			if err := os.MkdirAll(dir, 0o700); err != nil {
				return err
			}
			return writable.Try(file)
		},
	}
}

// unkept returns why log-ins cannot be stored on this node. It returns "" when they can be stored,
// and before the first test has ended.
func (s *Server) unkept() string {
	if err := s.sessions.Err(); err != nil {
		return "the folder of sessions takes no writes: " + writable.Cause(err)
	}
	return ""
}

// turnsAway reports whether clients should use another node, because this node cannot store
// log-ins, or its master cannot store jobs. A load balancer passes bytes and does not see requests,
// so it ends only connections that have been silent for ten seconds. On a busy connection salt-api
// marks each answer as the last one of the connection.
func (s *Server) turnsAway() bool {
	return s.unkept() != "" || errors.Is(s.life.lastSign(), client.ErrUnwell)
}

// readyz answers whether salt-api can serve requests of authenticated users. It ignores whether the
// share of workers, requests and memory for unauthenticated senders is used up.
func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), signTimeout+time.Second)
	defer cancel()
	code, text := http.StatusServiceUnavailable, ""
	unkept := s.unkept()
	switch err := s.life.awaitSign(ctx); {
	case err != nil && !s.isMarked():
		text = "the master does not serve\n"
	case errors.Is(err, client.ErrUnwell):
		text = "the master can keep no jobs\n"
	case err != nil:
		text = "the master does not answer\n"
	case unkept != "":
		text = unkept + "\n"
	case s.pools.requests.Full(ratelimit.Proven, 1) || s.pools.workers.Full(ratelimit.Proven, 1):
		text = "all workers are busy, and so many requests wait that further ones are sent away\n"
	case s.pools.memory.Full(ratelimit.Proven, bodyStep):
		text = "there is no memory for the bodies of requests\n"
	default:
		code, text = http.StatusOK, "ready\n"
	}

	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = w.Write([]byte(text))
}
