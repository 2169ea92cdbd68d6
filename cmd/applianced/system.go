package main

import "github.com/spf13/cobra"

// systemCommands returns the verbs about the machine: those that the image runs, those that change
// the image, and those about its address for minions.
func systemCommands(f *flags) []*cobra.Command {
	return []*cobra.Command{upgradeCommand(f), rebootCommand(f), resetCommand(f), adminCommand(),
		firewallCommand(f), guardsCommand(), virtualCommand(f)}
}
