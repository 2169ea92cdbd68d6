package git

import (
	"container/list"
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/singleflight"

	"saltern/internal/room"
)

// blobs caches files of repositories as regular files on disk, by object id, so that they can be
// served. The content of an object never changes. When the cache is full, the least recently used
// files are removed.
type blobs struct {
	dir    string
	limits Limits
	group  singleflight.Group

	mu   sync.Mutex
	size int64
	byID map[string]*list.Element
	lru  *list.List // list of keptBlob, the most recently used first
}

type keptBlob struct {
	id   string
	size int64
}

func newBlobs(dir string, limits Limits) *blobs {
	return &blobs{dir: dir, limits: limits, byID: map[string]*list.Element{}, lru: list.New()}
}

func (b *blobs) pathOf(id string) string { return filepath.Join(b.dir, id[:2], id) }

// Open opens the file with this object id. The caller must not write to it.
func (r *Repository) Open(ctx context.Context, id string) (*os.File, error) {
	if !objectID.MatchString(id) {
		return nil, fmt.Errorf("open object %.80q: %w", id, errMissing)
	}

	b := r.store.blobs
	for try := 0; ; try++ {
		if b.markUsed(id) {
			f, err := os.Open(b.pathOf(id))
			if err == nil || try > 0 {
				return f, err
			}
			b.forget(id) // another program has removed the cached file
		}

		// Other callers may wait for the same object, so ctx must not end its fetch.
		_, err, _ := b.group.Do(id, func() (any, error) { return nil, b.fetchBlob(context.WithoutCancel(ctx), r, id) })
		if err != nil {
			return nil, err
		}
		if try > 2 {
			return nil, fmt.Errorf("open object %s: it went again at once", id)
		}
	}
}

func (b *blobs) markUsed(id string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, ok := b.byID[id]
	if ok {
		b.lru.MoveToFront(e)
	}
	return ok
}

func (b *blobs) forget(id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, ok := b.byID[id]; ok {
		b.size -= e.Value.(keptBlob).size
		b.lru.Remove(e)
		delete(b.byID, id)
	}
}

// fetchBlob writes a blob to the disk cache. It removes old files when the cache is full.
func (b *blobs) fetchBlob(ctx context.Context, r *Repository, id string) error {
	if b.markUsed(id) {
		return nil
	}

	path := b.pathOf(id)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keep object %s: %w", id, err)
	}

	size, err := writeBlob(ctx, r, id, path, 0o600, b.limits.File)
	if err != nil {
		r.noteMissing(err)
		return err
	}

	b.mu.Lock()
	defer b.mu.Unlock()
	b.byID[id] = b.lru.PushFront(keptBlob{id, size})
	b.size += size
	for (b.size > b.limits.Blobs || b.lru.Len() > b.limits.BlobFiles) && b.lru.Len() > 1 {
		old := b.lru.Remove(b.lru.Back()).(keptBlob)
		delete(b.byID, old.id)
		b.size -= old.size
		_ = os.Remove(b.pathOf(old.id)) // a process that has opened the file can still read it
	}

	return nil
}

func (b *blobs) removeAll() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.byID)
	for id := range b.byID {
		_ = os.Remove(b.pathOf(id))
	}
	clear(b.byID)
	b.lru.Init()
	b.size = 0
	return n
}

// writeBlob writes an object to a new file. The file gets its name only when it is complete.
func writeBlob(
	ctx context.Context,
	r *Repository,
	id, path string,
	mode os.FileMode,
	maxBytes int64,
) (size int64, err error) {
	tmp := path + ".tmp"
	f, err := os.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, mode)
	if err != nil {
		return 0, fmt.Errorf("write object %s: %w", id, err)
	}

	err = r.reader.readObject(ctx, id, maxBytes, func(h header, body io.Reader) error {
		if h.kind != "blob" {
			return fmt.Errorf("object %s is a %s and not a file", id, h.kind)
		}

		size = h.size
		if err := room.Check(filepath.Dir(path), size, 1, room.Usual()); err != nil {
			return err
		}

		_, err := io.Copy(f, body)
		return err
	})
	closeErr := f.Close()
	if err == nil {
		err = closeErr
	}

	if err == nil {
		err = os.Rename(tmp, path)
	}

	if err != nil {
		_ = os.Remove(tmp)
		return 0, fmt.Errorf("write object %s: %w", id, err)
	}

	return size, nil
}
