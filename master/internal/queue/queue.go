// Package queue is where questions of minions wait for something scarce: a renderer, a place among
// the runners. Turns go by minion, in the order of arrival, so that a minion that asks for much
// waits behind those that ask for little.
package queue

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Errors of Wait. In both cases the minion must get no answer: it asks again.
var (
	// ErrFull means that the waiting questions take all the memory they may.
	ErrFull = errors.New("too many questions of minions wait")
	// ErrLeft means that the minion has hung up before its turn.
	ErrLeft = errors.New("the minion hung up before its turn")
)

// Config of a Queue.
type Config struct {
	Turns int              // questions at work at once
	Bytes int64            // bound of all waiting questions, see Question.Bytes
	Now   func() time.Time // for Stats
}

// Question is one question of a minion.
type Question struct {
	Minion string // its proven id
	// Nonce is the same when the minion repeats the question; "": it never does.
	Nonce string
	Bytes int // bytes that it takes while it waits
}

// shareFraction is the fraction of Config.Bytes that one minion may use.
const shareFraction = 16

// Queue gives questions their turns. A repeated question is answered by one turn: a question with
// the same minion and nonce as one that waits, or is at work, shares its answer. A minion that
// hangs up keeps its place until it comes to the front, so that it loses nothing when its own
// time-out makes it ask again.
//
// Overflow policy: a question that would exceed Config.Bytes, or a minion's share of them, is
// refused (ErrFull). It is safe for concurrent use.
type Queue[T any] struct {
	cfg Config

	mu        sync.Mutex
	freeTurns int
	seats     list.List                // of *seat, the next turn first
	seatOf    map[string]*list.Element // by minion
	entries   map[key]*entry[T]        // entries that wait or are at work
	held      map[string]int64         // bytes by minion
	stats     Stats
}

type key struct{ minion, nonce string }

// seat is the place of a minion. It may have no entries, when all have hung up.
type seat[T any] struct {
	minion  string
	entries []*entry[T]
}

// entry is a question and all its askers.
type entry[T any] struct {
	key    key
	askers []*asker      // the waiting askers: the first for the turn, the others for the answer
	begun  bool          // somebody has the turn and is not among the askers
	done   chan struct{} // closed when answer and err are set
	answer T
	err    error
}

// asker is one call of Wait.
type asker struct {
	since time.Time
	turn  chan struct{} // closed when the asker has the turn
}

// Stats are counters since the start; Waiting, Working, Bytes and Oldest are of now.
type Stats struct {
	Waiting int           // questions without a turn
	Working int           // questions at work
	Bytes   int64         // of those that wait
	Oldest  time.Duration // how long the question in front has waited
	Turns   uint64        // turns that were given
	Joined  uint64        // questions that shared the turn of another
	Left    uint64        // questions whose minion hung up before its turn
	Full    uint64        // questions refused
	Waited  time.Duration // waiting time of all that got a turn
}

// New returns a Queue.
func New[T any](cfg Config) *Queue[T] {
	return &Queue[T]{
		cfg:       cfg,
		freeTurns: cfg.Turns,
		seatOf:    map[string]*list.Element{},
		entries:   map[key]*entry[T]{},
		held:      map[string]int64{},
	}
}

// Turn is the right to work on a question. End must be called once.
type Turn[T any] struct {
	queue *Queue[T]
	entry *entry[T]
}

// Try returns a turn if one is free and nobody asks the question already.
func (q *Queue[T]) Try(question Question) (*Turn[T], bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	k := key{question.Minion, question.Nonce}
	if q.freeTurns == 0 || question.Nonce != "" && q.entries[k] != nil {
		return nil, false
	}

	e := q.addEntry(k)
	q.giveTurn(e)
	return &Turn[T]{q, e}, true
}

// Wait returns the turn of a question when it has come, or, with a nil turn, the answer of somebody
// else's turn. asked ends when the minion hangs up.
func (q *Queue[T]) Wait(asked context.Context, question Question) (turn *Turn[T], answer T, err error) {
	e, own, err := q.joinQuestion(question)
	if err != nil {
		return nil, answer, err
	}
	defer q.giveBack(question)

	select {
	case <-own.turn:
		return &Turn[T]{q, e}, answer, nil
	case <-e.done:
		return nil, e.answer, e.err
	case <-asked.Done():
	}

	q.removeAsker(e, own)
	return nil, answer, ErrLeft
}

// End gives the turn back, and the answer to the others that ask the question.
func (t *Turn[T]) End(answer T, err error) {
	q, e := t.queue, t.entry
	q.mu.Lock()
	defer q.mu.Unlock()
	e.answer = answer
	e.err = err
	close(e.done)
	q.forget(e)

	q.freeTurns++
	q.giveTurns()
}

