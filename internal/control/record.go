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

// maxRecord bounds the record in bytes: 64 members and 256 removed masters, with their keys.
const maxRecord = 4 << 20

// Record is the part of the masters' record of their cluster that supervisors read.
type Record struct {
	Version uint64         `json:"version"` // version number, raised by each change
	Members []RecordMaster `json:"members"`
	Removed []RecordMaster `json:"removed"` // removed masters, whose keys may not return
	Secrets
}

// RecordMaster is a master in the record: a member of the cluster, or one that was removed.
type RecordMaster struct {
	ID  string `json:"id"`  // the master's address
	Pub string `json:"pub"` // public key of the master, in PEM
	Own bool   `json:"own"` // whether the master is a Saltern master, not one of Salt's
	// Node is the [Removal.Node] of the removal that ended this membership. It is empty for a
	// member, and for a removal that named no node.
	Node string `json:"node"`
}

// Removal says which master to remove from the record.
type Removal struct {
	ID string `json:"id,omitempty"` // the master's name in the record: its address
	// Key is the [KeyFinger] of the master's key. If Key is set, it alone selects the master: a
	// master with the same name and another key stays, and a removal of a key that no master has
	// succeeds. The value [NoMaster] removes no master.
	Key string `json:"key,omitempty"`
	// Node is the machine's key in the table of nodes. The record keeps it, so that the removal
	// happens only once even if another machine gets the address later.
	Node string `json:"node,omitempty"`
}

// NoMaster is the [Removal.Key] of a machine whose master is not in the record. Such a removal only
// replaces the secrets that the machine knew.
const NoMaster = "none"

// MaxNode bounds [Removal.Node] in bytes.
const MaxNode = 64

// ReadRecord reads the record at path. The file holds secrets, so its errors quote nothing of it.
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

// Member returns the member with that address, and reports whether there is one.
func (r Record) Member(address string) (RecordMaster, bool) {
	for _, m := range r.Members {
		if m.ID == address {
			return m, true
		}
	}
	return RecordMaster{}, false
}

// KeyFinger returns a name for a master's key: the SHA-256 of the content of its PEM, in hexadecimal.
func KeyFinger(pub string) string {
	text := []byte(pub)
	if b, _ := pem.Decode(text); b != nil {
		text = b.Bytes
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
