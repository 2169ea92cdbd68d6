package status

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// newNode is a node of an image as it is after its set-up: with two standing notes, and
// names that leave its table no room in 80 columns. (m22)
func newNode() Document {
	d := documents()["healthy"]
	d.Cluster = "blue"
	d.Node = "salt-660001"
	d.Version = "f05afb80"
	d.ServingSince = ago(time.Minute)
	d.Front.API = &FrontAPI{Port: 8000, Nodes: []string{"salt-660001"}}
	d.Nodes[0].Name = "salt-660001"
	d.Nodes[0].Version = "f05afb80"
	d.Nodes[0].Address = "10.66.0.11"
	d.Nodes[0].Clock = "synced"

	for _, name := range []string{"api", "vip"} {
		d.Services = append(d.Services,
			Service{Name: name, State: "running", Message: "running", Since: *ago(time.Minute), PID: 14})
	}

	d.Backup = &Backup{Next: at.Add(time.Hour)}
	d.Problems = NewBoard().Update(at, []Finding{
		{
			Code:  SystemOld,
			Cause: "version f05afb80 was built 2025-06-15, 530 days ago: security fixes of since then are missing",
		},
		{Code: SystemFixed, Cause: "/etc/saltern/upgrade-keys and /usr/lib/saltern/upgrade-keys hold no key"},
	})

	return d
}

// cluster is one of many nodes, of which one is away.
func cluster(n int) Document {
	d := newNode()
	for i := range n - 1 {
		node := d.Nodes[0]
		node.Name = fmt.Sprintf("salt-6600%02d", i+2)
		node.This = false
		node.Address = fmt.Sprintf("10.66.0.%d", i+12)
		d.Nodes = append(d.Nodes, node)
	}

	last := &d.Nodes[n-1]
	last.State, last.Master, last.Proxy, last.Storage, last.Minions, last.LastSeen = "unreachable", "?", "?", "?", nil, ago(12*24*time.Hour)
	b := NewBoard()
	b.Update(at.Add(-time.Hour), []Finding{{Code: NodeUnreachable, Subject: last.Name}})
	d.Problems = append(b.Update(at,
		[]Finding{{
			Code:    NodeUnreachable,
			Subject: last.Name,
			Cause:   last.Address + " does not answer on 4521/tcp: no route to host, since its last answer 12 days ago",
		}}),
		d.Problems...)

	d.Health = Degraded
	return d
}

func fitted() map[string]Document {
	all := documents()
	all["new node"], all["two nodes"], all["three nodes"], all["twenty nodes"] = newNode(), cluster(2), cluster(3), cluster(20)
	return all
}

// TestStatusInAWindow: as it is shown in a window of 80x24. (m8, m22)
func TestStatusInAWindow(t *testing.T) {
	for _, name := range []string{"new node", "three nodes", "twenty nodes", "down"} {
		t.Run(name, func(t *testing.T) {
			lines := Fit(fitted()[name], Room{Width: 80, Lines: 23, Rest: "applianced status"})
			golden(t, "window-"+strings.ReplaceAll(name, " ", "-")+".txt", []byte(strings.Join(lines, "\n")+"\n"))
		})
	}
}

// TestStatusFits: in a window of any size the answer is the first line, no line is too
// long, none is one too many, no word is cut, and what is left out is said.
func TestStatusFits(t *testing.T) {
	for name, d := range fitted() {
		var all bytes.Buffer
		if err := WriteText(&all, d); err != nil {
			t.Fatal(err)
		}

		words := strings.Fields(strings.ReplaceAll(all.String(), ",", " "))
		answer := words[0]
		for _, width := range []int{40, 61, 80, 132} {
			for height := 1; height <= 60; height += 7 {
				lines := Fit(d, Room{Width: width, Lines: height, Rest: "elsewhere"})
				where := fmt.Sprintf("%s in %dx%d:\n%s", name, width, height, strings.Join(lines, "\n"))
				if len(lines) == 0 || len(lines) > height || !strings.HasPrefix(lines[0], answer) {
					t.Fatalf("%d lines of %s", len(lines), where)
				}

				for _, l := range lines {
					if columns(l) > width {
						t.Fatalf("%q is too long: %s", l, where)
					}

					if kept, cut := strings.CutSuffix(l, " ..."); cut {
						parts := strings.Fields(kept)
						if last := strings.TrimRight(parts[len(parts)-1], ","); !slices.Contains(words,
							last) && columns(last) < width/2 {
							t.Fatalf("%q is cut: %s", last, where)
						}
					}
				}

				said := strings.Contains(lines[len(lines)-1], "elsewhere")
				if whole := len(Fit(d, Room{Width: width})); whole > height && height > 1 && !said {
					t.Fatalf("nothing says that there is more: %s", where)
				}
			}
		}
	}
}

// TestStatusOnANarrowTerminal: however narrow, nothing is missing, and each word is
// whole.
func TestStatusOnANarrowTerminal(t *testing.T) {
	for name, d := range fitted() {
		var all bytes.Buffer
		if err := WriteText(&all, d); err != nil {
			t.Fatal(err)
		}

		for _, width := range []int{80, 100, 132} {
			got := strings.Join(Fit(d, Room{Width: width}), "\n")
			flat := strings.Join(strings.Fields(got), " ")
			for _, p := range d.Problems {
				for _, text := range []string{string(p.Code), p.Title, p.Cause, p.Next} {
					if !strings.Contains(flat, strings.Join(strings.Fields(text), " ")) {
						t.Errorf("%s: %q is missing in %d columns:\n%s", name, text, width, got)
					}
				}
			}

			for _, n := range d.Nodes {
				if !strings.Contains(flat, n.Name) {
					t.Errorf("%s: %s is missing in %d columns", name, n.Name, width)
				}
			}
		}
	}
}

// TestHostileStatusFits: names that somebody made up change no bound.
func TestHostileStatusFits(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	letters := []rune("ab c\n\t\x1b[2J\u202e\u2588\u00e4")
	word := func() string {
		var b strings.Builder
		for range r.IntN(120) {
			b.WriteRune(letters[r.IntN(len(letters))])
		}
		return b.String()
	}

	for range 100 {
		d := cluster(1 + r.IntN(6))
		d.Cluster, d.Console, d.Next, d.Storage.Path = word(), word(), word(), word()
		for i := range d.Nodes {
			n := &d.Nodes[i]
			n.Name, n.Role, n.State, n.Version, n.Address, n.Clock = word(), word(), word(), word(), word(), word()
		}

		for i := range d.Services {
			d.Services[i].Name, d.Services[i].Message, d.Services[i].LastExit = word(), word(), word()
		}

		for i := range d.Problems {
			d.Problems[i].Title, d.Problems[i].Cause, d.Problems[i].Next = word(), word(), word()
		}

		room := Room{Width: 60 + r.IntN(60), Lines: 2 + r.IntN(30), Rest: "elsewhere"}
		lines := Fit(d, room)
		if len(lines) > room.Lines {
			t.Fatalf("seed %d: %d lines in %+v", seed, len(lines), room)
		}

		for _, l := range lines {
			if strings.ContainsAny(l, "\x1b\n\t") || columns(l) > room.Width {
				t.Fatalf("seed %d: %q in %+v", seed, l, room)
			}
		}
	}
}
