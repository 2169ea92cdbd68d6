package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"saltern/internal/printable"
	"saltern/supervisor/api"
	"saltern/supervisor/options"
)

func clusterKeyCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cluster-key",
		Short: "Print the key by which minions know the cluster, and change it",
		Args:  cobra.NoArgs,
		Long: `cluster-key prints the fingerprint of the key by which minions know this cluster. All
nodes have it; who has stolen one can play the master for minions that know it, until
the key is another:

  1. applianced cluster-key new     makes a key and lays it beside the cluster's
  2. minions are told of it, while they still trust the old one
  3. applianced cluster-key take    all masters take it, one after the other

Between 2 and 3 minions that were told do not do what masters with the old key say.
docs/hardening.md has the steps with all commands.`,
		Example: "  applianced cluster-key",
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := f.client().ClusterKeys(cmd.Context())
			if err == nil {
				err = printClusterKeys(cmd.OutOrStdout(), keys)
			}
			return err
		},
	}

	cmd.AddCommand(newClusterKeyCommand(f), takeClusterKeyCommand(f))
	return cmd
}

func newClusterKeyCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:   "new",
		Short: "Make a key and lay it beside the cluster's; nobody uses it yet",
		Args:  cobra.NoArgs,
		Long: `new makes a key and lays it beside the cluster's, unless one lies there already. It
prints where its public half is, which minions are to be told. Nothing else changes.`,
		Example: "  applianced cluster-key new",
		RunE: func(cmd *cobra.Command, _ []string) error {
			keys, err := f.client().NewKey(cmd.Context())
			if err != nil {
				return err
			}

			if err := printClusterKeys(cmd.OutOrStdout(), keys); err != nil {
				return err
			}

			_, err = fmt.Fprintf(cmd.OutOrStdout(),
				"next: salt-cp '*' %s /etc/salt/pki/minion/minion_master.pub\nnext: applianced cluster-key take\n",
				keys.Next.Path)
			return err
		},
	}
}

// takeEffect describes what a new key does to minions.
const takeEffect = "All masters take the new key, one after the other. Minions that were not told of it " +
	"refuse the cluster\nuntil minion_master.pub is removed on them."

func takeClusterKeyCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "take",
		Short: "Have all masters take the key that lies beside the cluster's",
		Args:  cobra.NoArgs,
		Long: `take has the key count that "applianced cluster-key new" has made. The masters of
all nodes take it one after the other; a node that is away takes it when it starts.
Join strings from before are void, and backups from before are restored with --trust
and the old key's fingerprint. Run it again after whatever interrupted it. On a
terminal it asks first.`,
		Example: "  applianced cluster-key take\n  applianced cluster-key take --yes",
	}

	yes := yesFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		client := f.client()
		keys, err := client.ClusterKeys(cmd.Context())
		if err != nil {
			return err
		}
		if keys.Next == nil {
			return errors.New("no new key lies beside the cluster's. If it was just taken, masters that " +
				"still have the old one take it by themselves in a few minutes, at once by applianced config " +
				"apply; to make a key: applianced cluster-key new")
		}

		if err := confirm(cmd, *yes, takeEffect, "take"); err != nil {
			return err
		}

		left, err := takeClusterKey(cmd.Context(), client, keys.Next.Hash, cmd.ErrOrStderr())
		if err != nil {
			return err
		}

		for _, n := range left {
			fmt.Fprintf(cmd.OutOrStdout(), "node %s takes it when it starts: %s\n", n.Name, printable.Clean(n.Cause))
		}

		_, err = fmt.Fprintf(cmd.OutOrStdout(), "the cluster has the key %s\nnext: salt '*' test.ping\n",
			keys.Next.Finger)
		return err
	}

	return cmd
}

// takeClusterKey replaces the cluster's key by the new key that is stored beside it, and restarts
// the masters one after the other. It returns the unreachable nodes.
func takeClusterKey(
	ctx context.Context,
	client *api.Client,
	hash string,
	errOut io.Writer,
) (left []options.NodeResult, err error) {
	if err := client.TakeKey(ctx, hash); err != nil {
		return nil, fmt.Errorf("the cluster keeps its key: %w; run the same command again", err)
	}
	return rollMasters(ctx, client, errOut)
}

// rollMasters restarts the masters of all nodes one after the other, so that they read new keys and
// data. It returns the unreachable nodes.
func rollMasters(ctx context.Context, client *api.Client, errOut io.Writer) (left []options.NodeResult, err error) {
	a := &optionsApply{
		q:      api.ApplyRequest{Force: true, Limit: options.UsualTime},
		asJSON: true,
		out:    io.Discard,
		errOut: errOut,
	}

	r, err := a.applyOptions(ctx, client, false)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w; next: applianced config apply", err)
	case r.Result == nil || !r.Result.Code.Good():
		if r.Result != nil {
			printResult(errOut, *r.Result)
			err = errors.New(printable.Clean(r.Result.Cause))
		}
		return nil, fmt.Errorf("not all masters have taken it: %w; next: applianced config apply", err)
	}

	for _, n := range r.Result.Nodes {
		if n.State == options.Left {
			left = append(left, n)
		}
	}

	return left, nil
}

func printClusterKeys(w io.Writer, keys api.ClusterKeys) error {
	if _, err := fmt.Fprintf(w, "key   %s  %s\n", keys.Key.Finger, keys.Key.Path); err != nil || keys.Next == nil {
		return err
	}
	_, err := fmt.Fprintf(w, "next  %s  %s\n", keys.Next.Finger, keys.Next.Path)
	return err
}
