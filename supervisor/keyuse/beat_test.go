package keyuse

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// running is a machine that draws beats.
type running struct {
	name    string
	speaker Speaker
	drawn   time.Time
}

func newRunning(name string, at time.Time) *running {
	return &running{name, Speaker{Life: "L", Beat: name + "0", Held: true, Facts: ownFacts()}, at}
}

// copied returns a machine that goes on with the memory of another one.
func (r *running) copied(name string) *running {
	return &running{name, r.speaker, r.drawn}
}

func (r *running) says(at time.Time) Speaker {
	if at.Sub(r.drawn) >= BeatEvery {
		r.speaker.Before = r.speaker.Beat
		r.speaker.Beat = fmt.Sprint(r.name, at.Unix())
		r.drawn = at
	}
	return r.speaker
}

// TestCopyOfRunningMemory: a machine that goes on with the memory of a node that runs, at its address and on
// its hardware, has the same start and the same facts; within half a minute both are told apart, and neither
// may act, until one of them is off (F5).
func TestCopyOfRunningMemory(t *testing.T) {
	for seed := range uint64(200) {
		chance := rand.New(rand.NewPCG(seed, 1))
		began := time.Unix(1e9, 0)
		l := NewLedger(nil)
		node := newRunning("a", began)
		two := func(at time.Time) bool {
			r, strange := l.Report(certificate, at)
			if strange != r.Two || strange && (r.Decided() || len(r.Machines) != 2) {
				t.Fatalf("seed %d: %+v", seed, r)
			}
			return r.Two
		}

		at := began
		forked := began.Add(time.Duration(60+chance.IntN(60)) * time.Second)
		var clone *running
		for at.Before(forked) {
			at = at.Add(2 * time.Second)
			l.Note(certificate, node.says(at), nodeAddress, at)
			if at.Sub(began) > 30*time.Second && clone == nil { // the snapshot is taken a while before it is used
				clone = node.copied("b")
			}

			if two(at) {
				t.Fatalf("seed %d: two before there are", seed)
			}
		}

		found := time.Time{}
		for i := range 30 {
			at = at.Add(time.Second)
			who := node
			if i%2 == 0 {
				who = clone
			}

			l.Note(certificate, who.says(at), nodeAddress, at)
			if two(at) && found.IsZero() {
				found = at
			}
		}

		if found.IsZero() || !two(at) {
			t.Fatalf("seed %d: not noticed, or not for long", seed)
		}

		last := []*running{node, clone}[chance.IntN(2)]
		for range 40 {
			at = at.Add(2 * time.Second)
			l.Note(certificate, last.says(at), nodeAddress, at)
		}

		if two(at) {
			t.Fatalf("seed %d: one is off, and there are still two", seed)
		}
	}
}

// TestBeatsOfOneMachine: requests of one machine that are lost, late or swapped make no second one of it, nor
// does its memory that is put back.
func TestBeatsOfOneMachine(t *testing.T) {
	type request struct {
		speaker Speaker
		comes   time.Time
	}

	for seed := range uint64(300) {
		chance := rand.New(rand.NewPCG(seed, 1))
		at := time.Unix(1e9, 0)
		l := NewLedger(nil)
		node := newRunning("a", at)
		var under []request
		back := node.copied("c")
		for i := range 600 {
			at = at.Add(time.Second)
			if i%150 == 100 {
				back = node.copied(fmt.Sprint("c", i))
			}

			if i%150 == 149 { // well apart: two of them in a minute are two machines
				under = nil
				node = back
			}

			delay := chance.IntN(3)
			if chance.IntN(5) == 0 {
				delay = chance.IntN(40)
			}

			under = append(under, request{node.says(at), at.Add(time.Duration(delay) * time.Second)})
			slices.SortStableFunc(under, func(a, b request) int { return a.comes.Compare(b.comes) })
			for len(under) > 0 && !under[0].comes.After(at) {
				l.Note(certificate, under[0].speaker, nodeAddress, at)
				if r, strange := l.Report(certificate, at); strange {
					t.Fatalf("seed %d, second %d: %+v", seed, i, r)
				}
				under = under[1:]
			}
		}
	}
}

