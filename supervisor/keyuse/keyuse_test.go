package keyuse

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

const (
	certificate = "1111111111111111111111111111111111111111111111111111111111111111"
	nodeAddress = "10.112.39.3"
	copyAddress = "10.112.39.33"
)

// host is a machine with a copy of the node's disk.
type host struct {
	life   string // "": of a version before
	source string
	held   bool
	facts  Facts
}

func (h host) asks(l *Ledger, at time.Time) (may bool) {
	l.Note(certificate, Speaker{Life: h.life, Held: h.held, Facts: h.facts}, h.source, at)
	r, strange := l.Report(certificate, at)
	m, _ := r.Of(h.life, h.held)
	return !strange || m.May
}

func facts(words ...string) Facts {
	f := Facts{}
	for _, w := range words {
		kind, fact, _ := strings.Cut(w, "=")
		f[Kind(kind)] = Digest(certificate, Kind(kind), fact)
	}
	return f
}

// hardware of the node, and of a clone of its virtual machine.
func ownFacts() Facts   { return facts("machine=m", "board=b", "disk=d", "cards=c") }
func cloneFacts() Facts { return facts("machine=m", "board=b2", "cards=c2") }

// TestCompare: of several facts none decides alone.
func TestCompare(t *testing.T) {
	for _, c := range []struct {
		what string
		f    Facts
		want Likeness
	}{
		{"the same machine", ownFacts(), Same},
		{"another network card", facts("machine=m", "board=b", "disk=d", "cards=c9"), Same},
		{"another UUID of the firmware", facts("machine=m", "board=b9", "disk=d", "cards=c"), Same},
		{"another disk", facts("machine=m", "board=b", "disk=d9", "cards=c"), Same},
		{"another machine-id", facts("machine=m9", "board=b", "disk=d", "cards=c"), Same},
		{"a clone", cloneFacts(), Other},
		{"a clone with a disk that says its serial number",
			facts("machine=m", "board=b2", "disk=d2", "cards=c2"), Other},
		{"a clone of a template", facts("machine=m2", "board=b2", "disk=d2", "cards=c2"), Other},
		{"new board with its card", facts("machine=m", "board=b9", "disk=d", "cards=c9"), Unknown},
		{"nothing that can be compared", facts(), Unknown},
	} {
		t.Run(c.what, func(t *testing.T) {
			if got := c.f.Compare(ownFacts()); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
		})
	}
}

// TestCloneElsewhere: a copy without the node's address may do nothing from its first
// request on, with the original beside it or off; the original may at all times.
func TestCloneElsewhere(t *testing.T) {
	for _, same := range []bool{true, false} {
		for _, original := range []string{"beside", "off", "off, then back"} {
			t.Run(fmt.Sprint(same, original), func(t *testing.T) {
				l := NewLedger(map[string]Facts{certificate: ownFacts()})
				node := host{"N", nodeAddress, true, ownFacts()}
				clone := host{"C", copyAddress, false, cloneFacts()}
				if same {
					clone.facts = ownFacts()
				}

				at := time.Unix(1e9, 0)
				for i := range 100 {
					at = at.Add(2 * time.Second)
					runs := original == "beside" || original == "off, then back" && i > 50
					if runs && !node.asks(l, at) {
						t.Fatal("the original was refused")
					}
					if clone.asks(l, at.Add(time.Millisecond)) {
						t.Fatal("the copy was not refused")
					}
				}

				r, _ := l.Report(certificate, at)
				want := "two machines use the key of n3: 10.112.39.3 and 10.112.39.33"
				if original == "off" {
					want = "a machine at 10.112.39.33 uses the key of n3, which has the address 10.112.39.3"
				}

				if original == "off" && same {
					want += "; its hardware is that of n3, which may have got another address"
				}

				if text := r.Text("n3", nodeAddress); text != want {
					t.Errorf("%q, want %q", text, want)
				}

				if _, strange := l.Report(certificate, at.Add(recent+time.Second)); strange {
					t.Error("it is told after both are gone")
				}
			})
		}
	}
}

