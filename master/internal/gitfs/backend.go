package gitfs

import (
	"context"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync/atomic"

	"saltern/master/internal/fileserver"
	"saltern/master/internal/git"
	"saltern/master/internal/gitremote"
	"saltern/master/pattern"
)

// Backend is the file server backend gitfs. It is safe for concurrent use.
type Backend struct {
	remotes atomic.Pointer[[]*remote]
	changes atomic.Uint64 // number of changes of remotes; a part of Version
	update  func(ctx context.Context) (changed bool, err error)
}

// remote is a remote and its environment settings.
type remote struct {
	gitremote.Remote
	global map[string]gitremote.Env
	revmap map[string][]string // environments by ref
	repo   *git.Repository
	last   atomic.Pointer[envSet] // environments of the last snapshot for which they were determined
}

// envSet is the set of environments of one snapshot.
type envSet struct {
	snapshot *git.Snapshot
	envs     map[string]struct{}
}

// New returns a Backend and adds its remotes to a batch. update must fetch all remotes of the
// Backend.
func New(
	ctx context.Context,
	batch *git.Batch,
	remotes []gitremote.Remote,
	global map[string]gitremote.Env,
	update func(context.Context) (bool, error),
) (*Backend, error) {
	b := &Backend{update: update}
	var all []*remote
	for _, conf := range remotes {
		r := &remote{Remote: conf, global: global}
		r.mapEnvs()
		var err error
		if r.repo, err = batch.Add(ctx, r.Remote.Remote, r.expected()...); err != nil {
			return nil, fmt.Errorf("gitfs: %w", err)
		}
		all = append(all, r)
	}
	b.remotes.Store(&all)
	return b, nil
}

// Replace replaces the remotes of b by the remotes of newer.
func (b *Backend) Replace(newer *Backend) {
	b.remotes.Store(newer.remotes.Load())
	b.changes.Add(1)
}

// Repositories returns the repositories of the remotes.
func (b *Backend) Repositories() (out []*git.Repository) {
	for _, r := range *b.remotes.Load() {
		out = append(out, r.repo)
	}
	return out
}

// mapEnvs fills revmap, the environments of each ref (GitBase.init_remotes).
func (r *remote) mapEnvs() {
	r.revmap = map[string][]string{}
	mapped := map[string]bool{}
	for env, c := range r.Saltenv {
		if c.Ref == nil {
			continue
		}

		r.revmap[*c.Ref] = append(r.revmap[*c.Ref], env)
		mapped[env] = true
		if env == "base" {
			r.Base = *c.Ref
		}
	}

	for env, c := range r.global {
		if c.Ref != nil && !mapped[env] {
			r.revmap[*c.Ref] = append(r.revmap[*c.Ref], env)
		}
	}
}

// expected returns the refs that the configuration names. If the remote repository lacks one of
// them, the remote serves no files, or too few. The refs do not include the base branch, because a
// remote may serve other environments only.
func (r *remote) expected() (out []string) {
	if r.AllSaltenvs != nil {
		return []string{*r.AllSaltenvs}
	}
	for _, c := range r.Saltenv {
		if c.Ref != nil && !gitremote.IsHex(*c.Ref) {
			out = append(out, *c.Ref)
		}
	}
	slices.Sort(out)
	return out
}

// refOf returns the branch, tag or commit of an environment. ok is false if the environment has none
// (GitProvider.ref).
func (r *remote) refOf(env string) (ref string, ok bool) {
	if r.AllSaltenvs != nil {
		return *r.AllSaltenvs, true
	}
	if env == "base" {
		return r.Base, true
	}

	c := r.Saltenv[env].Ref
	if c == nil {
		c = r.global[env].Ref
	}

	switch {
	case c != nil:
		return *c, true
	case r.DisableMapping:
		return "", false
	}

	return env, true
}

func (r *remote) rootOf(env string) string {
	return firstSet(r.Saltenv[env].Root, r.global[env].Root, r.Root)
}

