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

// oldFiles returns a function that warns on standard error if the minions of a job, or a runner,
// get outdated files. The function warns once for each pair of a node and an age of its files.
func (t *tool) oldFiles() func(client.OldFiles) {
	type state struct {
		node string
		asOf time.Time
	}

	warned := map[state]bool{}
	return func(old client.OldFiles) {
		s := state{old.Node, old.AsOf}
		if warned[s] || len(warned) >= maxOldStates {
			return
		}

		warned[s] = true

		of := "of an earlier time"
		if !old.AsOf.IsZero() {
			of = "of " + old.AsOf.UTC().Format(time.RFC3339)
		}

		does := "serves " + old.Minion + " and others"
		if old.Minion == "" {
			does = "reads"
		}

		fmt.Fprintf(t.stderr, "%s: not the newest files: node %s %s files and pillars %s, without what was written since: %s; next: applianced storage status\n",
			t.optionParser.Prog, old.Node, does, of, old.Why)
	}
}

// renewFiles asks the supervisor to update this node's files before Python's salt-run reads them.
// If the update fails, renewFiles warns on standard error.
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

// maxOldStates bounds the warnings for one job.
const maxOldStates = 100
