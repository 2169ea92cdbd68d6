package keyuse

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxUses is the largest number of machines remembered for one key. Overflow policy: the
	// machine whose last request is oldest is removed.
	maxUses = 4
	// maxAlternations limits the recorded changes of the sender. Overflow policy: the oldest is removed.
	maxAlternations = 16
	// maxBeats limits the ended beats that are remembered. Overflow policy: the oldest is removed.
	// A request with a removed beat counts as another machine's.
	maxBeats = 32
	// maxKeys limits the recorded keys; there is room for all nodes of a table. Overflow policy: a
	// further key is not recorded; [Ledger.Keep] makes room.
	maxKeys = 128
)

// Ledger records which machines use the keys of nodes. It is safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	keys    map[string]*key // observations by the hash of the node's certificate
	changed bool            // whether known facts have changed since Known was last called
}

// key holds the observations about one key.
type key struct {
	uses []use
	all  alternations // changes of the sender among all machines
	held alternations // changes of the sender among the machines with the node's address

	over []string // beats that have ended because their machine has drawn the next one; the oldest first

	known Facts // facts that decide which of two machines may act for the node
	facts Facts // facts in the newest request from the node's address
	since time.Time
}

// use describes one machine that uses the key, or one start of a machine.
type use struct {
	speaker Speaker
	source  string // address from which the machine asked
	first   time.Time
	last    time.Time
	// until is when the machine's beat ends at the latest. A later request with the same beat was
	// delayed, for example by a failed network, and does not show that its machine runs.
	until time.Time
	// followed reports that the previous beat had ended before this one was first received. Either
	// the request was delayed too, or its machine runs and will draw a further beat.
	followed bool
}

// alternations records how the senders of requests alternate: each request whose sender differs from the
// sender of the request before. Two machines that send alternately both run.
type alternations struct {
	speaking string    // senderName of the machine that sent the last request
	since    time.Time // when the first request of that machine arrived
	taken    []senderChange
}

type senderChange struct {
	life string
	at   time.Time
}

// noteRequest records a request. life is the senderName of its sender, and first is when the
// sender's first request arrived. A request of an earlier sender is ignored for lateFor after a new
// sender's first request: it does not prove that both processes run, because requests of an ended
// process may arrive late.
func (t *alternations) noteRequest(life string, first, now time.Time) {
	t.taken = slices.DeleteFunc(t.taken, func(taken senderChange) bool { return now.Sub(taken.at) > recent })
	again := first.Before(now)
	if life == t.speaking || again && now.Sub(t.since) < lateFor {
		return
	}
	t.speaking, t.since = life, first
	if again {
		t.taken = append(t.taken, senderChange{life, now})
		t.taken = t.taken[max(0, len(t.taken)-maxAlternations):]
	}
}

// rename changes the senderName of the machine that sent the last request.
func (t *alternations) rename(from, to string) {
	if t.speaking == from {
		t.speaking = to
	}
}

// areTwo reports whether two machines have sent alternately in the recent past.
func (t *alternations) areTwo(now time.Time) bool {
	first := ""
	for _, taken := range t.taken {
		if now.Sub(taken.at) > recent {
			continue
		}
		if first == "" {
			first = taken.life
		}
		if taken.life != first {
			return true
		}
	}
	return false
}

// NewLedger returns a ledger with knownFacts, the facts of an earlier ledger by the hash of the
// certificate. knownFacts may be nil.
func NewLedger(knownFacts map[string]Facts) *Ledger {
	l := &Ledger{keys: map[string]*key{}}
	for certificate, facts := range knownFacts {
		if len(l.keys) < maxKeys {
			l.keys[certificate] = &key{known: facts}
		}
	}
	return l
}

// Note records a request that a machine made with a key. A machine with an older version does not
// send whether it has the node's address: for such a machine s.Held must report whether the request
// came from that address.
func (l *Ledger) Note(certificate string, s Speaker, source string, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[certificate]
	if k == nil {
		if len(l.keys) >= maxKeys {
			return
		}
		k = &key{}
		l.keys[certificate] = k
	}

	k.noteSpeaker(s, source, now)
	if k.learnFacts(s, now) {
		l.changed = true
	}
}

