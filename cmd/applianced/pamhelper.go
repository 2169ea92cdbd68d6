package main

import (
	"errors"
	"fmt"
	"net"
	"os"

	"github.com/spf13/cobra"

	"saltern/supervisor/pam"
)

// pamHelperCommand returns the verb that checks one password of a local account. systemd starts the
// verb for each connection to saltern-pam.socket, with the connection as standard input.
func pamHelperCommand() *cobra.Command {
	var account string
	cmd := &cobra.Command{
		Use:    "pam-helper",
		Short:  "Check a password on behalf of the master (not for people)",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := net.FileConn(os.Stdin)
			if err != nil {
				return errors.New("standard input is no connection: systemd starts this, for saltern-pam.socket")
			}
			defer c.Close()

			if err := pam.Serve(cmd.Context(), c, account); err != nil {
				return fmt.Errorf("check a password: %w", err)
			}

			return nil
		},
	}

	cmd.Flags().StringVar(&account, "for", "saltern-master", "account of the master, which may ask")
	return cmd
}
