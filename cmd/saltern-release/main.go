// Command saltern-release checks the version of a release and writes the files that accompany it:
// notes, a list of the contents, licenses, digests and their signature.
// scripts/release calls it; see docs/release.md.
package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"saltern/internal/release"
	"saltern/internal/release/notes"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := &cobra.Command{
		Use:           "saltern-release",
		Short:         "Write what goes with the files of a release",
		Version:       release.Version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}

	root.AddCommand(checkCommand(), finishCommand())
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)

	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(stderr, "saltern-release:", err)
		return 1
	}

	return 0
}

func checkCommand() *cobra.Command {
	trial := false
	cmd := &cobra.Command{
		Use: "check VERSION", Short: "Is a version one of a release, and does CHANGELOG.md tell of it?", Args: cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			if err := notes.Check(args[0]); err != nil {
				return err
			}

			changelog, err := os.ReadFile("CHANGELOG.md")
			if err != nil {
				return fmt.Errorf("check: %w", err)
			}

			_, err = notes.Changes(string(changelog), args[0], trial)
			return err
		},
	}

	cmd.Flags().BoolVar(&trial, "trial", false, "no release: CHANGELOG.md may be without its section")
	return cmd
}
