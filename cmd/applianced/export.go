package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"saltern/cmd/applianced/adopt"
	"saltern/internal/printable"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

func exportCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "export FOLDER",
		Short: "Write what a Salt master in Python needs to take this one's place",
		Long: `export writes a tree as a Salt master in Python reads it from /: the key that minions
know as the master's own, the keys of minions in all states, the options in
appliance.yaml and in etc/master.d on the storage, states, pillars and the keys of
gpg. Options that only this master has are left out; paths are those of the other
place. FOLDER is made, and must not exist. It holds private keys.

Stop this master before the other one starts on the tree. Jobs are not exported.`,
		Example: "  applianced export /root/salt && tar cz -C /root/salt . > salt.tar.gz",
		Args:    cobra.ExactArgs(1),
	}

	return answering[adopt.Exported]{
		json: "print the result for machines",
		ask: func(cmd *cobra.Command, args []string) (sum adopt.Exported, err error) {
			s, err := settings.Load(f.config, hostname())
			if err != nil {
				return sum, err
			}

			return adopt.Export(cmd.Context(), s, args[0])
		},
		print: func(cmd *cobra.Command, sum adopt.Exported) error {
			for _, n := range sum.Notes {
				fmt.Fprintf(cmd.ErrOrStderr(), "note: %s\n", printable.Clean(n.String()))
			}

			fmt.Fprintf(cmd.OutOrStdout(), "%s: %d files, %s; master key %s\n", cmd.Flags().Arg(0), sum.Files,
				status.Size(uint64(sum.Bytes)), sum.Fingerprint)
			fmt.Fprintln(cmd.OutOrStdout(),
				"next: copy it to / of the other machine, for the account of its master (chown -R); stop "+
					"applianced here before that master starts")
			return nil
		},
	}.verb(cmd)
}
