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
)

// Config of a Store.
type Config struct {
	Dir string // of which the Store is the only user
	// KnownHosts is a file with keys of ssh servers in place of the account's, beside
	// the host's; empty: the account's.
	KnownHosts string
	Limits     Limits
	// Prepare, if any, is called with each new snapshot before it serves.
	Prepare func(ctx context.Context, r *Repository, s *Snapshot)
	// Fetched, if any, is called when a fetch has ended.
	Fetched func(r *Repository, changed bool, err error)
	Log     *slog.Logger
	Now     func() time.Time
}

// maxFetches is how many remotes are fetched at a time.
const maxFetches = 4

// unused is how long a process or a tree on disk stays that nobody uses.
const unused = 10 * time.Minute

// Store holds the repositories. Add all remotes, then Run it; Close ends its
// processes.
type Store struct {
	cfg    Config
	limits Limits
	slots  chan struct{}
	trees  *treeCache
	blobs  *blobs
	work   *checkouts
	reap   sync.WaitGroup // removal of what the last process kept

	mu    sync.Mutex
	repos []*Repository
}

// Open makes a Store in a directory, without the network. What the last process
// kept there of files is removed: after a loss of power it may be torn.
func Open(cfg Config) (*Store, error) {
	cfg.Log = cmp.Or(cfg.Log, slog.New(slog.DiscardHandler))
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	s := &Store{cfg: cfg, limits: cfg.Limits.orDefaults(), slots: make(chan struct{}, maxFetches)}
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
	s.reap.Go(func() {
		if err := os.RemoveAll(old); err != nil {
			s.cfg.Log.Warn("old files of git repositories cannot be removed", "path", old, "error", err)
		}
	})
	s.trees = newTreeCache(s.limits.Trees)
	s.blobs = newBlobs(filepath.Join(cfg.Dir, "blobs"), s.limits)
	s.work = newCheckouts(filepath.Join(cfg.Dir, "trees"), s.limits, cfg.Now)
	return s, nil
}

// Add makes the repository of a remote, or gives the one of an equal remote,
// which is then fetched as often as the more frequent of the two. expect are
// branches and tags that the configuration names: a remote without one of them
// is at fault. What was fetched by an earlier process serves at once.
func (s *Store) Add(ctx context.Context, remote Remote, expect ...string) (*Repository, error) {
	if err := remote.check(); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := remote.key()
	for n, r := range s.repos {
		o := &r.remote
		if o.key() != key {
			continue
		}
		if remote.Password != o.Password || remote.PrivKey != o.PrivKey || remote.Passphrase != o.Passphrase || remote.Proxy != o.Proxy || remote.SkipVerify != o.SkipVerify {
			key += fmt.Sprintf("-%d", n)
			continue
		}
		o.Interval = min(o.Interval, remote.Interval)
		for _, id := range remote.Commits {
			if !slices.Contains(o.Commits, id) {
				o.Commits = append(o.Commits, id)
			}
		}
		r.want(expect)
		return r, nil
	}
	r := &Repository{store: s, dir: filepath.Join(s.cfg.Dir, "remotes", key), remote: remote, turn: make(chan struct{}, 1), tried: make(chan struct{})}
	r.turn <- struct{}{}
	r.reader = newReader(r.bare(), s.limits.Read)
	r.want(expect)
	r.unlock()
	if err := r.load(ctx); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.cfg.Log.Warn("the last snapshot of a git remote cannot be used; it is fetched anew", "url", r.URL(), "error", err)
	}
	s.repos = append(s.repos, r)
	return r, nil
}

func (r *Repository) want(names []string) {
	for _, n := range names {
		if n != "" && !slices.Contains(r.expect, n) {
			r.expect = append(r.expect, n)
		}
	}
}

// Repositories are those that were added.
func (s *Store) Repositories() []*Repository {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.repos)
}

// Run removes the copies of remotes that were not added, and fetches until ctx
// ends.
func (s *Store) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	keep := map[string]bool{}
	for _, r := range s.Repositories() {
		keep[filepath.Base(r.dir)] = true
		wg.Go(func() { r.run(ctx) })
	}
	wg.Go(func() { s.sweep(keep) })
	t := time.NewTicker(time.Minute)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			now := s.cfg.Now()
			for _, r := range s.Repositories() {
				r.reader.idle(now.Add(-unused))
			}
			s.work.trim(now.Add(-unused))
		}
	}
}

func (s *Store) sweep(keep map[string]bool) {
	dir := filepath.Join(s.cfg.Dir, "remotes")
	list, err := os.ReadDir(dir)
	if err != nil {
		return // nothing was fetched yet
	}
	for _, e := range list {
		if !keep[e.Name()] {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				s.cfg.Log.Warn("the copy of a former git remote cannot be removed", "path", e.Name(), "error", err)
			}
		}
	}
}

// run fetches again and again: after a fault sooner at first, then less and less
// often, until the interval or ten minutes.
func (r *Repository) run(ctx context.Context) {
	for {
		_, _ = r.Fetch(ctx) // noted
		r.mu.Lock()
		wait := r.remote.Interval
		if r.failures > 0 {
			slow := max(wait, 10*time.Minute)
			wait = min(wait, 15*time.Second)
			for range min(r.failures-1, 10) {
				wait = min(2*wait, slow)
			}
		}
		wait += time.Duration((rand.Float64() - 0.5) * 0.1 * float64(wait))
		r.next = r.store.cfg.Now().Add(wait)
		r.mu.Unlock()
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// Close ends the processes, when nobody reads any more.
func (s *Store) Close() {
	for _, r := range s.Repositories() {
		r.reader.close()
	}
	s.reap.Wait()
}

// ClearFiles forgets files and trees that were read, and reports whether there
// were any. Repositories stay: they are fetched again from where they are.
func (s *Store) ClearFiles() bool {
	n := s.blobs.clear()
	s.trees.clear()
	return n > 0
}

// FetchAll fetches all repositories for which want holds, and joins the faults.
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
