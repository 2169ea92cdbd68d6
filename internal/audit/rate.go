package audit

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"saltern/internal/ratelimit"
)

// Bounds of the tables in which a [Log] keeps the rates of actors.
const (
	// maxSources is how many sources of strangers have separate rate limits. All further sources
	// share one limit.
	maxSources = 4096
	// maxAccounts is how many limited users have separate rate limits. All further users share one
	// limit.
	maxAccounts = 4096
)

// The actions of records that the log makes itself.
const (
	// moreAction is the action of a record that states the number of omitted records.
	moreAction = "audit.more"
	otherKinds = "others"
)

// ofSource returns the limit for records that one source of strangers may cause, ofAll the limit
// for all strangers together.
func ofSource() ratelimit.Rate { return ratelimit.Rate{Burst: 20, PerSecond: 0.1} }
func ofAll() ratelimit.Rate    { return ratelimit.Rate{Burst: 500, PerSecond: 5} }

// accountKey identifies a limited user in one book.
type accountKey struct{ book, who string }

// account is the remaining rate of one limited user in one book, with the records that the limit
// has refused since the last summary.
type account struct {
	taken ratelimit.Bucket
	more  uint64
	kinds map[string]uint64
	last  Record // the last refused record
}

// rates holds the rate limits of one [Log]. The lock of the Log protects them.
type rates struct {
	strangers ratelimit.Bucket
	sources   map[netip.Addr]*ratelimit.Bucket
	accounts  map[accountKey]*account
	leftOut   int // number of accounts with refused records since their last summary
	// sourcesSwept is when idle sources were last removed, accountsSwept when idle accounts were.
	sourcesSwept  time.Time
	accountsSwept time.Time
}

// mayForget reports whether a second has passed since last, the time of the last removal of idle
// entries. If so, it sets last to now.
func mayForget(last *time.Time, now time.Time) bool {
	// A full table is searched for idle entries at most once a second.
	if now.Sub(*last).Abs() < time.Second {
		return false
	}
	*last = now
	return true
}

func newRates() rates {
	return rates{
		sources:  map[netip.Addr]*ratelimit.Bucket{},
		accounts: map[accountKey]*account{},
	}
}

// admitStranger reports whether a stranger may cause one more record.
func (l *rates) admitStranger(from string, now time.Time) bool {
	a, err := netip.ParseAddr(from)
	if err == nil {
		a = ratelimit.Source(a)
	}

	bucket := l.sources[a]
	if bucket == nil {
		l.forgetSources(now)
		if len(l.sources) >= maxSources {
			a = netip.Addr{}
		}

		if bucket = l.sources[a]; bucket == nil {
			bucket = &ratelimit.Bucket{}
			l.sources[a] = bucket
		}
	}

	return l.strangers.Has(now, ofAll(), 1) && bucket.Take(now, ofSource(), 1) && l.strangers.Take(now, ofAll(), 1)
}

// forgetSources removes idle sources when the table is full.
func (l *rates) forgetSources(now time.Time) {
	if len(l.sources) < maxSources || !mayForget(&l.sourcesSwept, now) {
		return
	}
	for a, bucket := range l.sources {
		if bucket.Used(now, ofSource()) < 1 {
			delete(l.sources, a)
		}
	}
}

// admitLimited reports whether the rate limit of a limited user admits one more record on a shelf.
// If not, it counts the record as refused.
func (l *rates) admitLimited(r Record, onShelf shelf, now time.Time) bool {
	key := accountKey{onShelf.name, whoOf(r)}
	acc := l.accounts[key]
	if acc == nil {
		l.forgetAccounts(now)
		if len(l.accounts) >= maxAccounts {
			key.who = ""
		}

		if acc = l.accounts[key]; acc == nil {
			acc = &account{}
			l.accounts[key] = acc
		}
	}

	if acc.taken.Take(now, onShelf.ofUser, 1) {
		return true
	}

	acc.countLeftOut(r)
	if acc.more == 1 {
		l.leftOut++
	}

	return false
}

// whoOf returns the key of the rate limit for a record: a user of an authentication back end, or
// the address of a machine. A machine could choose its name, but not its address.
func whoOf(r Record) string {
	switch r.Proof {
	case Secret, Peer, Minion, Unproven:
		if a, err := netip.ParseAddr(r.From); err == nil {
			return ratelimit.Source(a).String()
		}
		return r.From
	}
	return clipText(r.Eauth, maxName) + " " + clipText(r.User, maxName)
}

// forgetAccounts removes idle users when the table is full.
func (l *rates) forgetAccounts(now time.Time) {
	if len(l.accounts) < maxAccounts || !mayForget(&l.accountsSwept, now) {
		return
	}
	for key, acc := range l.accounts {
		onShelf := shelfNamed(key.book)
		if acc.more == 0 && acc.taken.Used(now, onShelf.ofUser) < 1 {
			delete(l.accounts, key)
		}
	}
}

// countLeftOut counts a refused record, by its kind.
func (a *account) countLeftOut(r Record) {
	function, _, _ := strings.Cut(clipText(r.Function, maxKind), ", ")
	kind := strings.Join(strings.Fields(r.Action+" "+function+" "+string(r.Result)), " ")
	if a.kinds == nil {
		a.kinds = map[string]uint64{}
	}
	if _, known := a.kinds[kind]; !known && len(a.kinds) >= maxKinds-1 {
		kind = otherKinds
	}

	a.kinds[kind]++
	a.more++
	a.last = r
}

// summary is a record that states how many records of a user were not written to a book.
type summary struct {
	book   string
	record Record
}

// summaries returns a summary for each user with omitted records, and resets the counts of those
// users. It returns at most limit summaries.
func (l *rates) summaries(limit int) (out []summary) {
	for key, acc := range l.accounts {
		if acc.more == 0 {
			continue
		}
		if len(out) >= limit {
			break // the remaining counts wait for the next call
		}

		r := Record{
			Actor:  acc.last.Actor,
			Action: moreAction,
			Object: acc.last.User,
			Result: cmp.Or(acc.last.Result, Refused),
			More:   acc.more,
			Kinds:  acc.kinds,
		}

		if key.who == "" {
			r.User, r.Object = "several", "several users"
		}

		r.Detail = r.leftOut()
		out = append(out, summary{key.book, r})
		acc.more = 0
		acc.kinds = nil
		acc.last = Record{}
		l.leftOut--
	}

	return out
}

// leftOut returns the counts of a summary as text for people.
func (r Record) leftOut() string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", r.Kinds[kind], kind))
	}
	return fmt.Sprintf("and %d more of %s, faster than is written down: %s", r.More, r.User, strings.Join(kinds, ", "))
}
