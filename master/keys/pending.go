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

// Defaults of Config for pending keys. With these bounds all minions behind a NAT gateway can sign
// in within minutes, and one sender cannot overload a shared volume.
const (
	DefaultPendingPerSource = 10_000
	DefaultPendingPerKey    = 16
	DefaultPendingRate      = 25
	DefaultPendingBurst     = 2_000
)

const (
	// fewKeys is how many pending keys each source can have, however many keys other sources have.
	fewKeys = 16
	// maxOrigins bounds the sources with a separate entry. Further sources share one entry.
	maxOrigins = 65_536
	// lookedFor is how long a pending key is protected from eviction after a user has displayed the
	// key's fingerprint. At most maxLooked keys are protected.
	lookedFor = 10 * time.Minute
	maxLooked = 1_024
	// largestFor is how long the result of a search for the largest source is reused.
	largestFor = 100 * time.Millisecond
)

// waiter is a key that is pending, or is being written as a pending key.
type waiter struct {
	id       string
	key      [16]byte // digest of the public key
	source   *origin
	element  *fifo.Element // element of the waiter in source.order
	writing  bool
	evicting bool // an eviction of the key is under way
}

// origin is a source of pending keys: an IPv4 address or an IPv6 /64.
type origin struct {
	addr       netip.Addr       // the zero Addr for the entry of unknown sources, see pendings
	order      *fifo.List       // pending keys of the source (*waiter), the oldest first
	keys       map[[16]byte]int // number of pending ids by digest of their key
	bucket     ratelimit.Bucket
	denied     uint64    // number of keys refused or evicted
	lastDenied time.Time // when a key was last refused or evicted
}

// pendings records the source of each pending key, so that a source with too many keys loses its
// own keys and not those of other sources. It is safe for concurrent use.
//
// The key files do not name a source. So pendings contains only the sources of keys that this
// master has stored since its start. Keys of other masters and of earlier runs belong to one
// unknown source, to which the bound of a source does not apply. A sender who uses three masters
// can therefore have three times as many keys.
type pendings struct {
	cfg *Config

	mu         sync.Mutex
	byID       map[string]*waiter
	origins    map[netip.Addr]*origin
	looked     map[string]time.Time // when a user last displayed the key's fingerprint, by id
	largest    *origin              // source with the most keys, as found at largestAt
	largestAt  time.Time
	refused    uint64
	evicted    uint64
	lastSource netip.Addr // source whose key was refused or evicted last
}

func newPendings(cfg *Config) *pendings {
	return &pendings{
		cfg:     cfg,
		byID:    map[string]*waiter{},
		origins: map[netip.Addr]*origin{},
		looked:  map[string]time.Time{},
	}
}

// sourceOf returns the source of an address: the IPv4 address or the IPv6 /64.
func sourceOf(a netip.Addr) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is6() {
		return netip.PrefixFrom(a, 64).Masked().Addr()
	}
	return a
}

// keyID returns the digest by which pendings compares public keys.
func keyID(pem string) [16]byte {
	h := sha256.Sum256([]byte(pem))
	return [16]byte(h[:16])
}

// origin returns the entry of a source. Sources beyond maxOrigins share the entry of the
// unspecified address. The caller holds mu.
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

// beginStore counts a key that is about to be stored. It returns the pending key that the caller
// must evict because a bound is reached, or nil. Unless beginStore returns an error, the caller
// must call endStore afterwards.
func (p *pendings) beginStore(from netip.Addr, id, pem string) (victim *waiter, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID[id] != nil {
		return nil, nil // another call stores a key for the id, or has just stored a key
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
		if err := p.chargeSource(o); err != nil {
			return nil, err
		}
	}

	p.attach(o, w)
	switch {
	case o.addr.IsValid() && o.order.Len() > p.cfg.PendingPerSource:
		victim = p.oldest(o)
	case len(p.byID) > p.cfg.MaxPending:
		victim = p.oldest(p.biggest())
	default:
		return nil, nil
	}

	if victim == nil {
		p.detach(w)
		return nil, p.refuse(o, "%d keys wait", len(p.byID))
	}

	victim.evicting = true
	return victim, nil
}

