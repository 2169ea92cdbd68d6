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
