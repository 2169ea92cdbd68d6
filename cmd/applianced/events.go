package main

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/printable"
	"saltern/supervisor/history"
	"saltern/supervisor/status"
)

func eventsCommand(f *flags) *cobra.Command {
	var asked eventFlags
	cmd := &cobra.Command{
		Use:   "events",
		Short: "Print what happened to this node and its cluster",
		Args:  cobra.NoArgs,
		Long: `events prints when problems began and ended, nodes went and came back, services
ended and why, the virtual address moved, versions changed and backups were made, as this
node saw it. What the other nodes saw too: applianced history.
Times are UTC. About the last 5,000 events are kept; they survive restarts and upgrades.`,
		Example: `  applianced events
  applianced events --since 24h
  applianced events --since "2026-11-21 22:40" --json | jq -r '.[] | select(.code == "SCA-104") | .time'`,
	}

	asked.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, err := asked.parseQuery(time.Now())
		if err != nil {
			return err
		}

		events, err := f.client().Events(cmd.Context(), q)
		switch {
		case err != nil:
			return err
		case asked.json:
			return writeJSON(cmd.OutOrStdout(), events)
		}

		return writeEvents(cmd.OutOrStdout(), events)
	}

	return cmd
}

func historyCommand(f *flags) *cobra.Command {
	var asked eventFlags
	cmd := &cobra.Command{
		Use:   "history",
		Short: "Print what happened to the cluster, as all nodes saw it",
		Args:  cobra.NoArgs,
		Long: `history asks all nodes for their events and prints them in the order of time, each
with the nodes that saw it: a node that was away has seen what the others could not. What
several saw within half a minute is one line; --json has each.
Times are UTC, by each node's own clock. Exit status 2: a node could not be asked.`,
		Example: `  applianced history --since 24h
  applianced history -n 200 --json | jq -r '.[] | select(.kind == "virtual") | .time + " " + .text'`,
	}

	asked.addFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		q, err := asked.parseQuery(time.Now())
		if err != nil {
			return err
		}

		list, err := f.client().History(cmd.Context(), q)
		if err != nil {
			return err
		}

		if asked.json {
			err = writeJSON(cmd.OutOrStdout(), list.Events)
		} else {
			err = writeHistory(cmd.OutOrStdout(), list.Events)
		}

		if notAsked(cmd.ErrOrStderr(), list.Unasked, ", what it saw is missing") && err == nil {
			err = exitError(status.ExitDegraded)
		}

		return err
	}

	return cmd
}

// eventFlags holds the flags that select events.
type eventFlags struct {
	last  int
	since string
	json  bool
}

func (a *eventFlags) addFlags(cmd *cobra.Command) {
	cmd.Flags().IntVarP(&a.last, "lines", "n", 30, "how many")
	cmd.Flags().StringVar(&a.since, "since", "",
		`print all from a time on: a duration ("30m", "7d"), or a local time ("2026-11-21 22:40")`)
	cmd.Flags().BoolVar(&a.json, "json", false, "print the list for machines")
	cmd.MarkFlagsMutuallyExclusive("since", "lines")
}

func (a *eventFlags) parseQuery(now time.Time) (q history.Query, err error) {
	q.Last = a.last
	if a.since != "" {
		q.Last = history.MaxEvents
		q.Since, err = parseSince(a.since, now)
	}
	return q, err
}

func writeEvents(w io.Writer, events []history.Event) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, e := range events {
		writeEvent(tw, e, "")
	}
	return tw.Flush()
}

func writeEvent(w io.Writer, e history.Event, by string) {
	fmt.Fprintf(w, "%s\t%s%s\t%s\t%s\n", e.Time.UTC().Format("2006-01-02 15:04:05"), by, cmp.Or(
		printable.Clean(string(e.Code)), printable.Clean(string(e.Kind))),
		cmp.Or(printable.Clean(e.Subject), "-"), printable.Clean(e.Text))
}

// Two nodes may see the same event. sameWithin is how far apart in time the two observations may
// be. sameAmong is how many other events may be between them.
const (
	sameWithin = 30 * time.Second
	sameAmong  = 200
)

// writeHistory prints a table of events. For an event that several nodes saw, it prints one line,
// with the time at which the first of them saw the event.
func writeHistory(w io.Writer, list []history.Seen) error {
	by := make([][]string, len(list))
	for i, e := range list {
		first := i
		for j := i - 1; j >= max(0, i-sameAmong) && e.Time.Sub(list[j].Time) <= sameWithin; j-- {
			o := list[j]
			if len(by[j]) > 0 && !slices.Contains(by[j], e.By) && o.Kind == e.Kind && o.Code == e.Code &&
				o.Subject == e.Subject && o.Text == e.Text {
				first = j
				break
			}
		}

		by[first] = append(by[first], e.By)
	}

	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "TIME\tSEEN BY\tWHAT\tSUBJECT\tEVENT")
	for i, e := range list {
		if len(by[i]) > 0 {
			slices.Sort(by[i])
			writeEvent(tw, e.Event, printable.Clean(strings.Join(by[i], ","))+"\t")
		}
	}

	return tw.Flush()
}
