package memo

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// Defaults and bounds of a Store.
const (
	DefaultBytes   = 64 << 20
	DefaultResults = 20000
	maxReadSets    = 16 // largest number of different sets of paths that one SLS may read
	askAgain       = 10 * time.Minute
)

// Config of a Store. The zero value of a field is its default.
type Config struct {
	Bytes   int64 // bound of the memory for all results, as estimated by memoryOf
	Results int
	Now     func() time.Time
}

// Store stores results of templates. All methods may be called concurrently.
type Store struct {
	cfg Config

	mu        sync.Mutex
	templates map[Sum]*template // by the hash of a template's inputs, see KeyOf
	order     *list.List        // list of *result, the most recently used first
	bytes     int64
	stats     Stats
}

// template is one version of an SLS together with the other inputs.
type template struct {
	readSets []*readSet // in order of use, the latest first
	// alone is set if results of the template are known to be valid for one minion only. Otherwise
	// it is nil.
	alone *result
}

// readSet is a set of paths that were read. It holds the results by the hash of the values at these
// paths.
type readSet struct {
	reads   []Read
	results map[Sum]*result
}

type result struct {
	key, values Sum
	readSet     *readSet
	files       []File
	value       any
	weight      int64
	until       time.Time // end of the validity of template.alone
	at          *list.Element
}

// Stats are counters since the start, and the present size.
type Stats struct {
	Hits    uint64 // results that were reused
	Misses  uint64 // templates that were rendered, and whose results were stored
	Alone   uint64 // templates that were rendered, and whose results are valid for one minion only
	Dropped uint64 // results that were dropped because the store was full
	Results int
	Bytes   int64
}

// New returns a Store.
func New(cfg Config) *Store {
	if cfg.Bytes <= 0 {
		cfg.Bytes = DefaultBytes
	}
	if cfg.Results <= 0 {
		cfg.Results = DefaultResults
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Store{cfg: cfg, templates: map[Sum]*template{}, order: list.New()}
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Results, st.Bytes = s.order.Len(), s.bytes
	return st
}

// Get returns the stored result of a template for a minion. ok is false if no stored result is
// valid for the minion. content returns the current hash of a file. The returned value is shared
// and must not be changed.
func (s *Store) Get(key Sum, m Minion, content Content) (value any, ok bool) {
	value, _, ok = s.Find(key, m, content)
	return value, ok
}

// Find works like Get, and returns the files that the template has read, too. They must not be changed.
func (s *Store) Find(key Sum, m Minion, content Content) (value any, files []File, ok bool) {
	s.mu.Lock()
	var forms []*readSet
	if sh := s.templates[key]; sh != nil {
		forms = slices.Clone(sh.readSets)
	}
	s.mu.Unlock()

	for _, f := range forms {
		sum, err := m.sumOf(f.reads)
		if err != nil {
			return nil, nil, false
		}

		s.mu.Lock()
		r := f.results[sum]
		s.mu.Unlock()

		if r == nil {
			continue
		}

		if !current(r.files, content) {
			s.mu.Lock()
			s.dropResult(r)
			s.mu.Unlock()
			continue
		}

		s.mu.Lock()
		defer s.mu.Unlock()
		s.markUsed(r)
		s.stats.Hits++

		return r.value, r.files, true
	}

	return nil, nil, false
}

// Content returns the hash of a file. exists is false if the file does not exist. If err is not
// nil, the other results are invalid.
type Content func(path string) (sum Sum, exists bool, err error)

func current(files []File, content Content) bool {
	for _, f := range files {
		sum, there, err := content(f.Path)
		if err != nil || there == f.Missing || there && sum != f.Sum {
			return false
		}
	}
	return true
}

// Alone reports whether the results of a template are known to be valid for one minion only, so
// that storing them is useless.
func (s *Store) Alone(key Sum) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.templates[key]
	if sh == nil || sh.alone == nil {
		return false
	}
	if !s.cfg.Now().Before(sh.alone.until) {
		s.dropResult(sh.alone)
		return false
	}
	s.markUsed(sh.alone)
	return true
}

