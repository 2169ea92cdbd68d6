package git

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// settings are the settings of a repository that may change while it is in use.
type settings struct {
	Remote
	expect []string // branches or tags that the configuration names
}

// Repository is the copy of one remote.
type Repository struct {
	store    *Store
	dir      string // directory of the bare repository and the snapshot
	reader   *reader
	url      string // URL of the remote, without a password
	settings atomic.Pointer[settings]

	served atomic.Pointer[Snapshot]
	// lacking means that an object of a snapshot is missing. If lacking is set, the next fetch
	// starts with an empty repository.
	lacking   atomic.Bool
	snapshots atomic.Uint64
	fetchTurn chan struct{} // holds one token; the caller that has taken the token may change the repository
	// tried is closed when the first fetch of this process has ended.
	tried chan struct{}

	mu         sync.Mutex
	started    uint64 // number of started fetches, which is also the number of the last one started
	fetching   bool
	ended      uint64 // number of the last fetch that ended
	lastErr    error  // outcome of the fetch number ended
	failures   int    // failed fetches in a row
	fault      *Fault
	faultSince time.Time // when the fault began
	fetched    time.Time // time of the last successful fetch
	next       time.Time
}

func (r *Repository) bareDir() string      { return filepath.Join(r.dir, "repo") }
func (r *Repository) snapshotFile() string { return filepath.Join(r.dir, "snapshot") }

// Snapshot returns the served snapshot. It may be nil: nothing has been fetched yet.
func (r *Repository) Snapshot() *Snapshot { return r.served.Load() }

// URL returns the URL of the remote, without a password.
func (r *Repository) URL() string { return r.url }

// Ready returns the served snapshot. If there is none yet, Ready waits for the first fetch of this
// process. It returns nil if that fetch fails or ctx ends.
func (r *Repository) Ready(ctx context.Context) *Snapshot {
	if s := r.Snapshot(); s != nil {
		return s
	}
	select {
	case <-r.tried:
	case <-ctx.Done():
	}
	return r.Snapshot()
}

// Status is the state of a repository.
type Status struct {
	URL      string
	Snapshot *Snapshot     // nil: none
	Fetched  time.Time     // time of the last successful fetch; zero: none since the start
	Next     time.Time     // when the next fetch starts
	Interval time.Duration // time between fetches
	Fetching bool
	Fault    *Fault    // nil: the last fetch succeeded
	Since    time.Time // when the fault began
}

// Status returns the current state.
func (r *Repository) Status() Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Status{
		URL:      r.URL(),
		Snapshot: r.Snapshot(),
		Fetched:  r.fetched,
		Next:     r.next,
		Interval: r.settings.Load().Interval,
		Fetching: r.fetching,
		Fault:    r.fault,
		Since:    r.faultSince,
	}
}

// Fetch fetches now, and reports whether there were changes. Concurrent callers share one fetch,
// which starts after the last of these calls.
func (r *Repository) Fetch(ctx context.Context) (changed bool, err error) {
	r.mu.Lock()
	want := r.started + 1
	r.mu.Unlock()

	before := r.Snapshot()
	select {
	case <-r.fetchTurn:
		defer func() { r.fetchTurn <- struct{}{} }()
	case <-ctx.Done():
		return false, ctx.Err()
	}

	r.mu.Lock()
	if r.ended >= want { // another caller's fetch started after this call
		err := r.lastErr
		r.mu.Unlock()
		return r.Snapshot() != before, err
	}

	r.started++
	n := r.started
	r.fetching = true
	r.mu.Unlock()

	defer func() {
		r.mu.Lock()
		r.fetching = false
		r.mu.Unlock()
	}()

	select {
	case r.store.slots <- struct{}{}:
		defer func() { <-r.store.slots }()
	case <-ctx.Done():
		return false, ctx.Err()
	}

	changed, err = r.refresh(ctx)
	if ctx.Err() != nil {
		return changed, ctx.Err()
	}

	r.noteFetch(n, err)
	if f := r.store.cfg.Fetched; f != nil {
		f(r, changed, err)
	}

	return changed, err
}

func (r *Repository) noteFetch(n uint64, err error) {
	now := r.store.cfg.Now()
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.ended == 0 {
		close(r.tried)
	}

	r.ended, r.lastErr = n, err
	if err == nil {
		if r.fault != nil {
			r.store.cfg.Log.Info("git remote answers again", "url", r.URL())
		}
		r.failures = 0
		r.fault = nil
		r.fetched = now
		return
	}

	f := &Fault{Kind: Broken, Text: briefOf(err.Error())}
	if k := KindOf(err); k != "" {
		f.Kind = k
		f.Text = strings.TrimPrefix(f.Text, string(k)+": ")
	}

	r.failures++
	if r.fault == nil || r.fault.Kind != f.Kind {
		r.faultSince = now
		r.store.cfg.Log.Error("git remote cannot be fetched; what was fetched last stays in service", "url",
			r.URL(), "kind", string(f.Kind), "error", f.Text)
	}

	r.fault = f
}

// Resolve returns the tree of a commit. id is the id of the commit, or at least its first seven
// digits. ok is false if there is no such commit.
func (r *Repository) Resolve(ctx context.Context, id string) (tree string, ok bool, err error) {
	if r.Snapshot() == nil || len(id) < 7 || len(id) > 64 || strings.Trim(id, "0123456789abcdef") != "" {
		return "", false, nil
	}
	_, b, err := r.reader.readWhole(ctx, id+"^{commit}", maxObject)
	if isMissing(err) {
		return "", false, nil
	}
	if err != nil {
		return "", false, err
	}
	tree, err = parseCommit(b)
	return tree, err == nil, err
}

// loadServed serves the snapshot of the previous process again, if the trees of that snapshot
// exist.
func (r *Repository) loadServed(ctx context.Context) error {
	s, err := loadSnapshot(r.snapshotFile())
	if err != nil {
		return err
	}

	seen := map[string]bool{}
	for _, ref := range s.Refs {
		if seen[ref.Tree] {
			continue
		}
		seen[ref.Tree] = true
		if _, err := r.store.readTree(ctx, r, ref.Tree); err != nil {
			return fmt.Errorf("check the last snapshot of %s: %w", r.URL(), err)
		}
	}

	s.Seq = r.snapshots.Add(1)
	r.served.Store(s)
	return nil
}

// Expects reports whether the configuration names a branch or tag.
func (r *Repository) Expects(name string) bool {
	return slices.Contains(r.settings.Load().expect, name)
}

// ForeignRefspecs returns the refspecs that fetch from elsewhere than the branches and tags of the remote.
func (r *Repository) ForeignRefspecs() (all []string) {
	for _, spec := range r.settings.Load().Refspecs {
		source, _, ok := strings.Cut(strings.TrimPrefix(spec, "+"), ":")
		own := strings.HasPrefix(source, "refs/heads/") || strings.HasPrefix(source, "refs/tags/")
		if ok && !own {
			all = append(all, spec)
		}
	}
	return all
}

// Foreign reports whether a ref of a snapshot may come from elsewhere than the branches and tags of
// the remote: a refspec fetches others, such as the heads of merge requests, to that name.
func (r *Repository) Foreign(name string) bool {
	return slices.ContainsFunc(r.ForeignRefspecs(), func(spec string) bool {
		_, target, _ := strings.Cut(spec, ":")
		before, after, star := strings.Cut(target, "*")
		if !star {
			return name == target
		}
		return len(name) >= len(before)+len(after) && strings.HasPrefix(name, before) && strings.HasSuffix(name, after)
	})
}
