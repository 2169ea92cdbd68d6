package keyuse

import (
	"maps"
	"slices"
	"sync"
	"time"
)

const (
	// maxUses bounds the machines that are remembered for one key. Overflow policy: the machine
	// whose last request is oldest is removed.
	maxUses = 4
	// maxTurns bounds the turns that are remembered. Overflow policy: the oldest is removed.
	maxTurns = 16
	// maxBeats bounds the ended beats that are remembered. Overflow policy: the oldest is removed.
	// A request with a removed beat counts as another machine's.
	maxBeats = 32
	// maxKeys bounds the keys: all nodes of a table. Overflow policy: a further key is not
	// recorded; [Ledger.Keep] makes room.
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
	all  turns // turns of all machines
	held turns // turns of the machines with the node's address

	over []string // ended beats: their machines have drawn the next one; the oldest first

	known Facts // facts of the machine that may act for the node when there are two
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
	// followed reports that it follows a beat that had ended: it was delayed itself, or its machine
	// runs and draws a further one.
	followed bool
}

// turns records each request of a machine that follows a request of another machine: such changes
// show that the two send in turn.
type turns struct {
	speaking string    // turnName of the machine that sent the last request
	since    time.Time // when the first request of that machine arrived
	taken    []turn
}

type turn struct {
	life string
	at   time.Time
}

// noteRequest records a request. life is the turnName of the machine that sent the request; first
// is when that machine's first request arrived. If the machine sends again soon after another
// machine has begun, that is no evidence: requests of a start that has ended may arrive late.
func (t *turns) noteRequest(life string, first, now time.Time) {
	t.taken = slices.DeleteFunc(t.taken, func(taken turn) bool { return now.Sub(taken.at) > recent })
	again := first.Before(now)
	if life == t.speaking || again && now.Sub(t.since) < lateFor {
		return
	}
	t.speaking, t.since = life, first
	if again {
		t.taken = append(t.taken, turn{life, now})
		t.taken = t.taken[max(0, len(t.taken)-maxTurns):]
	}
}

// rename changes the turnName of the machine that sent the last request.
func (t *turns) rename(from, to string) {
	if t.speaking == from {
		t.speaking = to
	}
}

// areTwo reports whether two machines have taken turns lately.
func (t *turns) areTwo(now time.Time) bool {
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

// NewLedger returns a ledger with the facts that an earlier ledger knew, by the hash of the
// certificate. known may be nil.
func NewLedger(known map[string]Facts) *Ledger {
	l := &Ledger{keys: map[string]*key{}}
	for certificate, facts := range known {
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
		// The beat has ended: the request was delayed, or comes from a copy of the machine, which
		// will draw a beat of its own.
		return
	}

	first, until, followed := k.firstHeard(s, now)
	spoken := use{s, source, first, now, until, followed}
	i := slices.IndexFunc(k.uses, func(u use) bool { return u.speaker.turnName() == s.turnName() })
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

	k.all.noteRequest(s.turnName(), spoken.first, now)
	if s.Held {
		k.held.noteRequest(s.turnName(), spoken.first, now)
	}
}

// firstHeard returns when the first request of the asking machine arrived, and until when its beat
// holds. If requests with the previous beat (s.Before) have arrived, that beat ends now. If that
// beat has ended before, the request is from another machine, whose first request has arrived now.
// followed reports that the beat follows an overtaken one: a request that waited during an outage
// may carry the overtaken beat, so the beat after it is no evidence. Only the next beat shows that
// its machine runs.
func (k *key) firstHeard(s Speaker, now time.Time) (first, until time.Time, followed bool) {
	for _, u := range k.uses {
		if u.speaker.turnName() == s.turnName() {
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
	before := Speaker{Life: s.Life, Beat: s.Before}.turnName()
	k.all.rename(before, s.turnName())
	k.held.rename(before, s.turnName())
	i := slices.IndexFunc(k.uses, func(u use) bool { return u.speaker.turnName() == before })
	if i < 0 {
		k.overtake(s.Life, now)
		return now, until, false
	}

	last := k.uses[i]
	k.uses = slices.Delete(k.uses, i, i+1)
	followed = !now.Before(last.until) && !last.followed
	if followed || now.After(last.until.Add(BeatEvery+lateFor)) {
		until = now // its machine must draw a further beat, or must have drawn one by then
	}

	return last.first, until, followed
}

// overtake ends the beats of a start when a new beat follows none of them. Either their machine has
// drawn beats that never arrived, or the new beat is of another machine, which will draw the next
// one.
func (k *key) overtake(life string, now time.Time) {
	for i := range k.uses {
		u := &k.uses[i]
		if u.speaker.Life == life && now.Before(u.until) {
			u.until = now
		}
	}
}

// turnName identifies a machine among those that take turns: its start and its beat.
func (s Speaker) turnName() string { return s.Life + s.Beat }

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

// Report returns the machines that use a key now. ok is false if only the node does.
func (l *Ledger) Report(certificate string, now time.Time) (Report, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.keys[certificate]
	if k == nil {
		return Report{}, false
	}
	two := k.all.areTwo(now)
	runs := recent
	if !two { // each machine asks every few seconds
		runs = quiet
	}
	uses := slices.DeleteFunc(slices.Clone(k.uses), func(u use) bool { return now.Sub(u.last) > runs })
	return judgeUses(certificate, uses, two, k.held.areTwo(now), k.known)
}
