package notify

import (
	"cmp"
	"context"
	"slices"
	"time"

	"saltern/master/internal/notify/alert"
	"saltern/master/internal/notify/rules"
)

// A subscription does not name its minion. So a minion that is connected may seem absent as long as no
// master knows from which address it listens. While some subscriptions belong to no minion that is known,
// the owner asks the minions that seem absent: one that is connected answers test.ping, and so tells its
// address. An alert needs knowledge:
//
//	all subscriptions have been attributed for as long as it is absent  → alert
//	more minions seem absent than subscriptions are left, and one of
//	them leaves two questions in a row without an answer                → alert, at most for the difference
//	as many subscriptions are left, and three questions got no answer   → alert: they belong to strangers
//	others got all subscriptions from its address: it is asked, too, and two questions got no answer → alert
//	otherwise, or this master has just started, or a peer has connected → wait
const (
	// askBefore is how long before an alert a minion is asked, so that its answer comes in time.
	askBefore = answerWithin + rules.LookEvery
	// enoughUnanswered is how many questions without an answer tell that a minion is gone. One alone may get
	// lost with a master that is restarted.
	enoughUnanswered = 2
	// confirmAfter is the time between questions to a minion that has answered, or if the number of
	// subscriptions does not tell that a minion is gone.
	confirmAfter = settleFor
	// askEvery bounds how often a minion is asked.
	askEvery = time.Hour
	// jumpAfter is the time between two looks from which on the clock counts as set, or the machine as
	// suspended.
	jumpAfter = 4 * rules.LookEvery
)

// absence is the time for which a minion is not known to be connected.
type absence struct {
	since          time.Time // of the last sign of life, or from when on it was not known to be connected
	maybeConnected time.Time // when it last may have been connected, since a subscription was left
	asked          time.Time // last question to it; zero: none
	waits          bool      // the last question may still be answered
	unanswered     int       // questions without an answer since the last sign of life
	unknown        int       // least number of subscriptions that belonged to nobody known since the last question
}

// suspect is an absent minion. told is set if an alert about it was recorded, or no rule is about it.
type suspect struct {
	*absence
	id   string
	told bool
}

// isSettled reports whether this master knows enough to say that a minion is gone: it has run for some time,
// and each other master that is alive tells its subscriptions. A master of Salt, and one without rules, does
// not.
func (w *watch) isSettled(peers []string, now time.Time) bool {
	if now.Sub(w.start) < forgetAfter {
		return false
	}
	peer := w.seen.unheard(peers, now)
	if peer != "" && peer != w.unheard {
		w.log.Warn("as long as another master does not tell which minions are connected to it, no message says that a minion is gone",
			"peer", peer)
	}
	w.unheard = peer
	return peer == ""
}

// gone returns the alerts about minions that are not connected. speaks is set if this master speaks for the
// cluster and is settled: otherwise it returns only those that are recorded already.
func (w *watch) gone(ctx context.Context, accepted []string, v view, speaks bool, now time.Time) (all []alert.Alert) {
	now = now.Round(0) // by the wall clock: skipJump leaves out its jumps
	w.skipJump(now)
	w.followAbsent(accepted, v, now)
	absences := w.rules.Absences(rules.Gone)
	if len(absences) == 0 {
		return nil
	}

	suspects := w.suspects()
	missing := -v.unknown // minions that are gone for certain, and of which no alert was recorded
	found := 0            // those that left enough questions without an answer
	for _, one := range suspects {
		if one.told {
			continue
		}
		missing++
		if one.unanswered >= enoughUnanswered {
			found++
		}
	}

	if speaks && (v.unknown > 0 || len(v.contended) > 0) {
		w.askAbsent(ctx, suspects, absences[0], missing > found, v, now)
	}

	for _, one := range suspects {
		mustBeGone := missing > 0 || one.told
		leftTwo := one.unanswered >= enoughUnanswered
		leftThree := one.unanswered > enoughUnanswered
		silent := leftThree || mustBeGone && leftTwo
		since := one.since
		if !silent && one.maybeConnected.After(since) {
			since = one.maybeConnected
		}

		isGone := speaks && (!v.mayBeConnected(one.id) || silent)
		for _, after := range absences {
			a := alert.Gone(one.id, since, now, after)
			due := now.Sub(since) >= after
			if w.isTold(a.Key) && now.Sub(one.since) >= after || due && isGone {
				all = append(all, a)
			}
		}
		if isGone && !one.told && now.Sub(since) >= absences[0] {
			missing--
		}
	}
	return all
}

func (w *watch) isTold(key string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, told := w.told[key]
	return told
}

