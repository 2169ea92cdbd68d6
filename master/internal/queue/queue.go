// Package queue contains a queue in which requests of minions wait for a scarce resource: a
// renderer, or a slot for a runner. Minions are served in rotation, one request each, so that a
// minion with many requests does not delay minions with few. A request is here called a question,
// and the right to use the resource a turn. The rotation begins with the minion that came first.
package queue

import (
	"container/list"
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// Errors of Wait. In both cases the master must send no answer, so that the minion asks again.
var (
	// ErrFull means that the waiting questions use all the memory allowed for them.
	ErrFull = errors.New("too many questions of minions wait")
	// ErrLeft means that the minion disconnected before its question got a turn.
	ErrLeft = errors.New("the minion hung up before its turn")
)

// Config configures a Queue.
type Config struct {
	Turns int              // how many questions may have a turn at once
	Bytes int64            // maximum sum of Question.Bytes of all waiting questions
	Now   func() time.Time // clock for Stats
}

// Question is one request of a minion.
type Question struct {
	Minion string // authenticated id of the minion
	// Nonce identifies the question: when the minion repeats the question, the nonce is the same.
	// "" means that the minion never repeats the question.
	Nonce string
	Bytes int // memory that the question uses while it waits, in bytes
}

// shareFraction determines the share of one minion: one sixteenth of Config.Bytes.
const shareFraction = 16

// Queue gives turns to questions. A question is a repetition if its minion and nonce are those of a
// question that waits or has a turn: one turn answers both questions. When a minion disconnects, it
// keeps its place in the queue until it is at the front. So a minion whose time-out is shorter than
// the wait can ask again without losing its place.
//
// Overflow policy: a question that would exceed Config.Bytes, or the minion's share of
// Config.Bytes, is refused with ErrFull. A Queue is safe for concurrent use.
type Queue[T any] struct {
	cfg Config

	mu        sync.Mutex
	freeTurns int
	// seats contains *seat values. The minion in front gets the next turn.
	seats   list.List
	seatOf  map[string]*list.Element // element of seats, by minion
	entries map[key]*entry[T]        // questions with a nonce that wait or have a turn
	held    map[string]int64         // bytes of waiting questions, by minion
	stats   Stats
}

type key struct{ minion, nonce string }

// seat is a minion's place in the queue. While the minion is disconnected, the seat has no entries.
type seat[T any] struct {
	minion  string
	entries []*entry[T]
}

// entry is one question with all its askers.
type entry[T any] struct {
	key key
	// askers holds the waiting askers. The first one waits for the turn, the others for the answer.
	askers []*asker
	// begun means that an asker, or a caller of Try, has the turn. The owner of the turn is not in
	// askers.
	begun  bool
	done   chan struct{} // closed when answer and err are set
	answer T
	err    error
}

// asker is a call of Wait that waits for a turn or for an answer.
type asker struct {
	since time.Time
	turn  chan struct{} // closed when the asker gets the turn
}

// Stats are counters since the start. Waiting, Working, Bytes and Oldest are current values.
type Stats struct {
	Waiting int           // questions without a turn
	Working int           // questions with a turn
	Bytes   int64         // memory that the waiting questions use, in bytes
	Oldest  time.Duration // how long the question in front has waited
	Turns   uint64        // turns given
	Joined  uint64        // questions answered by the turn of an earlier question
	Left    uint64        // questions whose minion disconnected before the turn
	Full    uint64        // questions refused with ErrFull
	Waited  time.Duration // total waiting time of the questions that got a turn
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

// Turn is the right to work on a question. Its owner must call End once.
type Turn[T any] struct {
	queue *Queue[T]
	entry *entry[T]
}

// Try returns a turn if a turn is free now and no other asker waits or works with the same
// question. Otherwise it returns false.
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

// Wait waits until the question gets a turn, and returns the turn. If another asker of the same
// question had the turn, Wait returns a nil turn and the answer of that asker. The context
// connected must end when the minion disconnects; then Wait returns ErrLeft.
func (q *Queue[T]) Wait(connected context.Context, question Question) (turn *Turn[T], answer T, err error) {
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
	case <-connected.Done():
	}

	q.removeAsker(e, own)
	return nil, answer, ErrLeft
}

// End frees the turn and passes the answer to all other askers of the question.
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

// Stats returns the counters and the current values.
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

// addEntry returns a new entry. If the question has a nonce, addEntry stores the entry, so that
// repetitions find it.
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

// joinQuestion adds an asker to the entry of its question. If there is no such entry, it creates
// one.
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

// seatEntry appends an entry to the entries of its minion.
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

// removeAsker removes the asker departed, whose minion has disconnected. If departed has just got
// the turn, removeAsker passes the turn to another asker or question.
func (q *Queue[T]) removeAsker(e *entry[T], departed *asker) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stats.Left++
	select {
	case <-departed.turn:
		q.passTurn(e)
		return
	default:
	}

	e.askers = slices.DeleteFunc(e.askers, func(a *asker) bool { return a == departed })
	if e.begun || len(e.askers) > 0 {
		return
	}

	q.stats.Waiting--
	q.forget(e)
	s := q.seatOf[e.key.minion].Value.(*seat[T])
	s.entries = slices.DeleteFunc(s.entries, func(x *entry[T]) bool { return x == e })
}

// passTurn takes back a turn that an asker of e does not use. It gives the turn to another asker of
// e or, if there is none, to the next question in the queue.
func (q *Queue[T]) passTurn(e *entry[T]) {
	q.freeTurns++
	if len(e.askers) > 0 {
		q.giveTurn(e)
		return
	}
	q.forget(e)
	q.giveTurns()
}

// giveTurns gives free turns to the waiting questions, beginning at the front of the queue.
func (q *Queue[T]) giveTurns() {
	for q.freeTurns > 0 {
		at := q.seats.Front()
		if at == nil {
			return
		}

		s := at.Value.(*seat[T])
		if len(s.entries) == 0 { // the minion has disconnected and not come back
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

// giveUpSeat removes a minion's place from the queue.
func (q *Queue[T]) giveUpSeat(at *list.Element) {
	delete(q.seatOf, at.Value.(*seat[T]).minion)
	q.seats.Remove(at)
}

// giveTurn gives a turn to the first asker of e. The other askers wait for the answer. If e has no
// askers, the caller, Try, has the turn.
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
