package ratelimit

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// Class is the level to which a holder of a share of a [Pool] has authenticated.
type Class uint8

const (
	// Stranger has not authenticated, and its address is unknown.
	Stranger Class = iota
	// Familiar has not authenticated, but comes from an address from which another holder has
	// authenticated lately.
	Familiar
	// Proven has authenticated.
	Proven

	classes = 3
)

// Bounds holds the bounds of a [Pool], in a unit that its callers choose, such as places or bytes.
type Bounds struct {
	Strangers int64 // most that all strangers together may hold
	Familiar  int64 // most that strangers and familiar holders together may hold
	All       int64 // most that all holders together may hold
	// Greed is how many times the free amount an authenticated holder may hold; 0 means 1.
	// Unauthenticated holders may hold at most the free amount.
	Greed int64
}

// Shared returns bounds for n, half of which strangers cannot use, and a fourth of which familiar
// holders cannot use.
func Shared(n int64) Bounds { return Bounds{Strangers: n / 2, Familiar: n * 3 / 4, All: n} }

// ErrFull means that a pool has no room, and too many callers wait for room.
var ErrFull = errors.New("there is no room, and too many wait for it")

// Pool is a resource that many holders share. Unauthenticated holders cannot take from
// authenticated ones: each [Class] has a bound that leaves room for the classes above. Within this
// bound a holder may have at most as much as is free: a single holder gets half, and n greedy
// holders leave 1/(n+1) free (Choudhury and Hahne, Dynamic queue length thresholds, 1998). K
// identifies a holder.
//
// Overflow policy: [Pool.Take] fails at once. [Pool.Wait] waits if a place to wait is free. These
// places are also a pool. Room that becomes free goes first to authenticated holders, among these
// to the holder with the least, among equal holders to the first that came. All methods are safe
// for concurrent use.
type Pool[K comparable] struct {
	line *Pool[K] // places to wait; nil: nobody may wait

	mu      sync.Mutex
	limits  [classes]int64
	greed   [classes]int64
	used    [classes]int64
	by      map[K]int64
	waiters []*waiter[K] // in the order of arrival
}

// waiter wants to add n to a share. given is closed when the share has been enlarged.
type waiter[K comparable] struct {
	share *Share[K]
	n     int64
	given chan struct{}
}

// NewPool creates a pool with the bounds b. room bounds the places to wait; with the zero Bounds
// callers cannot wait.
func NewPool[K comparable](b, room Bounds) *Pool[K] {
	p := &Pool[K]{by: map[K]int64{}}
	p.Resize(b)
	if room.All > 0 {
		p.line = NewPool[K](room, Bounds{})
	}
	return p
}

// Resize changes the bounds of the pool. Holders above the new bounds keep what they have.
func (p *Pool[K]) Resize(b Bounds) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limits = [classes]int64{Stranger: b.Strangers, Familiar: b.Familiar, Proven: b.All}
	p.greed = [classes]int64{Stranger: 1, Familiar: 1, Proven: max(b.Greed, 1)}
	p.admitWaiting()
}

// Share is a holder's part of a pool until Release. Only one goroutine at a time may call its
// methods.
type Share[K comparable] struct {
	pool  *Pool[K]
	key   K
	class Class
	n     int64
}

// Take returns a share of n, or nil if the pool has no room now.
func (p *Pool[K]) Take(key K, class Class, n int64) *Share[K] {
	s := &Share[K]{pool: p, key: key, class: class}
	if !s.More(n) {
		return nil
	}
	return s
}

// Wait takes n like [Pool.Take], but waits for room until ctx ends. It returns [ErrFull] or the
// error of ctx.
func (p *Pool[K]) Wait(ctx context.Context, key K, class Class, n int64) (*Share[K], error) {
	s := &Share[K]{pool: p, key: key, class: class}
	if err := s.WaitMore(ctx, n); err != nil {
		return nil, err
	}
	return s, nil
}

// Held returns the size of the share.
func (s *Share[K]) Held() int64 {
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	return s.n
}

// More adds n to the share if the pool has room now, and reports whether it did.
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

// WaitMore takes n more like [Share.More], but waits for room until ctx ends. It returns [ErrFull]
// or the error of ctx. After an error the share keeps what it held before.
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

	return nil // the wait succeeded at the moment when ctx ended
}

// Move transfers the share to another holder, for example after its user has authenticated. It
// always succeeds, even beyond that holder's bound.
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

// Release returns the whole share to the pool. A second call, or a call on nil, does nothing.
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

// Could reports whether an empty pool could grant a share of n.
func (p *Pool[K]) Could(class Class, n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return n <= p.holderLimit(class)
}

// holderLimit returns the most that one holder of a class may have in a pool that is otherwise
// empty. The caller holds mu.
func (p *Pool[K]) holderLimit(class Class) int64 {
	limit, greed := p.limits[class], p.greed[class]
	return (limit*greed + greed) / (greed + 1)
}

// fitsMore reports whether a holder may have n more. The caller holds mu.
func (p *Pool[K]) fitsMore(key K, class Class, n int64) bool { return p.hasRoom(p.by[key]+n, class, n) }

// hasRoom reports whether the pool has room for n more in a class. wouldHold is the amount that the
// holder would then have. The caller holds mu.
func (p *Pool[K]) hasRoom(wouldHold int64, class Class, n int64) bool {
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
	return wouldHold <= p.greed[class]*left && wouldHold <= p.holderLimit(class)
}

// giveMore adds n to a share. The caller holds mu.
func (p *Pool[K]) giveMore(s *Share[K], n int64) {
	s.n += n
	p.used[s.class] += n
	p.by[s.key] += n
	if p.by[s.key] <= 0 {
		delete(p.by, s.key)
	}
}

// admitWaiting hands free room to waiters. The caller holds mu.
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

// before reports whether a gets room before b, given that a came later.
func (p *Pool[K]) before(a, b *Share[K]) bool {
	if a.class != b.class {
		return a.class > b.class
	}
	return p.by[a.key] < p.by[b.key]
}

// Used returns the total held by holders up to a class.
func (p *Pool[K]) Used(up Class) (n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range up + 1 {
		n += p.used[c]
	}
	return n
}

// Waiting returns the number of waiters.
func (p *Pool[K]) Waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.waiters)
}

// Full reports whether a new holder of that class can neither take n now nor wait for n.
func (p *Pool[K]) Full(class Class, n int64) bool {
	p.mu.Lock()
	fits := p.hasRoom(n, class, n)
	p.mu.Unlock()
	return !fits && (p.line == nil || p.line.Full(class, 1))
}