// skipJump leaves the time out of all absences that has passed by the clock only.
func (w *watch) skipJump(now time.Time) {
	passed := now.Round(0).Sub(w.lastLook.Round(0))
	known := !w.lastLook.IsZero()
	w.lastLook = now
	if !known || passed >= 0 && passed <= jumpAfter {
		return
	}

	for _, a := range w.absent {
		a.since = a.since.Add(passed)
		a.maybeConnected = a.maybeConnected.Add(passed)
		a.asked = a.asked.Add(passed)
	}
}

// followAbsent updates who is absent, and since when.
func (w *watch) followAbsent(accepted []string, v view, now time.Time) {
	w.mu.Lock()
	returned := w.returned
	w.returned = map[string]time.Time{}
	w.mu.Unlock()

	known := make(map[string]bool, len(accepted))
	for _, id := range accepted {
		known[id] = true
		if v.connected[id] {
			delete(w.absent, id)
			continue
		}

		a := w.absent[id]
		if a == nil {
			a = &absence{since: now}
			w.absent[id] = a
		}
		a.sawLife(v.heard[id], now)
		a.sawLife(returned[id], now)
		a.since = notAfter(a.since, now) // the clock that heard it may be ahead
		a.unknown = min(a.unknown, v.unknown)
		if v.mayBeConnected(id) {
			a.maybeConnected = now
		}
		if a.waits && now.Sub(a.asked) >= answerWithin {
			a.waits = false
			a.unanswered++
		}
	}

	for id := range w.absent {
		if !known[id] {
			delete(w.absent, id)
		}
	}
}

// sawLife records a sign of life.
func (a *absence) sawLife(at, now time.Time) {
	at = notAfter(at, now).Round(0)
	if !at.After(a.since) {
		return
	}
	a.since = at
	a.waits = false
	a.unanswered = 0
}

// suspects returns the minions that are absent, those first that have been for longest.
func (w *watch) suspects() (all []suspect) {
	w.mu.Lock()
	told := map[string]bool{}
	for _, t := range w.told {
		if t.Kind == rules.Gone {
			told[t.Minion] = true
		}
	}
	w.mu.Unlock()

	for id, a := range w.absent {
		all = append(all, suspect{a, id, told[id] || !w.isWatched(id)})
	}
	slices.SortFunc(all, func(a, b suspect) int {
		return cmp.Or(a.since.Compare(b.since), cmp.Compare(a.id, b.id))
	})
	return all
}

// askAbsent sends test.ping to suspects that may be connected and of which an alert is due soon, and, with the first
// question to one that is contended, to its rivals. missing reports whether one of them is gone for certain, and
// not known.
func (w *watch) askAbsent(ctx context.Context, all []suspect, after time.Duration, missing bool, v view, now time.Time) {
	var asked []suspect
	var ids, contended []string
	for _, one := range all {
		uncertain := v.mayBeConnected(one.id) && w.isWatched(one.id)
		soon := now.Sub(one.since) >= after-askBefore
		if uncertain && soon && one.mayAsk(missing && !one.told, v.unknown, now) && len(ids) < maxPinged {
			asked = append(asked, one)
			ids = append(ids, one.id)
			if v.contended[one.id] && one.asked.IsZero() {
				contended = append(contended, one.id)
			}
		}
	}

	// Otherwise who is gone would be found one by one, after all who were heard before.
	rivals := v.rivals(contended)
	ids = append(ids, rivals[:min(len(rivals), maxPinged-len(ids))]...)
	if !w.ping(ctx, ids) {
		return // the next look tries again
	}
	for _, one := range asked {
		one.asked = now
		one.waits = true
		one.unknown = v.unknown
	}
}

// mayAsk reports whether it is time for a question. missing reports whether one of the minions without an
// alert is gone for certain, and this is one of them.
func (a *absence) mayAsk(missing bool, unknown int, now time.Time) bool {
	past := now.Sub(a.asked)
	switch {
	case a.waits:
		return false
	case a.asked.IsZero():
		return true
	case a.unanswered == 0: // it has answered
		return missing && past >= confirmAfter || past >= askEvery
	case a.unanswered <= enoughUnanswered:
		return missing && a.unanswered < enoughUnanswered || past >= confirmAfter
	default: // one more subscription may be this minion's
		return unknown > a.unknown && past >= askEvery
	}
}

// isWatched reports whether a rule is about a minion that is gone.
func (w *watch) isWatched(id string) bool {
	return slices.ContainsFunc(w.rules.Absences(rules.Gone), func(after time.Duration) bool {
		return w.rules.Matches(rules.Subject{Kind: rules.Gone, Minion: id, After: after})
	})
}
