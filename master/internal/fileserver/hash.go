package fileserver

import (
	"container/list"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"saltern/master/crypt"
	"saltern/master/internal/fileserver/regular"
)

// maxHashes bounds the number of cached hashes. Overflow policy: the least recently used hash is
// dropped.
const maxHashes = 50000

// settled is how old a file's last change must be before its hash is cached. Two changes within one
// tick of the file system's clock leave the same times.
const settled = 100 * time.Millisecond

type hasher struct {
	name  string
	make  func() hash.Hash
	now   func() time.Time
	group singleflight.Group
	bufs  sync.Pool

	mu     sync.Mutex
	byID   map[string]*list.Element
	lru    *list.List // list of *hashEntry, the most recently used first
	hits   uint64
	misses uint64
}

type hashEntry struct {
	path string
	id   regular.ID
	sum  string
}

func newHasher(name string, now func() time.Time) (*hasher, error) {
	name = strings.ToLower(name)
	mk := crypt.Hash(name)
	if mk == nil {
		return nil, fmt.Errorf("hash_type %q is not known", name)
	}
	return &hasher{
		name: name,
		make: mk,
		now:  now,
		byID: map[string]*list.Element{},
		lru:  list.New(),
		bufs: sync.Pool{New: func() any { b := make([]byte, 256<<10); return &b }},
	}, nil
}

// sumOf returns the hash of an open file. Concurrent callers for the same file share one reading.
func (h *hasher) sumOf(f Handle, path string) (string, error) {
	osf, _ := f.(*os.File)
	if osf == nil {
		return h.hashFile(f)
	}

	fi, err := osf.Stat()
	if err != nil {
		return "", err
	}

	id, ok := regular.IDOf(fi)
	if !ok {
		return h.hashFile(f)
	}

	if s, ok := h.cached(path, id); ok {
		return s, nil
	}

	v, err, _ := h.group.Do(fmt.Sprint(path, "\x00", id), func() (any, error) {
		s, err := h.hashFile(f)
		if err != nil {
			return "", err
		}

		after, err := osf.Stat()
		if err != nil {
			return "", err
		}

		if now, _ := regular.IDOf(after); now == id && h.now().UnixNano()-id.Newest() > int64(settled) {
			h.keepSum(path, id, s)
		}

		return s, nil
	})
	if err != nil {
		return "", err
	}

	return v.(string), nil
}

func (h *hasher) hashFile(f Handle) (string, error) {
	sum := h.make()
	buf := h.bufs.Get().(*[]byte)
	defer h.bufs.Put(buf)

	for off := int64(0); ; {
		n, err := f.ReadAt(*buf, off)
		sum.Write((*buf)[:n])
		off += int64(n)
		if errors.Is(err, io.EOF) {
			return hex.EncodeToString(sum.Sum(nil)), nil
		}
		if err != nil {
			return "", err
		}
	}
}

func (h *hasher) cached(path string, id regular.ID) (string, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, ok := h.byID[path]
	if ok && e.Value.(*hashEntry).id == id {
		h.lru.MoveToFront(e)
		h.hits++
		return e.Value.(*hashEntry).sum, true
	}
	h.misses++
	return "", false
}

func (h *hasher) keepSum(path string, id regular.ID, sum string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e, ok := h.byID[path]; ok {
		h.lru.Remove(e)
	}
	h.byID[path] = h.lru.PushFront(&hashEntry{path, id, sum})
	for h.lru.Len() > maxHashes {
		old := h.lru.Back()
		h.lru.Remove(old)
		delete(h.byID, old.Value.(*hashEntry).path)
	}
}

func (h *hasher) forgetAll() {
	h.mu.Lock()
	defer h.mu.Unlock()
	clear(h.byID)
	h.lru.Init()
}
