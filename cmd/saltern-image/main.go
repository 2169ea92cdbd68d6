// Command saltern-image makes the appliance's disk images; see docs/image.md.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:   "saltern-image",
		Short: "Make disk images of the appliance",
		Example: `  saltern-image build --programs bin --out dist
  saltern-image build --programs bin --out dist --format qcow2 --python=false
  saltern-image tree --programs bin --work /var/tmp/saltern
  saltern-image ami dist/saltern-cloud.raw --region eu-central-1`,
		SilenceUsage: true, SilenceErrors: true, Args: cobra.NoArgs,
	}
	root.AddCommand(treeCommand(), buildCommand(), keygenCommand(), amiCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "saltern-image:", err)
		os.Exit(1)
	}
}
