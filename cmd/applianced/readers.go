package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
)

// readersCommand returns the verb that says who gets a pillar key, file or secret.
func readersCommand(f *flags) *cobra.Command {
	arguments := map[string]*string{}
	asJSON := false
	cmd := &cobra.Command{
		Use:   "readers [KEY]",
		Short: "Show which minions get a key of the pillar, a pillar file or a secret of it",
		Args:  cobra.MaximumNArgs(1),
		Long: `readers searches the pillars of the minions for a key, for what a file gives, or for a PGP
message of a file, and shows which minions get it, through which files and lines of top
files, and which commit has brought it. The parts of a key may be patterns. It shows no
value. Nothing that has an effect is run; what cannot be told without is named.

It asks the master by salt-run pillar.readers. It exits with 0 when a minion gets it,
1 when none does, 2 when that could not be told.`,
		Example: `  applianced readers db:password
  applianced readers 'users:*:key' --tgt 'web*'
  applianced readers --file secrets.db
  applianced readers --file secrets/db.sls --block 2 --json`,
	}
	for _, a := range []struct{ name, usage string }{
		{"file", "an SLS, or the path of a file"},
		{"block", "only a PGP message of the file, such as 1, or all"},
		{"tgt", "which minions (default: all)"},
		{"tgt-type", "how --tgt selects them, such as grain or compound (default: glob)"},
		{"saltenv", "environment of the minions' files"},
		{"pillarenv", "environment of the minions' pillars"},
	} {
		arguments[strings.ReplaceAll(a.name, "-", "_")] = cmd.Flags().String(a.name, "", a.usage)
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the answer for programs")

	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 && *arguments["file"] == "" {
			return misused("readers: name a key of the pillar, or a file with --file")
		}
		if len(args) > 0 {
			arguments["key"] = &args[0]
		}
		code, err := showReaders(cmd, f, asJSON, arguments)
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "applianced:", withAdvice(err, os.Geteuid()))
			return exitWith(exitUntold)
		}
		return exitWith(code)
	}
	return cmd
}

// showReaders asks the master, and prints its answer. code is the exit code.
func showReaders(cmd *cobra.Command, f *flags, asJSON bool, arguments map[string]*string) (code int, err error) {
	form := "text"
	switch {
	case asJSON:
		form = ""
	case hasColours(cmd):
		form = "colour"
	}

	raw, err := saltRun(cmd.Context(), f, "pillar.readers", form, arguments)
	if err != nil {
		return 0, err
	}
	var answer diffAnswer
	if err := json.Unmarshal(raw, &answer); err != nil {
		return 0, fmt.Errorf("read the answer of pillar.readers: %w", err)
	}
	if asJSON {
		return answer.Code, writeJSON(cmd.OutOrStdout(), raw)
	}
	_, err = io.WriteString(cmd.OutOrStdout(), answer.Text)
	return answer.Code, err
}
