package status

import (
	"fmt"
	"time"
)

// Backup is how the scheduled backups of a cluster are, as one of its nodes sees it.
type Backup struct {
	Every string `json:"every"` // as in appliance.yaml of this node
	To    string `json:"to"`
	Keep  int    `json:"keep"`
	// Last is the newest one that was made, by any node; nil: none.
	Last *BackupFile `json:"last,omitempty"`
	// Next is when the next one is due; it may be in the past.
	Next time.Time `json:"next"`
	// Making says who makes one at this moment; nil: nobody.
	Making *BackupMaker `json:"making,omitempty"`
	// Failure is the last try, if it came to nothing.
	Failure *BackupFailure `json:"failure,omitempty"`
}

// BackupFile is a backup.
type BackupFile struct {
	Name   string    `json:"name"`
	Node   string    `json:"node"` // that made it
	To     string    `json:"to"`   // directory, on that node
	Time   time.Time `json:"time"` // when it was begun
	Bytes  int64     `json:"bytes"`
	Files  int       `json:"files"` // in it
	SHA256 string    `json:"sha256,omitempty"`
	Signer string    `json:"signer,omitempty"` // hash of the key that signed it
	// Missing: it should be in the directory and is not.
	Missing bool `json:"missing,omitempty"`
}

// BackupMaker is who makes a backup.
type BackupMaker struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
}

// BackupFailure is a try that came to nothing.
type BackupFailure struct {
	Node  string    `json:"node"`
	Time  time.Time `json:"time"`
	Cause string    `json:"cause"`
}

// BackupList is what `applianced backup list` and `backup status` show.
type BackupList struct {
	Backup
	// Files are those of the directory of this node, the oldest first.
	Files []BackupFile `json:"files"`
	// Unread says why they could not be listed; empty: they could.
	Unread string `json:"unread,omitempty"`
	// Tries counts the tries of this node since its supervisor started.
	Tries int `json:"tries"`
	// Running: this node makes one.
	Running bool `json:"running,omitempty"`
	// Result is what came of the last try of this node; empty: it was made.
	Result string `json:"result,omitempty"`
}

// oneLine words it in one line.
func (b Backup) oneLine(now time.Time) string {
	text := "none yet"
	if l := b.Last; l != nil {
		text = fmt.Sprintf("%s old, made by %s, %s", Age(now.Sub(l.Time)), l.Node, Size(uint64(max(l.Bytes, 0))))
	}
	switch {
	case b.Making != nil:
		return text + "; " + b.Making.Node + " makes one now"
	case b.Next.After(now):
		return text + "; next in " + Age(b.Next.Sub(now))
	}
	return text + "; the next one is due"
}
