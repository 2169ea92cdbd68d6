package history

import "sync"

// cache holds what was read of segments. It has two generations of at most half of its bound: when
// the young generation is full, it becomes the old one, and the former old one is dropped.
type cache struct {
	half int

	mu         sync.Mutex
	young, old map[cacheKey]cached
	bytes      int // of the young generation
}

// cacheKey is a frame of a segment.
type cacheKey struct {
	segment uint64
	offset  int64
}

type cached struct {
	value any
	bytes int
}

func newCache(bytes int) *cache { return &cache{half: bytes / 2, young: map[cacheKey]cached{}} }

func (c *cache) get(key cacheKey) (any, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.young[key]
	if !ok {
		if e, ok = c.old[key]; ok {
			c.putLocked(key, e)
		}
	}
	return e.value, ok
}

// put adds what was read of a frame. The caller must not change value afterwards.
func (c *cache) put(key cacheKey, value any, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.putLocked(key, cached{value, bytes + entryBytes})
}

func (c *cache) putLocked(key cacheKey, e cached) {
	if e.bytes > c.half {
		return
	}
	if c.bytes+e.bytes > c.half {
		c.old = c.young
		c.young = map[cacheKey]cached{}
		c.bytes = 0
	}
	c.bytes += e.bytes - c.young[key].bytes
	c.young[key] = e
}
