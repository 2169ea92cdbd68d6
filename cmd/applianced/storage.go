package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"saltern/glusterctl"
	"saltern/supervisor/api"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// exitUndone is the exit code of plan and apply when steps are left to do.
const exitUndone = 2

func storageCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "storage",
		Short: "Look at the cluster's shared volume, and change it",
		Long: `The shared volume holds what all nodes of a cluster need: keys, files and
pillars. A running node keeps it by itself; these verbs show what it does.`,
		Example: `  applianced storage status         how are the copies, and what is to be healed
  applianced storage plan           what would be done, and why
  applianced storage apply          wait until it is done`,
		Args: cobra.NoArgs,
	}
	cmd.AddCommand(storageStatusCommand(f), storagePlanCommand(f), storageApplyCommand(f),
		storageTLSCommand(f), storageHelperCommand())
	return cmd
}

func storageStatusCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Say how the shared volume is, seen from this node",
		Long: `status prints whether the volume can be used here, the copies, what they still
have to give each other, and the files on which copies disagree, each with the
commands that settle it.

Exit codes: 0 ready, 1 cannot tell, 2 ready with problems, 3 not ready.`,
		Example: "  applianced storage status",
		Args:    cobra.NoArgs,
	}

	return answering[storage.State]{
		json: "print it for machines",
		ask: func(cmd *cobra.Command, _ []string) (storage.State, error) {
			return f.client().Storage(cmd.Context())
		},
		empty: func(err error) any {
			return map[string]any{
				"health":   status.Unasked,
				"ready":    nil,
				"done":     nil,
				"bricks":   []any{},
				"members":  []any{},
				"problems": []status.Finding{{Code: status.SupervisorSilent, Cause: err.Error()}},
			}
		},
		print: func(cmd *cobra.Command, s storage.State) error {
			storage.WriteText(cmd.OutOrStdout(), s)
			if s.Heal.SplitBrain > 0 {
				splitBrains(cmd.Context(), cmd.OutOrStdout(), f)
			}
			return nil
		},
		code: func(s storage.State) int {
			if !s.Ready {
				return status.ExitNotServing
			}
			return degradedIf(len(s.Problems) > 0)
		},
	}.verb(cmd)
}

// splitBrains prints the files whose copies disagree.
func splitBrains(ctx context.Context, out io.Writer, f *flags) {
	cfg, err := settings.Load(f.config, hostname())
	if err != nil {
		return
	}

	list, err := glusterctl.New(glusterctl.Config{}).SplitBrains(ctx, cfg.Storage.Volume)
	if err != nil {
		fmt.Fprintln(out, "the files cannot be listed:", err)
	}

	for _, s := range list {
		fmt.Fprintf(out, "copies disagree about %s; one of:\n", s.Path)
		for _, c := range s.Resolve {
			fmt.Fprintf(out, "    %s\n", c)
		}
	}
}

func storagePlanCommand(f *flags) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan",
		Short: "Print what would be done to the shared volume, and why",
		Long: `plan prints the steps from what is to what the table of nodes asks for, with
the gluster command of each, and what is not done because it is not safe.

Exit codes: 0 nothing to do, 1 cannot tell, 2 there is something to do.`,
		Example: "  applianced storage plan",
		Args:    cobra.NoArgs,
	}

	return answering[storage.State]{
		json: "print it for machines",
		ask: func(cmd *cobra.Command, _ []string) (storage.State, error) {
			return f.client().Storage(cmd.Context())
		},
		empty: func(err error) any {
			return map[string]any{
				"health":   status.Unasked,
				"done":     nil,
				"doing":    "",
				"leader":   "",
				"plan":     "",
				"problems": []string{err.Error()},
			}
		},
		document: func(s storage.State) any {
			return map[string]any{"done": s.Done, "doing": s.Doing, "leader": s.Leader, "plan": s.Plan}
		},
		print: printStoragePlan,
		code: func(s storage.State) int {
			if !s.Done {
				return exitUndone
			}
			return 0
		},
	}.verb(cmd)
}

func printStoragePlan(cmd *cobra.Command, s storage.State) error {
	out := cmd.OutOrStdout()
	if s.Plan == "" && s.Done {
		fmt.Fprintln(out, "The volume is as it should be: nothing to do.")
		return nil
	}

	fmt.Fprint(out, s.Plan)
	if s.Doing != "" {
		fmt.Fprintln(out, "now:", s.Doing)
	}
	if !s.Leads && s.Leader != "" {
		fmt.Fprintf(out, "%s makes the changes.\n", s.Leader)
	}

	return nil
}

