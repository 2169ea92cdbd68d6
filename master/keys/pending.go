package keys

import (
	fifo "container/list"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	"saltern/internal/ratelimit"
	"saltern/master/crypt"
)

// Defaults of Config for keys that wait for the administrator. They let all
// minions behind a NAT gateway in within minutes, and hold a stranger to what
// a shared volume bears.
const (
	DefaultPendingPerSource = 10_000
	DefaultPendingPerKey    = 16
	DefaultPendingRate      = 25
	DefaultPendingBurst     = 2_000
)

const (
	// fewKeys is what no source loses to others.
	fewKeys = 16
	// maxOrigins bounds the sources that are told apart. Those that come when
	// the table is full share one entry.
	maxOrigins = 65_536
	// lookedFor is how long a key stays out of the choice after somebody has
	// asked this store for its fingerprint; maxLooked of them are remembered.
	lookedFor = 10 * time.Minute
	maxLooked = 1_024
	// largestFor is how long the largest source is taken for the largest.
	largestFor = 100 * time.Millisecond
)

// waiter is a pending key, or one that is being written.
type waiter struct {
	id      string
	key     [16]byte // of the public key
	from    *origin
	at      *fifo.Element // in from.order
	writing bool
	going   bool // is being evicted
}

// origin is a source of pending keys: an IPv4 address or an IPv6 /64.
type origin struct {
	addr   netip.Addr // not valid: unknown, see pendings
	order  *fifo.List // of *waiter, the oldest first
	keys   map[[16]byte]int
	spent  ratelimit.Bucket
	denied uint64    // refused and evicted
	last   time.Time // when that was
}

// pendings keeps in memory which source the pending keys have come from, so
// that a source that offers too many loses its own. Safe for concurrent use.
//
// The files on disk do not tell their source. It is known of the keys that this
// master took since its start; those of other masters and of earlier lives are
// of one unknown source, which the bound of a source does not hold for. A
// stranger who goes to three masters so has three times as much.
type pendings struct {
	cfg *Config

	mu      sync.Mutex
	ids     map[string]*waiter
	origins map[netip.Addr]*origin
	looked  map[string]time.Time
	largest *origin // as of when
	when    time.Time
	refused uint64
	evicted uint64
	worst   netip.Addr // the source of the last refusal or eviction
}

func newPendings(cfg *Config) *pendings {
	return &pendings{
		cfg:     cfg,
		ids:     map[string]*waiter{},
		origins: map[netip.Addr]*origin{},
		looked:  map[string]time.Time{},
	}
}

// sourceOf is the unit that is counted.
func sourceOf(a netip.Addr) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().Addr()
	}
	return a
}

// keyID stands for a public key.
func keyID(pem string) [16]byte {
	h := sha256.Sum256([]byte(pem))
	return [16]byte(h[:16])
}

// origin finds the entry of a source; mu is held. Sources that do not fit in
// share the entry of the unspecified address.
func (p *pendings) origin(a netip.Addr) *origin {
	o := p.origins[a]
	if o == nil && a.IsValid() && len(p.origins) >= maxOrigins {
		a = netip.IPv4Unspecified()
		o = p.origins[a]
	}
	if o == nil {
		o = &origin{addr: a, order: fifo.New(), keys: map[[16]byte]int{}}
		p.origins[a] = o
	}
	return o
}

// enter counts a key in that is about to be stored, and names the key that has
// to go for it, if any. The caller calls leave in the end.
func (p *pendings) enter(from netip.Addr, id, pem string) (victim *waiter, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ids[id] != nil {
		return nil, nil // it is being stored, or was a moment ago
	}

	if from.IsValid() {
		from = sourceOf(from)
	}

	o := p.origin(from)
	w := &waiter{id: id, key: keyID(pem), writing: true}
	if o.addr.IsValid() {
		if n := o.keys[w.key]; n >= p.cfg.PendingPerKey {
			return nil, p.refuse(o, "%d ids with the same key wait from %s", n, o.addr)
		}
		if err := p.spend(o); err != nil {
			return nil, err
		}
	}

	p.join(o, w)
	switch {
	case o.addr.IsValid() && o.order.Len() > p.cfg.PendingPerSource:
		victim = p.oldest(o)
	case len(p.ids) > p.cfg.MaxPending:
		victim = p.oldest(p.biggest())
	default:
		return nil, nil
	}

	if victim == nil {
		p.part(w)
		return nil, p.refuse(o, "%d keys wait", len(p.ids))
	}

	victim.going = true
	return victim, nil
}

