package git

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

// checkouts keeps whole trees on disk, by the id of the tree: what templates
// import from must be files. They never change; those that nobody used for a
// while go when there are too many.
type checkouts struct {
	dir    string
	limits Limits
	now    func() time.Time
	group  singleflight.Group

	mu   sync.Mutex
	used map[string]time.Time // by id of a tree
}

func newCheckouts(dir string, limits Limits, now func() time.Time) *checkouts {
	return &checkouts{dir: dir, limits: limits, now: now, used: map[string]time.Time{}}
}

// Checkout gives a directory with the files of a tree, for as long as it is used
// again every few minutes. Links that could lead out of it are left out.
func (r *Repository) Checkout(ctx context.Context, root string) (dir string, err error) {
	c := r.store.work
	dir = filepath.Join(c.dir, root)
	if c.touch(root) {
		return dir, nil
	}
	_, err, _ = c.group.Do(root, func() (any, error) {
		if c.touch(root) {
			return nil, nil
		}
		// Others may wait for it, so it does not end with ctx.
		err := c.fill(context.WithoutCancel(ctx), r, root, dir)
		if err == nil {
			c.mu.Lock()
			c.used[root] = c.now()
			c.mu.Unlock()
		}
		return nil, err
	})
	return dir, err
}

func (c *checkouts) touch(id string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.used[id]
	if ok {
		c.used[id] = c.now()
	}
	return ok
}

func (c *checkouts) fill(ctx context.Context, r *Repository, root, dir string) error {
	tmp := dir + ".tmp"
	if err := os.RemoveAll(tmp); err != nil {
		return fmt.Errorf("check a tree out: %w", err)
	}
	if err := os.Mkdir(tmp, 0o700); err != nil {
		return fmt.Errorf("check a tree out: %w", err)
	}
	left := c.limits.Checkout
	err := r.Walk(ctx, root, func(i Item) error {
		to := filepath.Join(tmp, i.Path)
		switch {
		case i.Dir:
			return os.Mkdir(to, 0o700)
		case i.Link:
			target, err := r.Target(ctx, i.ID)
			if err != nil {
				return err
			}
			if !inside(i.Path, target) {
				r.store.cfg.Log.Warn("a link in a git repository that leads out of it is left out", "url", r.URL(), "path", i.Path)
				return nil
			}
			return os.Symlink(target, to)
		}
		mode := os.FileMode(0o600)
		if i.Exec {
			mode = 0o700
		}
		size, err := c.write(ctx, r, i.ID, to, mode, left)
		r.miss(err)
		if left -= size; err == nil && left <= 0 {
			err = tooLarge(fmt.Sprintf("the tree has more than %d MiB", c.limits.Checkout>>20))
		}
		return err
	})
	if err == nil {
		err = os.Rename(tmp, dir)
	}
	if err != nil {
		_ = os.RemoveAll(tmp) // the next one removes it, too
		return fmt.Errorf("check a tree out: %w", err)
	}
	return nil
}

func (c *checkouts) write(ctx context.Context, r *Repository, id, to string, mode os.FileMode, most int64) (size int64, err error) {
	f, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return 0, err
	}
	err = r.reader.get(ctx, id, most, func(h header, body io.Reader) error {
		size = h.size
		_, err := io.Copy(f, body)
		return err
	})
	if e := f.Close(); err == nil {
		err = e
	}
	return size, err
}

// inside reports whether a link at a path stays below the root. Only parts at
// the beginning of its target may lead upwards: these begin at a real directory,
// whereas a later one could come after another link.
func inside(at, target string) bool {
	if target == "" || path.IsAbs(target) || strings.ContainsRune(target, 0) {
		return false
	}
	up, down := 0, false
	for part := range strings.SplitSeq(target, "/") {
		switch part {
		case "", ".":
		case "..":
			if up++; down {
				return false
			}
		default:
			down = true
		}
	}
	return up <= strings.Count(at, "/")
}

// Mount gives a directory in which a directory of a tree is found below a path:
// what [Repository.Checkout] gave for the tree, joined with root.
func (r *Repository) Mount(tree, root, at string) (dir string, err error) {
	c := r.store.work
	sum := sha256.Sum256([]byte(root + "\x00" + at))
	dir = filepath.Join(c.dir, tree+".mounts", hex.EncodeToString(sum[:8]))
	link := filepath.Join(dir, at)
	if !filepath.IsLocal(at) || at == "." {
		return "", fmt.Errorf("mount a tree at %.100q: this leads elsewhere", at)
	}
	if err := os.MkdirAll(filepath.Dir(link), 0o700); err != nil {
		return "", fmt.Errorf("mount a tree: %w", err)
	}
	if err := os.Symlink(filepath.Join(c.dir, tree, root), link); err != nil && !errors.Is(err, os.ErrExist) {
		return "", fmt.Errorf("mount a tree: %w", err)
	}
	return dir, nil
}

// trim removes trees that nobody has used since, while there are too many.
func (c *checkouts) trim(since time.Time) {
	c.mu.Lock()
	var gone []string
	ids := make([]string, 0, len(c.used))
	for id := range c.used {
		ids = append(ids, id)
	}
	slices.SortFunc(ids, func(a, b string) int { return c.used[a].Compare(c.used[b]) })
	for _, id := range ids {
		if len(c.used) <= c.limits.Checkouts || c.used[id].After(since) {
			break
		}
		delete(c.used, id)
		gone = append(gone, id)
	}
	c.mu.Unlock()
	for _, id := range gone {
		_ = os.RemoveAll(filepath.Join(c.dir, id))
		_ = os.RemoveAll(filepath.Join(c.dir, id+".mounts"))
	}
}
