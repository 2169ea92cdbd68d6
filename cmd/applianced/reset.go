package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/pause"
	"saltern/internal/printable"
	"saltern/supervisor/api"
	"saltern/supervisor/layout"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade"
)

// resetMark is a file: if it exists, the initial RAM disk resets the machine before it mounts the
// state.
const resetMark = "/data/reset"

func resetCommand(f *flags) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "reset",
		Short: "Forget everything of this node, to start over",
		Args:  cobra.NoArgs,
		Example: "  applianced leave && applianced reset --yes\n  applianced reset          what would be " +
			"removed on a host of your own",
		Long: `reset removes settings, keys, logs and data of this node; the set-up begins anew.
Take the node out of its cluster first (applianced leave); not from a copy of its
machine, which applianced status calls one (SCA-115): its reset changes nothing there.

On the appliance's image the next boot does so, with passwords and the whole state
of the system's disk; a data disk of its own is not touched.

On a host of your own it is done at once: salt-master, the load balancer and the
shared volume stop; appliance.yaml, what applianced has made in its data directory,
this node's copy of the shared volume, and what glusterd knows of the cluster are
removed. A directory that the nodes share, volumes that are not the cluster's, and
whatever else is in those directories stay. If it is interrupted, it goes on when
applianced starts.`,
	}

	cmd.Flags().BoolVar(&yes, "yes", false, "yes, erase it now; on the image: and reboot")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if layout.InImage("") {
			return resetImage(yes)
		}
		return f.resetHost(cmd, yes)
	}

	return cmd
}

func resetImage(yes bool) error {
	var sys upgrade.System
	if _, err := sys.Status(); err != nil {
		return err
	}
	if !yes {
		return misused("reset: nothing was done; all keys and data of this node will be lost: say --yes")
	}

	f, err := os.OpenFile(resetMark, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("reset: %w", err)
	}

	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("reset: %w", err)
	}

	return systemctl("reboot")
}

// resetHost asks the running supervisor to reset, because the supervisor knows which files belong to
// the node.
func (f *flags) resetHost(cmd *cobra.Command, yes bool) error {
	c := f.client()
	r, err := c.Resetting(cmd.Context())
	if errors.Is(err, api.ErrNotRunning) {
		return fmt.Errorf("reset: %w; it does the work, start it first: systemctl start applianced", err)
	}
	if err != nil {
		return err
	}

	var p api.ResetPlan
	if !r.UnderWay {
		if p, err = c.PlanReset(cmd.Context()); err != nil {
			return err
		}
	}

	if !yes {
		writeResetPlan(cmd.ErrOrStderr(), p)
		return misused("reset: nothing was done; if all of that shall be lost: applianced reset --yes")
	}

	if err := c.Reset(cmd.Context()); err != nil {
		return err
	}

	if err := f.followReset(cmd); err != nil {
		return err
	}

	for _, k := range p.Keep {
		fmt.Fprintln(cmd.OutOrStdout(), "left alone:", printable.Clean(k))
	}

	if len(p.Others) > 0 {
		fmt.Fprintf(cmd.OutOrStdout(),
			"%s go on without this node; on one of them: applianced remove NODE\n",
			printable.Clean(strings.Join(p.Others, ", ")))
	}

	_, err = fmt.Fprintln(cmd.OutOrStdout(),
		"this machine is new; next: applianced setup, unless answers given with it are used again")
	return err
}

func writeResetPlan(w io.Writer, p api.ResetPlan) {
	for _, path := range p.Remove {
		fmt.Fprintln(w, "would be removed:", printable.Clean(path))
	}

	for _, k := range p.Keep {
		fmt.Fprintln(w, "would stay:", printable.Clean(k))
	}

	if p.Copied != "" {
		fmt.Fprintf(w,
			"this machine is not the node whose key it has (%s): nothing changes in the cluster %s\n",
			printable.Clean(p.Copied), printable.Clean(p.Cluster))
	}

	if len(p.Others) > 0 {
		fmt.Fprintf(w, "this node is one of the cluster %s, with %s: take it out first (applianced leave)\n",
			printable.Clean(p.Cluster), printable.Clean(strings.Join(p.Others, ", ")))
	}
}

// followReset waits until the reset is done. During the reset the path of the supervisor's socket
// may change, because appliance.yaml is deleted.
func (f *flags) followReset(cmd *cobra.Command) error {
	for {
		r, err := f.client().Resetting(cmd.Context())
		switch {
		case err == nil && r.UnderWay && r.Fault != "":
			fmt.Fprintf(cmd.ErrOrStderr(),
				"applianced: %s\nnext: correct that, then again: applianced reset --yes\n",
				printable.Clean(r.Fault))
			return exitError(status.ExitNotServing)
		case err == nil && !r.UnderWay:
			return nil
		case err != nil && !errors.Is(err, api.ErrNotRunning): // the supervisor restarts: repeat the request
			return err
		}

		if err := pause.For(cmd.Context(), 200*time.Millisecond); err != nil {
			return err
		}
	}
}
