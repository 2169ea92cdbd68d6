package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"saltern/internal/room"
)

// checkouts caches whole trees on disk, by the id of the tree, because templates can import only
// from files. A tree never changes. If there are too many trees, unused ones are removed.
type checkouts struct {
	dir    string
	limits Limits
	now    func() time.Time
	group  singleflight.Group

	mu   sync.Mutex
	kept map[string]*keptTreeDir // the trees on disk, by tree id
	size int64
}

type keptTreeDir struct {
	used   time.Time
	size   int64
	served bool // Checkout was called for the tree, and not only Borrow
}

// keepTreeFor is how long a requested tree remains on disk even if other trees need the space. That
// is longer than any request takes.
const keepTreeFor = 3 * time.Minute

func newCheckouts(dir string, limits Limits, now func() time.Time) *checkouts {
	return &checkouts{dir: dir, limits: limits, now: now, kept: map[string]*keptTreeDir{}}
}

// blockSize is the least space that a file occupies on disk, in bytes.
const blockSize = 4096

// Checkout returns a directory with the files of a tree. The directory remains on disk if Checkout
// is called for the tree every few minutes. Checkout leaves out links that could lead out of the
// directory.
func (r *Repository) Checkout(ctx context.Context, root string) (dir string, err error) {
	return r.checkout(ctx, root, true)
}

// Borrow works like Checkout, for a tree that is not served, but looked at: it takes the place of no
// tree for which Checkout was called. The caller must call Release afterwards.
func (r *Repository) Borrow(ctx context.Context, root string) (dir string, err error) {
	return r.checkout(ctx, root, false)
}

// Release lets the directory of a tree be removed as soon as another tree needs the space, unless
// Checkout was called for the tree.
func (r *Repository) Release(root string) {
	c := r.store.checkouts
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.kept[root]; ok && !k.served {
		k.used = time.Time{}
	}
}

func (r *Repository) checkout(ctx context.Context, root string, served bool) (dir string, err error) {
	c := r.store.checkouts
	dir = filepath.Join(c.dir, root)
	if c.markUsed(root, served) {
		return dir, nil
	}

	noRoom := fmt.Errorf("%w: trees of %d MiB are in use at once", ErrNoRoom, c.limits.Work>>20)
	// Before Do: a caller that has the tree served may wait for the same tree, and may make more room.
	if !served && !c.makeRoom(false) {
		return dir, noRoom
	}

	_, err, _ = c.group.Do(root, func() (any, error) {
		if c.markUsed(root, served) {
			return nil, nil
		}
		if served && !c.makeRoom(true) {
			return nil, noRoom
		}

		// Other callers may wait for the same tree, so the end of ctx must not cancel the write.
		size, err := c.writeTree(context.WithoutCancel(ctx), r, root, dir)
		if err == nil {
			c.mu.Lock()
			c.kept[root] = &keptTreeDir{used: c.now(), size: size}
			c.size += size
			c.mu.Unlock()
		}

		return nil, err
	})
	if err == nil {
		c.markUsed(root, served) // for each of the callers that have waited
	}

	return dir, err
}

func (c *checkouts) markUsed(id string, served bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.kept[id]
	if ok {
		k.used = c.now()
		k.served = k.served || served
	}
	return ok
}

// makeRoom removes unused trees until the disk cache can take one more. It returns false if it
// cannot free enough space. A tree that is not served takes only the place of others like it.
func (c *checkouts) makeRoom(served bool) bool {
	tooMany := func() bool { return c.size >= c.limits.Work || len(c.kept) >= c.limits.Checkouts }
	c.dropOldest(c.now().Add(-keepTreeFor), func(k *keptTreeDir) bool { return (served || !k.served) && tooMany() })
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.size < c.limits.Work && (served || len(c.kept) < c.limits.Checkouts)
}

