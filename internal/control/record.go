package control

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"errors"

	"saltern/internal/durable"
)

// RecordFile is the name of the masters' record of their cluster, in
// cluster_pki_dir.
const RecordFile = ".saltern_cluster"

// maxRecord bounds the record in bytes: 64 masters and 256 removed ones with
// their keys.
const maxRecord = 4 << 20

// Record is the part of the masters' record of their cluster that supervisors read.
type Record struct {
	Version uint64         `json:"version"` // grows with each change
	Members []RecordMaster `json:"members"`
	Removed []RecordMaster `json:"removed"` // whose keys may not come back
	Secrets
}

// RecordMaster is a master in the record: one that belongs to the cluster, or one
// that was removed.
type RecordMaster struct {
	ID  string `json:"id"`  // its address
	Pub string `json:"pub"` // PEM of its key
	Own bool   `json:"own"` // a member that is no master of Salt's
	// Node is the [Removal.Node] of its removal; empty: there was none.
	Node string `json:"node"`
}

// Removal says who is taken out of the record.
type Removal struct {
	ID string `json:"id,omitempty"` // the master's name there: its address
	// Key is [KeyFinger] of the master's key. If it is given, it alone decides:
	// another master of that name stays, and it is no fault that this one is not there.
	// With [NoMaster] nobody is taken out.
	Key string `json:"key,omitempty"`
	// Node is the key by which the table of nodes knows the machine. The record
	// keeps it, so that its removal is done once, whoever has the address later.
	Node string `json:"node,omitempty"`
}

// NoMaster is the [Removal.Key] of a machine whose master is not in the record: what
// the machine knew is replaced.
const NoMaster = "none"

// MaxNode bounds [Removal.Node] in bytes.
const MaxNode = 64

// ReadRecord reads the record at path. No error quotes what the file holds: there
// are secrets in it.
func ReadRecord(path string) (r Record, err error) {
	b, err := durable.Read(path, maxRecord)
	if err != nil {
		return r, err
	}
	if json.Unmarshal(b, &r) != nil {
		return Record{}, errors.New("read the cluster's record: it is not as expected")
	}
	return r, nil
}

// Member gives the member with that address, and reports whether there is one.
func (r Record) Member(address string) (RecordMaster, bool) {
	for _, m := range r.Members {
		if m.ID == address {
			return m, true
		}
	}
	return RecordMaster{}, false
}

// KeyFinger names a master's key: the SHA-256 of what its PEM holds, in hexadecimal.
func KeyFinger(pub string) string {
	text := []byte(pub)
	if b, _ := pem.Decode(text); b != nil {
		text = b.Bytes
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
