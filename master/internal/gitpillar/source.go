package gitpillar

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"saltern/master/internal/git"
	"saltern/master/internal/gitremote"
	"saltern/master/value"
)

// dynamicBranch is the branch name in the configuration of a remote whose branches are all
// environments.
const dynamicBranch = "__env__"

// Source serves the git pillars of a configuration. It is safe for concurrent use.
type Source struct {
	entries atomic.Pointer[[][]*remote] // remotes of each git entry in ext_pillar
	log     *slog.Logger

	mu sync.Mutex
	// prepared holds, for each repository, the last snapshot that Prepare has checked out.
	prepared map[*git.Repository]*git.Snapshot
}

type remote struct {
	gitremote.Remote
	repo   *git.Repository
	pinned map[string]string // trees that take the place of branches, by branch, see Pin; may be nil
}

// Root is one directory of a git pillar.
type Root struct {
	Env string // pillar environment
	Dir string
	// Mounted means that other roots of the environment may include files of this root, and that
	// this root has no top file.
	Mounted bool
	Origin  Origin
}

// Origin says which part of which commit a directory holds.
type Origin struct {
	Repository *git.Repository
	Commit     string // "" if it is not known
	Path       string // of the directory in the tree; "": the whole tree
	Mountpoint string // where the directory has the tree; "": at its top
}

// Entries returns the values of the git entries in the option ext_pillar, in order.
func Entries(extPillar []any) (out []any) {
	for _, e := range extPillar {
		m, _ := e.(*value.Map)
		if v, ok := m.Get("git"); ok {
			out = append(out, v)
		}
	}
	return out
}

// New reads the git entries of the option ext_pillar and adds their remotes to a batch. Its error
// contains all faults.
func New(
	ctx context.Context,
	batch *git.Batch,
	extPillar []any,
	defaults *gitremote.Defaults,
	log *slog.Logger,
) (*Source, error) {
	s := &Source{log: log, prepared: map[*git.Repository]*git.Snapshot{}}
	var errs []error
	var all [][]*remote
	for _, entry := range Entries(extPillar) {
		list, ok := entry.([]any)
		if !ok {
			errs = append(errs, errors.New("git_pillar: what follows git: in ext_pillar is a list of remotes"))
			continue
		}

		var remotes []*remote
		seen := map[string]bool{}
		for _, e := range list {
			conf, err := defaults.Parse(gitremote.Pillar, e)
			if err == nil && seen[cmp.Or(conf.Name, conf.ID)] {
				err = errors.New("git_pillar: two remotes of one name: give each a name of its own")
			}

			r := &remote{Remote: conf}
			if err == nil {
				seen[cmp.Or(conf.Name, conf.ID)] = true
				r.repo, err = batch.Add(ctx, conf.Remote, r.expected()...)
			}

			if err != nil {
				errs = append(errs, err)
				continue
			}

			remotes = append(remotes, r)
		}

		all = append(all, remotes)
	}

	s.entries.Store(&all)
	return s, errors.Join(errs...)
}

// Replace replaces the remotes of s by the remotes of newer. newer must have as many git entries as
// s.
func (s *Source) Replace(newer *Source) {
	s.entries.Store(newer.entries.Load())
	used := s.Repositories()
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.prepared, func(r *git.Repository, _ *git.Snapshot) bool { return !slices.Contains(used, r) })
}

// Len returns the number of git entries in ext_pillar.
func (s *Source) Len() int { return len(*s.entries.Load()) }

// Repositories returns the repositories of the remotes, without duplicates.
func (s *Source) Repositories() (out []*git.Repository) {
	for _, l := range *s.entries.Load() {
		for _, r := range l {
			if !slices.Contains(out, r.repo) {
				out = append(out, r.repo)
			}
		}
	}
	return out
}

// Remote is one remote of a git pillar, for the runner git_pillar.update.
type Remote struct {
	ID, Branch, URL, Name string // as configured; ID and URL may contain a password
	Repository            *git.Repository
}

// Remotes returns all remotes.
func (s *Source) Remotes() (out []Remote) {
	for _, l := range *s.entries.Load() {
		for _, r := range l {
			out = append(out, Remote{r.ID, r.Branch, r.URL, r.Name, r.repo})
		}
	}
	return out
}

// expected returns the refs that the remote repository must have.
func (r *remote) expected() []string {
	switch {
	case r.Fallback != "" || gitremote.IsCommit(r.Branch):
		return nil
	case r.Branch == dynamicBranch && r.AllSaltenvs != nil:
		return []string{*r.AllSaltenvs}
	case r.Branch == dynamicBranch:
		return nil // the base branch may be missing
	}
	return []string{r.Branch}
}

// Prepare checks out the trees of a snapshot that pillars will need, which may take long.
// Afterwards pillars are compiled from this snapshot.
func (s *Source) Prepare(ctx context.Context, repo *git.Repository, snap *git.Snapshot) {
	for _, l := range *s.entries.Load() {
		for _, r := range l {
			if r.repo != repo || r.Branch == dynamicBranch && r.AllSaltenvs == nil {
				continue
			}

			tree, _, ok, err := r.treeOf(ctx, snap, r.targetOf("", ""))
			if err == nil && ok {
				_, err = repo.Checkout(ctx, tree)
			}

			if err != nil && ctx.Err() == nil {
				s.log.Warn("the tree of a git pillar cannot be checked out", "url", repo.URL(), "branch",
					r.Branch, "error", err)
			}
		}
	}

	if slices.Contains(s.Repositories(), repo) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.prepared[repo] = snap
	}
}

