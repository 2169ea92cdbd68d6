package main

import "github.com/spf13/cobra"

// systemCommands returns the verbs about the machine: verbs that the image runs, verbs that change
// the image, and verbs about the machine's address for minions.
func systemCommands(f *flags) []*cobra.Command {
	return []*cobra.Command{upgradeCommand(f), rebootCommand(f), resetCommand(f), adminCommand(),
		firewallCommand(f), guardsCommand(), virtualCommand(f)}
}
