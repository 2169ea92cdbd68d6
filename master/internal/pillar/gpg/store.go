package gpg

import (
	"container/list"
	"time"
)

// Bounds of what a store holds. Overflow policy: the oldest result is dropped.
const (
	maxResults     = 10000
	maxResultBytes = 16 << 20
)

// Question is somebody's wish for a pillar: it may use what was decrypted since it came. A nil
// *Question stands for one that has just come.
type Question struct {
	decrypter *Decrypter
	arrived   uint64
	at        *list.Element
	opened    int // bytes of decrypted messages in this pillar
}

// questions holds the questions that have no answer yet, in the order in which they came.
type questions struct{ list.List }

// oldest returns when the question came that has waited longest. now is the answer if there is none.
func (q *questions) oldest(now uint64) uint64 {
	if front := q.Front(); front != nil {
		return front.Value.(*Question).arrived
	}
	return now
}

// Ask returns a new question. The caller ends it.
func (d *Decrypter) Ask() *Question {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.clock++
	q := &Question{decrypter: d, arrived: d.clock}
	q.at = d.questions.PushBack(q)
	return q
}

// End ends a question. What only this question could have used is forgotten. q may be nil.
func (q *Question) End() {
	if q == nil || q.at == nil {
		return
	}
	d := q.decrypter
	d.mu.Lock()
	defer d.mu.Unlock()
	d.questions.Remove(q.at)
	q.at = nil
	d.dropUseless()
}

// Restart forgets what a question has counted: its pillar is compiled again. q may be nil.
func (q *Question) Restart() {
	if q != nil {
		q.opened = 0
	}
}

// result holds what gpg has said of a message.
type result struct {
	key    sum
	secret string
	err    error // a *Failure; nil: the message is decrypted
	began  uint64
	until  time.Time // with gpg_cache: until when everybody may use it
	at     *list.Element
}

func (r *result) size() int {
	const record = 256
	if r.err != nil {
		return record + len(r.err.Error())
	}
	return record + len(r.secret)
}

// store holds results. Its zero value is empty, but for idle.
type store struct {
	byKey map[sum]*result
	order list.List // of *result, in the order in which they were put
	bytes int
	idle  *time.Timer
}

func (s *store) get(key sum) *result { return s.byKey[key] }

// put adds a result, in place of an older one of the same message.
func (s *store) put(r *result) {
	if s.byKey == nil {
		s.byKey = map[sum]*result{}
	}
	if old := s.byKey[r.key]; old != nil {
		s.drop(old)
	}

	s.byKey[r.key] = r
	r.at = s.order.PushBack(r)
	s.bytes += r.size()
	for s.bytes > maxResultBytes || s.order.Len() > maxResults {
		s.drop(s.order.Front().Value.(*result))
	}
}

func (s *store) drop(r *result) {
	s.order.Remove(r.at)
	delete(s.byKey, r.key)
	s.bytes -= r.size()
}

// dropOldest drops results from the oldest one on, as long as they are useless.
func (s *store) dropOldest(useless func(*result) bool) {
	for front := s.order.Front(); front != nil; front = s.order.Front() {
		r := front.Value.(*result)
		if !useless(r) {
			return
		}
		s.drop(r)
	}
}

func (s *store) clear() {
	clear(s.byKey)
	s.order.Init()
	s.bytes = 0
}
