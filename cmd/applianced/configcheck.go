package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/go-multierror"
	"github.com/spf13/cobra"

	"saltern/master/conf"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/options"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

func configCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "config",
		Short:   "Look at the configuration, and have all nodes take it",
		Args:    cobra.NoArgs,
		Example: "  sudo applianced config check\n  applianced config apply",
	}
	cmd.AddCommand(checkCommand(f), applyCommand(f), schemaCommand())
	return cmd
}

func checkCommand(f *flags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "Check appliance.yaml, or a file of answers, and print all faults",
		Long: `check reads appliance.yaml, or a file of answers for the set-up, and the options of
Salt's master in it by the rules of the master itself; with appliance.yaml also the
administrator's own files of options, and whether it names the node as the table of
nodes does. It prints all faults with file and line, and
what has no effect. It changes nothing. A file of Salt's master alone is checked by
salt-master --check. The options of all nodes are checked by applianced config apply
--dry-run.`,
		Example: "  sudo applianced config check\n  applianced config check ./appliance.yaml\n  applianced " +
			"config check ./answers.yaml",
		Args: cobra.MaximumNArgs(1),
	}

	cmd.Flags().BoolVar(&asJSON, "json", false, "print faults and notes for machines")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := f.config
		if len(args) == 1 {
			path = args[0]
			if ours, err := checkAnswers(path, cmd.OutOrStdout(), cmd.ErrOrStderr()); ours {
				return err
			}
		}

		s, notes, err := checkFile(path, cmd.ErrOrStderr())
		// check the node's own file against the table of nodes; another file may belong to another
		// node
		if err == nil && sameFile(path, f.config) {
			err = nodeapi.CheckRecorded(s, path)
		}

		if asJSON {
			return printFindings(cmd.OutOrStdout(), err, notes)
		}
		if errors.Is(err, settings.ErrNone) {
			fmt.Fprintln(cmd.ErrOrStderr(), err)
			return exitError(status.ExitUnconfigured)
		}
		if err != nil {
			return err
		}

		fmt.Fprintf(cmd.OutOrStdout(), "%s is right: node %s, cluster %s, data in %s\n", path, s.Node,
			s.Cluster, s.DataDir)
		printNotes(cmd.OutOrStdout(), notes)
		return nil
	}

	return cmd
}

func sameFile(a, b string) bool {
	x, err := os.Stat(a)
	y, err2 := os.Stat(b)
	return err == nil && err2 == nil && os.SameFile(x, y)
}

// checkFile checks appliance.yaml and the future configuration of the node's master. It returns the
// settings, and notes about options that have no effect.
func checkFile(path string, stderr io.Writer) (*settings.Settings, []conf.Note, error) {
	s, err := settings.Load(path, hostname())
	if err != nil {
		return nil, nil, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	notes, err := checkMaster(s, optionsOf{path, text, inSettings()}, stderr)
	return s, notes, err
}

// printFindings prints the result of a check in JSON, which scripts and other nodes read.
func printFindings(w io.Writer, err error, notes []conf.Note) error {
	out := options.Findings{Faults: faultsOf(err)}
	for _, n := range notes {
		out.Notes = append(out.Notes, options.Fault{File: n.Path, Line: n.Line, Option: n.Option, Text: n.String()})
	}

	out.Notes = out.Notes[:min(len(out.Notes), options.MaxFiles)]
	if jerr := json.NewEncoder(w).Encode(out); jerr != nil {
		return jerr
	}

	switch {
	case errors.Is(err, settings.ErrNone):
		return exitError(status.ExitUnconfigured)
	case err != nil:
		return exitError(status.ExitUnknown)
	}

	return nil
}

func faultsOf(err error) (out []options.Fault) {
	if err == nil {
		return nil
	}

	list := []error{err}
	if many, ok := errors.AsType[*multierror.Error](err); ok {
		list = many.Errors
	}

	for _, e := range list[:min(len(list), options.MaxFiles)] {
		one := options.Fault{Text: e.Error()}
		if f, ok := errors.AsType[*conf.Fault](e); ok {
			one.File = f.Path
			one.Line = f.Line
			one.Option = f.Option
		}

		if f, ok := errors.AsType[*layout.UserFault](e); ok {
			one.File = f.File
			one.Line = f.Line
			one.Option = f.Option
		}

		out = append(out, one)
	}

	return out
}
