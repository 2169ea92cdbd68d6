package eauth

import (
	"container/list"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"saltern/internal/ratelimit"
	"saltern/master/event"
	"saltern/master/internal/username"
	"saltern/master/value"
)

// Lockout refuses all log-ins of a user from an address after too many wrong passwords of that user
// from that address. The lock does not apply to the same user at other addresses, so that nobody
// can lock out an administrator from elsewhere. Nor does it apply to other users at that address.
// The methods may be called concurrently.
type Lockout struct {
	most int           // number of wrong passwords that cause a lock; 0: no locks
	lock time.Duration // duration of a lock, and time after which a wrong password is no longer counted
	tell func(Locked)  // called for each new lock; may be nil

	mu      sync.Mutex
	entries map[culprit]*list.Element
	order   *list.List // list of *attempts, the latest in front

	stats lockoutCounters
}

// maxCulprits bounds the number of pairs of user and address. Overflow policy: the oldest unlocked
// pair among the 64 oldest pairs is dropped; if all of these are locked, the oldest pair is
// dropped.
const maxCulprits = 65536

// maxUser bounds the length of the user name in the event of a lock, in bytes.
const maxUser = 256

// Defaults of saltern_login_failures and saltern_login_lock.
const (
	DefaultFailures = 10
	DefaultLock     = 5 * time.Minute
)

// culprit is a user of an external system at an address.
type culprit struct {
	system, user string
	from         netip.Addr
}

type attempts struct {
	who    culprit
	wrong  int
	last   time.Time
	locked time.Time // end of the lock; zero: not locked
}

// Locked describes a lock: which user is locked out, at which address, and until when.
type Locked struct {
	System, User string
	From         netip.Addr // an IPv4 address, or the network of an IPv6 address
	Wrong        int
	Until        time.Time
}

// LockTag is the tag of the event that reports a lock, to users and to the other masters of the
// cluster.
const LockTag = event.TagLoginLocked

// Map returns the data of the event LockTag.
func (k Locked) Map() *value.Map {
	return value.NewMap("eauth", k.System, "user", k.User, "address", k.From.String(), "wrong",
		int64(k.Wrong), "until", k.Until.Unix())
}

// lockedOf reads the data of the event LockTag. An unreadable address becomes the invalid address.
func lockedOf(m *value.Map) Locked {
	k := Locked{System: m.Str("eauth"), User: m.Str("user")}
	k.From, _ = netip.ParseAddr(m.Str("address"))
	if t, ok := m.Int("until"); ok {
		k.Until = time.Unix(t, 0)
	}
	return k
}

type lockoutCounters struct{ locks, refused, evicted atomic.Uint64 }

// LockoutStats are counters since the start.
type LockoutStats struct {
	Locks   uint64 `json:"locks"`   // users locked out at an address
	Refused uint64 `json:"refused"` // log-ins refused because of a lock
	Evicted uint64 `json:"evicted"` // pairs of user and address dropped because the table was full
	Locked  int    `json:"locked"`  // pairs locked now
}

// NewLockout returns a Lockout. maxWrong is the number of wrong passwords that cause a lock; lock
// is the duration of the lock. For both, 0 means the default. A negative maxWrong disables the
// Lockout. The Lockout calls report for each new lock, without holding a mutex.
func NewLockout(maxWrong int, lock time.Duration, report func(Locked)) *Lockout {
	if maxWrong == 0 {
		maxWrong = DefaultFailures
	}
	if lock <= 0 {
		lock = DefaultLock
	}
	return &Lockout{
		most:    max(maxWrong, 0),
		lock:    lock,
		tell:    report,
		entries: map[culprit]*list.Element{},
		order:   list.New(),
	}
}

// culpritOf returns the pair of a user and an address. If a directory treats two spellings as the
// same user, the two spellings result in the same pair.
func culpritOf(system, user string, from netip.Addr) culprit {
	return culprit{system, username.Fold(user), ratelimit.Source(from)}
}

// Refuses reports whether a log-in must be refused without a check of the password. Log-ins without
// a valid address are neither refused nor counted.
func (l *Lockout) Refuses(system, user string, from netip.Addr, now time.Time) bool {
	if l == nil || l.most == 0 || !from.IsValid() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.entries[culpritOf(system, user, from)]
	if e == nil || !now.Before(e.Value.(*attempts).locked) {
		return false
	}
	l.stats.refused.Add(1)
	return true
}

// Wrong counts a wrong password. If there are too many, it locks the pair of user and address.
func (l *Lockout) Wrong(system, user string, from netip.Addr, now time.Time) {
	if l == nil || l.most == 0 || !from.IsValid() {
		return
	}
	if locked, ok := l.countWrong(culpritOf(system, user, from), now); ok && l.tell != nil {
		locked.User = strings.ToValidUTF8(user[:min(len(user), maxUser)], "")
		l.tell(locked)
	}
}

func (l *Lockout) countWrong(c culprit, now time.Time) (Locked, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.entryFor(c)
	if now.Sub(a.last) >= l.lock {
		a.wrong, a.locked = 0, time.Time{}
	}
	a.wrong, a.last = a.wrong+1, now
	if a.wrong < l.most || now.Before(a.locked) {
		return Locked{}, false
	}
	a.locked = now.Add(l.lock)
	l.stats.locks.Add(1)
	return Locked{c.system, c.user, c.from, a.wrong, a.locked}, true
}

// Right drops the count of wrong passwords of a user at an address.
func (l *Lockout) Right(system, user string, from netip.Addr) {
	if l == nil || l.most == 0 || !from.IsValid() {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := culpritOf(system, user, from); l.entries[c] != nil {
		l.order.Remove(l.entries[c])
		delete(l.entries, c)
	}
}

// Adopt applies a lock of another master of the cluster. event is the data of the event LockTag.
// The lock lasts no longer than a lock of this master.
func (l *Lockout) Adopt(event *value.Map, now time.Time) {
	k := lockedOf(event)
	if l == nil || l.most == 0 || !k.From.IsValid() || !now.Before(k.Until) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	a := l.entryFor(culpritOf(k.System, k.User, k.From))
	a.wrong, a.last = max(a.wrong, l.most), now
	if until := now.Add(l.lock); k.Until.After(until) {
		k.Until = until
	}
	a.locked = k.Until
}

// entryFor returns the entry of a pair, and creates the entry if there is none. The caller holds
// mu.
func (l *Lockout) entryFor(c culprit) *attempts {
	if e := l.entries[c]; e != nil {
		l.order.MoveToFront(e)
		return e.Value.(*attempts)
	}
	if len(l.entries) >= maxCulprits {
		l.evictOne()
	}
	a := &attempts{who: c}
	l.entries[c] = l.order.PushFront(a)
	return a
}

// evictOne drops one pair of user and address from a full table. The caller holds mu.
func (l *Lockout) evictOne() {
	gone := l.order.Back()
	for e, n := gone, 0; e != nil && n < 64; e, n = e.Prev(), n+1 {
		if e.Value.(*attempts).locked.IsZero() {
			gone = e
			break
		}
	}
	l.order.Remove(gone)
	delete(l.entries, gone.Value.(*attempts).who)
	l.stats.evicted.Add(1)
}

// Stats returns the counters.
func (l *Lockout) Stats(now time.Time) LockoutStats {
	s := LockoutStats{Locks: l.stats.locks.Load(), Refused: l.stats.refused.Load(), Evicted: l.stats.evicted.Load()}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range l.entries {
		if now.Before(e.Value.(*attempts).locked) {
			s.Locked++
		}
	}
	return s
}