// Stats returns the counters.
func (q *Queue[T]) Stats() Stats {
	q.mu.Lock()
	defer q.mu.Unlock()
	s := q.stats
	s.Working = q.cfg.Turns - q.freeTurns
	for at := q.seats.Front(); at != nil; at = at.Next() {
		if entries := at.Value.(*seat[T]).entries; len(entries) > 0 {
			s.Oldest = q.cfg.Now().Sub(entries[0].askers[0].since)
			break
		}
	}
	return s
}

// addEntry adds an entry. Entries without a nonce are not found again.
func (q *Queue[T]) addEntry(k key) *entry[T] {
	e := &entry[T]{key: k, done: make(chan struct{})}
	if k.nonce != "" {
		q.entries[k] = e
	}
	return e
}

func (q *Queue[T]) forget(e *entry[T]) {
	if q.entries[e.key] == e {
		delete(q.entries, e.key)
	}
}

// joinQuestion adds an asker to the entry of its question, which it makes if necessary.
func (q *Queue[T]) joinQuestion(question Question) (*entry[T], *asker, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := int64(question.Bytes)
	has := q.held[question.Minion]
	if q.stats.Bytes+n > q.cfg.Bytes || has > 0 && has+n > q.cfg.Bytes/shareFraction {
		q.stats.Full++
		return nil, nil, ErrFull
	}

	q.held[question.Minion] = has + n
	q.stats.Bytes += n

	own := &asker{since: q.cfg.Now(), turn: make(chan struct{})}
	k := key{question.Minion, question.Nonce}
	if e := q.entries[k]; e != nil && question.Nonce != "" {
		q.stats.Joined++
		e.askers = append(e.askers, own)
		return e, own, nil
	}

	e := q.addEntry(k)
	e.askers = []*asker{own}
	q.stats.Waiting++
	q.seatEntry(e)
	q.giveTurns()

	return e, own, nil
}

// seatEntry puts an entry behind the others of its minion.
func (q *Queue[T]) seatEntry(e *entry[T]) {
	at := q.seatOf[e.key.minion]
	if at == nil {
		at = q.seats.PushBack(&seat[T]{minion: e.key.minion})
		q.seatOf[e.key.minion] = at
	}
	s := at.Value.(*seat[T])
	s.entries = append(s.entries, e)
}

// giveBack gives back the memory of a question.
func (q *Queue[T]) giveBack(question Question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := int64(question.Bytes)
	q.stats.Bytes -= n
	if q.held[question.Minion] -= n; q.held[question.Minion] <= 0 {
		delete(q.held, question.Minion)
	}
}

// removeAsker removes an asker that has hung up. If it has just got the turn, the next one gets it.
func (q *Queue[T]) removeAsker(e *entry[T], own *asker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stats.Left++
	select {
	case <-own.turn:
		q.passTurn(e)
		return
	default:
	}

	e.askers = slices.DeleteFunc(e.askers, func(a *asker) bool { return a == own })
	if e.begun || len(e.askers) > 0 {
		return
	}

	q.stats.Waiting--
	q.forget(e)
	s := q.seatOf[e.key.minion].Value.(*seat[T])
	s.entries = slices.DeleteFunc(s.entries, func(x *entry[T]) bool { return x == e })
}

// passTurn takes the turn from an entry whose asker does not use it. Another asker of the same
// question gets it, or else the next in the queue.
func (q *Queue[T]) passTurn(e *entry[T]) {
	q.freeTurns++
	if len(e.askers) > 0 {
		q.giveTurn(e)
		return
	}
	q.forget(e)
	q.giveTurns()
}

// giveTurns gives free turns to the front of the queue.
func (q *Queue[T]) giveTurns() {
	for q.freeTurns > 0 {
		at := q.seats.Front()
		if at == nil {
			return
		}

		s := at.Value.(*seat[T])
		if len(s.entries) == 0 { // the minion of this seat did not come back
			q.giveUpSeat(at)
			continue
		}

		e := s.entries[0]
		s.entries = slices.Delete(s.entries, 0, 1)
		if len(s.entries) > 0 {
			q.seats.MoveToBack(at)
		} else {
			q.giveUpSeat(at)
		}

		q.stats.Waiting--
		q.giveTurn(e)
	}
}

// giveUpSeat gives up a place.
func (q *Queue[T]) giveUpSeat(at *list.Element) {
	delete(q.seatOf, at.Value.(*seat[T]).minion)
	q.seats.Remove(at)
}

// giveTurn gives a turn to the first asker, if there is one: the turn may have been taken by Try.
// The others wait for the answer.
func (q *Queue[T]) giveTurn(e *entry[T]) {
	q.freeTurns--
	q.stats.Turns++
	e.begun = true
	if len(e.askers) == 0 {
		return
	}

	first := e.askers[0]
	e.askers = e.askers[1:]
	q.stats.Waited += q.cfg.Now().Sub(first.since)
	close(first.turn)
}
