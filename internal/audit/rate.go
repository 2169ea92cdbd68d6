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

// Bounds of what a [Log] remembers of actors with a rate.
const (
	// maxSources of strangers have a rate of their own. Further ones share one.
	maxSources = 4096
	// maxAccounts of limited users have a rate of their own. Further ones share one.
	maxAccounts = 4096
)

// The actions of records that the log makes itself.
const (
	// moreAction is the action of a record that counts what was left out.
	moreAction = "audit.more"
	otherKinds = "others"
)

// What strangers can have written down: of a source, and all together.
func ofSource() ratelimit.Rate { return ratelimit.Rate{Burst: 20, PerSecond: 0.1} }
func ofAll() ratelimit.Rate    { return ratelimit.Rate{Burst: 500, PerSecond: 5} }

// accountKey names a limited user in one book.
type accountKey struct{ book, who string }

// account is the remaining rate of one limited user in one book, with the records that were left
// out since the last summary.
type account struct {
	taken ratelimit.Bucket
	more  uint64
	kinds map[string]uint64
	last  Record // the last record that was left out
}

// rates are the rates of one [Log]. The lock of the Log protects them.
type rates struct {
	strangers ratelimit.Bucket
	sources   map[netip.Addr]*ratelimit.Bucket
	accounts  map[accountKey]*account
	leftOut   int // accounts with more than nothing
	// When sources, and accounts, were last looked through for quiet ones.
	sourcesSwept  time.Time
	accountsSwept time.Time
}

// mayForget reports whether it is time to drop quiet ones again.
func mayForget(last *time.Time, now time.Time) bool {
	// This bounds the work that very many sources and users make.
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

// forgetSources drops sources that have been quiet, when there are many.
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

// admitLimited reports whether a limited user may cause one more record in a book. If not,
// the record is counted.
func (l *rates) admitLimited(r Record, of shelf, now time.Time) bool {
	key := accountKey{of.name, whoOf(r)}
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

	if acc.taken.Take(now, of.ofUser, 1) {
		return true
	}

	acc.countLeftOut(r)
	if acc.more == 1 {
		l.leftOut++
	}

	return false
}

// whoOf returns the owner of the rate: a user of a back end, or the address of a machine, because
// a machine chooses its own name.
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

// forgetAccounts drops quiet users when there are many.
func (l *rates) forgetAccounts(now time.Time) {
	if len(l.accounts) < maxAccounts || !mayForget(&l.accountsSwept, now) {
		return
	}
	for key, acc := range l.accounts {
		of := shelfNamed(key.book)
		if acc.more == 0 && acc.taken.Used(now, of.ofUser) < 1 {
			delete(l.accounts, key)
		}
	}
}

// countLeftOut adds a record to those that were left out.
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

// summary is a record that counts what was left out of a book.
type summary struct {
	book   string
	record Record
}

// summaries returns a record for each user with left-out records, most at most, and resets the
// counts of those.
func (l *rates) summaries(most int) (out []summary) {
	for key, acc := range l.accounts {
		if acc.more == 0 {
			continue
		}
		if len(out) >= most {
			break // the counts are kept for the next time
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

// leftOut describes the counts of a record for people.
func (r Record) leftOut() string {
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", r.Kinds[kind], kind))
	}
	return fmt.Sprintf("and %d more of %s, faster than is written down: %s", r.More, r.User, strings.Join(kinds, ", "))
}
