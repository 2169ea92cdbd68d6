package status

import (
	"fmt"
	"time"
)

// Backup is the state of a cluster's scheduled backups, as one of its nodes sees it.
type Backup struct {
	Every string `json:"every"` // interval or time, as in this node's appliance.yaml
	To    string `json:"to"`
	Keep  int    `json:"keep"`
	// Last is the newest backup by any node. It may be nil: there is none.
	Last *BackupFile `json:"last,omitempty"`
	// Next is when the next backup is due. It may be in the past.
	Next time.Time `json:"next"`
	// Making names the node that makes a backup now. It may be nil: no node does.
	Making *BackupMaker `json:"making,omitempty"`
	// Failure describes the last try, if it failed. It may be nil: it did not fail.
	Failure *BackupFailure `json:"failure,omitempty"`
}

// BackupFile describes one backup.
type BackupFile struct {
	Name   string    `json:"name"`
	Node   string    `json:"node"` // node that made the backup
	To     string    `json:"to"`   // place of the file: a directory on that node, or s3://BUCKET/PREFIX
	Time   time.Time `json:"time"` // when the backup began
	Bytes  int64     `json:"bytes"`
	Files  int       `json:"files"` // number of files in the backup
	SHA256 string    `json:"sha256,omitempty"`
	Signer string    `json:"signer,omitempty"` // hash of the key that signed the backup
	// Missing reports whether the file has disappeared from To.
	Missing bool `json:"missing,omitempty"`
}

// BackupMaker names the node that makes a backup.
type BackupMaker struct {
	Node  string    `json:"node"`
	Since time.Time `json:"since"`
}

// BackupFailure describes a try that failed.
type BackupFailure struct {
	Node  string    `json:"node"`
	Time  time.Time `json:"time"`
	Cause string    `json:"cause"`
}

// BackupList is the content of `applianced backup list` and `backup status`.
type BackupList struct {
	Backup
	// Files are the backups in the present place for backups, as this node sees it, the oldest
	// first.
	Files []BackupFile `json:"files"`
	// Unread is the reason why that place could not be listed. It is empty if the place was listed.
	Unread string `json:"unread,omitempty"`
	// Tries counts the tries of this node since its supervisor started.
	Tries int `json:"tries"`
	// Running reports whether this node makes a backup now.
	Running bool `json:"running,omitempty"`
	// Result is the reason why the last try of this node failed. It is empty if the try succeeded.
	Result string `json:"result,omitempty"`
}

// oneLine returns one line of text about the backups.
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
