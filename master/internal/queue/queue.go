// Package queue lets questions of minions wait for something scarce: a renderer, or a place among the
// runners. Minions take turns, one question each, so that a minion with many questions does not delay
// those with few. The first turn goes to the minion that came first.
package queue

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Errors of Wait. In both cases the master must not answer the minion: it will ask again.
var (
	// ErrFull means that waiting questions already take all the memory they may.
	ErrFull = errors.New("too many questions of minions wait")
	// ErrLeft means that the minion hung up before its turn.
	ErrLeft = errors.New("the minion hung up before its turn")
)

// Config configures a Queue.
type Config struct {
	Turns int              // how many questions are worked on at once
	Bytes int64            // how many bytes all waiting questions may take, see Question.Bytes
	Now   func() time.Time // clock for Stats
}

// Question is one question of a minion.
type Question struct {
	Minion string // id of the minion, proven by its key
	// Nonce is the same whenever the minion repeats the question. If it is empty, the minion never
	// repeats it.
	Nonce string
	Bytes int // memory that the question takes while it waits
}

// shareFraction: a minion may use one sixteenth of Config.Bytes.
const shareFraction = 16

// Queue gives questions their turns. A question with the same minion and nonce as one that waits, or
// is worked on, is a repetition: one turn answers both. When a minion hangs up, it keeps its place in
// the queue until that comes to the front. So a minion whose time-out is shorter than the queue asks
// again without losing its place.
//
// Overflow policy: a question is refused with ErrFull if Config.Bytes, or the minion's share of it,
// would be exceeded. A Queue is safe for concurrent use.
type Queue[T any] struct {
	cfg Config

	mu        sync.Mutex
	freeTurns int
	seats     list.List                // each a *seat; the front one has the next turn
	seatOf    map[string]*list.Element // element of seats, by minion
	entries   map[key]*entry[T]        // questions with a nonce that wait or are worked on
	held      map[string]int64         // bytes of waiting questions, by minion
	stats     Stats
}

type key struct{ minion, nonce string }

// seat is a minion's place in the queue. It has no entries when the minion has hung up.
type seat[T any] struct {
	minion  string
	entries []*entry[T]
}

// entry is one question with all who ask it.
type entry[T any] struct {
	key    key
	askers []*asker      // askers that wait: the first one for the turn, the others for the answer
	begun  bool          // an asker, or a caller of Try, has the turn; it is not in askers
	done   chan struct{} // closed when answer and err are set
	answer T
	err    error
}

// asker is one call of Wait.
type asker struct {
	since time.Time
	turn  chan struct{} // closed when the asker gets the turn
}

// Stats are counters since the start, except for Waiting, Working, Bytes and Oldest, which describe
// this moment.
type Stats struct {
	Waiting int           // questions that have no turn yet
	Working int           // questions that are worked on
	Bytes   int64         // memory that waiting questions take
	Oldest  time.Duration // how long the question in front has waited
	Turns   uint64        // turns given
	Joined  uint64        // questions answered by the turn of an earlier one
	Left    uint64        // questions whose minion hung up before its turn
	Full    uint64        // questions refused with ErrFull
	Waited  time.Duration // how long all questions that got a turn had waited, in total
}

// New returns an empty Queue.
func New[T any](cfg Config) *Queue[T] {
	return &Queue[T]{
		cfg:       cfg,
		freeTurns: cfg.Turns,
		seatOf:    map[string]*list.Element{},
		entries:   map[key]*entry[T]{},
		held:      map[string]int64{},
	}
}

// Turn is the right to work on a question. Who gets one must call End once.
type Turn[T any] struct {
	queue *Queue[T]
	entry *entry[T]
}

// Try returns a turn if one is free at once, and nobody else asks the same question.
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

// Wait waits for the turn of a question and returns it. If another asker of the same question had the
// turn, Wait returns a nil turn and the answer of the earlier question. The context asked ends when
// the minion hangs up.
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

// End gives the turn back and hands the answer to all others who ask the question.
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

// Stats returns the current figures.
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

// addEntry returns a new entry. It is stored for repetitions of the question if there is a nonce.
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

// joinQuestion adds an asker to the entry of its question, which it creates if necessary.
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

// seatEntry puts an entry behind the other entries of its minion.
func (q *Queue[T]) seatEntry(e *entry[T]) {
	at := q.seatOf[e.key.minion]
	if at == nil {
		at = q.seats.PushBack(&seat[T]{minion: e.key.minion})
		q.seatOf[e.key.minion] = at
	}
	s := at.Value.(*seat[T])
	s.entries = append(s.entries, e)
}

// giveBack subtracts the memory of a question that no longer waits.
func (q *Queue[T]) giveBack(question Question) {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := int64(question.Bytes)
	q.stats.Bytes -= n
	if q.held[question.Minion] -= n; q.held[question.Minion] <= 0 {
		delete(q.held, question.Minion)
	}
}

// removeAsker removes an asker that has hung up. If it has got the turn at that very moment, the turn
// is passed on.
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

// passTurn takes back a turn that an asker of e does not use, and gives it to another asker of e, or
// else to the next in the queue.
func (q *Queue[T]) passTurn(e *entry[T]) {
	q.freeTurns++
	if len(e.askers) > 0 {
		q.giveTurn(e)
		return
	}
	q.forget(e)
	q.giveTurns()
}

// giveTurns gives all free turns, beginning at the front of the queue.
func (q *Queue[T]) giveTurns() {
	for q.freeTurns > 0 {
		at := q.seats.Front()
		if at == nil {
			return
		}

		s := at.Value.(*seat[T])
		if len(s.entries) == 0 { // this minion hung up and did not ask again
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

// giveUpSeat removes a minion's place.
func (q *Queue[T]) giveUpSeat(at *list.Element) {
	delete(q.seatOf, at.Value.(*seat[T]).minion)
	q.seats.Remove(at)
}

// giveTurn gives a turn to the first asker of e; the others wait for the answer. Without askers it is
// the caller, Try, that has the turn.
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