// snapshot returns the snapshot from which pillars are compiled. It may be nil: nothing has been
// fetched yet.
func (s *Source) snapshot(ctx context.Context, repo *git.Repository) *git.Snapshot {
	s.mu.Lock()
	snap := s.prepared[repo]
	s.mu.Unlock()
	if snap != nil {
		return snap
	}
	// Nothing has been fetched yet, so the pillar waits for the first fetch.
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	return repo.Ready(ctx)
}

// targetOf returns the branch or tag of a remote that belongs to a minion's environments
// (GitProvider.get_checkout_target).
func (r *remote) targetOf(pillarenv, saltenv string) string {
	if r.Branch != dynamicBranch {
		return r.Branch
	}
	if r.AllSaltenvs != nil {
		return *r.AllSaltenvs
	}
	if env := cmp.Or(pillarenv, saltenv, "base"); env != "base" {
		return env
	}
	return r.Base
}

// envOf returns the pillar environment of a remote (GitPillar.checkout).
func (r *remote) envOf(pillarenv, saltenv string) string {
	switch target := r.targetOf(pillarenv, saltenv); {
	case r.Branch == dynamicBranch && r.AllSaltenvs != nil:
		return cmp.Or(pillarenv, saltenv, "base")
	case r.Env == dynamicBranch:
		return cmp.Or(pillarenv, saltenv, r.Base)
	case r.Env != "":
		return r.Env
	case r.Branch == r.Base || target == r.Base:
		return "base"
	default:
		return target
	}
}

// treeOf returns the tree of a branch or tag. If there is no such branch or tag, it returns the
// tree of the fallback (GitPython.checkout). If there is neither, it returns false. treeOf accepts
// a commit id only if the configuration names that commit. commit is "" for a tree that a Pin has put
// in the place of a branch.
func (r *remote) treeOf(ctx context.Context, s *git.Snapshot, target string) (tree, commit string, ok bool, err error) {
	for _, name := range []string{target, r.Fallback} {
		if name == "" {
			continue
		}

		if tree, ok := r.pinned[name]; ok {
			return tree, "", true, nil
		}

		if b, ok := s.Branch(name); ok {
			return b.Tree, b.Commit, true, nil
		}

		if t, ok := s.Tag(name); ok {
			return t.Tree, t.Commit, true, nil
		}
		if slices.Contains(r.Commits, name) {
			tree, ok, err = r.repo.Resolve(ctx, name)
			return tree, name, ok, err
		}
	}

	return "", "", false, nil
}

// errUnfetched means that the first fetch of a repository has not ended yet.
var errUnfetched = errors.New("it has not been fetched yet")

// Unable reports whether an error of Roots means that this master cannot provide the directories
// now. Otherwise a repository is at fault.
func Unable(err error) bool {
	return errors.Is(err, errUnfetched) || errors.Is(err, git.ErrNoRoom) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// Roots returns the directories of the n-th git entry in ext_pillar for a minion with these
// environments. As in Salt, it leaves out a remote that lacks the branch. If a remote was never
// fetched, Roots returns an error, because the pillar would be incomplete.
func (s *Source) Roots(ctx context.Context, n int, pillarenv, saltenv string) (out []Root, err error) {
	var errs []error
	for _, r := range (*s.entries.Load())[n] {
		snap := s.snapshot(ctx, r.repo)
		if snap == nil {
			why := error(errUnfetched)
			if f := r.repo.Status().Fault; f != nil {
				why = errors.New(f.Error())
			}
			errs = append(errs, fmt.Errorf("git pillar %s: %w", r.repo.URL(), why))
			continue
		}

		root, ok, err := r.checkout(ctx, snap, r.targetOf(pillarenv, saltenv))
		if err != nil {
			errs = append(errs, fmt.Errorf("git pillar %s: %w", r.repo.URL(), err))
		}

		if !ok || err != nil {
			s.log.Debug("a git pillar has no such branch, tag or root", "url", r.repo.URL(), "branch",
				r.targetOf(pillarenv, saltenv), "path", r.Root)
			continue
		}

		root.Env = r.envOf(pillarenv, saltenv)
		out = append(out, root)
	}

	return out, errors.Join(errs...)
}

// isPinned reports whether a tree takes the place of a branch, see Pin.
func (r *remote) isPinned(tree string) bool {
	for _, pinned := range r.pinned {
		if pinned == tree {
			return true
		}
	}
	return false
}

// checkout returns the directory of a remote without its environment.
func (r *remote) checkout(ctx context.Context, s *git.Snapshot, target string) (root Root, ok bool, err error) {
	tree, commit, ok, err := r.treeOf(ctx, s, target)
	if err != nil || !ok {
		return root, false, err
	}

	checkout := r.repo.Checkout
	if r.isPinned(tree) {
		checkout = r.repo.Borrow
	}
	dir, err := checkout(ctx, tree)
	if err != nil {
		return root, false, err
	}

	dir = filepath.Join(dir, r.Root)
	if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
		return root, false, nil // as in Salt's check_root
	}

	root = Root{
		Dir:     dir,
		Mounted: r.Mountpoint != "",
		Origin:  Origin{Repository: r.repo, Commit: commit, Path: r.Root, Mountpoint: r.Mountpoint},
	}
	if r.Mountpoint != "" {
		root.Dir, err = r.repo.Mount(tree, r.Root, r.Mountpoint)
	}
	return root, err == nil, err
}