// refuse counts a refused key of o and returns an error with the reason. The caller holds mu.
func (p *pendings) refuse(o *origin, format string, args ...any) error {
	p.refused++
	o.denied++
	o.lastDenied, p.lastSource = p.cfg.now(), o.addr
	return fmt.Errorf("store a pending key: %w (%s)", ErrPendingFull, fmt.Sprintf(format, args...))
}

// chargeSource counts a new key against the rate limit of its source. It returns an error if the
// limit is exceeded. The caller holds mu.
func (p *pendings) chargeSource(o *origin) error {
	if !o.bucket.Take(p.cfg.now(), p.sourceRate(), 1) {
		return p.refuse(o, "%s sends more than %g new keys a second", o.addr, p.cfg.PendingRate)
	}
	return nil
}

// sourceRate returns the rate limit of new keys of one source.
func (p *pendings) sourceRate() ratelimit.Rate {
	return ratelimit.Rate{Burst: p.cfg.PendingBurst, PerSecond: p.cfg.PendingRate}
}

// chargeRefused counts a rejected or denied key against the rate limit of its source. It returns an
// error if the limit is exceeded.
func (p *pendings) chargeRefused(from netip.Addr) error {
	if !from.IsValid() {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.chargeSource(p.origin(sourceOf(from)))
}

func (p *pendings) attach(o *origin, w *waiter) {
	p.byID[w.id] = w
	w.source, w.element = o, o.order.PushBack(w)
	o.keys[w.key]++
}

func (p *pendings) detach(w *waiter) {
	if p.byID[w.id] != w {
		return
	}
	delete(p.byID, w.id)
	w.source.order.Remove(w.element)
	w.source.keys[w.key]--
	if w.source.keys[w.key] <= 0 {
		delete(w.source.keys, w.key)
	}
}

// oldest returns the oldest evictable key of a source, or nil. The caller holds mu.
func (p *pendings) oldest(o *origin) *waiter {
	if o == nil || o.order.Len() <= fewKeys && o.order.Len() <= p.cfg.PendingPerSource {
		return nil
	}
	now, tried := p.cfg.now(), 0
	for e := o.order.Front(); e != nil && tried < 2*maxLooked; e = e.Next() {
		w := e.Value.(*waiter)
		if at, ok := p.looked[w.id]; !w.writing && !w.evicting && (!ok || now.Sub(at) >= lookedFor) {
			return w
		}
		tried++
	}
	return nil
}

// biggest returns the source with the most keys. It returns the entry of unknown sources only if no
// known source has more than fewKeys keys, since that entry stands for many sources. The caller
// holds mu.
func (p *pendings) biggest() *origin {
	now := p.cfg.now()
	if o := p.largest; o != nil && now.Sub(p.largestAt) < largestFor && o.order.Len() > fewKeys {
		return o
	}

	var largest *origin
	for _, o := range p.origins {
		if o.addr.IsValid() && (largest == nil || o.order.Len() > largest.order.Len()) {
			largest = o
		}
	}

	if unknown := p.origins[netip.Addr{}]; unknown != nil && (largest == nil || largest.order.Len() <= fewKeys) {
		largest = unknown
	}

	p.largest, p.largestAt = largest, now
	return largest
}

// endStore records that the storing of a key that beginStore counted has ended. stored reports
// whether the key was stored.
func (p *pendings) endStore(id string, stored bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.byID[id]; w != nil {
		w.writing = false
		if !stored {
			p.detach(w)
		}
	}
}

// endEviction records that the eviction of a key has ended. ok reports whether the key was removed.
func (p *pendings) endEviction(w *waiter, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.evicting = false
	if !ok {
		return
	}
	p.detach(w)
	p.evicted++
	w.source.denied++
	w.source.lastDenied = p.cfg.now()
	if w.source.addr.IsValid() {
		p.lastSource = w.source.addr
	}
}

// addIndexed counts a pending key that was added to the index by this master or another master.
func (p *pendings) addIndexed(id, pem string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w, key := p.byID[id], keyID(pem)
	if w != nil && w.key == key {
		return
	}
	o, writing := p.origin(netip.Addr{}), false
	if w != nil { // the key of another writer has prevailed
		writing = w.writing
		p.detach(w)
	}
	p.attach(o, &waiter{id: id, key: key, writing: writing})
}

// dropIndexed stops counting a key that is no longer pending.
func (p *pendings) dropIndexed(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := p.byID[id]; w != nil && !w.writing {
		p.detach(w)
	}
}

// noteLook records that a user has displayed a key's fingerprint.
func (p *pendings) noteLook(id string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.byID[id] == nil {
		return
	}

	now := p.cfg.now()
	if len(p.looked) >= maxLooked {
		maps.DeleteFunc(p.looked, func(_ string, at time.Time) bool { return now.Sub(at) >= lookedFor })
	}
	if len(p.looked) < maxLooked {
		p.looked[id] = now
	}
}

// forgetIdle drops sources that have no keys and have recently sent no new keys.
func (p *pendings) forgetIdle() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.cfg.now()
	maps.DeleteFunc(p.origins,
		func(_ netip.Addr, o *origin) bool {
			return o.order.Len() == 0 && o.bucket.Used(now, p.sourceRate()) == 0
		})
	maps.DeleteFunc(p.looked, func(_ string, at time.Time) bool { return now.Sub(at) >= lookedFor })
}

