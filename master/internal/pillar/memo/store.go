package memo

import (
	"container/list"
	"slices"
	"sync"
	"time"
)

// Defaults and limits of a Store.
const (
	DefaultBytes   = 64 << 20
	DefaultResults = 20000
	maxForms       = 16 // of one SLS: sets of paths that it was seen to read
	askAgain       = 10 * time.Minute
)

// Config of a Store. The zero value of a field is its default.
type Config struct {
	Bytes   int64 // of memory for all results, as estimated by weigh
	Results int
	Now     func() time.Time
}

// Store has the results. All methods may be called concurrently.
type Store struct {
	cfg Config

	mu     sync.Mutex
	sheets map[Sum]*sheet // by what is given to a template, see KeyOf
	order  *list.List     // of *result, most recently used first
	bytes  int64
	stats  Stats
}

// sheet is one version of an SLS with what it is given.
type sheet struct {
	forms []*form // most recently used first
	alone *result // says that it is for one minion only; nil: that is not known
}

// form is a set of paths that were read, and the results by their values.
type form struct {
	reads   []Read
	results map[Sum]*result
}

type result struct {
	key, values Sum
	form        *form
	files       []File
	value       any
	weight      int64
	until       time.Time // of alone
	at          *list.Element
}

// Stats are counters since the start, and what is kept now.
type Stats struct {
	Hits    uint64 // results given
	Misses  uint64 // templates that were rendered and recorded
	Alone   uint64 // templates that were rendered for one minion only
	Dropped uint64 // results that made room for others
	Results int
	Bytes   int64
}

// New makes a Store.
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
	return &Store{cfg: cfg, sheets: map[Sum]*sheet{}, order: list.New()}
}

// Stats returns the counters.
func (s *Store) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.stats
	st.Results, st.Bytes = s.order.Len(), s.bytes
	return st
}

// Get returns the result that a template has for a minion. content gives the
// hash of a file as it is now, and false when there is none. The value is
// shared and must not be changed.
func (s *Store) Get(key Sum, m Minion, content Content) (value any, ok bool) {
	s.mu.Lock()
	var forms []*form
	if sh := s.sheets[key]; sh != nil {
		forms = slices.Clone(sh.forms)
	}
	s.mu.Unlock()

	for _, f := range forms {
		sum, err := m.sum(f.reads)
		if err != nil {
			return nil, false
		}

		s.mu.Lock()
		r := f.results[sum]
		s.mu.Unlock()

		if r == nil {
			continue
		}

		if !current(r.files, content) {
			s.mu.Lock()
			s.remove(r)
			s.mu.Unlock()
			continue
		}

		s.mu.Lock()
		defer s.mu.Unlock()
		s.touch(r)
		s.stats.Hits++

		return r.value, true
	}

	return nil, false
}

// Content gives the hash of a file, and false when there is none. With an error
// neither is known.
type Content func(path string) (sum Sum, there bool, err error)

func current(files []File, content Content) bool {
	for _, f := range files {
		sum, there, err := content(f.Path)
		if err != nil || there == f.Missing || there && sum != f.Sum {
			return false
		}
	}
	return true
}

// Alone reports whether a template is known to be for one minion only, so that
// it need not be recorded.
func (s *Store) Alone(key Sum) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.sheets[key]
	if sh == nil || sh.alone == nil {
		return false
	}
	if !s.cfg.Now().Before(sh.alone.until) {
		s.remove(sh.alone)
		return false
	}
	s.touch(sh.alone)
	return true
}

// Put keeps the result of a template for a minion.
func (s *Store) Put(key Sum, m Minion, t Trace, value any) {
	sum, err := m.sum(t.Reads)
	if err != nil {
		return
	}

	r := &result{
		key:    key,
		values: sum,
		files:  t.Files,
		value:  value,
		weight: weigh(value) + traceWeight(t),
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Misses++
	if r.weight > s.cfg.Bytes/8 {
		s.stats.Dropped++
		return
	}

	sh := s.sheet(key)
	i := slices.IndexFunc(sh.forms, func(f *form) bool { return slices.EqualFunc(f.reads, t.Reads, Read.equal) })
	if i < 0 {
		for len(sh.forms) >= maxForms {
			for _, old := range sh.forms[len(sh.forms)-1].results {
				s.remove(old) // of the last one the form goes, too
				s.stats.Dropped++
			}
		}

		sh.forms = slices.Insert(sh.forms, 0, &form{reads: t.Reads, results: map[Sum]*result{}})
		i = 0
	}

	r.form = sh.forms[i]
	if old := r.form.results[sum]; old != nil {
		s.take(old)
	}

	r.form.results[sum] = r
	s.add(r)
}

// PutAlone notes that a template is for one minion only, for some minutes: it may
// depend on what was read whether it is.
func (s *Store) PutAlone(key Sum) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sh := s.sheet(key)
	if sh.alone != nil {
		s.take(sh.alone)
	}
	sh.alone = &result{key: key, weight: resultWeight, until: s.cfg.Now().Add(askAgain)}
	s.add(sh.alone)
}

// CountAlone counts a template that was rendered for one minion only.
func (s *Store) CountAlone() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Alone++
}

func (r Read) equal(o Read) bool { return r.Pillar == o.Pillar && slices.Equal(r.Path, o.Path) }

func (s *Store) sheet(key Sum) *sheet {
	sh := s.sheets[key]
	if sh == nil {
		sh = &sheet{}
		s.sheets[key] = sh
	}
	return sh
}

// add takes a result into account and makes room for it; mu is held.
func (s *Store) add(r *result) {
	r.at = s.order.PushFront(r)
	s.bytes += r.weight
	for s.bytes > s.cfg.Bytes || s.order.Len() > s.cfg.Results {
		s.remove(s.order.Back().Value.(*result))
		s.stats.Dropped++
	}
}

// take removes a result from the account only; mu is held.
func (s *Store) take(r *result) {
	if r.at != nil {
		s.order.Remove(r.at)
		s.bytes -= r.weight
		r.at = nil
	}
}

// remove drops a result, and what is empty without it; mu is held. One that was
// dropped already is no error.
func (s *Store) remove(r *result) {
	if r.at == nil {
		return
	}
	s.take(r)
	sh := s.sheets[r.key]
	if sh.alone == r {
		sh.alone = nil
	} else if delete(r.form.results, r.values); len(r.form.results) == 0 {
		sh.forms = slices.DeleteFunc(sh.forms, func(f *form) bool { return f == r.form })
	}
	if len(sh.forms) == 0 && sh.alone == nil {
		delete(s.sheets, r.key)
	}
}

// touch notes that a result was used; mu is held.
func (s *Store) touch(r *result) {
	if r.at == nil {
		return // it was dropped meanwhile
	}
	s.order.MoveToFront(r.at)
	sh := s.sheets[r.key]
	if i := slices.Index(sh.forms, r.form); i > 0 {
		copy(sh.forms[1:i+1], sh.forms[:i])
		sh.forms[0] = r.form
	}
}
