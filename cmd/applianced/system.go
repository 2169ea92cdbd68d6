package main

import "github.com/spf13/cobra"

// systemCommands are those that concern the machine around the node: what the
// image calls, what changes the image, and its address for minions.
func systemCommands(f *flags) []*cobra.Command {
	return []*cobra.Command{upgradeCommand(f), rebootCommand(f), resetCommand(f), adminCommand(),
		firewallCommand(f), guardsCommand(), virtualCommand(f)}
}
