package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"time"

	"saltern/internal/control"
	"saltern/internal/printable"
	"saltern/master/client"
)

// oldFiles writes to standard error that minions of a job are served files of before, or that
// a runner reads them, once for each node and state of its files.
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

		does := "serves " + old.Minion + " and others"
		if old.Minion == "" {
			does = "reads"
		}

		fmt.Fprintf(t.stderr, "%s: not the newest files: node %s %s files and pillars %s, without what was written since: %s; next: applianced storage status\n",
			t.p.Prog, old.Node, does, of, old.Why)
	}
}

// renewFiles has the files of this node made as they are now, before Python's salt-run reads
// them. When that is not possible, standard error says so.
func (t *tool) renewFiles(ctx context.Context) {
	if t.cfg.Door == "" {
		return
	}

	n, err := control.NewDoor(t.cfg.Door, os.Geteuid()).Newest(ctx, control.NewestQuestion{})
	old := client.OldFiles{
		Node: cmp.Or(t.cfg.Node, t.cfg.ID),
		AsOf: n.AsOf,
		Why:  cmp.Or(n.Why, n.Except),
	}

	if err != nil {
		old.Why = printable.Line(err.Error())
	}

	if old.Why != "" {
		t.oldFiles()(old)
	}
}

// maxOldStates bounds what is written for one job.
const maxOldStates = 100
