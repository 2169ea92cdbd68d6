package ratelimit

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fill takes single places until there are no more.
func fill(p *Pool[string], key string, class Class) (n int) {
	for p.Take(key, class, 1) != nil {
		n++
	}
	return n
}

func TestPoolClasses(t *testing.T) {
	p := NewPool[string](Shared(64), Bounds{})
	for _, c := range []struct {
		key   string
		class Class
		want  int
	}{
		{"a stranger", Stranger, 16}, {"another", Stranger, 8}, {"a third", Stranger, 4},
		{"familiar", Familiar, 10}, {"proven", Proven, 13}, {"proven too", Proven, 7},
		{"the last stranger", Stranger, 2}, // of 32 that strangers share
	} {
		if n := fill(p, c.key, c.class); n != c.want {
			t.Errorf("%s gets %d places, want %d", c.key, n, c.want)
		}
	}

	if n := p.Used(Stranger); n != 30 {
		t.Errorf("strangers hold %d", n)
	}
}

func TestPoolManyStrangers(t *testing.T) {
	p := NewPool[string](Shared(64), Bounds{})
	for i := range 1000 {
		fill(p, fmt.Sprint(i), Stranger)
	}
	if n := p.Used(Stranger); n != 32 {
		t.Errorf("a thousand strangers hold %d places", n)
	}
	if n := fill(p, "familiar", Familiar); n != 8 {
		t.Errorf("who is familiar gets %d", n)
	}
	if n := fill(p, "proven", Proven); n != 12 {
		t.Errorf("who is proven gets %d", n)
	}
}

func TestPoolGreed(t *testing.T) {
	p := NewPool[string](Bounds{Strangers: 50, Familiar: 75, All: 100, Greed: 3}, Bounds{})
	for _, want := range []int{75, 19, 5, 1} {
		if n := fill(p, fmt.Sprint("user ", want), Proven); n != want {
			t.Errorf("a user gets %d, want %d", n, want)
		}
	}
}

func TestPoolBytes(t *testing.T) {
	p := NewPool[string](Shared(1000), Bounds{})
	if p.Could(Stranger, 251) || !p.Could(Stranger, 250) {
		t.Error("one alone may have a half of what strangers share")
	}

	s := p.Take("a", Stranger, 200)
	if s == nil || s.More(51) || !s.More(50) {
		t.Error("a share that grows")
	}

	s.Move("ann", Proven)
	if p.Used(Stranger) != 0 || p.Used(Proven) != 250 || p.Take("a", Stranger, 250) == nil {
		t.Error("what was proven meanwhile counts for strangers")
	}

	s.Release()
	s.Release()
	if n := p.Used(Proven); n != 250 {
		t.Errorf("%d are held", n)
	}
}

func TestPoolResize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool[string](Shared(8), Shared(8))
		fill(p, "a", Proven)
		fill(p, "b", Proven)
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := p.Wait(t.Context(), "a", Proven, 1); err != nil {
				t.Error(err)
			}
		})

		synctest.Wait()
		p.Resize(Shared(2))
		synctest.Wait()
		if n := p.Used(Proven); n != 6 || p.Waiting() != 1 || p.Take("c", Proven, 1) != nil {
			t.Errorf("%d are held, %d wait", n, p.Waiting())
		}

		p.Resize(Shared(80))
		wg.Wait()
	})
}

// TestPoolWaiting: the proven come first, then who holds least, then who came first;
// who leaves does not stand in the way.
func TestPoolWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool[string](Bounds{Strangers: 4, Familiar: 4, All: 4}, Shared(16))
		held := []*Share[string]{p.Take("a", Stranger, 1), p.Take("a", Stranger, 1),
			p.Take("b", Stranger, 1), p.Take("c", Stranger, 1)}
		var order []string
		var mu sync.Mutex
		var wg sync.WaitGroup
		for _, w := range []struct {
			key   string
			class Class
		}{{"a", Stranger}, {"gone", Proven}, {"new", Stranger}, {"new too", Stranger}, {"ann", Proven}} {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			wg.Go(func() {
				s, err := p.Wait(ctx, w.key, w.class, 1)
				if err != nil {
					return
				}

				mu.Lock()
				order = append(order, w.key)
				mu.Unlock()

				time.Sleep(time.Second)
				s.Release()
			})

			synctest.Wait()
			if w.key == "gone" {
				cancel()
			}
		}

		synctest.Wait()
		if n := p.Waiting(); n != 4 {
			t.Fatalf("%d wait", n)
		}

		held[2].Release()
		time.Sleep(10 * time.Second)
		for _, s := range held {
			s.Release() // until now a holds its part
		}

		wg.Wait()
		if got := fmt.Sprint(order); got != "[ann new new too a]" {
			t.Errorf("served in the order %s", got)
		}

		if n := p.Used(Proven); n != 0 {
			t.Errorf("%d are held", n)
		}
	})
}

// TestPoolLine: strangers who wait leave places to wait for others.
func TestPoolLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPool[string](Bounds{All: 1, Familiar: 1, Strangers: 1}, Shared(8))
		p.Take("x", Proven, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()

		var wg sync.WaitGroup
		var full atomic.Int64
		for i := range 20 {
			wg.Go(func() {
				if _, err := p.Wait(ctx, fmt.Sprint(i/10), Stranger, 1); errors.Is(err, ErrFull) {
					full.Add(1)
				}
			})
		}

		synctest.Wait()
		if n := full.Load(); n != 17 || p.Full(Proven, 1) {
			t.Errorf("%d find no place to wait; nobody else does: %t", n, p.Full(Proven, 1))
		}

		wg.Wait()
	})
}

// TestPoolNeverMore: whatever happens, no bound is passed but by Move, and all comes back.
func TestPoolNeverMore(t *testing.T) {
	p := NewPool[int](Bounds{Strangers: 40, Familiar: 60, All: 100, Greed: 2}, Shared(32))
	var wg sync.WaitGroup
	for i := range 16 {
		r := rand.New(rand.NewPCG(1, uint64(i)))
		wg.Go(func() {
			for range 2000 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(200))*time.Microsecond)
				key, class := r.IntN(6), Class(r.IntN(classes))
				if s, err := p.Wait(ctx, key, class, 1+r.Int64N(30)); err == nil {
					s.More(r.Int64N(10))
					if p.Used(Stranger) > 40 || p.Used(Familiar) > 60 || p.Used(Proven) > 100 {
						t.Error("a bound was passed")
					}
					s.Release()
				}

				cancel()
			}
		})
	}

	wg.Wait()
	if p.Used(Proven) != 0 || p.Waiting() != 0 || len(p.by) != 0 || p.line.Used(Proven) != 0 {
		t.Errorf("left: %d, %d wait, %v", p.Used(Proven), p.Waiting(), p.by)
	}
}

func TestLately(t *testing.T) {
	var l Lately[int]
	now := time.Unix(1e9, 0)
	for i := range MaxLately + 1000 {
		l.Note(i, now.Add(time.Duration(i)*time.Millisecond))
	}
	if len(l.at) != MaxLately || !l.Has(MaxLately+999, now) {
		t.Errorf("%d are remembered", len(l.at))
	}
	if l.Has(-1, now) || l.Has(MaxLately+999, now.Add(25*time.Hour)) {
		t.Error("who never did it, or did it long ago")
	}
}
