package queue

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func newQueue(turns int, bytes int64) *Queue[int] {
	return New[int](Config{Turns: turns, Bytes: bytes, Now: time.Now})
}

// call is one question under way: it works for a second when it has the turn.
type call struct {
	hangUp context.CancelFunc
	answer int
	worked bool
	err    error
	done   chan struct{}
}

func ask(t *testing.T, q *Queue[int], question Question, begun func()) *call {
	t.Helper()
	asked, hangUp := context.WithCancel(t.Context())
	c := &call{hangUp: hangUp, done: make(chan struct{})}
	go func() {
		defer close(c.done)
		turn, answer, err := q.Wait(asked, question)
		if turn != nil {
			begun()
			c.worked = true
			time.Sleep(time.Second)
			answer = 7
			turn.End(answer, nil)
		}

		c.answer, c.err = answer, err
	}()

	synctest.Wait()
	return c
}

// full reports whether the question was refused.
func (c *call) full() bool {
	select {
	case <-c.done:
		return errors.Is(c.err, ErrFull)
	default:
		return false
	}
}

func settled(t *testing.T, q *Queue[int], turns int) {
	t.Helper()
	s := q.Stats()
	if s.Waiting != 0 || s.Working != 0 || s.Bytes != 0 || q.freeTurns != turns || len(q.entries) != 0 ||
		len(q.held) != 0 || len(q.seatOf) != q.seats.Len() {
		t.Errorf("left behind: %+v, free %d, entries %d, held %d, seats %d/%d", s, q.freeTurns, len(q.entries),
			len(q.held), len(q.seatOf), q.seats.Len())
	}
}

// Finding F10: with one turn, questions are answered in the order in which they came,
// and one minion that asks for much waits behind the others.
func TestTurnsGoByMinion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1, 1<<20)
		var order []string
		var calls []*call
		for _, id := range []string{"a", "a", "a", "b", "c", "b"} {
			nonce := fmt.Sprint(len(calls))
			calls = append(calls,
				ask(t, q, Question{Minion: id, Nonce: nonce, Bytes: 10}, func() { order = append(order, id) }))
		}

		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []string{"a", "a", "b", "c", "a", "b"}; !slices.Equal(order, want) {
			t.Errorf("order %v, want %v", order, want)
		}

		for i, c := range calls {
			if c.err != nil || c.answer != 7 {
				t.Errorf("question %d: %v, %v", i, c.answer, c.err)
			}
		}

		settled(t, q, 1)
	})
}

// A minion whose own time-out is over hangs up and asks the same again: nothing is
// worked on for who has left, the question is worked on once, and its place is kept.
func TestRepeatedQuestionKeepsItsPlace(t *testing.T) {
	for _, nonce := range []string{"same", "another"} {
		t.Run(nonce, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := newQueue(1, 1<<20)
				var order []string
				begun := func(what string) func() { return func() { order = append(order, what) } }
				first := ask(t, q, Question{Minion: "x", Nonce: "1"}, begun("x"))
				early := ask(t, q, Question{Minion: "m", Nonce: "same"}, begun("early"))
				other := ask(t, q, Question{Minion: "o", Nonce: "1"}, begun("other"))
				early.hangUp()
				<-early.done
				again := ask(t, q, Question{Minion: "m", Nonce: nonce}, begun("again"))
				for _, c := range []*call{first, again, other} {
					<-c.done
				}

				if want := []string{"x", "again", "other"}; !slices.Equal(order, want) || !errors.Is(early.err, ErrLeft) || again.answer != 7 {
					t.Errorf("order %v, want %v; early %v, again %v", order, want, early.err, again.answer)
				}

				settled(t, q, 1)
			})
		})
	}
}

