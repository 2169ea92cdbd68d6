package git

import (
	"container/list"
	"context"
	"fmt"
	"path"
	"strings"
	"sync"
)

// treeCache caches the most recently used trees, up to a total size.
type treeCache struct {
	mu    sync.Mutex
	limit int64
	size  int64
	byID  map[string]*list.Element
	lru   *list.List // list of *keptTree, the most recently used first
}

type keptTree struct {
	id string
	t  *tree
}

func newTreeCache(maxBytes int64) *treeCache {
	return &treeCache{limit: maxBytes, byID: map[string]*list.Element{}, lru: list.New()}
}

func (c *treeCache) get(id string) *tree {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.byID[id]
	if !ok {
		return nil
	}
	c.lru.MoveToFront(e)
	return e.Value.(*keptTree).t
}

func (c *treeCache) put(id string, t *tree) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, ok := c.byID[id]; ok || t.size > c.limit/4 {
		return
	}
	c.byID[id] = c.lru.PushFront(&keptTree{id, t})
	for c.size += t.size + 200; c.size > c.limit; {
		old := c.lru.Remove(c.lru.Back()).(*keptTree)
		delete(c.byID, old.id)
		c.size -= old.t.size + 200
	}
}

func (c *treeCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	clear(c.byID)
	c.lru.Init()
	c.size = 0
}

// readTree returns the directory with this tree id, from the cache or from the repository.
func (s *Store) readTree(ctx context.Context, r *Repository, id string) (*tree, error) {
	if t := s.trees.get(id); t != nil {
		return t, nil
	}

	h, b, err := r.reader.readWhole(ctx, id, maxObject)
	if err != nil {
		r.noteMissing(err)
		return nil, err
	}
	if h.kind != "tree" {
		return nil, fmt.Errorf("object %s is a %s and not a tree", id, h.kind)
	}

	t, err := parseTree(b, len(h.id)/2)
	if err != nil {
		return nil, err
	}

	s.trees.put(id, t)
	return t, nil
}

// noteMissing sets lacking if err means that an object of a snapshot is missing.
func (r *Repository) noteMissing(err error) {
	if isMissing(err) && r.Snapshot() != nil && !r.lacking.Swap(true) {
		r.store.cfg.Log.Error("copy of a git remote lacks an object; it is fetched anew next time", "url",
			r.URL(), "error", err)
	}
}

// Entry is a file in a tree.
type Entry struct {
	ID   string
	Mode int64 // mode as git writes it: 0100644, 0100755, 0120000
}

// entryAt returns the entry at a path in a tree. ok is false if there is no such entry. entryAt
// does not follow links in the path.
func (r *Repository) entryAt(ctx context.Context, root, p string) (e entry, ok bool, err error) {
	e = entry{id: root, mode: modeDir}
	if p == "" {
		return e, true, nil
	}

	for part := range strings.SplitSeq(p, "/") {
		if e.mode != modeDir {
			return e, false, nil
		}

		t, err := r.store.readTree(ctx, r, e.id)
		if err != nil {
			return e, false, err
		}

		if e, ok = t.findEntry(part); !ok {
			return e, false, nil
		}
	}

	return e, true, nil
}

// maxLinks is how many links Find follows (salt/utils/gitfs.py SYMLINK_RECURSE_DEPTH).
const maxLinks = 100

// Find returns the file at a path in a tree. ok is false if there is no such file. If a link is at
// the path, Find looks up the link's target, relative to the link's directory. Find follows no link
// out of the tree (salt/utils/gitfs.py find_file).
func (r *Repository) Find(ctx context.Context, root, p string) (f Entry, ok bool, err error) {
	for range maxLinks {
		if len(p) > maxPath || p == "" {
			return f, false, nil
		}

		e, ok, err := r.entryAt(ctx, root, p)
		if err != nil || !ok {
			return f, false, err
		}

		switch e.mode {
		case modeFile, modeExec:
			return Entry{e.id, int64(e.mode)}, true, nil
		case modeLink:
		default:
			return f, false, nil
		}

		target, err := r.Target(ctx, e.id)
		if err != nil {
			return f, false, err
		}

		p = path.Join(path.Dir(p), strings.TrimLeft(target, "/"))
		if p == ".." || strings.HasPrefix(p, "../") {
			return f, false, nil
		}
	}

	return f, false, nil
}

// Target returns the target of a link.
func (r *Repository) Target(ctx context.Context, id string) (string, error) {
	_, b, err := r.reader.readWhole(ctx, id, maxLink)
	return string(b), err
}

// Subtree returns the tree id of a directory. ok is false if no directory is at the path. An empty
// path means the root.
func (r *Repository) Subtree(ctx context.Context, root, p string) (id string, ok bool, err error) {
	e, ok, err := r.entryAt(ctx, root, strings.Trim(path.Clean("/"+p), "/"))
	return e.id, ok && e.mode == modeDir, err
}

// Item is one file or directory that Walk passes to its callback.
type Item struct {
	Path string // path below the root of the walk
	ID   string
	Dir  bool
	Link bool
	Exec bool
}

// Walk calls visit for each entry below a directory, in order of names; a directory comes before
// its content. Walk leaves out submodules. It returns a [Fault] if the tree has too many entries.
func (r *Repository) Walk(ctx context.Context, root string, visit func(Item) error) error {
	n := 0
	return r.walkTree(ctx, root, "", 0, &n, visit)
}

func (r *Repository) walkTree(ctx context.Context, id, prefix string, depth int, n *int, visit func(Item) error) error {
	if depth > r.store.limits.Depth {
		return tooLarge(fmt.Sprintf("directories are nested more than %d deep", r.store.limits.Depth))
	}

	if err := ctx.Err(); err != nil {
		return err
	}

	t, err := r.store.readTree(ctx, r, id)
	if err != nil {
		return err
	}

	for _, e := range t.entries {
		*n++
		if *n > r.store.limits.Entries {
			return tooLarge(fmt.Sprintf("the tree has more than %d files", r.store.limits.Entries))
		}

		p := prefix + e.name
		if e.mode == modeSubmodule || len(p) > maxPath {
			continue
		}

		if err := visit(Item{
			Path: p,
			ID:   e.id,
			Dir:  e.mode == modeDir,
			Link: e.mode == modeLink,
			Exec: e.mode == modeExec,
		}); err != nil {
			return err
		}

		if e.mode == modeDir {
			if err := r.walkTree(ctx, e.id, p+"/", depth+1, n, visit); err != nil {
				return err
			}
		}
	}

	return nil
}
