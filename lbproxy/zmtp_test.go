package lbproxy

import (
	"bytes"
	"encoding/hex"
	"math/rand/v2"
	"testing"
)

// greeting is what libzmq 4.3 sends, NULL mechanism.
func greeting() []byte {
	g := make([]byte, greetingLen)
	g[0] = 0xff
	g[8] = 1
	g[9] = 0x7f
	g[10] = 3
	g[11] = 1
	copy(g[12:], "NULL")
	return g
}

// stream is a publisher's side: greeting, READY, PING, a message of two frames
// and a long one.
func stream() []byte {
	b := appendFrame(greeting(), flagCommand, appendReady(nil, "PUB"))
	b = appendFrame(b, flagCommand, []byte("\x04PING\x00\x00"))
	b = appendFrame(b, flagMore, []byte("topic"))
	b = appendFrame(b, 0, bytes.Repeat([]byte{7}, 100))
	return appendFrame(b, 0, bytes.Repeat([]byte{9}, 70000))
}

func TestTrackerAnySplit(t *testing.T) {
	all := stream()
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		var tr tracker
		for b := all; len(b) > 0; {
			n := min(len(b), 1+rng.IntN(1+rng.IntN(3000)))
			tr.feed(b[:n])
			b = b[n:]
		}
		if !tr.betweenMessages() || !tr.followsZMTP() || tr.messages != 2 {
			t.Fatalf("seed %d: %+v", seed, tr)
		}
	}
}

// TestTrackerBoundaries feeds byte by byte: a cut is allowed only behind
// whole messages and commands.
func TestTrackerBoundaries(t *testing.T) {
	all := stream()
	var tr tracker
	var at []int
	for i := range all {
		tr.feed(all[i : i+1])
		if tr.betweenMessages() {
			at = append(at, i+1)
		}
	}

	ready := greetingLen + 2 + len(appendReady(nil, "PUB"))
	ping := ready + 2 + 7
	want := []int{greetingLen, ready, ping, ping + 7 + 102, len(all)}
	if len(at) != len(want) {
		t.Fatalf("boundaries %v, want %v", at, want)
	}

	for i := range at {
		if at[i] != want[i] {
			t.Fatalf("boundaries %v, want %v", at, want)
		}
	}
}

func TestTrackerLost(t *testing.T) {
	for _, s := range []string{"00", "fe", "ff000000000000000100", "ff00000000000000017f01",
		hex.EncodeToString(greeting()) + "08", hex.EncodeToString(greeting()) + "02ffffffffffffffff"} {
		b, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		var tr tracker
		tr.feed(b)
		tr.feed(stream())
		if tr.followsZMTP() || tr.betweenMessages() || tr.unseenBytes() == 0 {
			t.Errorf("%s: %+v", s, tr)
		}
	}
}

// FuzzTracker checks that splitting a stream never changes the outcome and
// that bytes passed unseen count like bytes shown.
func FuzzTracker(f *testing.F) {
	f.Add(stream(), uint16(3))
	f.Add(stream()[:70], uint16(64))
	f.Add([]byte{0xff}, uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, cut uint16) {
		var a, c, d tracker
		a.feed(b)
		k := min(int(cut), len(b))
		c.feed(b[:k])
		c.feed(b[k:])

		for r := b; len(r) > 0; {
			if n := min(d.unseenBytes(), uint64(len(r))); n > 0 && d.state == trackBody {
				d.passBody(n)
				r = r[n:]
				continue
			}
			d.feed(r[:1])
			r = r[1:]
		}

		for _, tr := range []*tracker{&a, &c, &d} { // evidence may be missed in pieces, boundaries may not
			tr.marks.set(markSeal|markFresh, false)
		}

		if a != c || a != d {
			t.Fatalf("whole %+v, split at %d %+v, unseen %+v", a, k, c, d)
		}
	})
}