// TestTwoAtOneAddress: both machines have the node's address. The one whose hardware is not
// the node's may do nothing; when that cannot be told neither may. It is noticed within
// what a node waits before it leaves.
func TestTwoAtOneAddress(t *testing.T) {
	for _, c := range []struct {
		what              string
		known, node, copy Facts
		nodeMay           bool
	}{
		{"a clone", ownFacts(), ownFacts(), cloneFacts(), true},
		{"a clone, and a node with another card", ownFacts(),
			facts("machine=m", "board=b", "disk=d", "cards=c9"), cloneFacts(), true},
		{"a clone that kept all of it", ownFacts(), ownFacts(), ownFacts(), false},
		{"nothing is known", nil, ownFacts(), cloneFacts(), false},
		{"the copy says nothing", ownFacts(), ownFacts(), Facts{}, false},
		{"both differ", ownFacts(), facts("machine=m", "board=b7", "cards=c7"), cloneFacts(), false},
	} {
		t.Run(c.what, func(t *testing.T) {
			l := NewLedger(map[string]Facts{certificate: c.known})
			node := host{"N", nodeAddress, true, c.node}
			clone := host{"C", nodeAddress, true, c.copy}
			began := time.Unix(1e9, 0)
			for i := range 100 {
				at := began.Add(time.Duration(i) * 2 * time.Second)
				nodeMay := node.asks(l, at)
				cloneMay := clone.asks(l, at.Add(time.Second))
				if at.Sub(began) < SettledAfter-2*time.Second {
					continue
				}
				if nodeMay != c.nodeMay || cloneMay {
					t.Fatalf("after %s: the node may: %t, want %t; the copy may: %t", at.Sub(began), nodeMay,
						c.nodeMay, cloneMay)
				}
			}
		})
	}
}

// TestOneMachine: whatever happens to one machine, it may act: it is restarted, moved,
// repaired, restored on other hardware, put back with its memory; its old requests are late.
func TestOneMachine(t *testing.T) {
	for seed := range uint64(300) {
		chance := rand.New(rand.NewPCG(seed, 1))
		l := NewLedger(nil)
		node := host{"L0", nodeAddress, true, ownFacts()}
		at, back, lastTurn := time.Unix(1e9, 0), node, time.Time{}
		for i := range 400 {
			at = at.Add(time.Duration(1+chance.IntN(3)) * time.Second)
			switch what := chance.IntN(40); {
			case what < 2: // a restart, sometimes as a version before
				old := node
				node.life = []string{"", fmt.Sprint("L", i)}[min(chance.IntN(10), 1)]
				if chance.IntN(2) == 0 && node.life != "" && old.life != "" { // requests that were late
					node.asks(l, at)
					old.asks(l, at.Add(time.Millisecond))
					at = at.Add(2 * time.Millisecond)
				}
			case what < 4:
				node.facts = maps.Clone(node.facts)
				kind := allKinds()[chance.IntN(4)]
				node.facts[kind] = Digest(certificate, kind, fmt.Sprint(i))
			case what == 4:
				node.facts = facts(fmt.Sprint("machine=", i), fmt.Sprint("board=", i))
			case what == 5:
				back = node // a snapshot with memory
			case what == 6 && at.Sub(lastTurn) > recent:
				node, lastTurn = back, at
			case what == 7:
				at = at.Add(time.Duration(chance.IntN(4000)) * time.Second)
			}

			// A version before is one machine, whatever it does.
			if node.life == "" && at.Sub(lastTurn) <= recent {
				node.life = fmt.Sprint("L", i)
			} else if node.life == "" {
				lastTurn = at
			}

			if !node.asks(l, at) {
				r, _ := l.Report(certificate, at)
				t.Fatalf("seed %d, step %d: refused: %+v", seed, i, r)
			}
		}
	}
}

