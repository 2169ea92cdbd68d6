package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"path"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/audit"
	"saltern/internal/printable"
	"saltern/supervisor/status"
)

func auditCommand(f *flags) *cobra.Command {
	q := audit.Query{Last: 50}
	var since string
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "audit",
		Short: "Print who did what from where, on all nodes",
		Args:  cobra.NoArgs,
		Long: `audit prints jobs and who published them, keys that were accepted, rejected and
deleted, what was done to nodes and configuration, log-ins and those that were
refused. It asks all nodes; each keeps what was done through it on its own disk,
for a year at most, 128 MiB of administrators' acts. Times are UTC.

USER is who is behind it as far as the node can tell: whoever logged in, also after
sudo. Arguments of jobs are not kept; the job cache has them by the job id.

With --json it prints a JSON object a line, and whatever was asked for before it
began has a line of its own (result "asked").

Exit codes: 0 all nodes answered, 2 one did not, or has more records than it may
send; 1 it cannot be told.`,
		Example: `  applianced audit
  applianced audit --since 24h --user alice
  applianced audit --action 'key.*' --since 2026-11-01
  applianced audit --since 1h --json | jq -r 'select(.result == "refused") | .from'`,
	}

	cmd.Flags().IntVarP(&q.Last, "lines", "n", q.Last, "how many")
	cmd.Flags().StringVar(&since, "since", "",
		`print all from a time on: a duration ("30m", "24h"), or a local time ("2026-11-21 22:40")`)
	cmd.Flags().StringVar(&q.User, "user", "", "only what this user did, or was done as this user")
	cmd.Flags().StringVar(&q.Action, "action", "",
		`only this action, such as job.publish, or those of a pattern: 'key.*'`)
	cmd.Flags().StringVar(&q.Node, "node", "", "only what was done on this node")
	cmd.Flags().BoolVar(&q.Acts, "acts", false, "leave out what only reads, and was permitted")
	cmd.Flags().BoolVar(&q.Refused, "refused", false, "only what was refused or failed")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print JSON lines for machines")
	cmd.MarkFlagsMutuallyExclusive("since", "lines")
	_ = cmd.RegisterFlagCompletionFunc("node", f.allNodes)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if _, err := path.Match(q.Action, ""); err != nil || q.Last <= 0 {
			return misused("audit: --action takes a name or a pattern such as 'key.*', --lines a number from 1 on")
		}

		if since != "" {
			var err error
			if q.Since, err = parseSince(since, time.Now()); err != nil {
				return err
			}
			q.Last = 0
		}

		list, err := f.client().Audit(cmd.Context(), q)
		if err != nil {
			return err
		}

		if asJSON {
			err = writeRecords(cmd.OutOrStdout(), list.Records)
		} else {
			err = writeAudit(cmd.OutOrStdout(), list.Records)
		}

		if err == nil && warnAudit(cmd.ErrOrStderr(), list, q.Last == 0) {
			err = exitError(status.ExitDegraded)
		}

		return err
	}

	cmd.AddCommand(auditVerifyCommand(f))
	return cmd
}

// warnAudit prints which records the list lacks. It reports whether the list lacks records that the
// user requested.
func warnAudit(w io.Writer, list audit.List, all bool) (missing bool) {
	missing = notAsked(w, list.Unasked, ", what it has written down is missing")
	if list.More && all {
		fmt.Fprintf(w,
			"there are more; the oldest of them are not shown: narrow it down with --action, --user, --node "+
				"or a later --since\n")
		missing = true
	}
	if list.Damaged > 0 {
		fmt.Fprintf(w, "%d lines cannot be read\n", list.Damaged)
	}
	return missing
}

func writeRecords(w io.Writer, list []audit.Record) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	for _, r := range list {
		if err := enc.Encode(r); err != nil {
			return err
		}
	}
	return nil
}

// writeAudit prints a table. It omits the start of an action whose end is in the table.
func writeAudit(w io.Writer, list []audit.Record) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TIME\tNODE\tUSER\tFROM\tACTION\tOBJECT\tRESULT")
	for _, r := range audit.Settled(list) {
		for _, cell := range []string{r.Time.UTC().Format("2006-01-02 15:04:05"), r.Node, r.Who(),
			r.Whence(), r.Action, r.What()} {
			fmt.Fprintf(tw, "%s\t", cmp.Or(cellText(cell), "-"))
		}
		fmt.Fprintln(tw, cellText(auditResult(r)))
	}
	return tw.Flush()
}

// cellText returns text cut and made safe for a cell of a table.
func cellText(s string) string { return printable.Brief(s, 200) }

func auditResult(r audit.Record) string {
	text := string(r.Result)
	switch {
	case r.JID != "":
		text += " " + r.JID
	case r.Detail != "":
		text += ": " + r.Detail
	}
	if r.Lost > 0 {
		text += fmt.Sprintf(" (%d before it are missing)", r.Lost)
	}
	return text
}
