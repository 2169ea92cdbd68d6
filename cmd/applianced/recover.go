package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

func recoverCommand(f *flags) *cobra.Command {
	var fresh, yes, force bool
	cmd := &cobra.Command{
		Use:   "recover --new-cluster",
		Short: "Make a cluster of its own of a node that is left when most are lost",
		Args:  cobra.NoArgs,
		Long: `recover --new-cluster is for the loss of most nodes for good: the shared volume has
stopped then, since nobody could say which of two halves is right. This node
becomes a cluster of one node with all keys, jobs, states and pillars that its own
copy of the data holds; minions need no change. What was written last on a lost
node may be missing. The lost nodes are refused from then on, the cluster's secret
changes, and new nodes can join.

Switch the lost nodes off for good first: if most of them come back without this
one, they go on as the old cluster.

It may be interrupted at any time and goes on by itself. It ends when this node
serves: code 0, or 3 when something stopped it.`,
		Example: "  applianced recover --new-cluster --yes",
	}

	cmd.Flags().BoolVar(&fresh, "new-cluster", false, "become a cluster of its own")
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, the other nodes are lost for good")
	cmd.Flags().BoolVar(&force, "force", false, "even if another node still answers or the shared volume works")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := f.client()
		d, err := c.Status(cmd.Context())
		switch {
		case err != nil:
			return err
		case !fresh:
			return misused("recover: nothing was done; say what to do: applianced recover --new-cluster")
		case !yes:
			for _, n := range d.Nodes {
				if n.Name != d.Node {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s (%s) would be refused for ever\n",
						printable.Clean(n.Name), printable.Clean(n.State))
				}
			}
			return misused("recover: nothing was done; if the other nodes are lost for good, say --yes")
		}

		if err := c.Recover(cmd.Context(), force); err != nil {
			return err
		}

		return followRecovery(cmd, c)
	}

	return cmd
}

// followRecovery waits until the node serves again.
func followRecovery(cmd *cobra.Command, c *api.Client) error {
	words := map[string]string{
		"copy":    "taking this node's copy of the data",
		"switch":  "leaving the lost nodes behind",
		"masters": "starting, and taking the lost masters out",
	}

	printed := ""
	for {
		r, err := c.Recovering(cmd.Context())
		d, serr := c.Status(cmd.Context())
		switch {
		case err != nil && !errors.Is(err, api.ErrNotRunning), serr != nil && !errors.Is(serr, api.ErrNotRunning):
			return errors.Join(err, serr)
		case err != nil || serr != nil: // the supervisor restarts: repeat the request
		case r.Stage == "" && r.Fault != "":
			fmt.Fprintf(cmd.ErrOrStderr(),
				"applianced: recover: %s\nnothing was changed; next: applianced status\n",
				printable.Clean(r.Fault))
			return exitError(status.ExitNotServing)
		case r.Stage == "" && d.ServingSince != nil:
			_, err := fmt.Fprintln(cmd.OutOrStdout(),
				"this node is a cluster of its own and serves minions; for new nodes: applianced join-string")
			return err
		case r.Stage+r.Fault != printed && r.Stage != "":
			printed = r.Stage + r.Fault
			fmt.Fprintln(cmd.OutOrStdout(), words[r.Stage])
			if r.Fault != "" {
				fmt.Fprintln(cmd.OutOrStdout(), "  tried, and tried again:", printable.Clean(r.Fault))
			}
		}

		if err := pause.For(cmd.Context(), 300*time.Millisecond); err != nil {
			return err
		}
	}
}