// Put stores the result of a template that was rendered for a minion.
func (s *Store) Put(key Sum, m Minion, t Trace, value any) {
	sum, err := m.sumOf(t.Reads)
	if err != nil {
		return
	}

	r := &result{
		key:    key,
		values: sum,
		files:  t.Files,
		value:  value,
		weight: memoryOf(value) + traceWeight(t),
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Misses++
	if r.weight > s.cfg.Bytes/8 {
		s.stats.Dropped++
		return
	}

	sh := s.templateOf(key)
	i := slices.IndexFunc(sh.readSets, func(f *readSet) bool { return slices.EqualFunc(f.reads, t.Reads, Read.equalTo) })
	if i < 0 {
		for len(sh.readSets) >= maxReadSets {
			for _, old := range sh.readSets[len(sh.readSets)-1].results {
				s.dropResult(old) // dropping the last result of a readSet also drops the readSet
				s.stats.Dropped++
			}
		}

		sh.readSets = slices.Insert(sh.readSets, 0, &readSet{reads: t.Reads, results: map[Sum]*result{}})
		i = 0
	}

	r.readSet = sh.readSets[i]
	if old := r.readSet.results[sum]; old != nil {
		s.unlink(old)
	}

	r.readSet.results[sum] = r
	s.addResult(r)
}

// PutAlone records that a template's results are valid for one minion only. The record expires
// after some minutes, because a later rendering may read different values.
func (s *Store) PutAlone(key Sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.templateOf(key)
	if sh.alone != nil {
		s.unlink(sh.alone)
	}
	sh.alone = &result{key: key, weight: resultWeight, until: s.cfg.Now().Add(askAgain)}
	s.addResult(sh.alone)
}

// CountAlone counts a template whose result is valid for one minion only.
func (s *Store) CountAlone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Alone++
}

func (r Read) equalTo(o Read) bool { return r.Pillar == o.Pillar && slices.Equal(r.Path, o.Path) }

func (s *Store) templateOf(key Sum) *template {
	sh := s.templates[key]
	if sh == nil {
		sh = &template{}
		s.templates[key] = sh
	}
	return sh
}

// addResult adds a result, and drops other results when the store is full. The caller holds mu.
func (s *Store) addResult(r *result) {
	r.at = s.order.PushFront(r)
	s.bytes += r.weight
	for s.bytes > s.cfg.Bytes || s.order.Len() > s.cfg.Results {
		s.dropResult(s.order.Back().Value.(*result))
		s.stats.Dropped++
	}
}

// unlink removes a result from order and from the count of bytes, but not from its readSet. The
// caller holds mu.
func (s *Store) unlink(r *result) {
	if r.at != nil {
		s.order.Remove(r.at)
		s.bytes -= r.weight
		r.at = nil
	}
}

// dropResult removes a result. It also removes the result's readSet and template if these are empty
// then. If the result was already dropped, dropResult does nothing. The caller holds mu.
func (s *Store) dropResult(r *result) {
	if r.at == nil {
		return
	}
	s.unlink(r)
	sh := s.templates[r.key]
	if sh.alone == r {
		sh.alone = nil
	} else {
		delete(r.readSet.results, r.values)
		if len(r.readSet.results) == 0 {
			sh.readSets = slices.DeleteFunc(sh.readSets, func(f *readSet) bool { return f == r.readSet })
		}
	}

	if len(sh.readSets) == 0 && sh.alone == nil {
		delete(s.templates, r.key)
	}
}

// markUsed moves a result and its readSet to the front of their lists. The caller holds mu.
func (s *Store) markUsed(r *result) {
	if r.at == nil {
		return // the result was dropped meanwhile
	}
	s.order.MoveToFront(r.at)
	sh := s.templates[r.key]
	if i := slices.Index(sh.readSets, r.readSet); i > 0 {
		copy(sh.readSets[1:i+1], sh.readSets[:i])
		sh.readSets[0] = r.readSet
	}
}
