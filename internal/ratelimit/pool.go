package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Class says what somebody has proved who wants a share of a [Pool].
type Class uint8

const (
	// Stranger has proved nothing.
	Stranger Class = iota
	// Familiar has proved nothing now, but comes from where somebody did lately.
	Familiar
	// Proven has shown who he is.
	Proven

	classes = 3
)

// Bounds of a [Pool], in what its callers count: places, bytes.
type Bounds struct {
	Strangers int64 // of strangers together
	Familiar  int64 // of strangers and of the familiar together
	All       int64 // of everybody
	// Greed is how many times as much as is left for others one who is proven may
	// hold; 0 means once. Everybody else may hold as much as is left.
	Greed int64
}

// Shared are bounds that keep a half of n from strangers and a fourth from the familiar.
func Shared(n int64) Bounds { return Bounds{Strangers: n / 2, Familiar: n * 3 / 4, All: n} }

// ErrFull means that a pool has no room, nor a place to wait for it.
var ErrFull = errors.New("there is no room, and too many wait for it")

// Pool is something that many share. Who has proved nothing takes nothing from who
// has: each [Class] has a bound that leaves room for those above it. Within its bound a
// holder gets as much as is left for others: one alone has a half, and n greedy ones
// leave 1/(n+1) to the next (Choudhury and Hahne, Dynamic queue length thresholds,
// 1998). K is what counts as one holder.
//
// Overflow policy: [Pool.Take] gives up at once, [Pool.Wait] waits if there is a place to
// wait, which is a share of a pool as well. Of those who wait the proven come first, then
// those who hold least, then those who came first. All methods are safe for concurrent use.
type Pool[K comparable] struct {
	line *Pool[K] // places to wait; nil: nobody waits

	mu      sync.Mutex
	limits  [classes]int64
	greed   [classes]int64
	used    [classes]int64
	by      map[K]int64
	waiters []*waiter[K] // in the order in which they came
}

// waiter wants n more for a share; given is closed when it has them.
type waiter[K comparable] struct {
	share *Share[K]
	n     int64
	given chan struct{}
}

// NewPool makes a pool; room bounds those who wait, the zero value lets nobody.
func NewPool[K comparable](b, room Bounds) *Pool[K] {
	p := &Pool[K]{by: map[K]int64{}}
	p.Resize(b)
	if room.All > 0 {
		p.line = NewPool[K](room, Bounds{})
	}
	return p
}

// Resize gives the pool other bounds. What is held beyond them stays so.
func (p *Pool[K]) Resize(b Bounds) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits = [classes]int64{Stranger: b.Strangers, Familiar: b.Familiar, Proven: b.All}
	p.greed = [classes]int64{Stranger: 1, Familiar: 1, Proven: max(b.Greed, 1)}
	p.admitWaiting()
}

// Share is what somebody holds of a pool, until Release. Its methods are for one
// goroutine at a time.
type Share[K comparable] struct {
	pool  *Pool[K]
	key   K
	class Class
	n     int64
}

// Take returns a share of n, or nil if there is no room for it now.
func (p *Pool[K]) Take(key K, class Class, n int64) *Share[K] {
	s := &Share[K]{pool: p, key: key, class: class}
	if !s.More(n) {
		return nil
	}
	return s
}

// Wait is Take that waits for room until ctx ends. The error is [ErrFull] or that of ctx.
func (p *Pool[K]) Wait(ctx context.Context, key K, class Class, n int64) (*Share[K], error) {
	s := &Share[K]{pool: p, key: key, class: class}
	if err := s.WaitMore(ctx, n); err != nil {
		return nil, err
	}
	return s, nil
}

// Held is how much it is.
func (s *Share[K]) Held() int64 {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.n
}

// More takes n more, if there is room for it now.
func (s *Share[K]) More(n int64) bool {
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.fitsMore(s.key, s.class, n) {
		return false
	}
	p.giveMore(s, n)
	return true
}