// refuse counts a key of o that is not taken; mu is held.
func (p *pendings) refuse(o *origin, format string, args ...any) error {
	p.refused++
	o.denied++
	o.last, p.worst = p.cfg.now(), o.addr
	return fmt.Errorf("store a pending key: %w (%s)", ErrPendingFull, fmt.Sprintf(format, args...))
}

// spend takes the price of a new key from a source; mu is held.
func (p *pendings) spend(o *origin) error {
	if !o.spent.Take(p.cfg.now(), p.rate(), 1) {
		return p.refuse(o, "%s sends more than %g new keys a second", o.addr, p.cfg.PendingRate)
	}
	return nil
}

// rate is that of new keys of one source.
func (p *pendings) rate() ratelimit.Rate {
	return ratelimit.Rate{Burst: p.cfg.PendingBurst, PerSecond: p.cfg.PendingRate}
}

// pay takes the price of a key that is rejected or denied from a source.
func (p *pendings) pay(from netip.Addr) error {
	if !from.IsValid() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.spend(p.origin(sourceOf(from)))
}

func (p *pendings) join(o *origin, w *waiter) {
	p.ids[w.id] = w
	w.from, w.at = o, o.order.PushBack(w)
	o.keys[w.key]++
}

func (p *pendings) part(w *waiter) {
	if p.ids[w.id] != w {
		return
	}
	delete(p.ids, w.id)
	w.from.order.Remove(w.at)
	w.from.keys[w.key]--
	if w.from.keys[w.key] <= 0 {
		delete(w.from.keys, w.key)
	}
}

// oldest is the oldest key of a source that may go; mu is held.
func (p *pendings) oldest(o *origin) *waiter {
	if o == nil || o.order.Len() <= fewKeys && o.order.Len() <= p.cfg.PendingPerSource {
		return nil
	}
	now, tried := p.cfg.now(), 0
	for e := o.order.Front(); e != nil && tried < 2*maxLooked; e = e.Next() {
		w := e.Value.(*waiter)
		if at, ok := p.looked[w.id]; !w.writing && !w.going && (!ok || now.Sub(at) >= lookedFor) {
			return w
		}
		tried++
	}
	return nil
}

// biggest is the source with the most keys. The unknown one comes last, since
// it is not one; mu is held.
func (p *pendings) biggest() *origin {
	now := p.cfg.now()
	if o := p.largest; o != nil && now.Sub(p.when) < largestFor && o.order.Len() > fewKeys {
		return o
	}

	var most *origin
	for _, o := range p.origins {
		if o.addr.IsValid() && (most == nil || o.order.Len() > most.order.Len()) {
			most = o
		}
	}

	if unknown := p.origins[netip.Addr{}]; unknown != nil && (most == nil || most.order.Len() <= fewKeys) {
		most = unknown
	}

	p.largest, p.when = most, now
	return most
}

// leave ends what enter has begun; stored reports whether the key is there.
func (p *pendings) leave(id string, stored bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.ids[id]; w != nil {
		w.writing = false
		if !stored {
			p.part(w)
		}
	}
}

// gone ends an eviction; ok reports whether the key was removed.
func (p *pendings) gone(w *waiter, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.going = false
	if !ok {
		return
	}
	p.part(w)
	p.evicted++
	w.from.denied++
	w.from.last = p.cfg.now()
	if w.from.addr.IsValid() {
		p.worst = w.from.addr
	}
}

