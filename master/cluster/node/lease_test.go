package node

import (
	"encoding/json"
	"testing"
	"time"
)

// A master waits for as long as the lease's owner counts on: an owner of an earlier version, which
// writes no term, counts on 15 s.
func TestLeaseIsTakenAfterItsOwnersTerm(t *testing.T) {
	for _, test := range []struct {
		name  string
		lease string
		term  time.Duration
	}{
		{"owner of this version", `{"id": "10.0.0.1", "token": 3, "beat": 7, "seconds": 12}`, 12 * time.Second},
		{"owner of a version without terms", `{"id": "10.0.0.1", "token": 3, "beat": 7}`, 15 * time.Second},
		{"a term that is too short", `{"id": "10.0.0.1", "token": 3, "beat": 7, "seconds": 1}`, 12 * time.Second},
		{"a term that is too long", `{"id": "10.0.0.1", "token": 3, "beat": 7, "seconds": 18446744073709551615}`, 15 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			var owner Lease
			if err := json.Unmarshal([]byte(test.lease), &owner); err != nil {
				t.Fatal(err)
			}

			seen := time.Unix(1_700_000_000, 0)
			n := &Node{
				cfg:       Config{ID: "10.0.0.2", Inc: "i", Random: &countingRandom{}},
				rec:       Record{Owner: owner},
				leaseSeen: seen,
			}

			n.renewLease(seen.Add(test.term - time.Millisecond))
			if len(n.queue) > 0 {
				t.Fatal("takes the lease of an owner that may still hold it")
			}

			n.renewLease(seen.Add(test.term))
			if len(n.queue) != 1 {
				t.Fatalf("%d changes of the lease at the end of its term, want 1", len(n.queue))
			}

			r := Record{Owner: owner}
			if ok, err := n.queue[0].apply(&r); !ok || err != nil || r.Owner.ID != "10.0.0.2" {
				t.Fatalf("%v %v %+v", ok, err, r.Owner)
			}
			if got := r.Owner.term(); got != leaseTTL {
				t.Errorf("the new owner's lease names %s, but its owner counts on %s", got, leaseTTL)
			}
		})
	}
}

// TestLeaseIsGivenBack: an owner that ends in good order is followed at once, whoever follows and
// whenever; masters of the version before follow within their steps. The simulation checks that no two
// own the lease at a time, and that the token grows.
func TestLeaseIsGivenBack(t *testing.T) {
	for seed := range uint64(50) {
		for _, before := range []bool{false, true} {
			w := newWorld(seed)
			w.calm = true
			for _, h := range w.nodes {
				if !h.salt && h.id != "intruder" && !h.late {
					w.boot(h)
				}
			}

			w.runUntil(w.now.Add(time.Minute))
			owner := w.owner()
			if owner == nil {
				t.Fatalf("seed %d: nobody owns the lease", seed)
			}

			token := w.rec.Owner.Token
			w.runUntil(w.now.Add(w.ms(0, 3000)))
			w.step(owner, Command{ID: 1, Leave: true})
			if _, owns := owner.n.Own(owner.local(w)); owns {
				t.Fatalf("seed %d: owns the lease while it gives it back", seed)
			}

			within := 2 * time.Second
			if before {
				within = time.Duration(len(w.nodes)) * leaseStep
				w.runUntil(w.now.Add(300 * time.Millisecond))
				w.rec.Owner.Left = "" // as if such a master had rewritten the record
			}
			w.after(w.ms(500, 1500), func() { w.crash(owner) }) // it waits for the next one
			w.runUntil(w.now.Add(within))
			next := w.owner()
			if next == nil || next == owner || w.rec.Owner.Token != token+1 {
				t.Errorf("seed %d: %s later the owner is %v, by %+v", seed, within, next, w.rec.Owner)
			}
		}
	}
}

// owner returns the machine whose master owns the lease, or nil.
func (w *world) owner() *host {
	for _, h := range w.nodes {
		if h.n == nil || h.salt {
			continue
		}
		if _, owns := h.n.Own(h.local(w)); owns {
			return h
		}
	}
	return nil
}
