package jobs

import (
	"time"

	"saltern/master/value"
)

// Archive keeps returns for longer than the job cache does.
type Archive interface {
	// Add takes a return, before its record leaves the journal. After a crash the same return may
	// come again. When Add returns a transient error (a full disk), the writer tries again.
	Add(a Archived) error
	// Sync makes durable what Add has taken. It is called before the journal removes the records.
	Sync() error
}

// Archived is a return for an Archive.
type Archived struct {
	JID, Minion string
	Time        time.Time // when a master took the return
	Return      []byte    // content of return.p; the Archive must not change it
	// Load returns the load of the job, or nil if it has none. It reads a file.
	Load func() *value.Map
}
