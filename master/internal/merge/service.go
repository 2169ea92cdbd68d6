package merge

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"saltern/internal/control"
	"saltern/master/internal/diff"
	"saltern/master/internal/git"
	"saltern/master/internal/merge/options"
	"saltern/master/internal/repos"
)

// Remotes tells which commits the git remotes have.
type Remotes interface {
	// Tips returns the latest commits of the remote with a URL or name, as repos.Service does.
	Tips(remote string, known *git.Snapshot) (repos.Tips, error)
	// FetchGit fetches the remotes with a URL or name, and waits for that for a time, as repos.Service does.
	FetchGit(ctx context.Context, remote string) (control.Git, error)
}

// Comparer compares commits with what is served, as diff.Service does.
type Comparer interface {
	Compare(ctx context.Context, r diff.Request, tell func(string)) (*diff.Report, error)
}

// Cluster tells which master reports.
type Cluster interface {
	// Own reports whether this master is the owner. term is greater for each new owner.
	Own() (term uint64, ok bool)
}

// Config configures a Service.
type Config struct {
	Reports []options.Report
	Remotes Remotes
	Compare Comparer
	Cluster Cluster
	// Record returns the path of the file that the masters of a cluster share, for the ID of an entry.
	Record func(id string) string
	// Problem reports a persistent fault. If err is nil, the fault has ended.
	Problem func(fault control.Fault, err error)
	Now     func() time.Time
	Log     *slog.Logger

	look time.Duration // pause between two looks at the tips; 0: lookEvery
}

// Service reports. Its methods are safe for concurrent use. A nil Service reports nothing.
type Service struct {
	cfg     Config
	workers []*worker
	turn    chan struct{} // holds one token; who has taken it may compare

	mu      sync.Mutex
	failing map[string]error // entries whose server has not answered for long, by their name
}

// New returns a Service, or nil if there are no entries. The caller must call Run.
func New(cfg Config) *Service {
	if len(cfg.Reports) == 0 {
		return nil
	}

	cfg.look = cmp.Or(cfg.look, lookEvery)
	s := &Service{cfg: cfg, turn: make(chan struct{}, 1), failing: map[string]error{}}
	s.turn <- struct{}{}
	for i := range cfg.Reports {
		s.workers = append(s.workers, newWorker(s, &cfg.Reports[i]))
	}
	return s
}

// Run reports until ctx ends. What was not reported by then is reported after the next start, or by
// the next owner.
func (s *Service) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, w := range s.workers {
		all.Go(func() { w.run(ctx) })
	}
	all.Wait()
}

// setFailing notes that an entry fails with err, or nil: it does not fail. All of them are one
// problem of the node.
func (s *Service) setFailing(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, failed := s.failing[name]; err == nil && !failed {
		return
	}
	if err == nil {
		delete(s.failing, name)
	} else {
		s.failing[name] = err
	}

	names := slices.Sorted(maps.Keys(s.failing))
	switch len(names) {
	case 0:
		s.cfg.Problem(control.MergeFault, nil)
	case 1:
		s.cfg.Problem(control.MergeFault, fmt.Errorf("%s: %w", names[0], s.failing[names[0]]))
	default:
		s.cfg.Problem(control.MergeFault, fmt.Errorf("%s (and %d more): %w", names[0], len(names)-1, s.failing[names[0]]))
	}
}

// whileOwner returns a context that ends when this master is not the owner any more.
func (s *Service) whileOwner(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	term, owns := s.cfg.Cluster.Own()
	if !owns {
		cancel()
		return ctx, cancel
	}

	var watch sync.WaitGroup
	watch.Go(func() {
		check := time.NewTicker(ownerEvery)
		defer check.Stop()
		for {
			select {
			case <-check.C:
				if now, owns := s.cfg.Cluster.Own(); !owns || now != term {
					cancel()
					return
				}
			case <-ctx.Done():
				return
			}
		}
	})
	return ctx, func() {
		cancel()
		watch.Wait()
	}
}
