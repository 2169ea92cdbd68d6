package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/past"
	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/api"
)

// services returns the services of a node, each with a description for completion.
func services() []cobra.Completion {
	return []cobra.Completion{
		cobra.CompletionWithDesc("master", "the Salt master"),
		cobra.CompletionWithDesc("lb", "the load balancer"),
		cobra.CompletionWithDesc("api", "salt-api, which serves Salt's API over HTTP"),
		cobra.CompletionWithDesc("vip", "keepalived, which moves the virtual address"),
	}
}

func serviceList() string {
	var b strings.Builder
	for _, s := range services() {
		name, what, _ := strings.Cut(s, "\t")
		fmt.Fprintf(&b, "\n  %-8s %s", name, what)
	}
	return b.String()
}

// oneService returns an error unless the argument is the name of a service. Only the node's
// supervisor can check whether this node has the service.
func oneService(_ *cobra.Command, args []string) error {
	var names []string
	for _, s := range services() {
		name, _, _ := strings.Cut(s, "\t")
		names = append(names, name)
	}
	switch {
	case len(args) != 1:
		return fmt.Errorf("name one service: %s", strings.Join(names, ", "))
	case !slices.Contains(names, args[0]):
		return fmt.Errorf("unknown service %.40q; there are: %s", args[0], strings.Join(names, ", "))
	}
	return nil
}

// mostInMemory is how many lines the supervisor keeps in memory. Older lines are in the service's
// log file.
const mostInMemory = 200

func logsCommand(f *flags) *cobra.Command {
	var lines int
	var follow bool
	var since string
	cmd := &cobra.Command{
		Use:   "logs SERVICE",
		Short: "Print what a service wrote",
		Long: `logs prints the last lines that a service of this node wrote:
` + serviceList() + `

With --follow, with --since and with more than 200 lines each line begins with its
time in UTC; there are up to 16 MiB of them. The supervisor itself writes to the
journal: journalctl -u applianced.`,
		Example: `  applianced logs master
  applianced logs master --follow
  applianced logs lb --since 30m
  applianced logs lb --since "2026-11-21 22:40" | grep backend
  applianced logs master -n 1000`,
		Args:      oneService,
		ValidArgs: services(),
	}

	cmd.Flags().IntVarP(&lines, "lines", "n", 50, "how many")
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "go on with what it writes from now on, until interrupted")
	cmd.Flags().StringVar(&since, "since", "",
		`print all from a time on: a duration ("30m", "7d"), or a local time ("2026-11-21 22:40")`)
	cmd.MarkFlagsMutuallyExclusive("since", "lines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, out := f.client(), cmd.OutOrStdout()
		q := api.LogQuery{Last: lines}
		if since != "" {
			var err error
			if q.Since, err = parseSince(since, time.Now()); err != nil {
				return err
			}
		}

		if follow || since != "" || lines > mostInMemory {
			return printLog(cmd.Context(), out, c, args[0], q, follow)
		}

		got, err := c.Output(cmd.Context(), args[0], lines)
		printLines(out, got)
		return err
	}

	return cmd
}

// parseSince returns the time that the flag --since names.
func parseSince(text string, now time.Time) (time.Time, error) {
	t, err := past.Time(text, now)
	if err != nil {
		return t, misused("--since: %v", err)
	}
	return t, nil
}

// printLog prints a log page by page.
func printLog(ctx context.Context, out io.Writer, c *api.Client, name string, q api.LogQuery, follow bool) error {
	var answered time.Time
	for {
		page, err := c.Log(ctx, name, q)
		switch {
		case follow && ctx.Err() != nil:
			return nil
		// The supervisor may be restarting.
		case err != nil && follow && time.Since(answered) < time.Minute:
		case err != nil:
			return err
		default:
			printLines(out, page.Lines)
			answered, q = time.Now(), api.LogQuery{Cursor: page.Cursor}
		}

		if page.More {
			continue
		}
		if !follow {
			return nil
		}
		if pause.For(ctx, 500*time.Millisecond) != nil {
			return nil
		}
	}
}

func printLines(out io.Writer, lines []string) {
	for _, l := range lines {
		fmt.Fprintln(out, printable.Clean(l))
	}
}
