package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/printable"
	"saltern/supervisor/api"
	"saltern/supervisor/status"
	"saltern/supervisor/upgrade/rollout"
)

// upgradeAll upgrades all nodes to a version.
type upgradeAll struct {
	path     string
	yes      bool
	dry      bool
	asJSON   bool
	askEvery time.Duration
	out      io.Writer
	errOut   io.Writer
}

// upgradeNodes prints the plan, asks for consent, and upgrades the nodes.
func (u *upgradeAll) upgradeNodes(cmd *cobra.Command, c *api.Client) error {
	if strings.Contains(u.path, "://") {
		return misused("upgrade --all takes a file, not an address: fetch it first, it is handed to the other nodes")
	}

	path, err := filepath.Abs(u.path)
	if err != nil {
		return fmt.Errorf("upgrade: %w", err)
	}

	u.path = path
	u.out = cmd.OutOrStdout()
	u.errOut = cmd.ErrOrStderr()
	if u.dry || !u.yes {
		p, err := u.follow(cmd.Context(), c, true)
		if err != nil || u.dry || p.Result == nil || !p.Result.Code.Good() {
			return u.printOutcome(p, err)
		}

		var names []string
		for _, n := range p.Result.Nodes {
			if n.Where == rollout.Before || n.Where == rollout.Written {
				names = append(names, printable.Clean(n.Name))
			}
		}

		if len(names) > 0 {
			effect := fmt.Sprintf("Version %s is written on %s; then these machines restart, one after the "+
				"other, this one last.",
				printable.Clean(p.Version), strings.Join(names, ", "))
			if err := confirm(cmd, false, effect, "upgrade"); err != nil {
				return err
			}
		}
	}

	return u.printOutcome(u.follow(cmd.Context(), c, false))
}

// follow starts the upgrade, waits for its end, and returns its last state.
func (u *upgradeAll) follow(ctx context.Context, c *api.Client, dry bool) (p rollout.Progress, err error) {
	if err := c.Upgrade(ctx, api.UpgradeRequest{Path: u.path, Dry: dry}); err != nil {
		return p, fmt.Errorf("upgrade: %w", err)
	}

	return follower[rollout.Progress]{
		ask:   c.Upgrading,
		every: u.askEvery,
		steps: u.stepsWriter(),
		state: func(p rollout.Progress) ([]string, bool) { return p.Lines, p.Running },
		failed: func(last rollout.Progress, err error) error {
			switch {
			case ctx.Err() != nil:
				return errors.New("it goes on without this terminal; applianced upgrade --all --dry-run FILE " +
					"says which nodes have the version")
			case errors.Is(err, api.ErrNotRunning) && last.Running:
				// The last step restarts this node, and so ends this program.
				return fmt.Errorf("follow the upgrade: %w: this node restarts, or its supervisor has ended; "+
					"when it is back, applianced upgrade --all --dry-run FILE says which nodes have the "+
					"version",
					err)
			}

			return fmt.Errorf("follow the upgrade: %w; it may go on: applianced upgrade --all --dry-run FILE", err)
		},
	}.followToEnd(ctx)
}

// stepsWriter returns the writer for steps: with --json standard error, so that the steps stay out
// of the document.
func (u *upgradeAll) stepsWriter() io.Writer {
	if u.asJSON {
		return u.errOut
	}
	return u.out
}

// printOutcome prints the result, and returns the error for the exit code.
func (u *upgradeAll) printOutcome(p rollout.Progress, err error) error {
	if err != nil {
		return err
	}
	if p.Result == nil {
		return errors.New("upgrade: the node does not say what came of it; run it again")
	}
	if u.asJSON {
		if err := writeJSON(u.out, p); err != nil {
			return err
		}
		if !p.Result.Code.Good() {
			return exitError(status.ExitUnknown)
		}
		return nil
	}

	printUpgrade(u.out, p)
	if !p.Result.Code.Good() {
		return fmt.Errorf("upgrade: %s%s", printable.Clean(p.Result.Cause), upgradeNext(p.Result.Code))
	}

	return nil
}

// upgradeNext returns the next step after a result, as text for people.
func upgradeNext(c rollout.Code) string {
	switch c {
	case rollout.Refused, rollout.Away:
		return "; nothing is changed: fix it and run it again"
	case rollout.Busy:
		return "; nothing is changed: try again when that is done"
	case rollout.Unwritten:
		return "; fix it and run it again, it goes on"
	case rollout.Stopped:
		return ". The nodes stand as listed: look at that node (applianced status, applianced upgrade status " +
			"there), then run it again, it goes on"
	}
	return ""
}

// printUpgrade prints the state of each node.
func printUpgrade(w io.Writer, p rollout.Progress) {
	for _, n := range p.Result.Nodes {
		runs := ""
		if n.Version != "" {
			runs = " (runs " + printable.Clean(n.Version) + ")"
		}

		line := map[rollout.Where]string{
			rollout.New:    "has the new version",
			rollout.Same:   "has this version already",
			rollout.Before: "has the earlier version" + runs,
			rollout.Written: "has the earlier version, and tries the new one at its next boot" +
				runs, rollout.Restart: "restarts, or tries the new version",
			rollout.Back: "went back to the earlier version" +
				runs, rollout.Host: "is left out", rollout.Unknown: "is not known",
		}[n.Where]

		if p.Result.Code == rollout.Checked && (n.Where == rollout.Before || n.Where == rollout.Written) {
			line = "takes version " + printable.Clean(p.Version) + runs
		}

		if n.Cause != "" {
			line += ": " + printable.Clean(n.Cause)
		}

		fmt.Fprintf(w, "%s %s\n", printable.Clean(n.Name), line)
	}

	if p.Result.Code == rollout.Last {
		fmt.Fprintln(w,
			"This machine restarts now, as the last one; when it is back: applianced upgrade --all --dry-run FILE")
	}
}