// add takes a key of the index in, whoever has stored it.
func (p *pendings) add(id, pem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, key := p.ids[id], keyID(pem)
	if w != nil && w.key == key {
		return
	}
	o, writing := p.origin(netip.Addr{}), false
	if w != nil { // somebody else's key won
		writing = w.writing
		p.part(w)
	}
	p.join(o, &waiter{id: id, key: key, writing: writing})
}

// drop takes a key out that is pending no more.
func (p *pendings) drop(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.ids[id]; w != nil && !w.writing {
		p.part(w)
	}
}

// look notes that somebody looks at a key.
func (p *pendings) look(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ids[id] == nil {
		return
	}
	if now := p.cfg.now(); len(p.looked) >= maxLooked {
		maps.DeleteFunc(p.looked, func(_ string, at time.Time) bool { return now.Sub(at) >= lookedFor })
	}
	if len(p.looked) < maxLooked {
		p.looked[id] = p.cfg.now()
	}
}

// sweep forgets sources without keys that may send as many as ever.
func (p *pendings) sweep() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.now()
	maps.DeleteFunc(p.origins,
		func(_ netip.Addr, o *origin) bool { return o.order.Len() == 0 && o.spent.Used(now, p.rate()) == 0 })
	maps.DeleteFunc(p.looked, func(_ string, at time.Time) bool { return now.Sub(at) >= lookedFor })
}

// PendingStats tells of the sources of pending keys; counters since the start.
type PendingStats struct {
	Sources int    `json:"sources"` // that are known
	Refused uint64 `json:"refused"` // keys that were not taken
	Evicted uint64 `json:"evicted"` // keys that made room for a newer one
	// Worst is the source of the last key that was refused or evicted, "" for
	// none, and Keys how many of its keys wait.
	Worst string `json:"worst,omitempty"`
	Keys  int    `json:"worst_keys,omitempty"`
}

// admit makes room for a key that is about to be stored as pending; no stripe is
// held. Of a source that has too many the oldest goes, not the new one: minions
// come back after acceptance_wait_time, so honest ones behind the same address
// get their turn. done must be called with whether the key was stored.
func (s *Store) admit(from netip.Addr, id, pem string) (done func(), err error) {
	victim, err := s.pend.enter(from, id, crypt.NormalizePEM(pem))
	if err != nil {
		return nil, err
	}

	done = func() {
		e, _ := s.Lookup(id)
		s.pend.leave(id, e.State == Pending)
	}

	if victim != nil {
		err := s.evict(victim.id)
		s.pend.gone(victim, err == nil)
		if err != nil {
			done()
			return nil, fmt.Errorf("make room for a pending key: %w", err)
		}
	}

	return done, nil
}

// evict removes a pending key, and a key that was denied beside it. The folders
// are asked first: what an administrator or another master has decided stands.
func (s *Store) evict(id string) error {
	defer s.lockID(id)()
	if err := s.examineLocked(id, lookupOrder[:]...); err != nil {
		return err
	}
	if e, _ := s.Lookup(id); e.State != Pending {
		return nil
	}
	if err := s.markRemoved(id); err != nil {
		return err
	}
	return s.drop(id, Pending, Denied)
}

// Pendings tells of the sources of pending keys.
func (s *Store) Pendings() PendingStats {
	p := s.pend
	p.mu.Lock()
	defer p.mu.Unlock()

	st := PendingStats{Sources: len(p.origins), Refused: p.refused, Evicted: p.evicted}
	if p.origins[netip.Addr{}] != nil {
		st.Sources--
	}

	if p.worst.IsValid() {
		st.Worst = p.worst.String()
		if p.worst.Is6() {
			st.Worst = netip.PrefixFrom(p.worst, 64).String()
		}
		if o := p.origins[p.worst]; o != nil {
			st.Keys = o.order.Len()
		}
	}

	return st
}