func (k *key) noteSpeaker(s Speaker, source string, now time.Time) {
	k.uses = slices.DeleteFunc(k.uses, func(u use) bool { return now.Sub(u.last) > recent })
	if s.Beat != "" && slices.Contains(k.over, s.Beat) {
		// The beat has ended. The request was delayed, or it comes from a copy of the machine,
		// which will draw its own next beat.
		return
	}

	first, until, followed := k.firstHeard(s, now)
	spoken := use{s, source, first, now, until, followed}
	i := slices.IndexFunc(k.uses, func(u use) bool { return u.speaker.senderName() == s.senderName() })
	if i >= 0 {
		k.uses[i] = spoken
	} else {
		k.uses = append(k.uses, spoken)
		slices.SortStableFunc(k.uses, func(a, b use) int { return b.last.Compare(a.last) })
		k.uses = k.uses[:min(len(k.uses), maxUses)]
	}

	if s.Beat != "" && !now.Before(until) {
		return
	}

	k.all.noteRequest(s.senderName(), spoken.first, now)
	if s.Held {
		k.held.noteRequest(s.senderName(), spoken.first, now)
	}
}

// firstHeard returns when the first request of the asking machine arrived, and until when its beat
// is valid. If requests with the previous beat (s.Before) have arrived, that beat ends now. If that
// beat has ended before, another machine sent this request, and first is now. followed reports that
// the previous beat had expired: a request that waited during an outage may carry an expired beat,
// so the beat after it does not prove that the machine runs. Only the machine's next beat does.
func (k *key) firstHeard(s Speaker, now time.Time) (first, until time.Time, followed bool) {
	for _, u := range k.uses {
		if u.speaker.senderName() == s.senderName() {
			return u.first, u.until, u.followed
		}
	}

	until = now.Add(BeatEvery + lateFor)
	if s.Before == "" || slices.Contains(k.over, s.Before) {
		k.overtake(s.Life, now)
		return now, until, false
	}

	k.over = append(k.over, s.Before)
	k.over = k.over[max(0, len(k.over)-maxBeats):]
	before := Speaker{Life: s.Life, Beat: s.Before}.senderName()
	k.all.rename(before, s.senderName())
	k.held.rename(before, s.senderName())
	i := slices.IndexFunc(k.uses, func(u use) bool { return u.speaker.senderName() == before })
	if i < 0 {
		k.overtake(s.Life, now)
		return now, until, false
	}

	last := k.uses[i]
	k.uses = slices.Delete(k.uses, i, i+1)
	followed = !now.Before(last.until) && !last.followed
	if followed || now.After(last.until.Add(BeatEvery+lateFor)) {
		until = now // this beat does not prove that the machine runs; its next beat will
	}

	return last.first, until, followed
}

// overtake ends the beats of a start when a new beat follows none of them. Either the machine has
// drawn beats that never arrived, or another machine has drawn the new beat. In both cases the
// running machine will draw a further one.
func (k *key) overtake(life string, now time.Time) {
	for i := range k.uses {
		u := &k.uses[i]
		if u.speaker.Life == life && now.Before(u.until) {
			u.until = now
		}
	}
}

// senderName identifies the sender of a request by its start and its beat.
func (s Speaker) senderName() string { return s.Life + s.Beat }

// learnFacts records for how long one machine alone has used the key at the node's address. It
// reports whether the facts of that machine have become the known facts of the node.
func (k *key) learnFacts(s Speaker, now time.Time) bool {
	if !s.Held || len(s.Facts) == 0 {
		return false
	}

	if !maps.Equal(k.facts, s.Facts) {
		k.facts, k.since = s.Facts, now
	}

	if k.held.areTwo(now) {
		k.since = now
	}

	after := learnAfter
	if len(k.known) > 0 {
		after = adoptAfter
	}

	if maps.Equal(k.known, s.Facts) || now.Sub(k.since) < after {
		return false
	}

	k.known = s.Facts
	return true
}

// Known returns the hardware facts by which nodes are recognized, and reports whether they have
// changed since the last call.
func (l *Ledger) Known() (known map[string]Facts, changed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	known = map[string]Facts{}
	for certificate, k := range l.keys {
		if len(k.known) > 0 {
			known[certificate] = maps.Clone(k.known)
		}
	}
	changed = l.changed
	l.changed = false
	return known, changed
}

// Keep forgets the keys that are not among certificates.
func (l *Ledger) Keep(certificates []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	maps.DeleteFunc(l.keys,
		func(certificate string, _ *key) bool { return !slices.Contains(certificates, certificate) })
}

// Report returns the machines that use a key now. It returns false if only the node's own machine
// uses the key.
func (l *Ledger) Report(certificate string, now time.Time) (Report, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[certificate]
	if k == nil {
		return Report{}, false
	}
	two := k.all.areTwo(now)
	runs := recent
	if !two { // each machine sends requests every few seconds
		runs = quiet
	}
	uses := slices.DeleteFunc(slices.Clone(k.uses), func(u use) bool { return now.Sub(u.last) > runs })
	return judgeUses(certificate, uses, two, k.held.areTwo(now), k.known)
}