// TestRequestThatOutlastsAnOutage: what a node sent when its network failed comes when the network is back, after
// requests of now: TCP sends it again at ever longer intervals, also when the program has given up. That is
// no second machine.
func TestRequestThatOutlastsAnOutage(t *testing.T) {
	for seed := range uint64(500) {
		chance := rand.New(rand.NewPCG(seed, 1))
		at := time.Unix(1e9, 0)
		l := NewLedger(nil)
		node := newRunning("a", at)
		hears := func(s Speaker) {
			t.Helper()
			l.Note(certificate, s, nodeAddress, at)
			if r, strange := l.Report(certificate, at); strange {
				t.Fatalf("seed %d, %s: %+v", seed, at.UTC().Format(time.TimeOnly), r)
			}
		}

		for range 15 + chance.IntN(10) {
			at = at.Add(2 * time.Second)
			hears(node.says(at))
		}

		sent := node.says(at.Add(2 * time.Second))
		for range 10 + chance.IntN(45) {
			at = at.Add(time.Second)
			node.says(at) // in vain
		}

		late := 1 + chance.IntN(20)
		for i := range 60 {
			at = at.Add(2 * time.Second)
			hears(node.says(at))
			if i == late {
				hears(sent)
			}
		}
	}
}

// TestRequestsThatOutlastAnOutage: as above, of several connections, which have requests of the seconds in which the
// network fails, with a beat that was drawn then too. TCP sends each again at twice the interval of before.
func TestRequestsThatOutlastAnOutage(t *testing.T) {
	type request struct {
		speaker Speaker
		comes   time.Time
	}

	for seed := range uint64(600) {
		chance := rand.New(rand.NewPCG(seed, 1))
		at := time.Unix(1e9, 0)
		l := NewLedger(nil)
		node := newRunning("a", at)
		var under []request
		for range 1 + chance.IntN(3) { // outages
			fails := at.Add(time.Duration(30+chance.IntN(60)) * time.Second)
			back := fails.Add(time.Duration(2+chance.IntN(90)) * time.Second)
			stuck := 1 + chance.IntN(4) // connections that were open
			for ; at.Before(back.Add(20 * time.Second)); at = at.Add(500 * time.Millisecond) {
				asks := chance.IntN(3) == 0
				switch {
				case asks && (at.Before(fails) || !at.Before(back)):
					under = append(under, request{node.says(at), at.Add(time.Duration(chance.IntN(800)) * time.Millisecond)})
				case asks && stuck > 0 && at.Sub(fails) < 6*time.Second:
					stuck--
					comes := at
					for wait := 200 * time.Millisecond; comes.Before(back); wait *= 2 {
						comes = comes.Add(wait)
					}
					under = append(under, request{node.says(at), comes})
				case asks:
					node.says(at) // in vain
				}

				slices.SortStableFunc(under, func(a, b request) int { return a.comes.Compare(b.comes) })
				for len(under) > 0 && !under[0].comes.After(at) {
					l.Note(certificate, under[0].speaker, nodeAddress, at)
					if r, strange := l.Report(certificate, at); strange {
						t.Fatalf("seed %d, %s: %+v", seed, at.UTC().Format(time.TimeOnly), r)
					}
					under = under[1:]
				}
			}
		}
	}
}

// TestCopyAfterAStandstill: a machine that stood still, so that its next beat came late, and a copy of its memory are
// told apart as others are.
func TestCopyAfterAStandstill(t *testing.T) {
	for still := range 90 {
		at := time.Unix(1e9, 0)
		l := NewLedger(nil)
		node := newRunning("a", at)
		for range 20 {
			at = at.Add(2 * time.Second)
			l.Note(certificate, node.says(at), nodeAddress, at)
		}

		at = at.Add(time.Duration(still) * time.Second)
		for range 20 {
			at = at.Add(2 * time.Second)
			l.Note(certificate, node.says(at), nodeAddress, at)
		}

		machines := []*running{node, node.copied("b")}
		for i := range 40 {
			at = at.Add(time.Second)
			l.Note(certificate, machines[i%2].says(at), nodeAddress, at)
		}

		if r, _ := l.Report(certificate, at); !r.Two {
			t.Errorf("after %d s: not noticed", still)
		}
	}
}

// TestSpeakerOfBeats: beats come back out of the header, within its bound, and none but ids.
func TestSpeakerOfBeats(t *testing.T) {
	said := Speaker{
		Life:   "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
		Beat:   "0123456789abcdef",
		Before: "fedcba9876543210",
		Held:   true,
		Facts:  ownFacts(),
	}

	text := said.String()
	read, err := ParseSpeaker(text)
	if err != nil || read.Beat != said.Beat || read.Before != said.Before || len(text) > MaxSpeaker/2 {
		t.Errorf("%d bytes, %+v, %v", len(text), read, err)
	}

	for _, bad := range []string{"life=a&beat=b%0a", "life=a&beat=b&before=%20",
		"life=a&before=" + said.Life + said.Life} {
		if _, err := ParseSpeaker(bad); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}