// WaitMore is More that waits for room until ctx ends. The error is [ErrFull] or that
// of ctx; what the share holds already it keeps.
func (s *Share[K]) WaitMore(ctx context.Context, n int64) error {
	p := s.pool
	p.mu.Lock()
	if p.fitsMore(s.key, s.class, n) {
		p.giveMore(s, n)
		p.mu.Unlock()
		return nil
	}

	var place *Share[K]
	if p.line != nil {
		place = p.line.Take(s.key, s.class, 1)
	}

	if place == nil {
		p.mu.Unlock()
		return ErrFull
	}
	defer place.Release()

	w := &waiter[K]{share: s, n: n, given: make(chan struct{})}
	p.waiters = append(p.waiters, w)
	p.mu.Unlock()

	select {
	case <-w.given:
		return nil
	case <-ctx.Done():
	}

	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiters, w); i >= 0 {
		p.waiters = slices.Delete(p.waiters, i, i+1)
		return ctx.Err()
	}

	return nil // it was given at that moment
}

// Move makes the share that of another holder, who has proved something meanwhile. It
// always succeeds, also beyond what he could have taken.
func (s *Share[K]) Move(key K, class Class) {
	if s == nil {
		return
	}
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	n := s.n
	p.giveMore(s, -n)
	s.key, s.class = key, class
	p.giveMore(s, n)
	p.admitWaiting()
}

// Release gives everything back. It may be called again, and for nil.
func (s *Share[K]) Release() {
	if s == nil {
		return
	}
	p := s.pool
	p.mu.Lock()
	defer p.mu.Unlock()
	p.giveMore(s, -s.n)
	p.admitWaiting()
}

// Could reports whether a share of n fits into the pool when nobody holds anything.
func (p *Pool[K]) Could(class Class, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return n <= p.holderLimit(class)
}

// holderLimit is what one holder may have at most. The caller holds mu.
func (p *Pool[K]) holderLimit(class Class) int64 {
	limit, greed := p.limits[class], p.greed[class]
	return (limit*greed + greed) / (greed + 1)
}

// fitsMore reports whether somebody may hold n more. The caller holds mu.
func (p *Pool[K]) fitsMore(key K, class Class, n int64) bool { return p.hasRoom(p.by[key]+n, class, n) }

// hasRoom is fits for who would hold has in all. The caller holds mu.
func (p *Pool[K]) hasRoom(has int64, class Class, n int64) bool {
	var below int64
	for c := range Class(classes) {
		below += p.used[c]
		if c >= class && below+n > p.limits[c] {
			return false
		}
	}
	left := p.limits[class]
	for c := range class + 1 {
		left -= p.used[c]
	}
	return has <= p.greed[class]*left && has <= p.holderLimit(class)
}

// giveMore gives n more to a share. The caller holds mu.
func (p *Pool[K]) giveMore(s *Share[K], n int64) {
	s.n += n
	p.used[s.class] += n
	p.by[s.key] += n
	if p.by[s.key] <= 0 {
		delete(p.by, s.key)
	}
}

// admitWaiting gives to those who wait what has become free. The caller holds mu.
func (p *Pool[K]) admitWaiting() {
	for {
		best := -1
		for i, w := range p.waiters {
			if !p.fitsMore(w.share.key, w.share.class, w.n) {
				continue
			}
			if best < 0 || p.before(w.share, p.waiters[best].share) {
				best = i
			}
		}

		if best < 0 {
			return
		}

		w := p.waiters[best]
		p.waiters = slices.Delete(p.waiters, best, best+1)
		p.giveMore(w.share, w.n)
		close(w.given)
	}
}

// before reports whether a, who came later, is served before b.
func (p *Pool[K]) before(a, b *Share[K]) bool {
	if a.class != b.class {
		return a.class > b.class
	}
	return p.by[a.key] < p.by[b.key]
}

// Used is how much is held, of all or of those up to a class.
func (p *Pool[K]) Used(up Class) (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range up + 1 {
		n += p.used[c]
	}
	return n
}

// Waiting is how many wait.
func (p *Pool[K]) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiters)
}

// Full reports whether somebody of a class who holds nothing could neither take n now
// nor wait for it.
func (p *Pool[K]) Full(class Class, n int64) bool {
	p.mu.Lock()
	fits := p.hasRoom(n, class, n)
	p.mu.Unlock()
	return !fits && (p.line == nil || p.line.Full(class, 1))
}