// A question that is asked again while it is at work shares the answer, also when who
// asked first has left; another question of the minion does not.
func TestQuestionAtWorkIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(2, 1<<20)
		turn, ok := q.Try(Question{Minion: "m", Nonce: "1"})
		if !ok {
			t.Fatal("no turn")
		}

		if _, ok := q.Try(Question{Minion: "m", Nonce: "1"}); ok {
			t.Error("the same question has two turns")
		}

		same := ask(t, q, Question{Minion: "m", Nonce: "1"}, func() { t.Error("it is worked on twice") })
		gone := ask(t, q, Question{Minion: "m", Nonce: "1"}, func() {})
		gone.hangUp()
		<-gone.done
		other := ask(t, q, Question{Minion: "m", Nonce: "2"}, func() {})
		turn.End(5, nil)
		<-same.done
		<-other.done

		if same.answer != 5 || same.worked || other.answer != 7 || !other.worked || !errors.Is(gone.err, ErrLeft) {
			t.Errorf("same %+v, other %+v, gone %v", same, other, gone.err)
		}

		settled(t, q, 2)
	})
}

// A minion that does not come back gives up its place when it comes to the front.
func TestPlaceOfWhoStaysAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1, 1<<20)
		first := ask(t, q, Question{Minion: "x"}, func() {})
		for i := range 100 {
			c := ask(t, q, Question{Minion: fmt.Sprint(i)}, func() { t.Error("work for nobody") })
			c.hangUp()
			<-c.done
		}

		last := ask(t, q, Question{Minion: "last"}, func() {})
		<-first.done
		<-last.done
		if s := q.Stats(); last.answer != 7 || s.Left != 100 || s.Turns != 2 || q.seats.Len() != 0 {
			t.Errorf("%+v, %d seats", s, q.seats.Len())
		}

		settled(t, q, 1)
	})
}

func TestFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(1, 1600)
		add := func(id string, bytes int) *call { return ask(t, q, Question{Minion: id, Bytes: bytes}, func() {}) }
		add("busy", 10)
		if add("big", 1000).full() { // one question may be larger than the share
			t.Error("a large question is refused")
		}

		for i, tt := range []struct {
			id    string
			bytes int
			full  bool
		}{{"big", 10, true}, {"m", 100, false}, {"m", 1, true}, {"n", 501, true}, {"n", 500, false}} {
			if full := add(tt.id, tt.bytes).full(); full != tt.full {
				t.Errorf("question %d of %s: full %v", i, tt.id, full)
			}
		}

		time.Sleep(time.Minute)
		synctest.Wait()
		if s := q.Stats(); s.Full != 3 {
			t.Errorf("%+v", s)
		}

		settled(t, q, 1)
	})
}

// Minions that ask, repeat, leave and come back at random moments: each is answered or
// left without an answer, never more than so many are at work, and nothing stays.
func TestAnyOrder(t *testing.T) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 1))
		turns := 1 + r.IntN(3)
		synctest.Test(t, func(t *testing.T) {
			q := newQueue(turns, 50_000)
			var working, answered, left, full atomic.Int64
			var group sync.WaitGroup
			for range 500 {
				question := Question{Minion: fmt.Sprint(r.IntN(40)), Nonce: fmt.Sprint(r.IntN(5)), Bytes: r.IntN(300)}
				begin, patience, work := r.IntN(20_000), r.IntN(20_000), r.IntN(200)
				group.Go(func() {
					time.Sleep(time.Duration(begin) * time.Millisecond)
					asked, hangUp := context.WithTimeout(t.Context(), time.Duration(patience)*time.Millisecond)
					defer hangUp()

					turn, ok := q.Try(question)
					var answer int
					var err error
					if !ok {
						turn, answer, err = q.Wait(asked, question)
					}

					if turn != nil {
						if working.Add(1) > int64(turns) {
							t.Error("too many are at work")
						}
						time.Sleep(time.Duration(work) * time.Millisecond)
						working.Add(-1)
						answer = 7
						turn.End(answer, nil)
					}

					switch {
					case errors.Is(err, ErrLeft):
						left.Add(1)
					case errors.Is(err, ErrFull):
						full.Add(1)
					case answer == 7:
						answered.Add(1)
					default:
						t.Errorf("answer %d, error %v", answer, err)
					}
				})
			}

			group.Wait()
			if answered.Load()+left.Load()+full.Load() != 500 || answered.Load() == 0 {
				t.Errorf("%d answered, %d left, %d full", answered.Load(), left.Load(), full.Load())
			}

			settled(t, q, turns)
		})
	}
}