func (c *checkouts) writeTree(ctx context.Context, r *Repository, root, dir string) (used int64, err error) {
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return 0, fmt.Errorf("check a tree out: %w", err)
	}

	if err := os.Mkdir(tmp, 0o700); err != nil {
		return 0, fmt.Errorf("check a tree out: %w", err)
	}

	left := c.limits.Checkout
	watch, err := room.Guard(tmp, room.Usual())
	if err != nil {
		return 0, tooLarge(err.Error())
	}

	err = r.Walk(ctx, root, func(i Item) error {
		to := filepath.Join(tmp, i.Path)
		if err := watch.File(); err != nil {
			return tooLarge(err.Error())
		}

		switch {
		case i.Dir:
			return os.Mkdir(to, 0o700)
		case i.Link:
			target, err := r.Target(ctx, i.ID)
			if err != nil {
				return err
			}
			if !linkStaysInside(i.Path, target) {
				r.store.cfg.Log.Warn("a link in a git repository that leads out of it is left out", "url",
					r.URL(), "path", i.Path)
				return nil
			}

			return os.Symlink(target, to)
		}

		mode := os.FileMode(0o600)
		if i.Exec {
			mode = 0o700
		}

		size, err := c.writeFile(ctx, r, i.ID, to, mode, left, watch)
		r.noteMissing(err)
		if left -= (size + blockSize - 1) &^ (blockSize - 1); err == nil && left <= 0 {
			err = tooLarge(fmt.Sprintf("the tree has more than %d MiB", c.limits.Checkout>>20))
		}

		return err
	})
	if err == nil {
		err = os.Rename(tmp, dir)
	}

	if err != nil {
		_ = os.RemoveAll(tmp) // if this fails, the next Checkout of this tree removes tmp
		return 0, fmt.Errorf("check a tree out: %w", err)
	}

	return c.limits.Checkout - left, nil
}

func (c *checkouts) writeFile(
	ctx context.Context,
	r *Repository,
	id, to string,
	mode os.FileMode,
	maxBytes int64,
	watch *room.Watch,
) (size int64, err error) {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return 0, err
	}
	err = r.reader.readObject(ctx, id, maxBytes, func(h header, body io.Reader) error {
		size = h.size
		_, err := io.Copy(watch.Writer(f), body)
		return err
	})
	closeErr := f.Close()
	if err == nil {
		err = closeErr
	}
	return size, err
}

// linkStaysInside reports whether the target of the link with the path linkPath is below the root.
// The target may contain ".." only at its beginning, where ".." refers to a real directory. After
// the name of a directory, ".." might refer to the parent of another directory, because that name
// may be a link.
func linkStaysInside(linkPath, target string) bool {
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return false
	}

	up, down := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			up++
			if down {
				return false
			}
		default:
			down = true
		}
	}

	return up <= strings.Count(linkPath, "/")
}

// Mount returns a directory in which the directory root appears under the path mountpoint. root is
// a directory in the Checkout of tree, which is the id of a tree.
func (r *Repository) Mount(tree, root, mountpoint string) (dir string, err error) {
	c := r.store.checkouts
	sum := sha256.Sum256([]byte(root + "\x00" + mountpoint))
	dir = filepath.Join(c.dir, tree+".mounts", hex.EncodeToString(sum[:8]))
	link := filepath.Join(dir, mountpoint)

	if !filepath.IsLocal(mountpoint) || mountpoint == "." {
		return "", fmt.Errorf("mount a tree at %.100q: this leads elsewhere", mountpoint)
	}

	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return "", fmt.Errorf("mount a tree: %w", err)
	}

	if err := os.Symlink(filepath.Join(c.dir, tree, root), link); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("mount a tree: %w", err)
	}

	return dir, nil
}

// dropUnused removes trees that were last used before since, as long as there are too many trees.
func (c *checkouts) dropUnused(since time.Time) {
	c.dropOldest(since, func(*keptTreeDir) bool { return c.size > c.limits.Work/2 || len(c.kept) > c.limits.Checkouts/2 })
}

// dropOldest removes trees that were last used before since and for which mayGo returns true, the
// oldest first. mayGo is called with mu held.
func (c *checkouts) dropOldest(since time.Time, mayGo func(*keptTreeDir) bool) {
	c.mu.Lock()
	ids := slices.SortedFunc(maps.Keys(c.kept), func(a, b string) int { return c.kept[a].used.Compare(c.kept[b].used) })
	var gone []string
	for _, id := range ids {
		k := c.kept[id]
		if k.used.After(since) {
			break
		}
		if !mayGo(k) {
			continue
		}
		c.size -= k.size
		delete(c.kept, id)
		gone = append(gone, id)
	}
	c.mu.Unlock()

	for _, id := range gone {
		_ = os.RemoveAll(filepath.Join(c.dir, id))
		_ = os.RemoveAll(filepath.Join(c.dir, id+".mounts"))
	}
}
