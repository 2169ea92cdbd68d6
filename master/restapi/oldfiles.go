package restapi

import (
	"fmt"
	"slices"
	"time"

	"saltern/master/client"
)

const (
	// oldFilesHeader is a header in the answer to a command whose minions got outdated files. The
	// answer contains one such header for each node and age of the node's files.
	oldFilesHeader = "X-Saltern-Old-Files"
	// maxOldFiles bounds the number of these headers in an answer; noteOldFiles adds no further
	// headers.
	maxOldFiles = 16
)

// noteOldFiles adds the header about outdated files that minions of the command got.
func (q *request) noteOldFiles(old client.OldFiles) {
	if q.w == nil || q.code != 0 {
		return
	}
	asOf := ""
	if !old.AsOf.IsZero() {
		asOf = old.AsOf.UTC().Format(time.RFC3339)
	}
	text := fmt.Sprintf("node=%+q; as_of=%+q; why=%+q", old.Node, asOf, old.Why)

	said := q.w.Header()[oldFilesHeader]
	if len(said) < maxOldFiles && !slices.Contains(said, text) {
		q.w.Header().Add(oldFilesHeader, text)
	}
}
