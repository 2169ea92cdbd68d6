package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"saltern/supervisor/upgrade"
)

// resetMark is looked at by the initial RAM disk before the state is mounted.
const resetMark = "/data/reset"

func resetCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use: "reset", Short: "Forget everything of this node at the next boot", Args: cobra.NoArgs,
		Example: "  applianced leave && applianced reset --yes",
		Long: `reset has the next boot erase settings, keys, passwords, logs and data of this
node from the system's disk; the set-up begins anew. A data disk of its own is
not touched. Take the node out of its cluster first (applianced leave).`,
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "yes, erase it, and reboot now")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var sys upgrade.System
		if _, err := sys.Status(); err != nil {
			return err
		}
		if !yes {
			return misused("reset: nothing was done; all keys and data of this node will be lost: say --yes")
		}
		f, err := os.OpenFile(resetMark, os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return fmt.Errorf("reset: %w", err)
		}
		if err := errors.Join(f.Sync(), f.Close()); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
		return systemctl("reboot")
	}
	return cmd
}
