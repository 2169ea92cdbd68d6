package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"saltern/internal/pause"
	"saltern/supervisor/api"
)

// restartTurn restarts the machine without interrupting the cluster's service: it acquires the
// turn, waits until the minions have moved to other nodes, and restarts.
type restartTurn struct {
	wait     time.Duration // how long to wait for the turn
	drain    time.Duration // how long to wait until minions have moved
	force    bool
	out      io.Writer
	askEvery time.Duration // interval between two requests for the turn
	boot     func() error
}

func newRestart() *restartTurn {
	return &restartTurn{askEvery: 2 * time.Second, boot: func() error { return systemctl("reboot") }}
}

func (r *restartTurn) addFlags(cmd *cobra.Command) {
	cmd.Flags().DurationVar(&r.wait, "wait", 0, "wait so long until no other node restarts and all of them are well")
	cmd.Flags().DurationVar(&r.drain, "drain", 2*time.Minute, "wait so long at most for minions to move to other nodes")
}

func rebootCommand(f *flags) *cobra.Command {
	r := newRestart()
	cmd := &cobra.Command{
		Use:   "reboot",
		Short: "Restart this machine when its cluster can spare it",
		Args:  cobra.NoArgs,
		Long: `reboot takes the cluster's turn, which one node at a time has, has the minions of
this node moved to others, and restarts the machine. The turn is given back when
the node serves again and its copy of the shared volume is whole. It is refused
while another node has the turn, is away, or is not well.

With --wait it may be called on all nodes at once: they restart one after
another.`,
		Example: "  applianced reboot\n  applianced reboot --wait 1h",
	}

	r.addFlags(cmd)
	cmd.Flags().BoolVar(&r.force, "force", false, "even if the cluster is not well or another node restarts")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		r.out = cmd.OutOrStdout()
		return r.restartNode(cmd.Context(), f.client())
	}

	return cmd
}

// restartNode restarts the machine. After a successful restart it does not return.
func (r *restartTurn) restartNode(ctx context.Context, c *api.Client) error {
	t, err := c.Turn(ctx)
	if err != nil && !r.force {
		return fmt.Errorf("restart: the cluster cannot be asked: %w (--force restarts all the same)", err)
	}
	if t.Alone || err != nil {
		return r.boot()
	}

	if err := r.takeTurn(ctx, c); err != nil {
		return err
	}

	if err := r.awaitMinionsLeft(ctx, c); err != nil {
		back, stop := context.WithTimeout(context.WithoutCancel(ctx), 15*time.Second)
		defer stop()
		return errors.Join(err, c.EndTurn(back))
	}

	return r.boot()
}

// takeTurn acquires the turn. If another node has the turn, it waits for at most wait.
func (r *restartTurn) takeTurn(ctx context.Context, c *api.Client) error {
	end := time.Now().Add(r.wait)
	printed := ""
	for {
		err := c.TakeTurn(ctx, r.force)
		switch {
		case err == nil:
			return nil
		case !errors.Is(err, api.ErrState) || r.wait == 0:
			return fmt.Errorf("restart: %w (--wait 1h waits until it may, --force restarts all the same)", err)
		case time.Now().After(end):
			return fmt.Errorf("restart: waited for %s: %w", r.wait, err)
		}

		if printed != err.Error() {
			printed = err.Error()
			fmt.Fprintf(r.out, "waiting: %s\n", printed)
		}

		if err := pause.For(ctx, r.askEvery); err != nil {
			return err
		}
	}
}

// awaitMinionsLeft waits until the minions have moved to other nodes, and then checks that these
// nodes still serve.
func (r *restartTurn) awaitMinionsLeft(ctx context.Context, c *api.Client) error {
	end := time.Now().Add(r.drain)
	for announced := false; ; announced = true {
		t, err := c.Turn(ctx)
		if err != nil {
			return fmt.Errorf("restart: %w", err)
		}
		if !t.Mine && !r.force {
			return errors.New("restart: the turn was lost to another node, or the supervisor has restarted; try again")
		}
		if t.Needed != "" && !r.force {
			return fmt.Errorf("restart: %s (--force restarts all the same)", t.Needed)
		}
		if t.Sessions == 0 || time.Now().After(end) {
			fmt.Fprintf(r.out, "restarting; %d minions are moved by that\n", t.Sessions)
			return nil
		}

		if !announced {
			fmt.Fprintf(r.out, "%d minions move to other nodes, for %s at most\n", t.Sessions, r.drain)
		}

		if err := pause.For(ctx, r.askEvery); err != nil {
			return err
		}
	}
}