// TestTwoMachines: two machines with drawn facts, addresses and silences. A copy without
// the address never acts; nobody else acts in the place of a machine that the facts tell
// from the node; a machine that is alone for a while acts again.
func TestTwoMachines(t *testing.T) {
	decided, undecided := 0, 0
	for seed := range uint64(600) {
		chance := rand.New(rand.NewPCG(seed, 2))
		draw := func() Facts {
			f := Facts{}
			for _, kind := range allKinds() {
				if chance.IntN(5) > 0 {
					f[kind] = Digest(certificate, kind, fmt.Sprint(chance.IntN(3)))
				}
			}
			return f
		}

		known := draw()
		l := NewLedger(map[string]Facts{certificate: known})
		hosts := []*host{{"A", nodeAddress, chance.IntN(4) > 0, draw()}, {"B", nodeAddress, chance.IntN(4) > 0, draw()}}
		for _, h := range hosts {
			if !h.held {
				h.source = copyAddress
			}
		}

		began := time.Unix(1e9, 0)
		may := []bool{true, true}
		for i := range 60 {
			for j, h := range hosts {
				may[j] = h.asks(l, began.Add(time.Duration(2*i+j)*time.Second))
				if !h.held && may[j] {
					t.Fatalf("seed %d: a machine without the address may act", seed)
				}
			}
		}

		a, b := hosts[0], hosts[1]
		likeA, likeB := a.facts.Compare(known), b.facts.Compare(known)
		want := []bool{a.held, b.held}
		if a.held && b.held {
			want = []bool{likeA == Same && likeB == Other, likeB == Same && likeA == Other}
			undecided++
		}

		if want[0] || want[1] {
			decided++
		}

		if !slices.Equal(may, want) {
			t.Fatalf("seed %d: %v, want %v: %s %s", seed, may, want, likeA, likeB)
		}

		// One is switched off; the other one is the node, if it has the address.
		at := began.Add(time.Hour)
		if got := b.asks(l, at); got != b.held {
			t.Fatalf("seed %d: alone it may: %t", seed, got)
		}
	}

	t.Logf("%d decided, %d at one address", decided, undecided)
}

// TestAdopted: the hardware of a node that was restored elsewhere becomes the node's when
// it was alone for long enough; then the old machine is the copy, should it come back.
func TestAdopted(t *testing.T) {
	l := NewLedger(nil)
	old := host{"O", nodeAddress, true, ownFacts()}
	restored := host{"R", nodeAddress, true, cloneFacts()}
	at := time.Unix(1e9, 0)
	alone := func(h host, long time.Duration) {
		for end := at.Add(long); at.Before(end); at = at.Add(2 * time.Second) {
			if !h.asks(l, at) {
				t.Fatalf("%s was refused while it was alone", h.life)
			}
		}
	}

	together := func() (oldMay, restoredMay bool) {
		for range 20 {
			oldMay, restoredMay = old.asks(l, at), restored.asks(l, at.Add(time.Second))
			at = at.Add(2 * time.Second)
		}
		return oldMay, restoredMay
	}

	alone(old, learnAfter+10*time.Second)
	at = at.Add(time.Hour)
	alone(restored, learnAfter)
	if oldMay, restoredMay := together(); !oldMay || restoredMay {
		t.Errorf("soon: the old one may: %t, the restored one: %t", oldMay, restoredMay)
	}

	at = at.Add(time.Hour)
	alone(restored, adoptAfter+10*time.Second)
	if known, changed := l.Known(); !changed || !maps.Equal(known[certificate], cloneFacts()) {
		t.Errorf("known: %v %t", known, changed)
	}

	if oldMay, restoredMay := together(); oldMay || !restoredMay {
		t.Errorf("later: the old one may: %t, the restored one: %t", oldMay, restoredMay)
	}
}

