package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"saltern/supervisor/api"
	"saltern/supervisor/status"
	"saltern/tui"
)

// terminalCommands are the verbs with a page of their own.
func terminalCommands(f *flags) []*cobra.Command {
	return []*cobra.Command{setupCommand(f), consoleCommand(f), supportCommand(f), backupCommand(f), restoreCommand(f), manualCommand()}
}

func setupCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "setup",
		Short: "Set up this node: the first-boot wizard",
		Long: `setup asks what this machine shall be, checks the answers, and shows how the
set-up goes. Nothing is changed before the review page; leaving earlier leaves
the machine as it was. It may run on several terminals at once: the first leads,
the others follow and can take over. The last page, with the join string, is shown
where the set-up was started; elsewhere setup ends when the node is set up.

It ends with code 0 when the node is set up, 4 when it was left earlier.

Without a person, the same answers come from user-data or a file; see
docs/first-boot.md.`,
		Example: "  applianced setup\n  applianced setup progress",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			term := terminal()
			w := tui.NewWizard(cmd.Context(), api.NewClient(f.apiSocket()), term.Name())
			if err := onTerminal(cmd.Context(), term, w); err != nil {
				return err
			}
			if !w.Ready() {
				return exitError(status.ExitUnconfigured)
			}
			fmt.Fprintln(cmd.OutOrStdout(), "This node is set up; see applianced status")
			return nil
		},
	}
	cmd.AddCommand(setupProgressCommand(f),
		&cobra.Command{Use: "retry", Short: "Try again what failed", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.NewClient(f.apiSocket()).SetupRetry(cmd.Context())
		}},
		&cobra.Command{Use: "back", Short: "Give up a set-up that failed, to answer anew", Args: cobra.NoArgs, RunE: func(cmd *cobra.Command, _ []string) error {
			return api.NewClient(f.apiSocket()).SetupBack(cmd.Context())
		}})
	return cmd
}

func setupProgressCommand(f *flags) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "progress", Short: "Say where the set-up stands", Args: cobra.NoArgs,
		Long: `progress prints the state of the set-up, its steps, and why it stopped. It exits
with 0 when the node is set up, 2 while the work goes on, 3 when it has failed,
4 when nothing has been answered yet.`,
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the document for machines; a join string in it is secret")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		p, err := api.NewClient(f.apiSocket()).SetupProgress(cmd.Context())
		if err != nil {
			return err
		}
		if asJSON {
			enc := json.NewEncoder(cmd.OutOrStdout())
			enc.SetIndent("", "  ")
			err = enc.Encode(p)
		} else {
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(tui.ProgressLines(p, 79), "\n"))
		}
		switch {
		case err != nil:
			return err
		case p.State == status.SetupNew:
			return exitError(status.ExitUnconfigured)
		case p.State == status.SetupFailed:
			return exitError(status.ExitNotServing)
		case !tui.SetUp(p.State):
			return exitError(status.ExitDegraded)
		}
		return nil
	}
	return cmd
}

func terminal() tui.Terminal {
	return tui.Terminal{In: os.Stdin, Out: os.Stdout, Env: os.Environ()}
}

func onTerminal(ctx context.Context, t tui.Terminal, m tui.Model) error {
	_, err := t.Run(ctx, m)
	if errors.Is(err, tui.ErrNoTerminal) {
		return fmt.Errorf("%w; for machines there are user-data and answers files, see docs/first-boot.md", err)
	}
	return err
}