func (r *remote) mountpointOf(env string) string {
	return firstSet(r.Saltenv[env].Mountpoint, r.global[env].Mountpoint, r.Mountpoint)
}

func firstSet(own, global *string, all string) string {
	switch {
	case own != nil:
		return *own
	case global != nil:
		return *global
	}
	return all
}

// exposed reports whether the remote may serve an environment by its whitelist and blacklist
// (salt/utils/stringutils.py check_whitelist_blacklist).
func (r *remote) exposed(env string) bool {
	any := func(l []string) bool {
		return slices.ContainsFunc(l, func(p string) bool { return pattern.Expr(env, p) })
	}
	return !any(r.Blacklist) && (len(r.Whitelist) == 0 || any(r.Whitelist))
}

// exposedEnvs returns the exposed environments of the served snapshot
// (GitProvider._get_envs_from_ref_paths, GitFS.envs).
func (r *remote) exposedEnvs() map[string]struct{} {
	s := r.repo.Snapshot()
	if last := r.last.Load(); last != nil && last.snapshot == s {
		return last.envs
	}

	out := map[string]struct{}{}
	add := func(envs ...string) {
		for _, e := range envs {
			if r.exposed(e) {
				out[e] = struct{}{}
			}
		}
	}

	name := func(ref string) {
		if envs, ok := r.revmap[ref]; ok {
			add(envs...)
		} else if ref == r.Base {
			add("base")
		} else if !r.DisableMapping {
			add(ref)
		}
	}

	if gitremote.IsHex(r.Base) {
		add("base")
	}

	if slices.Contains(r.RefTypes, "branch") {
		for _, b := range s.Branches() {
			name(b)
		}
	}

	if slices.Contains(r.RefTypes, "tag") {
		for _, t := range s.Tags() {
			name(t)
		}
	}

	for _, envs := range r.revmap {
		add(envs...)
	}

	r.last.Store(&envSet{s, out})
	return out
}

// treeOf returns the tree of an environment (GitProvider.get_tree). ok is false if the remote does
// not serve the environment.
func (r *remote) treeOf(ctx context.Context, env string) (id string, ok bool, err error) {
	s := r.repo.Snapshot()
	ref, has := r.refOf(env)
	if s == nil || !has || !r.exposed(env) {
		return "", false, nil
	}

	for _, name := range []string{ref, r.Fallback} {
		if name == "" {
			continue
		}

		for _, typ := range r.RefTypes {
			switch typ {
			case "branch":
				if b, ok := s.Branch(name); ok {
					return b.Tree, true, nil
				}
			case "tag":
				if t, ok := s.Tag(name); ok {
					return t.Tree, true, nil
				}
			default:
				if id, ok, err := r.repo.Resolve(ctx, strings.ToLower(name)); ok || err != nil {
					return id, ok, err
				}
			}
		}
	}

	return "", false, nil
}

// Name returns the backend's name in fileserver_backend.
func (*Backend) Name() string { return "gitfs" }

// Envs returns the environments of all remotes.
func (b *Backend) Envs() []string {
	all := map[string]struct{}{}
	for _, r := range *b.remotes.Load() {
		maps.Copy(all, r.exposedEnvs())
	}
	return slices.Sorted(maps.Keys(all))
}

// isKnownEnv reports whether an environment is in Envs or may be a commit id.
func (b *Backend) isKnownEnv(env string) bool {
	if gitremote.IsHex(env) {
		return true
	}
	return slices.ContainsFunc(*b.remotes.Load(), func(r *remote) bool {
		_, ok := r.exposedEnvs()[env]
		return ok
	})
}

// serves reports whether a remote may serve an environment. isKnown is the result of isKnownEnv for
// that environment. A remote with a fallback serves every environment.
func (r *remote) serves(isKnown bool) bool { return isKnown || r.Fallback != "" }