// TestNodeRestartsBesideAClone: a clone elsewhere does not make a restart of the node look
// like a third machine.
func TestNodeRestartsBesideAClone(t *testing.T) {
	l := NewLedger(nil)
	clone := host{"C", copyAddress, false, cloneFacts()}
	at := time.Unix(1e9, 0)
	for i := range 200 {
		at = at.Add(2 * time.Second)
		node := host{fmt.Sprint("N", i/5), nodeAddress, true, ownFacts()}
		if !node.asks(l, at) {
			t.Fatal("the node was refused")
		}
		if clone.asks(l, at.Add(time.Second)) {
			t.Fatal("the copy was not refused")
		}
	}

	if r, _ := l.Report(certificate, at); r.Text("n3", nodeAddress) != "two machines use the key of n3: 10.112.39.3 and 10.112.39.33" {
		t.Error(r.Text("n3", nodeAddress))
	}
}

// TestVersionBefore: a node that says nothing may act, also from another address, until a
// machine that speaks uses its key too.
func TestVersionBefore(t *testing.T) {
	l := NewLedger(nil)
	before := host{"", "10.112.40.3", false, nil}
	at := time.Unix(1e9, 0)
	for range 20 {
		at = at.Add(2 * time.Second)
		if !before.asks(l, at) {
			t.Fatal("it was refused")
		}
	}

	for range 20 {
		at = at.Add(2 * time.Second)
		host{"N", nodeAddress, true, ownFacts()}.asks(l, at)
		before.asks(l, at.Add(time.Second))
	}

	if before.asks(l, at.Add(2*time.Second)) {
		t.Error("it may act beside the node")
	}
}

// TestBounds: neither lives nor keys without end are kept.
func TestBounds(t *testing.T) {
	l := NewLedger(nil)
	for i := range 1000 {
		l.Note(fmt.Sprintf("%064x", i), Speaker{Life: "A", Held: true}, nodeAddress, time.Unix(1e9, 0))
		l.Note(certificate, Speaker{Life: fmt.Sprint("L", i), Held: true}, nodeAddress, time.Unix(1e9, int64(i)))
	}

	if len(l.keys) > maxKeys {
		t.Errorf("%d keys", len(l.keys))
	}

	if k := l.keys[certificate]; k == nil || len(k.uses) > maxUses {
		t.Errorf("%+v", k)
	}

	l.Keep([]string{certificate})
	if len(l.keys) != 1 {
		t.Errorf("%d keys", len(l.keys))
	}
}

// TestReportCheck: what another node says is bounded and plain.
func TestReportCheck(t *testing.T) {
	good := func() Report {
		return Report{Certificate: certificate, Machines: []Machine{{Life: "A", Source: nodeAddress, Likeness: Same}}}
	}
	if r := good(); r.Check() != nil {
		t.Fatal(r.Check())
	}

	for what, spoil := range map[string]func(*Report){
		"certificate": func(r *Report) { r.Certificate = "../x" },
		"nobody":      func(r *Report) { r.Machines = nil },
		"many":        func(r *Report) { r.Machines = make([]Machine, maxUses+1) },
		"life":        func(r *Report) { r.Machines[0].Life = "\x1b[2J" },
		"source":      func(r *Report) { r.Machines[0].Source = "a\nb" },
		"likeness":    func(r *Report) { r.Machines[0].Likeness = "x" },
	} {
		r := good()
		spoil(&r)
		if r.Check() == nil {
			t.Errorf("%s: %+v is taken", what, r)
		}
	}
}

// FuzzParseSpeaker: what is taken comes out of its own text again.
func FuzzParseSpeaker(f *testing.F) {
	f.Add(Speaker{Life: "A1", Held: true, Facts: ownFacts()}.String())
	f.Add("")
	f.Add("life=A&held=no&board=0123456789abcdef&later=x")
	f.Add("life=%zz")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := ParseSpeaker(text)
		if err != nil {
			return
		}
		if text == "" {
			if s.Life != "" {
				t.Errorf("%+v", s)
			}
			return
		}

		again, err := ParseSpeaker(s.String())
		if err != nil || again.Life != s.Life || again.Held != s.Held || !maps.Equal(again.Facts, s.Facts) {
			t.Errorf("%q: %+v, then %+v %v", text, s, again, err)
		}

		if len(s.String()) > MaxSpeaker {
			t.Errorf("%d bytes", len(s.String()))
		}
	})
}
