package main

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/printable"
	"saltern/supervisor/history"
)

func eventsCommand(f *flags) *cobra.Command {
	var last int
	var since string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "events", Short: "Print what happened to this node and its cluster", Args: cobra.NoArgs,
		Long: `events prints when problems began and ended, nodes went and came back, services
ended and why, the virtual address moved, versions changed and backups were made, as this
node saw it.
Times are UTC. About the last 5,000 events are kept; they survive restarts and upgrades.`,
		Example: `  applianced events
  applianced events --since 24h
  applianced events --since "2026-11-21 22:40" --json | jq -r '.[] | select(.code == "SCA-104") | .time'`,
	}
	cmd.Flags().IntVarP(&last, "lines", "n", 30, "how many")
	cmd.Flags().StringVar(&since, "since", "", `print all from a time on: a duration ("30m", "24h"), or a local time ("2026-11-21 22:40")`)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the list for machines")
	cmd.MarkFlagsMutuallyExclusive("since", "lines")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var from time.Time
		if since != "" {
			var err error
			if from, err = parseSince(since, time.Now()); err != nil {
				return err
			}
			last = math.MaxInt32
		}
		events, err := f.client().Events(cmd.Context(), last, from)
		switch {
		case err != nil:
			return err
		case asJSON:
			return writeJSON(cmd.OutOrStdout(), events)
		}
		return writeEvents(cmd.OutOrStdout(), events)
	}
	return cmd
}

func writeEvents(w io.Writer, events []history.Event) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range events {
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\n", e.Time.UTC().Format("2006-01-02 15:04:05"), cmp.Or(printable.Clean(string(e.Code)), printable.Clean(string(e.Kind))),
			cmp.Or(printable.Clean(e.Subject), "-"), printable.Clean(e.Text))
	}
	return tw.Flush()
}
