package main

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/spf13/cobra"
)

// everyday lists the verbs of the short help, which an administrator needs most.
var everyday = []string{"setup", "status", "nodes", "minions", "minion-config", "keys", "logs", "config",
	"drain", "reboot", "upgrade", "backup"}

// helped sets a help for root that fits on a screen. `help --all` lists all verbs.
func helped(root *cobra.Command) {
	whole := root.HelpFunc()
	all := false
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if cmd != root || all {
			whole(cmd, args)
			return
		}
		shortHelp(root, cmd.OutOrStdout())
	})

	help := &cobra.Command{
		Use: "help [VERB]", Short: "Help about a verb, or with --all about all of them",
		Example: "  applianced help --all\n  applianced help drain",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil || len(rest) > 0 {
				return unknownVerb(root, args[0])
			}
			return about.Help()
		},
	}

	help.Flags().BoolVar(&all, "all", false, "list all verbs")
	root.SetHelpCommand(help)
}

// shortHelp prints the everyday verbs. It ignores errors of the terminal.
func shortHelp(root *cobra.Command, w io.Writer) {
	fmt.Fprintf(w, "%s\n\n", root.Short)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, name := range everyday {
		if cmd, _, err := root.Find([]string{name}); err == nil {
			fmt.Fprintf(table, "  applianced %s\t%s\n", name, cmd.Short)
		}
	}
	_ = table.Flush()
	fmt.Fprintf(w,
		"\nAll verbs: applianced help --all. About one: applianced VERB --help, man applianced-VERB.\nStates "+
			"are in /srv/salt on the image; Salt's own tools want root: sudo salt '*' test.ping.\n")
}
