package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/printable"
	"saltern/supervisor/status"
)

// minionCommands returns the verbs about minions, their keys and log-ins.
func minionCommands(f *flags) []*cobra.Command {
	return []*cobra.Command{minionsCommand(f), explainCommand(f), minionConfigCommand(f), keysCommand(f), tokensCommand(f)}
}

func minionsCommand(f *flags) *cobra.Command {
	var asJSON, absent bool
	cmd := &cobra.Command{
		Use:   "minions",
		Short: "List the accepted minions: who is there, on which node, last heard when",
		Args:  cobra.NoArgs,
		Long: `minions asks the masters of all nodes. A minion is there while it listens for
jobs; its node is the one whose master it listens to. The time and the address are
those of the last request that it has proven; they begin anew with each start of
a master. "-" is what is not known: a minion that has not proven a request yet has no
address, and of minions that share one address (behind NAT, or on one machine) and listen
to several masters nobody can tell which listens to which.

It exits with 0 when every accepted minion is there, 2 when one is not or a node
could not be asked, 1 when it cannot be told.`,
		Example: `  applianced minions
  applianced minions --absent
  applianced minions --json | jq -r '.minions[] | select(.connected | not) | .id'`,
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print the list for machines")
	cmd.Flags().BoolVar(&absent, "absent", false, "only those that are not there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		list, err := f.client().Minions(cmd.Context(), false)
		if err != nil {
			return err
		}

		code := 0
		if len(list.Unasked) > 0 {
			code = status.ExitDegraded
		}

		list.Minions = slices.DeleteFunc(list.Minions, func(m status.Minion) bool {
			if m.Key == "accepted" && !m.Connected {
				code = status.ExitDegraded
			}
			return m.Key != "accepted" || absent && m.Connected
		})

		if asJSON {
			err = writeJSON(cmd.OutOrStdout(), list)
		} else {
			err = writeMinions(cmd.OutOrStdout(), list, time.Now())
			warnUnasked(cmd.ErrOrStderr(), list)
			if slices.ContainsFunc(list.Minions, func(m status.Minion) bool { return m.Connected && m.Node == "" }) {
				fmt.Fprintln(cmd.ErrOrStderr(),
					"MASTER -: minions with one address listen to several masters, so which of them listens "+
						"to which is not known")
			}
		}

		if err == nil && code != 0 {
			err = exitError(code)
		}

		return err
	}

	return cmd
}

func writeMinions(w io.Writer, list status.MinionList, now time.Time) error {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(tw, "MINION\tSTATE\tMASTER\tADDRESS\tLAST HEARD")
	for _, m := range list.Minions {
		state := "absent"
		if m.Connected {
			state = "there"
		}
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\n", printable.Clean(m.ID), state,
			cmp.Or(printable.Clean(m.Node), "-"), cmp.Or(printable.Clean(m.Address), "-"),
			wordSince(m.Seen, now))
	}
	return tw.Flush()
}

func wordSince(t *time.Time, now time.Time) string {
	if t == nil {
		return "-"
	}
	return status.Age(max(0, now.Sub(*t))) + " ago"
}

func warnUnasked(w io.Writer, list status.MinionList) {
	notAsked(w, list.Unasked, ", what it knows is missing")
}

// notAsked prints the nodes that did not answer, each with the reason. missing is the text that
// says what the list lacks without these nodes. notAsked reports whether there are such nodes.
func notAsked(w io.Writer, unasked map[string]string, missing string) bool {
	for _, name := range slices.Sorted(maps.Keys(unasked)) {
		fmt.Fprintf(w, "%s could not be asked%s: %s\n", printable.Clean(name), missing, printable.Clean(unasked[name]))
	}
	return len(unasked) > 0
}

// secretCommand returns the verbs about the cluster's secret.
func secretCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "secret",
		Short:   "The cluster's secret",
		Args:    cobra.NoArgs,
		Example: "  applianced secret rotate",
		RunE: func(*cobra.Command, []string) error {
			return misused("secret: say what to do with it: applianced secret rotate; applianced join-string shows it")
		},
	}

	var force bool
	rotate := &cobra.Command{
		Use:   "rotate",
		Short: "Give the cluster a new secret on all nodes",
		Args:  cobra.NoArgs,
		Long: `rotate makes a new secret. Each node writes it to its own disk; only when all
have it, the old one is refused, and join strings made before are void. Nodes and
minions that are part of the cluster need nothing. Whatever interrupts it: the old
secret holds, and the same command goes on where it stopped.

A node that cannot be reached stops it, unless --force is given: such a node takes
the secret when it is back.`,
		Example: "  applianced secret rotate\n  applianced secret rotate --force",
	}

	rotate.Flags().BoolVar(&force, "force", false, "even if a node cannot be reached")
	rotate.RunE = func(cmd *cobra.Command, _ []string) error {
		without, err := f.client().RotateSecret(cmd.Context(), force)
		if err != nil {
			return err
		}

		for _, n := range without {
			fmt.Fprintf(cmd.OutOrStdout(), "%s takes it when it is back\n", printable.Clean(n))
		}

		_, err = fmt.Fprintln(cmd.OutOrStdout(),
			"the cluster has a new secret; join strings made before are void: applianced join-string")
		return err
	}

	cmd.AddCommand(rotate)
	return cmd
}
