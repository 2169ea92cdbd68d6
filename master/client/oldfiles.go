package client

import (
	"time"

	"saltern/master/event"
	"saltern/printable"
)

// OldFiles says that a minion of a job is served files and pillars of before: what is new
// could not be copied to its node.
type OldFiles struct {
	Minion string
	Node   string
	AsOf   time.Time // of when the files are; zero: not known
	Why    string
}

// maxOldText bounds each text of OldFiles, in bytes.
const maxOldText = 300

// oldFiles tells of an event about a minion of one of the jobs.
func (c *Client) oldFiles(ws []*watch, e event.Event) {
	minion := e.Data.Str("id")
	for _, w := range ws {
		if !w.expected[minion] {
			continue
		}
		old := OldFiles{
			Minion: printable.Brief(minion, maxOldText),
			Node:   printable.Brief(e.Data.Str("node"), maxOldText),
			Why:    printable.Brief(e.Data.Str("why"), maxOldText),
		}
		if at, err := time.Parse(time.RFC3339, e.Data.Str("as_of")); err == nil {
			old.AsOf = at
		}
		c.cfg.OldFiles(old)
		return
	}
}
