package nodes

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

func hash(i int) string { return fmt.Sprintf("%064x", i) }

// five is a table with a node of each kind.
func five() Table {
	t := Table{Version: 7, Cluster: "prod", KeyHash: hash(99)}
	for i, n := range []Node{
		{Storage: "data", State: Member, Brick: "/b/1", Front: []string{"10.0.0.1"}},
		{Storage: "data", State: Member, Brick: "/b/2"},
		{Storage: ArbiterStorage, State: Member, Brick: "/b/3"},
		{Storage: "client", State: Joining},
		{Storage: "data", State: Removed},
	} {
		n.Name, n.Address, n.Certificate = fmt.Sprint("n", i+1), fmt.Sprint("10.0.0.", i+1), hash(i+1)
		n.Joined = time.Date(2026, 11, 24, 16, 0, i, 0, time.UTC)
		t.Nodes = append(t.Nodes, n)
	}
	return t
}

// What each node may change by the table that it offers.
func TestCheckStep(t *testing.T) {
	set := func(name string, s State) func(*Table) error {
		return func(t *Table) error { return t.Set(name, s) }
	}
	put := func(name string, change func(*Node)) func(*Table) error {
		return func(t *Table) error {
			n, _ := t.Find(name)
			change(&n)
			t.Put(n)
			return nil
		}
	}

	at := time.Date(2026, 11, 24, 16, 0, 0, 0, time.UTC)
	rows := []struct {
		name   string
		change func(*Table) error
		by     string // names of those who may
	}{
		{"nothing", func(*Table) error { return nil }, "n1 n2 n3 n4"},
		{"n2 drains", set("n2", Draining), "n1 n2"},
		{"n3 leaves", set("n3", Leaving), "n1 n2 n3"},
		{"n3 is out", set("n3", Removed), "n1 n2 n3"},
		{"n4 has joined", set("n4", Member), "n1 n2 n4"},
		{"n2 is out", set("n2", Removed), "n1 n2"},
		{"another brick of n3", put("n3", func(n *Node) { n.Brick = "/b/x" }), "n1 n2 n3"},
		{"another brick of n2", put("n2", func(n *Node) { n.Brick = "/b/x" }), "n1 n2"},
		{"another front of n4", put("n4", func(n *Node) { n.Front = []string{"10.0.0.9"} }), "n1 n2"},
		{"an arbiter with data", put("n3", func(n *Node) { n.Storage = "data" }), ""},
		{"another address", put("n3", func(n *Node) { n.Address = "10.0.0.33" }), ""},
		{"another key", put("n3", func(n *Node) { n.Certificate = hash(33) }), ""},
		{"another name", func(t *Table) error { t.Nodes[2].Name = "n9"; return nil }, ""},
		{"a node less", func(t *Table) error { t.Nodes = t.Nodes[:4]; return nil }, ""},
		{"a removed node is back", put("n5", func(n *Node) { n.State = Member }), ""},
		{"joining again", put("n1", func(n *Node) { n.State = Joining }), ""},
		{"a new machine", func(t *Table) error {
			return Admit(t, Node{Name: "n6", Address: "10.0.0.6", State: Joining, Certificate: hash(6)})
		}, "n1 n2"},
		{"a new machine with the name of a removed one", func(t *Table) error {
			return Admit(t, Node{Name: "n5", Address: "10.0.0.6", State: Joining, Certificate: hash(6)})
		}, "n1 n2"},
		{"a new machine that is a member at once", func(t *Table) error {
			t.Put(Node{Name: "n6", Address: "10.0.0.6", State: Member, Certificate: hash(6)})
			return nil
		}, ""},
		{"a removed machine under another name", func(t *Table) error {
			t.Put(Node{Name: "n5", Address: "10.0.0.5", State: Joining, Certificate: hash(6)})
			t.Gone = []string{hash(5)}
			t.Put(Node{Name: "n7", Address: "10.0.0.7", State: Joining, Certificate: hash(5)})
			return nil
		}, ""},
		{"another virtual address", func(t *Table) error { t.Virtual = "10.0.0.100"; return nil }, "n1 n2"},
		{"another key of the cluster", func(t *Table) error { return t.SetKey(hash(98)) }, "n1 n2"},
		{"the key of another cluster", func(t *Table) error { t.KeyHash = hash(98); return nil }, ""},
		{"another cluster", func(t *Table) error { t.Cluster = "test"; return nil }, ""},
		{"storage without TLS", func(t *Table) error { t.StorageTLS = true; return nil }, "n1 n2"},
		{"the turn of n3",
			func(t *Table) error { return t.TakeTurn(Turn{Node: "n3", Life: "x", Since: at}, false) },
			"n1 n2 n3"},
		{"the turn of n1",
			func(t *Table) error { return t.TakeTurn(Turn{Node: "n1", Life: "x", Since: at}, false) },
			"n1 n2"},
		{"the turn of n3 for a key",
			func(t *Table) error { t.Turn = &Turn{Node: "n3", Key: true}; return nil }, "n1 n2"},
		{"no version", func(t *Table) error { t.Version--; return nil }, ""},
		{"two versions", func(t *Table) error { t.Version++; return nil }, ""},
		{"the last version", func(t *Table) error { t.Version = 1<<64 - 1; return nil }, ""},
	}

	for _, row := range rows {
		t.Run(row.name, func(t *testing.T) {
			now := five()
			next := now.Clone()
			next.Version++
			if err := row.change(&next); err != nil {
				t.Fatal(err)
			}

			// As it comes over the wire.
			text, err := encode(next)
			if err != nil {
				t.Fatal(err)
			}

			if next, err = Parse(text); err != nil && row.by != "" {
				t.Fatal(err)
			}
			if err != nil {
				return // it is no table at all
			}

			for _, from := range now.Nodes[:4] {
				err := CheckStep(from, now, next)
				if may := slices.Contains(strings.Fields(row.by), from.Name); may != (err == nil) {
					t.Errorf("%s: %v", from.Name, err)
				}
			}
		})
	}
}

