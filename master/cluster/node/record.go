package node

import (
	"crypto/subtle"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/master/cluster/wire"
	"saltern/master/crypt"
)

// Record is the state that the masters of a cluster share. Clone a Record before changing it. All
// secrets of a Record are in its fields of type string, and all its fields of type string are
// secret; support bundles rely on that.
type Record struct {
	Version uint64   `json:"version"`
	Members []Member `json:"members"` // sorted by ID
	// Removed lists the masters whose keys must never be admitted again, oldest first.
	Removed []Tombstone `json:"removed,omitempty"`
	// Key is the text of the cluster AES key. PrevKey is the text of the previous key.
	Key     string `json:"key"`
	PrevKey string `json:"prev_key,omitempty"`
	KeyGen  uint64 `json:"key_gen"`  // counts the rotations of Key
	KeyMade int64  `json:"key_made"` // when Key was made, in Unix seconds
	control.Secrets
	SeedGen uint64 `json:"seed_gen"`
	Owner   Lease  `json:"owner"`
}

// Member is a master that belongs to the cluster.
type Member struct {
	ID  string `json:"id"`
	Pub string `json:"pub"` // PEM of the public half of its master key
	// Own is true for a master of Saltern and false for one of Salt.
	Own bool `json:"own"`
}

// Tombstone describes a master that was removed.
type Tombstone struct {
	ID  string `json:"id"`
	Pub string `json:"pub"` // PEM of the master's key; "" for a machine whose master was not a member
	// Node is the machine as [control.Removal.Node] names it.
	Node string `json:"node,omitempty"`
}

// Lease names the owner of the duties that only one master may do.
type Lease struct {
	ID    string `json:"id,omitempty"`
	Inc   string `json:"inc,omitempty"`   // incarnation of the process
	Token uint64 `json:"token,omitempty"` // fencing token; grows with each owner
	Beat  uint64 `json:"beat,omitempty"`  // grows with each renewal
	// Seconds is the term that the owner counts on. It is 0 if the owner's version writes no term,
	// or if a node of such a version has rewritten the record.
	Seconds uint64 `json:"seconds,omitempty"`
	// Left is the master that has given the lease back. It is "" while there is an owner, or if a
	// node of an earlier version has rewritten the record.
	Left string `json:"left,omitempty"`
}

// term returns how long a master waits without a change of the lease until the owner has lost it.
// An owner whose lease names no shorter term counts on [leaseTTLUnnamed].
func (l Lease) term() time.Duration {
	if l.Seconds == 0 || l.Seconds > uint64(leaseTTLUnnamed/time.Second) {
		return leaseTTLUnnamed
	}
	return max(leaseTTL, time.Duration(l.Seconds)*time.Second)
}

// Limits of a record.
const (
	maxMembers    = 64
	maxTombstones = 256
)

// ErrRecord reports that a record is damaged.
var ErrRecord = errors.New("bad cluster record")

// Check returns an error if a record cannot be used.
func (r Record) Check() error {
	if r.Version == 0 || len(r.Members) > maxMembers || len(r.Removed) > maxTombstones {
		return fmt.Errorf("%w: version or size", ErrRecord)
	}

	for i, m := range r.Members {
		if err := wire.ValidPeer(m.ID); err != nil {
			return fmt.Errorf("%w: %w", ErrRecord, err)
		}
		if i > 0 && r.Members[i-1].ID >= m.ID {
			return fmt.Errorf("%w: members are not sorted", ErrRecord)
		}
	}

	if _, err := crypt.ParseKey(r.Key); err != nil {
		return fmt.Errorf("%w: %w", ErrRecord, err)
	}

	return nil
}

func (r Record) clone() Record {
	r.Members = slices.Clone(r.Members)
	r.Removed = slices.Clone(r.Removed)
	return r
}

func (r Record) findMember(id string) (int, bool) {
	return slices.BinarySearchFunc(r.Members, id, func(m Member, id string) int { return strings.Compare(m.ID, id) })
}

// Member returns the member with this name. It returns false when there is none.
func (r Record) Member(id string) (Member, bool) {
	if i, ok := r.findMember(id); ok {
		return r.Members[i], true
	}
	return Member{}, false
}

// removed reports whether the master with this key was removed for good.
func (r Record) removed(pub string) bool {
	return slices.ContainsFunc(r.Removed, func(t Tombstone) bool { return t.Pub != "" && samePEM(t.Pub, pub) })
}

func (r *Record) putMember(m Member) {
	i, ok := r.findMember(m.ID)
	if ok {
		r.Members[i] = m
		return
	}
	r.Members = slices.Insert(r.Members, i, m)
}

// buryMember removes a master and adds its tombstone. If m.Pub is "", it removes no member and adds
// a tombstone for the machine only.
func (r *Record) buryMember(m Member, node string) {
	if i, ok := r.findMember(m.ID); ok && m.Pub != "" {
		r.Members = slices.Delete(r.Members, i, i+1)
	}
	r.Removed = append(r.Removed, Tombstone{m.ID, m.Pub, node})
	if n := len(r.Removed) - maxTombstones; n > 0 {
		r.Removed = slices.Delete(r.Removed, 0, n)
	}
}

func samePEM(a, b string) bool {
	return subtle.ConstantTimeCompare([]byte(crypt.NormalizePEM(a)), []byte(crypt.NormalizePEM(b))) == 1
}
