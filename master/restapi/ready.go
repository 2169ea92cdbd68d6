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

// readyPath is where load balancers ask. Salt has no such path.
const readyPath = "/readyz"

// minionConfPath is where everybody gets the lines with which a minion finds the cluster. Salt has
// no such path.
const minionConfPath = "/minion.conf"

const (
	signTimeout  = 3 * time.Second // the master's time to answer
	signValidFor = time.Second     // how long an answer counts
)

// life caches whether the master answers. Its methods may be called concurrently: however many ask,
// the master gets one question at a time.
type life struct {
	ask    func(ctx context.Context) error
	now    func() time.Time
	ctx    context.Context // of the questions
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu       sync.Mutex
	asked    chan struct{} // closed when the question under way is answered; nil: there is none
	answered time.Time     // of the last answer
	err      error         // that it was
}

func newLife(ask func(ctx context.Context) error, now func() time.Time) *life {
	l := &life{ask: ask, now: now}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	return l
}

// stop gives up the question under way. awaitSign may not be called afterwards.
func (l *life) stop() {
	l.cancel()
	l.wg.Wait()
}

// awaitSign returns why the master does not answer, or nil if it does. It waits for an answer until
// ctx ends.
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

// lastSign returns what awaitSign last found, if that is recent. It asks nothing.
func (l *life) lastSign() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	// A balancer asks more often. Without a balancer the last answer may be old.
	if l.now().Sub(l.answered) > 20*time.Second {
		return nil
	}
	return l.err
}

// askMaster asks the master.
func (l *life) askMaster(asked chan struct{}) {
	ctx, cancel := context.WithTimeout(l.ctx, signTimeout)
	defer cancel()
	err := l.ask(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answered = l.now()
	l.err = err
	l.asked = nil
	close(asked)
}

// pingMaster asks the master for a sign of life.
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

// isMarked reports whether a master serves the socket directory, or was killed there.
func (s *Server) isMarked() bool {
	_, err := os.Stat(filepath.Join(s.master.SockDir, "workers.ipc"))
	return err == nil
}

// masterIsUp reports whether a command has a chance. A master that does not answer in time may be
// busy: the command will find out.
func (s *Server) masterIsUp(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, signValidFor)
	defer cancel()
	return s.isMarked() && !errors.Is(s.life.awaitSign(ctx), syscall.ECONNREFUSED)
}

const (
	// trySessions is how often the folder of sessions is tried, sessionsTake after how long its
	// disk counts as hung.
	trySessions  = 5 * time.Second
	sessionsTake = 4 * time.Second
)

// watchSessions returns a watch of the folder in which log-ins are kept. It logs when the folder
// takes no writes, and when it does again. It uses a file of this machine only: others may keep
// theirs in the same folder.
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

// unkept returns why log-ins cannot be kept on this node, or "" when they can or it is not known
// yet.
func (s *Server) unkept() string {
	if err := s.sessions.Err(); err != nil {
		return "the folder of sessions takes no writes: " + writable.Cause(err)
	}
	return ""
}

// turnsAway reports whether clients do better on another node: this one keeps no log-ins, or its
// master no jobs. A balancer passes bytes and sees no requests, so it ends only connections that
// were silent for ten seconds. On a connection in use each answer says that it is the last.
func (s *Server) turnsAway() bool {
	return s.unkept() != "" || errors.Is(s.life.lastSign(), client.ErrUnwell)
}

// readyz answers whether requests can be served, and nothing else. It is ready even when strangers
// have used up their share.
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
