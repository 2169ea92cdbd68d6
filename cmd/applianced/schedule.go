package main

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/printable"
	"saltern/supervisor/status"
)

// scheduleCommand returns the verb that shows the master's schedule.
func scheduleCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "schedule",
		Short: "Show the master's schedule: what runs next, and what does not run",
		Args:  cobra.NoArgs,
		Long: `schedule asks this node's master for the entries of its option schedule: what they
run, when they run next, when they did last, and which entries cannot be obeyed.

It exits with 0 when all entries can run, 2 when one is refused, 1 when it cannot be
told.`,
		Example: `  applianced schedule
  applianced schedule --json | jq '.entries[] | {name, next}'`,
	}

	return answering[status.Schedule]{
		json: "print the list for machines",
		ask: func(cmd *cobra.Command, _ []string) (status.Schedule, error) {
			return f.client().Schedule(cmd.Context())
		},
		print: func(cmd *cobra.Command, list status.Schedule) error {
			return writeSchedule(cmd.OutOrStdout(), list)
		},
		code: func(list status.Schedule) int { return degradedIf(len(list.Refused) > 0) },
	}.verb(cmd)
}

func writeSchedule(w io.Writer, list status.Schedule) error {
	if len(list.Entries) == 0 && len(list.Refused) == 0 {
		_, err := fmt.Fprintln(w, "Nothing is scheduled; next: schedule in etc/master.d, then: applianced config apply")
		return err
	}

	if !list.Enabled {
		fmt.Fprintln(w, "The schedule is switched off (enabled: False).")
	}

	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "ENTRY\tRUNS\tBY\tLAST\tNEXT\tNOTE")
	for _, e := range list.Entries {
		next := time.Time{}
		if len(e.Next) > 0 {
			next = e.Next[0]
		}

		note := cmp.Or(printable.Clean(e.Skipped), "-")
		switch {
		case !e.Enabled:
			note = "disabled"
		case e.DryRun:
			note = "dry_run"
		case e.Running > 0:
			note = fmt.Sprintf("%d at work", e.Running)
		}

		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\n", printable.Clean(e.Name), printable.Clean(e.Function),
			printable.Clean(e.Trigger), clockOf(e.LastRun), clockOf(next), note)
	}

	if err := tw.Flush(); err != nil {
		return err
	}

	for _, p := range list.Refused {
		key := ""
		if p.Key != "" {
			key = printable.Clean(p.Key) + ": "
		}
		fmt.Fprintf(w, "does not run: %s: %s%s\n", printable.Clean(cmp.Or(p.Entry, "the schedule")), key,
			printable.Clean(p.Text))
	}

	return nil
}

// clockOf formats a time of the master's clock.
func clockOf(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Format("2006-01-02 15:04:05")
}
