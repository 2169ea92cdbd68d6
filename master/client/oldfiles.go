package client

import (
	"slices"
	"time"

	"saltern/internal/printable"
	"saltern/master/event"
	"saltern/master/value"
)

// OldFiles reports that a minion of a job, or a runner, gets outdated files and pillars, because
// newer files and pillars could not be copied to the node that serves it.
type OldFiles struct {
	Minion string // id of the minion; "" for a runner
	Node   string
	AsOf   time.Time // time up to which the served files are current; zero: unknown
	Why    string
}

// maxOldText bounds each text of OldFiles, in bytes.
const maxOldText = 300

// oldFiles calls Config.OldFiles if one of the watches expects a minion that the event names.
func (c *Client) oldFiles(ws []*watch, e event.Event) {
	minions := append(e.Data.Texts("minions"), e.Data.Str("id"))
	for _, w := range ws {
		i := slices.IndexFunc(minions, func(minion string) bool { return w.expected[minion] })
		if i < 0 {
			continue
		}
		old := readOldFiles(e.Data)
		old.Minion = printable.Brief(minions[i], maxOldText)
		c.cfg.OldFiles(old)
		return
	}
}

// readOldFiles returns the contents of an event [event.TagOldFiles].
func readOldFiles(data *value.Map) OldFiles {
	old := OldFiles{
		Minion: printable.Brief(data.Str("id"), maxOldText),
		Node:   printable.Brief(data.Str("node"), maxOldText),
		Why:    printable.Brief(data.Str("why"), maxOldText),
	}
	if at, err := time.Parse(time.RFC3339, data.Str("as_of")); err == nil {
		old.AsOf = at
	}
	return old
}
