package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

func virtualCommand(f *flags) *cobra.Command {
	var ask bool
	cmd := &cobra.Command{
		Use:   "virtual-address [ADDRESS|none]",
		Short: "Show or change the address that moves between the nodes",
		Args:  cobra.MaximumNArgs(1),
		Long: `virtual-address shows the cluster's virtual address and which node has it. With an
address it gives the cluster another one, with none it takes it away; all nodes
follow within seconds, and minions that know only the old one have to be pointed
elsewhere.

The address has to be a free one of the network that all nodes are in. A node
gives it up when it does not serve, is drained, or its supervisor does not answer.
On EC2 there are no such addresses: use a network load balancer or DNS.

It exits with 0 when one node has the address, 2 when none or several have it,
4 when the cluster has no such address.`,
		Example: "  applianced virtual-address\n  applianced virtual-address 10.0.0.20\n  applianced " +
			"virtual-address none",
	}

	cmd.Flags().BoolVar(&ask, "fit", false,
		"exit with 0 if this node may have the address, else with 3; for keepalived")
	_ = cmd.Flags().MarkHidden("fit") // fails only for an unknown flag
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c := f.client()
		switch {
		case ask:
			ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
			defer cancel()
			if err := c.Fit(ctx); err != nil {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
				return exitError(status.ExitNotServing)
			}
			return nil
		case len(args) == 1:
			address := strings.TrimSpace(args[0])
			if address == "none" {
				address = ""
			} else if address == "" {
				return errors.New("an empty address; to take it away: applianced virtual-address none")
			}
			return c.SetVirtual(cmd.Context(), address)
		}

		return showVirtual(cmd, c)
	}

	return cmd
}

func showVirtual(cmd *cobra.Command, c *api.Client) error {
	d, err := c.Status(cmd.Context())
	if err != nil {
		return err
	}

	out := cmd.OutOrStdout()
	switch v := d.Virtual; {
	case v == nil:
		fmt.Fprintln(out, "this cluster has no virtual address")
		return exitError(status.ExitUnconfigured)
	case len(v.Nodes) == 1:
		fmt.Fprintf(out, "%s, now on %s\n", v.Address, v.Nodes[0])
		return nil
	case len(v.Nodes) == 0:
		fmt.Fprintf(out, "%s, now on no node\n", v.Address)
	default:
		fmt.Fprintf(out, "%s, now on %s\n", v.Address, strings.Join(v.Nodes, " and "))
	}

	return exitError(status.ExitDegraded)
}
