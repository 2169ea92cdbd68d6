package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// exitUsage is EX_USAGE of sysexits.h. `applianced status` never returns it for a status, so
// scripts can tell a mistyped verb from a status.
const exitUsage = 64

// usageError is an invalid command line.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// misused returns a usageError.
func misused(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// strict makes cmd and its verbs refuse unknown arguments. By default, when a verb with sub-verbs
// gets an unknown argument, cobra prints the verb's help and exits with success.
func strict(cmd *cobra.Command) {
	cmd.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return misused("%w; see: %s --help", err, cmd.CommandPath())
	})
	if !cmd.Runnable() && cmd.HasSubCommands() {
		cmd.Args = cobra.ArbitraryArgs
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownVerb(cmd, args[0])
		}
	} else if check := cmd.Args; check != nil {
		cmd.Args = func(cmd *cobra.Command, args []string) error {
			err := check(cmd, args)
			switch {
			case err == nil:
				return nil
			case cmd.HasSubCommands() && len(args) > 0:
				return unknownVerb(cmd, args[0])
			}

			return misused("%s: %w; see: %s --help", cmd.Name(), err, cmd.CommandPath())
		}
	}

	for _, sub := range cmd.Commands() {
		strict(sub)
	}
}

// unknownVerb suggests similar verbs.
func unknownVerb(cmd *cobra.Command, verb string) error {
	cmd.SuggestionsMinimumDistance = 2
	near := cmd.SuggestionsFor(verb)
	if len(near) == 0 {
		return misused("unknown verb %.40q; %s --help lists them", verb, cmd.CommandPath())
	}
	for i, n := range near {
		near[i] = cmd.CommandPath() + " " + n
	}
	return misused("unknown verb %.40q; did you mean: %s?", verb, strings.Join(near, ", "))
}
