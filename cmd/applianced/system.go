package main

import "github.com/spf13/cobra"

// systemCommands are those that concern the machine around the node: what the
// image calls, and what changes the image.
func systemCommands(f *flags) []*cobra.Command {
	return []*cobra.Command{upgradeCommand(f), resetCommand(), firewallCommand(f)}
}
