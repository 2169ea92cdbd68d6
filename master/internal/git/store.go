package git

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/internal/pause"
)

// Config of a Store.
type Config struct {
	Dir string // directory that only this Store may use
	// KnownHosts is a file with the keys of SSH servers. It replaces the account's known_hosts; the
	// host's file is used as well. "" means the account's known_hosts.
	KnownHosts string
	Limits     Limits
	// Prepare is called with each new snapshot that the Store begins to serve. The fetch ends only
	// after Prepare has returned. Prepare may be nil.
	Prepare func(ctx context.Context, r *Repository, s *Snapshot)
	// Fetched is called after each fetch. It may be nil.
	Fetched func(r *Repository, changed bool, err error)
	Log     *slog.Logger
	Now     func() time.Time
}

// maxFetches is how many remotes are fetched at the same time.
const maxFetches = 4

// unusedFor is how long an idle process, or an unused tree on disk, is kept.
const unusedFor = 10 * time.Minute

// Store holds the repositories. The caller sets the remotes by a [Batch], then calls Run. Close
// ends the processes of the Store.
type Store struct {
	cfg       Config
	limits    Limits
	slots     chan struct{}
	trees     *treeCache
	blobs     *blobs
	checkouts *checkouts
	removals  sync.WaitGroup // tracks the removal of the previous process's files

	changed chan struct{} // gets a value when the remotes have changed

	mu              sync.Mutex
	repos           []*Repository
	former, leaving []*Repository // repositories that were removed from the store; see closeLeaving
}

// Open returns a Store with its files in a directory. It does not use the network. It removes the
// cached files of the previous process, because they may be incomplete after a power loss.
func Open(cfg Config) (*Store, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}

	s := &Store{
		cfg:     cfg,
		limits:  cfg.Limits.orDefaults(),
		slots:   make(chan struct{}, maxFetches),
		changed: make(chan struct{}, 1),
	}

	killOrphanFetches(cfg.Dir)
	old := filepath.Join(cfg.Dir, "old")
	if err := os.MkdirAll(old, 0o700); err != nil {
		return nil, fmt.Errorf("open the store of git repositories: %w", err)
	}

	for _, name := range []string{"blobs", "trees"} {
		dir := filepath.Join(cfg.Dir, name)
		to := filepath.Join(old, fmt.Sprintf("%s-%d", name, cfg.Now().UnixNano()))
		if err := os.Rename(dir, to); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("open the store of git repositories: %w", err)
		}

		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("open the store of git repositories: %w", err)
		}
	}

	s.removals.Go(func() {
		if err := os.RemoveAll(old); err != nil {
			s.cfg.Log.Warn("old files of git repositories cannot be removed", "path", old, "error", err)
		}
	})

	s.trees = newTreeCache(s.limits.Trees)
	s.blobs = newBlobs(filepath.Join(cfg.Dir, "blobs"), s.limits)
	s.checkouts = newCheckouts(filepath.Join(cfg.Dir, "trees"), s.limits, cfg.Now)
	return s, nil
}

// Repositories returns all repositories.
func (s *Store) Repositories() []*Repository {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.repos)
}

// Run removes the repositories of remotes that are not in the store. It fetches the other
// repositories repeatedly until ctx ends.
func (s *Store) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := func() {}
	follow := func() {
		stop() // restart all loops: remotes and their settings may have changed
		var own context.Context
		own, stop = context.WithCancel(ctx)
		for _, r := range s.Repositories() {
			wg.Go(func() { r.fetchLoop(own) })
		}
	}

	select {
	case <-s.changed: // drop the signal of the first batch
	default:
	}

	follow()
	defer func() { stop() }()
	s.removeForeign()
	t := time.NewTicker(time.Minute)
	defer t.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-s.changed:
			follow()
		case <-t.C:
			now := s.cfg.Now()
			for _, r := range s.Repositories() {
				r.reader.stopIdle(now.Add(-unusedFor))
			}
			s.checkouts.dropUnused(now.Add(-unusedFor))
			s.closeLeaving()
		}
	}
}

// removeForeign removes the directories of remotes that are not in the store any more.
func (s *Store) removeForeign() {
	keep := map[string]bool{}
	s.mu.Lock()
	for _, r := range slices.Concat(s.repos, s.former, s.leaving) {
		keep[filepath.Base(r.dir)] = true
	}
	s.mu.Unlock()

	dir := filepath.Join(s.cfg.Dir, "remotes")
	list, err := os.ReadDir(dir)
	if err != nil {
		return // nothing has been fetched yet
	}

	for _, e := range list {
		if !keep[e.Name()] {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				s.cfg.Log.Warn("the copy of a former git remote cannot be removed", "path", e.Name(), "error", err)
			}
		}
	}
}

// closeLeaving closes and removes the repositories that had left the store before the previous call
// of closeLeaving. By now nobody reads from these repositories.
func (s *Store) closeLeaving() {
	s.mu.Lock()
	gone := s.leaving
	s.leaving, s.former = s.former, nil
	s.mu.Unlock()
	for _, r := range gone {
		r.reader.close()
	}
	if len(gone) > 0 {
		s.removeForeign()
	}
}

// fetchLoop fetches a repository repeatedly. After a fault the interval is short at first, then
// grows with each failure.
func (r *Repository) fetchLoop(ctx context.Context) {
	for {
		_, _ = r.Fetch(ctx) // Fetch records the outcome of the fetch
		r.mu.Lock()
		wait := r.settings.Load().Interval
		if r.failures > 0 && r.fault.Kind != RefGone { // a fetch that reports only the fault RefGone has succeeded
			// Fetch a failing remote at least this often, or at its own interval if that interval
			// is longer.
			slow := max(wait, 2*time.Minute)
			wait = min(wait, 15*time.Second)
			for range min(r.failures-1, 10) {
				wait = min(2*wait, slow)
			}
		}

		wait += time.Duration((rand.Float64() - 0.5) * 0.1 * float64(wait))
		r.next = r.store.cfg.Now().Add(wait)
		r.mu.Unlock()

		if pause.For(ctx, wait) != nil {
			return
		}
	}
}

// Close waits for the reads in progress and ends the processes.
func (s *Store) Close() {
	s.mu.Lock()
	all := slices.Concat(s.repos, s.former, s.leaving)
	s.mu.Unlock()
	for _, r := range all {
		r.reader.close()
	}
	s.removals.Wait()
}

// ClearFiles removes the cached files and trees, and reports whether there were any. It does not
// remove the repositories, from which later reads cache files and trees again.
func (s *Store) ClearFiles() bool {
	n := s.blobs.removeAll()
	s.trees.clear()
	return n > 0
}

// FetchAll fetches all repositories for which want returns true, and returns their faults joined.
// want may be nil: all repositories are fetched.
func (s *Store) FetchAll(ctx context.Context, want func(*Repository) bool) (changed bool, err error) {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var errs []error
	for _, r := range s.Repositories() {
		if want != nil && !want(r) {
			continue
		}

		wg.Go(func() {
			new, err := r.Fetch(ctx)
			mu.Lock()
			defer mu.Unlock()
			changed = changed || new
			if err != nil {
				errs = append(errs, fmt.Errorf("fetch %s: %w", r.URL(), err))
			}
		})
	}

	wg.Wait()
	slices.SortFunc(errs, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	return changed, errors.Join(errs...)
}
