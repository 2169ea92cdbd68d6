package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/tui"
)

// setupVerbs returns the verbs of the set-up for programs, and for people who do not sit at the
// console.
func setupVerbs(f *flags) []*cobra.Command {
	retry := &cobra.Command{
		Use:     "retry",
		Short:   "Try again what failed",
		Args:    cobra.NoArgs,
		Example: "  applianced setup retry",
		RunE: func(cmd *cobra.Command, _ []string) error {
			c := f.client()
			if err := c.SetupRetry(cmd.Context()); err != nil {
				return err
			}
			return followSetup(cmd, c)
		},
	}

	back := &cobra.Command{
		Use:     "back",
		Short:   "Give up a set-up that has not ended, and answer again",
		Args:    cobra.NoArgs,
		Example: "  applianced setup back",
		Long: `back takes a set-up that has not ended back to the answers. What it has made of a
new cluster is removed, as applianced reset does it. It is refused once another
machine may know of this one: a node that joins has been admitted, or another node
has joined.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.client().SetupBack(cmd.Context()); err != nil {
				return err
			}
			return f.followReset(cmd)
		},
	}

	start := &cobra.Command{
		Use:   "start FILE",
		Short: "Set this machine up with the answers in a file",
		Args:  cobra.ExactArgs(1),
		Long: "start takes the file as it is described in docs/configuration.md; applianced config check " +
			"FILE tells whether it is right.",
		Example: "  applianced setup start answers.yaml",
		RunE: func(cmd *cobra.Command, args []string) error {
			a, err := readAnswers(args[0])
			if err != nil {
				return err
			}

			if err := checkOptionsOf(a, args[0], cmd.ErrOrStderr()); err != nil {
				return err
			}

			c := f.client()
			if err := c.SetupStart(cmd.Context(), *a); err != nil {
				return err
			}

			return followSetup(cmd, c)
		},
	}

	return []*cobra.Command{setupProgressCommand(f), retry, back, start}
}

func setupProgressCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "progress",
		Short: "Say where the set-up stands",
		Args:  cobra.NoArgs,
		Long: `progress prints the state of the set-up, its steps, and why it stopped. It exits
with 0 when the node is set up, 2 while the work goes on, 3 when it has failed,
4 when nothing has been answered yet.`,
		Example: "  applianced setup progress",
	}

	return answering[setup.Progress]{
		json: "print the document for machines; a join string in it is secret",
		ask: func(cmd *cobra.Command, _ []string) (setup.Progress, error) {
			return f.client().SetupProgress(cmd.Context())
		},
		print: func(cmd *cobra.Command, p setup.Progress) error {
			return writeProgress(cmd.OutOrStdout(), p)
		},
		code: func(p setup.Progress) int {
			switch p.State {
			case status.SetupNew:
				return status.ExitUnconfigured
			case status.SetupFailed:
				return status.ExitNotServing
			}
			return degradedIf(!tui.SetUp(p.State))
		},
	}.verb(cmd)
}

// writeProgress prints the public progress of the set-up.
func writeProgress(w io.Writer, p setup.Progress) error {
	text := strings.Join(tui.ProgressLines(p, 79), "\n") + "\n"
	if p.Done != nil {
		text += "\nFor minions, in /etc/salt/minion.d/master.conf:\n" + p.Done.MinionConf
	}
	_, err := fmt.Fprint(w, text)
	return err
}
