package main

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"
)

// completeTakes bounds how long a shell waits after the tab key.
const completeTakes = 3 * time.Second

// otherNodes returns the names of the other nodes of the cluster, to complete the command line.
func (f *flags) otherNodes(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.nodeNames(cmd, args, func(name, this string) bool { return name != this })
}

// allNodes completes the names of all nodes of the cluster.
func (f *flags) allNodes(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
	return f.nodeNames(cmd, args, func(string, string) bool { return true })
}

func (f *flags) nodeNames(
	cmd *cobra.Command,
	args []string,
	wanted func(name, this string) bool,
) ([]cobra.Completion, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}

	ctx, cancel := context.WithTimeout(cmd.Context(), completeTakes)
	defer cancel()
	var names []cobra.Completion
	if d, err := f.client().Status(ctx); err == nil {
		for _, n := range d.Nodes {
			if wanted(n.Name, d.Node) {
				names = append(names, n.Name)
			}
		}
	}

	return names, cobra.ShellCompDirectiveNoFileComp
}

// keysIn returns a function for completion, which returns the names of minions whose key has one of
// the states, except those that the command line already names.
func (f *flags) keysIn(states ...string) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]cobra.Completion, cobra.ShellCompDirective) {
		ctx, cancel := context.WithTimeout(cmd.Context(), completeTakes)
		defer cancel()
		var names []cobra.Completion
		if list, err := f.client().Minions(ctx, false); err == nil {
			for _, m := range list.Minions {
				if slices.Contains(states, m.Key) && !slices.Contains(args, m.ID) {
					names = append(names, m.ID)
				}
			}
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}
