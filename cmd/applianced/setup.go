package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"saltern/supervisor/api"
	"saltern/supervisor/keyboard"
	"saltern/supervisor/status"
	"saltern/tui"
)

// terminalCommands returns the verbs with a page on a terminal.
func terminalCommands(f *flags) []*cobra.Command {
	return []*cobra.Command{setupCommand(f), consoleCommand(f), supportCommand(f), backupCommand(f),
		restoreCommand(f), importCommand(f), exportCommand(f), manualCommand()}
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
			if keyboard.Has(term.Name()) {
				w.AtKeyboard(keys{keyboard.New()})
			}

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

	cmd.AddCommand(setupVerbs(f)...)
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

// keys adapts the machine's keyboard to the wizard.
type keys struct{ keyboard.Keyboard }

// Layouts implements tui.Keyboard.
func (k keys) Layouts() (out []tui.Layout) {
	for _, l := range k.Keyboard.Layouts() {
		out = append(out, tui.Layout{Name: l.Name, Title: l.Title})
	}
	return out
}