// Version returns a text that changes whenever the result of List may have changed.
func (b *Backend) Version() string {
	var v strings.Builder
	fmt.Fprint(&v, b.changes.Load(), ":")
	for _, r := range *b.remotes.Load() {
		if s := r.repo.Snapshot(); s != nil {
			fmt.Fprintf(&v, "%d ", s.Seq)
		} else {
			v.WriteString("- ")
		}
	}
	return v.String()
}

// Update fetches all remotes now, and reports whether any of them has changed.
func (b *Backend) Update(ctx context.Context) (changed bool, err error) { return b.update(ctx) }

// Open finds and opens a file (GitFS.find_file). It returns false if no remote has the file.
func (b *Backend) Open(ctx context.Context, q fileserver.Query) (fileserver.Handle, fileserver.File, bool, error) {
	known := b.isKnownEnv(q.Saltenv)
	for _, r := range *b.remotes.Load() {
		p := q.Path
		if mp := r.mountpointOf(q.Saltenv); mp != "" {
			var below bool
			if p, below = strings.CutPrefix(p, mp+"/"); !below {
				continue
			}
		}

		if !r.serves(known) {
			continue
		}

		tree, ok, err := r.treeOf(ctx, q.Saltenv)
		if err != nil {
			return nil, fileserver.File{}, false, err
		}
		if !ok {
			continue
		}

		e, ok, err := r.repo.Find(ctx, tree, path.Join(r.rootOf(q.Saltenv), p))
		if err != nil {
			return nil, fileserver.File{}, false, err
		}
		if !ok {
			continue
		}

		f, err := r.repo.Open(ctx, e.ID)
		if err != nil {
			return nil, fileserver.File{}, false, err
		}

		fi, err := f.Stat()
		if err != nil {
			f.Close()
			return nil, fileserver.File{}, false, fmt.Errorf("serve %s: %w", q.Path, err)
		}

		return f, fileserver.File{
			Path:     f.Name(),
			Rel:      q.Path,
			Stat:     fileserver.Stat{0: e.Mode, 6: fi.Size()},
			ModeOnly: true,
		}, true, nil
	}

	return nil, fileserver.File{}, false, nil
}

// Find works like Open, but returns no Handle: it closes the file.
func (b *Backend) Find(ctx context.Context, q fileserver.Query) (fileserver.File, bool, error) {
	h, f, ok, err := b.Open(ctx, q)
	if h != nil {
		err = h.Close()
	}
	return f, ok, err
}

// List returns the content of an environment (GitFS._file_lists).
func (b *Backend) List(ctx context.Context, env string) (*fileserver.Listing, error) {
	known := b.isKnownEnv(env)
	out := fileserver.NewListing()
	any := false
	for _, r := range *b.remotes.Load() {
		if !r.serves(known) {
			continue
		}
		any = true
		if err := r.addToListing(ctx, env, known, out); err != nil {
			return nil, fmt.Errorf("list environment %q of %s: %w", env, r.repo.URL(), err)
		}
	}

	if !any {
		return nil, nil
	}

	return out, nil
}

func (r *remote) addToListing(ctx context.Context, env string, links bool, listing *fileserver.Listing) error {
	tree, ok, err := r.treeOf(ctx, env)
	if err != nil || !ok {
		return err
	}

	tree, ok, err = r.repo.Subtree(ctx, tree, r.rootOf(env))
	if err != nil || !ok {
		return err
	}

	mp := r.mountpointOf(env)
	if mp != "" {
		listing.Dirs[mp] = struct{}{}
	}

	return r.repo.Walk(ctx, tree, func(i git.Item) error {
		name := path.Join(mp, i.Path)
		if i.Dir {
			listing.Dirs[name] = struct{}{}
			return nil
		}

		listing.Files[name] = struct{}{}
		if !i.Link || !links {
			return nil
		}

		to, err := r.repo.Target(ctx, i.ID)
		if err != nil {
			return err
		}

		listing.Links[name] = strings.ToValidUTF8(to, "\ufffd")
		return nil
	})
}

// Times returns no files, because Update reports changes.
func (*Backend) Times(context.Context) (map[string]int64, error) { return map[string]int64{}, nil }
