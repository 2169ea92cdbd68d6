package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"saltern/cmd/internal/tty"
	"saltern/internal/pause"
	"saltern/supervisor/api"
	"saltern/supervisor/status"
)

func statusCommand(f *flags) *cobra.Command {
	var asJSON, watch, serving bool
	var every, wait time.Duration
	var until string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how this node is and what to do next",
		Long: `status prints the answer first, then the nodes, services and keys, then every
problem with a stable code, its cause and the next step.

With --wait it waits until the node is healthy, or serves (--until serving), and
prints the status then, or when the time is over.

With --serving a degraded node that serves minions exits with 0 as well, which is
what a health check of a container asks.

Exit codes: 0 healthy, 1 cannot tell, 2 degraded but serving, 3 not serving,
4 not configured.`,
		Example: `  applianced status
  applianced status --json | jq .problems
  applianced status --watch
  applianced status --wait 10m && echo well
  applianced status --wait 10m --until serving
  applianced status --serving >/dev/null || echo "no minion is served"`,
		Args: cobra.NoArgs,
	}

	cmd.Flags().DurationVar(&wait, "wait", 0, "wait so long at most until the node is well (see --until)")
	cmd.Flags().StringVar(&until, "until", "healthy", "with --wait: healthy, or serving (which a degraded node is)")
	cmd.Flags().BoolVar(&serving, "serving", false, "exit with 0 while the node serves minions, degraded or not")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the document (schema 1) for machines")
	cmd.Flags().BoolVar(&watch, "watch", false, "print it again and again until interrupted (see --interval)")
	cmd.Flags().DurationVar(&every, "interval", 2*time.Second, "with --watch: how often")
	cmd.MarkFlagsMutuallyExclusive("wait", "watch")
	cmd.MarkFlagsMutuallyExclusive("serving", "watch")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c := f.client()
		if until != "healthy" && until != "serving" {
			return misused("--until: %.20q is neither healthy nor serving", until)
		}

		if wait > 0 {
			awaitHealth(cmd.Context(), c, until, wait)
		}

		if !watch {
			err := printStatus(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), c, asJSON)
			if serving && errors.Is(err, exitError(status.ExitDegraded)) {
				return nil
			}
			return err
		}

		every = max(every, 200*time.Millisecond)
		if out, ok := tty.Of(cmd.OutOrStdout()); ok && !asJSON {
			return watchOn(cmd.Context(), out, c, every)
		}

		var last error
		for {
			now := printStatus(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr(), c, asJSON)
			if cmd.Context().Err() != nil {
				return last // the user has interrupted the request
			}

			last = now
			if pause.For(cmd.Context(), every) != nil {
				return last
			}
		}
	}

	return cmd
}

// askEvery is the interval between the requests of a verb that waits for a node.
const askEvery = time.Second

// awaitHealth waits until the node has the given health, or limit has passed. The node may be
// starting or restarting, so a missing answer is no error.
func awaitHealth(ctx context.Context, c *api.Client, health string, limit time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for {
		d, err := c.Status(ctx)
		// While the set-up waits, the status line shows that beside the health: keep waiting.
		settled := err == nil && d.Setup != status.SetupWaiting
		if settled && (d.Health == status.Healthy || health == "serving" && d.Health == status.Degraded) {
			return
		}
		if pause.For(ctx, askEvery) != nil {
			return
		}
	}
}

func printStatus(ctx context.Context, out, errOut io.Writer, c *api.Client, asJSON bool) error {
	d, err := c.Status(ctx)
	switch {
	case ctx.Err() != nil:
		return exitError(status.ExitUnknown)
	case err != nil:
		if asJSON {
			d = status.Unknown(time.Now(), err.Error())
			_ = status.WriteJSON(out, d)
		}
		fmt.Fprintln(errOut, strings.Join(unknownLines(err), "\n"))
		return exitError(status.ExitUnknown)
	}

	terminal, onTerminal := tty.Of(out)
	switch {
	case asJSON:
		err = status.WriteJSON(out, d)
	case onTerminal:
		err = writeOn(terminal, d)
	default:
		err = status.WriteText(out, d)
	}

	if err != nil {
		return err
	}

	return exitWith(d.Exit)
}

func restartCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:       "restart SERVICE",
		Short:     "Restart a service of this node",
		Args:      oneService,
		Long:      "restart restarts one of the services of this node:\n" + serviceList(),
		Example:   "  applianced restart master",
		ValidArgs: services(),
		RunE: func(cmd *cobra.Command, args []string) error {
			return api.NewClient(f.apiSocket()).Restart(cmd.Context(), args[0])
		},
	}
}

func reloadCommand(f *flags) *cobra.Command {
	return &cobra.Command{
		Use:     "reload",
		Short:   "Restart this node with its present configuration",
		Args:    cobra.NoArgs,
		Example: "  sudo applianced config check && applianced reload",
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.checkOptions(cmd.ErrOrStderr()); err != nil {
				return fmt.Errorf("nothing is changed: %w", err)
			}
			return api.NewClient(f.apiSocket()).Reload(cmd.Context())
		},
	}
}
