// Command saltern-image builds the appliance's disk images, docs/image.md, and the container image,
// docs/containers.md.
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
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stderr))
}

// exitUsage is EX_USAGE of sysexits.h: the command line is invalid.
const exitUsage = 64

func run(ctx context.Context, args []string, stderr io.Writer) int {
	root := &cobra.Command{
		Use:   "saltern-image",
		Short: "Make disk images of the appliance, and the container image",
		Example: `  saltern-image build --programs bin --out dist
  saltern-image build --programs bin --out dist --format qcow2 --python=false
  saltern-image tree --programs bin --work /var/tmp/saltern
  saltern-image ami dist/saltern-cloud.raw --region eu-central-1`,
		Version:       release.Version(),
		SilenceUsage:  true,
		SilenceErrors: true, // Args is unset, so that cobra reports an unknown verb as an error
	}

	root.AddCommand(treeCommand(), buildCommand(), ociCommand(), keygenCommand(), amiCommand())
	root.SetVersionTemplate("saltern-image {{.Version}}\n")
	started := false // a verb has started, so the command line was valid
	for _, verb := range root.Commands() {
		runVerb := verb.RunE
		verb.RunE = func(cmd *cobra.Command, args []string) error {
			started = true
			return runVerb(cmd, args)
		}
	}

	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}

	fmt.Fprintln(stderr, "saltern-image:", err)
	if !started {
		return exitUsage
	}

	return 1
}
