// Command applianced is a node of the appliance: `applianced run` supervises
// the salt-master and the load balancer, `applianced lb` is that load
// balancer, and the other verbs ask or change what runs. See
// `applianced --help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"saltern/supervisor/status"
)

// exitError ends the program with a code of its own, without a message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit %d", int(e)) }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	cmd := rootCommand()
	cmd.SetArgs(args)
	err := cmd.ExecuteContext(ctx)
	var code exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int(code)
	}
	fmt.Fprintln(os.Stderr, "applianced:", err)
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		return exitUsage
	}
	return status.ExitUnknown
}