func storageApplyCommand(f *flags) *cobra.Command {
	var table string
	var form, stay bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "apply",
		Short: "Wait until the shared volume is as it should be, and say what is being done",
		Long: `A running node makes all changes by itself; apply follows it until nothing is
left to do, or until something cannot be done. With --table it does the work
itself, for a node whose supervisor does not run.

Exit codes: 0 done, 1 failed or cannot tell, 2 something is left to do.`,
		Example: `  applianced storage apply
  applianced storage apply --table /var/lib/saltern/nodes.json`,
		Args: cobra.NoArgs,
	}

	cmd.Flags().StringVar(&table, "table", "", "work from this table of nodes, without the supervisor")
	cmd.Flags().BoolVar(&form, "form", false, "with --table: make the volume if there is none")
	cmd.Flags().BoolVar(&stay, "stay", false, "with --table: go on keeping the storage until interrupted")
	cmd.Flags().DurationVar(&limit, "timeout", 30*time.Minute, "give up after this long")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx := cmd.Context()
		ask := api.NewClient(f.apiSocket()).Storage
		if table != "" {
			m, err := aloneManager(f, table, form, cmd.ErrOrStderr())
			if err != nil {
				return err
			}

			var cancel context.CancelFunc
			ctx, cancel = context.WithCancel(ctx)
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_ = m.manager.Run(ctx) // Run returns when ctx ends; its error says only that
			}()
			defer func() {
				cancel()
				<-ended
			}()

			ask = m.readState
		}

		return follow(ctx, cmd.OutOrStdout(), ask, limit, stay && table != "")
	}

	return cmd
}

// standalone runs a storage manager without a supervisor.
type standalone struct {
	manager *storage.Manager
	table   string
	seen    string
}

func aloneManager(f *flags, table string, form bool, errOut io.Writer) (*standalone, error) {
	cfg, err := settings.Load(f.config, hostname())
	if err != nil {
		return nil, err
	}
	if !cfg.OnVolume() {
		return nil, fmt.Errorf("storage.kind in %s is %s: there is no volume to keep", f.config, cfg.Storage.Kind)
	}

	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find our own program: %w", err)
	}

	master, err := layout.FindAccount(cfg.Users.Master)
	if err != nil {
		return nil, err
	}

	c := storage.FromSettings(cfg, exe, master, slog.New(slog.NewTextHandler(errOut, nil)))
	c.Form = c.Form || form
	a := &standalone{manager: storage.New(c), table: table}
	_, err = a.readState(context.Background())

	return a, err
}

// readState returns the state of the storage. If the table of nodes has changed, readState first
// reads it again.
func (a *standalone) readState(context.Context) (storage.State, error) {
	b, err := os.ReadFile(a.table)
	if err != nil {
		return storage.State{}, fmt.Errorf("table of nodes: %w", err)
	}
	if string(b) != a.seen {
		var t nodes.Table
		if err := json.Unmarshal(b, &t); err != nil {
			return storage.State{}, fmt.Errorf("table of nodes %s: %w", a.table, err)
		}
		a.seen = string(b)
		a.manager.SetTable(t)
	}
	return a.manager.State(), nil
}

// follow prints changes until the storage is ready and nothing is left to do.
func follow(
	ctx context.Context,
	out io.Writer,
	ask func(context.Context) (storage.State, error),
	limit time.Duration,
	stay bool,
) error {
	began := time.Now()
	last := ""
	for {
		s, err := ask(ctx)
		if err != nil && !stay {
			return err
		}

		text := "ready"
		switch {
		case s.Doing != "":
			text = s.Doing
		case s.Waiting != "":
			text = "waiting for " + s.Waiting
		case !s.Done && s.Leads:
			text = "something is left to do; applianced storage plan shows what"
		case !s.Done:
			text = "waiting for " + cmp.Or(s.Leader, "another node") + " to make the changes"
		}

		if text != last {
			fmt.Fprintf(out, "%6.1fs %s\n", time.Since(began).Seconds(), text)
			last = text
		}

		if s.Ready && s.Done && !stay {
			return nil
		}
		if time.Since(began) > limit && !stay {
			fmt.Fprint(out, s.Plan)
			return exitError(exitUndone)
		}

		select {
		case <-ctx.Done():
			if stay {
				return nil
			}
			return errors.New("interrupted: what was done is kept")
		case <-time.After(300 * time.Millisecond):
		}
	}
}

// storageHelperCommand returns the verb that accesses the volume. The supervisor starts this verb
// as a child.
func storageHelperCommand() *cobra.Command {
	return &cobra.Command{
		Use:                "helper",
		Short:              "Touch the volume on behalf of the supervisor (not for people)",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			if code := storage.HelperMain(args, cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr()); code != 0 {
				return exitError(code)
			}
			return nil
		},
	}
}
