package cache

import (
	"container/list"
	"io/fs"
	"sync"
	"syscall"

	"saltern/master/value"
)

// sig identifies a version of a file.
type sig struct {
	ino       uint64
	mtimeNano int64
	size      int64
}

func signature(info fs.FileInfo) sig {
	s := sig{mtimeNano: info.ModTime().UnixNano(), size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.ino = st.Ino
	}
	return s
}

type memKey struct {
	bank Bank
	id   string
}

type memEntry struct {
	key    memKey
	sig    sig
	m      *value.Map
	packed []byte
}

// memory holds the most recently used entries, bounded by their packed size.
type memory struct {
	mu    sync.Mutex
	limit int64
	used  int64
	byKey map[memKey]*list.Element
	order *list.List
}

func newMemory(limit int64) *memory {
	return &memory{limit: limit, byKey: map[memKey]*list.Element{}, order: list.New()}
}

// overhead is the estimated ratio of an entry's size in memory to its packed size: the decoded map
// is several times as large.
const overhead = 6

func (m *memory) lookup(b Bank, id string, s sig) *memEntry {
	e, ok := m.byKey[memKey{b, id}]
	if !ok {
		return nil
	}
	entry := e.Value.(*memEntry)
	if entry.sig != s {
		m.remove(e)
		return nil
	}
	m.order.MoveToBack(e)
	return entry
}

func (m *memory) get(b Bank, id string, s sig) (*value.Map, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.lookup(b, id, s); e != nil {
		return e.m, true
	}
	return nil, false
}

func (m *memory) packed(b Bank, id string, s sig) ([]byte, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.lookup(b, id, s); e != nil {
		return e.packed, true
	}
	return nil, false
}

func (m *memory) put(b Bank, id string, s sig, v *value.Map, packed []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	k := memKey{b, id}
	if e, ok := m.byKey[k]; ok {
		m.remove(e)
	}
	m.byKey[k] = m.order.PushBack(&memEntry{k, s, v, packed})
	m.used += int64(len(packed)) * overhead
	for m.used > m.limit && m.order.Len() > 1 {
		m.remove(m.order.Front())
	}
}

func (m *memory) dropEntry(b Bank, id string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e, ok := m.byKey[memKey{b, id}]; ok {
		m.remove(e)
	}
}

func (m *memory) remove(e *list.Element) {
	entry := e.Value.(*memEntry)
	m.order.Remove(e)
	delete(m.byKey, entry.key)
	m.used -= int64(len(entry.packed)) * overhead
}
