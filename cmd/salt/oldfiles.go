package main

import (
	"fmt"
	"time"

	"saltern/master/client"
)

// oldFiles writes to standard error that minions of a job are served files of before, once
// for each node and state of its files.
func (t *tool) oldFiles() func(client.OldFiles) {
	type state struct {
		node string
		asOf time.Time
	}
	said := map[state]bool{}
	return func(old client.OldFiles) {
		s := state{old.Node, old.AsOf}
		if said[s] || len(said) >= maxOldStates {
			return
		}
		said[s] = true

		of := "of before"
		if !old.AsOf.IsZero() {
			of = "of " + old.AsOf.UTC().Format(time.RFC3339)
		}
		fmt.Fprintf(t.stderr, "%s: not the newest files: node %s serves %s and others files and pillars %s, without what was written since: %s; next: applianced storage status\n",
			t.p.Prog, old.Node, old.Minion, of, old.Why)
	}
}

// maxOldStates bounds what is written for one job.
const maxOldStates = 100
