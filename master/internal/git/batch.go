package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Batch collects the remotes for the next Commit to a store. Only one goroutine may use it.
type Batch struct {
	store   *Store
	entries []*entryOf
}

type entryOf struct {
	repo *Repository
	settings
}

// Batch returns an empty Batch. The store changes only at Commit.
func (s *Store) Batch() *Batch { return &Batch{store: s} }

// Add adds a remote to the batch and returns the remote's repository. Equal remotes share one
// repository, which is fetched at the shorter of their intervals. expect lists the branches and
// tags that the configuration names; a remote that lacks one of them has a fault. If an earlier
// fetch left a snapshot, the repository serves that snapshot at once.
func (b *Batch) Add(ctx context.Context, remote Remote, expect ...string) (*Repository, error) {
	if err := remote.normalize(); err != nil {
		return nil, err
	}

	key := remote.dirName()
	for n, e := range b.entries {
		if e.dirName() != key {
			continue
		}
		if remote.Password != e.Password || remote.PrivKey != e.PrivKey ||
			remote.Passphrase != e.Passphrase || remote.Proxy != e.Proxy || remote.SkipVerify != e.SkipVerify {
			key += fmt.Sprintf("-%d", n)
			continue
		}

		e.Interval = min(e.Interval, remote.Interval)
		e.Commits = addMissing(e.Commits, remote.Commits)
		e.expect = addMissing(e.expect, expect)
		return e.repo, nil
	}

	e := &entryOf{settings: settings{Remote: remote, expect: addMissing(nil, expect)}}
	dir := filepath.Join(b.store.cfg.Dir, "remotes", key)
	for _, r := range b.store.Repositories() {
		if r.dir == dir {
			e.repo = r
		}
	}

	if e.repo == nil {
		e.repo = b.store.openRepository(ctx, dir, e)
	}

	b.entries = append(b.entries, e)
	return e.repo, nil
}

// openRepository opens the repository of a new remote.
func (s *Store) openRepository(ctx context.Context, dir string, e *entryOf) *Repository {
	r := &Repository{
		store:     s,
		dir:       dir,
		url:       e.Shown(),
		fetchTurn: make(chan struct{}, 1),
		tried:     make(chan struct{}),
	}

	r.fetchTurn <- struct{}{}
	r.reader = newReader(r.bareDir(), s.limits.Read)
	set := e.settings
	r.settings.Store(&set)
	r.unlock()

	if err := r.loadServed(ctx); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.cfg.Log.Warn("the last snapshot of a git remote cannot be used; it is fetched anew", "url",
			r.URL(), "error", err)
	}

	return r
}

// addMissing returns list, followed by those names that list lacks.
func addMissing(list, names []string) []string {
	list = slices.Clone(list)
	for _, n := range names {
		if n != "" && !slices.Contains(list, n) {
			list = append(list, n)
		}
	}
	return list
}

// Drop discards a batch without Commit.
func (b *Batch) Drop() {
	have := b.store.Repositories()
	for _, e := range b.entries {
		if !slices.Contains(have, e.repo) {
			e.repo.reader.close()
		}
	}
}

// Commit replaces the store's remotes by the remotes of the batch. The store removes the
// repositories of all other remotes when nobody reads from them any more.
func (b *Batch) Commit() {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()

	var repos []*Repository
	for _, e := range b.entries {
		set := e.settings
		e.repo.settings.Store(&set)
		repos = append(repos, e.repo)
	}

	for _, r := range s.repos {
		if !slices.Contains(repos, r) {
			s.former = append(s.former, r)
		}
	}

	s.repos = repos
	select {
	case s.changed <- struct{}{}:
	default: // an earlier signal is still waiting for Run
	}
}
