package git

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// Batch is all remotes that a store shall have. It is for one goroutine.
type Batch struct {
	store   *Store
	entries []*entryOf
}

type entryOf struct {
	repo *Repository
	settings
}

// Batch begins one without remotes. Nothing changes before Commit.
func (s *Store) Batch() *Batch { return &Batch{store: s} }

// Add gives the repository of a remote; equal remotes share one, which is fetched
// as often as the more frequent of them. expect are branches and tags that the
// configuration names: a remote without one of them is at fault. What was fetched
// before serves at once.
func (b *Batch) Add(ctx context.Context, remote Remote, expect ...string) (*Repository, error) {
	if err := remote.check(); err != nil {
		return nil, err
	}

	key := remote.key()
	for n, e := range b.entries {
		if e.key() != key {
			continue
		}
		if remote.Password != e.Password || remote.PrivKey != e.PrivKey ||
			remote.Passphrase != e.Passphrase || remote.Proxy != e.Proxy || remote.SkipVerify != e.SkipVerify {
			key += fmt.Sprintf("-%d", n)
			continue
		}

		e.Interval = min(e.Interval, remote.Interval)
		e.Commits = more(e.Commits, remote.Commits)
		e.expect = more(e.expect, expect)
		return e.repo, nil
	}

	e := &entryOf{settings: settings{Remote: remote, expect: more(nil, expect)}}
	dir := filepath.Join(b.store.cfg.Dir, "remotes", key)
	for _, r := range b.store.Repositories() {
		if r.dir == dir {
			e.repo = r
		}
	}

	if e.repo == nil {
		e.repo = b.store.open(ctx, dir, e)
	}

	b.entries = append(b.entries, e)
	return e.repo, nil
}

// open makes the repository of a new remote.
func (s *Store) open(ctx context.Context, dir string, e *entryOf) *Repository {
	r := &Repository{
		store: s,
		dir:   dir,
		url:   e.Shown(),
		turn:  make(chan struct{}, 1),
		tried: make(chan struct{}),
	}

	r.turn <- struct{}{}
	r.reader = newReader(r.bare(), s.limits.Read)
	set := e.settings
	r.conf.Store(&set)
	r.unlock()

	if err := r.load(ctx); err != nil && !errors.Is(err, os.ErrNotExist) {
		s.cfg.Log.Warn("the last snapshot of a git remote cannot be used; it is fetched anew", "url",
			r.URL(), "error", err)
	}

	return r
}

// more adds names that are not there.
func more(to, names []string) []string {
	to = slices.Clone(to)
	for _, n := range names {
		if n != "" && !slices.Contains(to, n) {
			to = append(to, n)
		}
	}
	return to
}

// Drop ends a batch without Commit.
func (b *Batch) Drop() {
	have := b.store.Repositories()
	for _, e := range b.entries {
		if !slices.Contains(have, e.repo) {
			e.repo.reader.close()
		}
	}
}

// Commit makes the remotes of the batch those of the store. Others leave it: their
// copies are removed when nobody reads from them any more.
func (b *Batch) Commit() {
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()

	var repos []*Repository
	for _, e := range b.entries {
		set := e.settings
		e.repo.conf.Store(&set)
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
	default: // Run has not seen the last one yet
	}
}