// PendingStats describes the sources of pending keys. Refused and Evicted count keys since the
// start of the process.
type PendingStats struct {
	Sources int    `json:"sources"` // number of known sources
	Refused uint64 `json:"refused"` // number of refused keys
	Evicted uint64 `json:"evicted"` // number of keys evicted in favour of newer keys
	// Worst is the source whose key was last refused or evicted, or "". Keys is the number of
	// pending keys of that source.
	Worst string `json:"worst,omitempty"`
	Keys  int    `json:"worst_keys,omitempty"`
}

// admitPending counts a key that is about to be stored as pending, and applies the bounds. If the
// source has too many keys, admitPending evicts the oldest of them instead of refusing the new key:
// minions sign in again after acceptance_wait_time, so honest minions behind the same address are
// admitted after some time. The caller must call release after it has stored the key, and must not
// hold a stripe lock when it calls admitPending.
func (s *Store) admitPending(from netip.Addr, id, pem string) (release func(), err error) {
	victim, err := s.pending.beginStore(from, id, crypt.NormalizePEM(pem))
	if err != nil {
		return nil, err
	}

	release = func() {
		e, _ := s.Lookup(id)
		s.pending.endStore(id, e.State == Pending)
	}

	if victim != nil {
		err := s.evictPending(victim.id)
		s.pending.endEviction(victim, err == nil)
		if err != nil {
			release()
			return nil, fmt.Errorf("make room for a pending key: %w", err)
		}
	}

	return release, nil
}

// evictPending removes a pending key, and a denied key of the same id. It reads the folders first,
// so that it does not undo decisions of administrators or other masters.
func (s *Store) evictPending(id string) error {
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
	return s.removeKeys(id, Pending, Denied)
}

// Pendings returns statistics of the sources of pending keys.
func (s *Store) Pendings() PendingStats {
	p := s.pending
	p.mu.Lock()
	defer p.mu.Unlock()

	st := PendingStats{Sources: len(p.origins), Refused: p.refused, Evicted: p.evicted}
	if p.origins[netip.Addr{}] != nil {
		st.Sources--
	}

	if p.lastSource.IsValid() {
		st.Worst = p.lastSource.String()
		if p.lastSource.Is6() {
			st.Worst = netip.PrefixFrom(p.lastSource, 64).String()
		}
		if o := p.origins[p.lastSource]; o != nil {
			st.Keys = o.order.Len()
		}
	}

	return st
}
