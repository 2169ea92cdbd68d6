// Command applianced is a node of the appliance: `applianced run` supervises the salt-master and the
// load balancer, `applianced lb` is that load balancer, and the other verbs show or change the state
// of the node. See `applianced --help`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"saltern/supervisor/settings"
	"saltern/supervisor/sharedfault"
	"saltern/supervisor/status"
)

// exitError is an exit code with which the program ends, without a message.
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

	fmt.Fprintln(os.Stderr, "applianced:", withAdvice(sharedWords(cmd, err), os.Geteuid()))
	if usage := (*usageError)(nil); errors.As(err, &usage) {
		return exitUsage
	}

	return status.ExitUnknown
}

// sharedWords replaces an error by one with advice if the shared storage caused it. It is for
// commands that access the shared storage themselves, instead of asking the supervisor.
func sharedWords(cmd *cobra.Command, err error) error {
	path, failed := cmd.PersistentFlags().GetString("config")
	if failed != nil {
		return err
	}
	s, failed := settings.Load(path, hostname())
	if failed != nil {
		return err
	}
	if text, is := sharedfault.Words(err, s); is {
		return errors.New(text)
	}
	return err
}

// withAdvice returns the text of an error. If the caller may not read a file, the text also says
// that root may.
func withAdvice(err error, uid int) string {
	text := err.Error()
	if uid != 0 && errors.Is(err, fs.ErrPermission) && !strings.Contains(text, "root") {
		text += "; run it as root: sudo applianced ..."
	}
	return text
}
