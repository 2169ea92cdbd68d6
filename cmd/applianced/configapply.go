package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/printable"
	"saltern/supervisor/api"
	"saltern/supervisor/options"
	"saltern/supervisor/status"
)

// optionsApply brings the master's options into force on all nodes.
type optionsApply struct {
	q      api.ApplyRequest
	asJSON bool
	out    io.Writer
	errOut io.Writer
}

func applyCommand(f *flags) *cobra.Command {
	a := &optionsApply{}
	var dry bool
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Check the master's options on all nodes, and have the masters take them one after another",
		Long: `apply has all nodes of the cluster take the master's options as they are now: the
administrator's files, and those of each node's appliance.yaml.

First every node checks the options that it would run with; when one finds a fault,
or does not see the same files yet, all faults are listed and nothing is changed.
Then one master after the other is restarted, the one of this node last. The next one
is not before the one before serves with the new options. One that does not within
--timeout stops it: that node and those before it go back to their last good options.
The files stay as they are.

It goes on without this terminal. When the node that drives it dies, the others keep
what they have, and the same command goes on.

Exit codes: 0 the options are in force on all nodes that take part, 1 they are not;
the last lines say what is in force where.`,
		Example: `  applianced config apply --dry-run
  applianced config apply
  applianced config apply --yes --timeout 2m`,
		Args: cobra.NoArgs,
	}

	yes := yesFlag(cmd)
	cmd.Flags().BoolVar(&dry, "dry-run", false, "check on all nodes and say what would be done, no more")
	cmd.Flags().BoolVar(&a.q.Force, "force", false,
		"without nodes that are away or do not serve; they take the options when they start")
	cmd.Flags().BoolVar(&a.asJSON, "json", false, "print the result (schema 1) for machines")
	cmd.Flags().DurationVar(&a.q.Limit, "timeout", options.UsualTime, "for each master to serve with the new options")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if a.q.Limit < options.MinLimit || a.q.Limit > options.MaxLimit {
			return misused("--timeout: from %s to %s", options.MinLimit, options.MaxLimit)
		}

		a.out, a.errOut = cmd.OutOrStdout(), cmd.ErrOrStderr()
		c := f.client()
		if dry || !*yes {
			p, err := a.applyOptions(cmd.Context(), c, true)
			if err != nil || dry || p.Result == nil || !p.Result.Code.Good() {
				return a.printOutcome(p, err)
			}

			restarts := p.Result.Names(options.Before)
			if len(restarts) == 0 { // no restart is necessary; this call also ends an unfinished earlier roll
				return a.printOutcome(a.applyOptions(cmd.Context(), c, false))
			}

			effect := fmt.Sprintf("The masters of %s are restarted, one after the other, to take the options of now.",
				strings.Join(restarts, ", "))
			if err := confirm(cmd, false, effect, "apply"); err != nil {
				return err
			}
		}

		return a.printOutcome(a.applyOptions(cmd.Context(), c, false))
	}

	return cmd
}

// applyOptions starts the rolling change, waits for its end, and returns its last state.
func (a *optionsApply) applyOptions(ctx context.Context, c *api.Client, dry bool) (p options.Progress, err error) {
	q := a.q
	q.Dry = dry
	if err := c.Apply(ctx, q); err != nil {
		return p, fmt.Errorf("apply the options: %w", err)
	}

	return follower[options.Progress]{
		ask:   c.Applying,
		every: 300 * time.Millisecond,
		steps: a.stepsWriter(),
		state: func(p options.Progress) ([]string, bool) { return p.Lines, p.Running },
		failed: func(_ options.Progress, err error) error {
			if ctx.Err() != nil {
				return errors.New("it goes on without this terminal; applianced config apply --dry-run says " +
					"which nodes have them")
			}
			return fmt.Errorf("follow how the options are applied: %w; the masters may go on: run it again", err)
		},
	}.followToEnd(ctx)
}

// stepsWriter returns the writer for steps: with --json standard error, so that the steps stay out
// of the document.
func (a *optionsApply) stepsWriter() io.Writer {
	if a.asJSON {
		return a.errOut
	}
	return a.out
}

// printOutcome prints the result, and returns the error for the exit code.
func (a *optionsApply) printOutcome(p options.Progress, err error) error {
	if err != nil {
		return err
	}
	if p.Result == nil {
		return errors.New("apply the options: the node does not say what came of it; run it again")
	}
	if a.asJSON {
		if err := writeJSON(a.out, p); err != nil {
			return err
		}
		if !p.Result.Code.Good() {
			return exitError(status.ExitUnknown)
		}
		return nil
	}

	printResult(a.out, *p.Result)
	if !p.Result.Code.Good() {
		return fmt.Errorf("apply the options: %s%s", printable.Clean(p.Result.Cause), applyNext[p.Result.Code])
	}

	return nil
}

// applyNext is the next step for each result, as text for people.
var applyNext = map[options.Code]string{
	options.Wrong: "; nothing is changed",
	options.Differs: "; nothing is changed: try again in a moment, and if it stays so: applianced " +
		"storage status there",
	options.Away: "; nothing is changed: fix it, or leave such nodes out with --force: they take the " +
		"options when they start",
	options.Busy: "; nothing is changed: try again when it is done",
	options.Stopped: "; the earlier options are in force where the list says so. The files are as you " +
		"wrote them: fix them and run it again",
	options.Lost:        "; run it again when that is fixed, it goes on with the nodes that are left",
	options.Interrupted: "",
}

// printResult prints the faults and notes of each node, and then which options are in force on which
// nodes.
func printResult(w io.Writer, r options.Result) {
	for _, n := range r.Nodes {
		for _, f := range n.Faults {
			fmt.Fprintf(w, "%s: %s\n", n.Name, printable.Clean(f.Text))
		}
		for _, f := range n.Notes {
			fmt.Fprintf(w, "%s: note: %s\n", n.Name, printable.Clean(f.Text))
		}
	}

	for _, n := range r.Nodes {
		line := map[options.Force]string{
			options.New: "has the new options", options.Same: "has the present options already", options.Before: "has the earlier options",
			options.LastGood: "has its last good options, and refuses the new ones until they change", options.Left: "is left out",
			options.Unknown: "is not known",
		}[n.State]

		if n.State == options.Before && r.Code == options.Checked {
			line = "takes the new options"
		}

		if n.Cause != "" {
			line += ": " + printable.Clean(n.Cause)
		}

		fmt.Fprintf(w, "%s %s\n", n.Name, line)
	}
}