// An arbiter cannot end another node's turn, and gives its own back.
func TestCheckStepOfATurn(t *testing.T) {
	for holder, may := range map[string]bool{"n1": false, "n3": true} {
		now := five()
		now.Turn = &Turn{Node: holder, Life: "x"}
		next := now.Clone()
		next.Version++
		next.Turn = nil
		if err := CheckStep(now.Nodes[2], now, next); may != (err == nil) {
			t.Errorf("the turn of %s: %v", holder, err)
		}
	}
}

// Whatever changes a node makes of the table that are possible on the shared storage, one
// after the other, the others take it from one that serves; from an arbiter only
// those of its own entry.
func TestCheckStepOfRandomChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	now := five()
	at := time.Date(2026, 11, 24, 16, 0, 0, 0, time.UTC)
	added, taken := 10, 0
	for range 1000 {
		next := now.Clone()
		next.Version++
		at = at.Add(time.Minute)
		n := next.Nodes[random.IntN(len(next.Nodes))]
		var err error
		switch random.IntN(6) {
		case 0:
			err = next.Set(n.Name, []State{Member, Draining, Leaving, Removed}[random.IntN(4)])
		case 1:
			err = next.TakeTurn(Turn{
				Node:    n.Name,
				Life:    "x",
				Since:   at,
				Options: random.IntN(2) == 0,
				Until:   at.Add(time.Hour),
			},
				random.IntN(2) == 0)
		case 2:
			next.GiveTurn(n.Name)
		case 3:
			added++
			err = Admit(&next,
				Node{
					Name:        fmt.Sprint("n", random.IntN(8)),
					Address:     fmt.Sprint("10.0.1.", added%250),
					State:       Joining,
					Certificate: hash(added),
					Storage:     "data",
				})
		case 4:
			if len(next.Former) < maxKeys {
				err = next.SetKey(hash(1000 + added))
			}
		case 5:
			n.Brick = fmt.Sprint("/b/", at.Unix())
			next.Put(n)
		}

		if err != nil || next.Check() != nil {
			continue
		}

		taken++
		text, err := encode(next)
		if err != nil {
			t.Fatal(err)
		}

		if next, err = Parse(text); err != nil {
			t.Fatal(err)
		}

		serving := Node{Name: "n1", State: Member, Storage: "data", Certificate: hash(1)}
		if err := CheckStep(serving, now, next); err != nil {
			t.Fatalf("%v\nfrom %+v\nto %+v", err, now, next)
		}

		arbiter := Node{Name: "n3", State: Member, Storage: ArbiterStorage, Certificate: hash(3)}
		if CheckStep(arbiter, now, next) == nil {
			for _, was := range now.Nodes {
				is, _ := next.ByCertificate(was.Certificate)
				if was.Certificate != arbiter.Certificate && (is.State != was.State || is.Brick != was.Brick) {
					t.Fatalf("an arbiter changed %+v to %+v", was, is)
				}
			}
		}

		now = next
	}

	if taken < 500 {
		t.Errorf("%d changes", taken)
	}
}

// A version that cannot be true is taken from nowhere, also not from the shared storage,
// nor a table that brings a removed node back.
func TestKeeperTakesNoImpossibleTable(t *testing.T) {
	k, err := OpenKeeper(t.TempDir(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}

	if _, err := k.Offer(five()); err != nil {
		t.Fatal(err)
	}

	last := five()
	last.Version = 1<<64 - 1
	back := five()
	back.Version = 900
	back.Nodes[4].State = Member

	for _, table := range []Table{last, back} {
		if ok, err := k.Offer(table); ok || err == nil {
			t.Errorf("version %d is taken: %v", table.Version, err)
		}
	}

	missed := five()
	missed.Version = 100_000
	if ok, err := k.Offer(missed); !ok || err != nil {
		t.Errorf("a node that was away for long: %v", err)
	}
}
