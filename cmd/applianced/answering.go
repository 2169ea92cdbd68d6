package main

import (
	"encoding/json"
	"io"

	"github.com/spf13/cobra"

	"saltern/supervisor/status"
)

// answering is a verb that requests an answer from a node and prints it: as text or, with --json,
// for programs.
type answering[T any] struct {
	json string // help text of --json
	ask  func(cmd *cobra.Command, args []string) (T, error)
	// print prints an answer for people.
	print func(cmd *cobra.Command, answer T) error
	// document returns the value that --json prints. It may be nil: --json prints the answer
	// itself.
	document func(answer T) any
	// empty returns the value that --json prints if the request fails with err, so that programs
	// find the fields that they expect. It may be nil: --json then prints nothing.
	empty func(err error) any
	// code returns the exit code for an answer. It may be nil: the exit code is 0.
	code func(answer T) int
}

// verb adds the flag --json to cmd, sets its RunE to ask and print, and returns cmd.
func (a answering[T]) verb(cmd *cobra.Command) *cobra.Command {
	asJSON := cmd.Flags().Bool("json", false, a.json)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		answer, err := a.ask(cmd, args)
		if err != nil {
			if *asJSON && a.empty != nil && cmd.Context().Err() == nil {
				_ = writeJSON(cmd.OutOrStdout(), a.empty(err))
			}
			return err
		}

		switch {
		case !*asJSON:
			err = a.print(cmd, answer)
		case a.document != nil:
			err = writeJSON(cmd.OutOrStdout(), a.document(answer))
		default:
			err = writeJSON(cmd.OutOrStdout(), answer)
		}

		if err == nil && a.code != nil {
			err = exitWith(a.code(answer))
		}

		return err
	}

	return cmd
}

// exitWith returns the error that ends the program with the exit code code, or nil for 0.
func exitWith(code int) error {
	if code == 0 {
		return nil
	}
	return exitError(code)
}

// degradedIf returns the exit code for a degraded node or cluster, or 0.
func degradedIf(degraded bool) int {
	if degraded {
		return status.ExitDegraded
	}
	return 0
}

func writeJSON(out io.Writer, v any) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
