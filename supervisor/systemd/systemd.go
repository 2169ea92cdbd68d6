// Package systemd asks the machine's systemd for actions that the supervisor may not take itself,
// or that must outlive it. [github.com/coreos/go-systemd/v22/util.IsRunningSystemd] reports whether
// systemd runs.
package systemd

import (
	"context"
	"fmt"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"

	"saltern/internal/command"
)

// Job calls begin, which queues a job of systemd, and waits until the job is done, for at most
// limit. Errors contain the name action. Any result of the job but "done" is an error.
func Job(
	ctx context.Context,
	limit time.Duration,
	action string,
	begin func(context.Context, *dbus.Conn, chan<- string) (int, error),
) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	c, err := dbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("%s: reach systemd: %w", action, err)
	}
	defer c.Close()

	result := make(chan string, 1)
	if _, err := begin(ctx, c, result); err != nil {
		return fmt.Errorf("%s: %w", action, err)
	}

	select {
	case r := <-result:
		if r != "done" {
			return fmt.Errorf("%s: systemd says %q", action, r)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", action, ctx.Err())
	}
}

// Stop stops a unit.
func Stop(ctx context.Context, limit time.Duration, unit string) error {
	return Job(ctx, limit, "stop "+unit, func(ctx context.Context, c *dbus.Conn, r chan<- string) (int, error) {
		return c.StopUnitContext(ctx, unit, "replace", r)
	})
}

// Runner runs each command in a separate systemd service, with all of root's rights. It implements
// [command.Runner] and is safe for concurrent use.
type Runner struct{}

// Run implements [command.Runner].
func (Runner) Run(ctx context.Context, argv []string) (command.Output, error) {
	return command.Exec{}.Run(ctx,
		append([]string{"systemd-run", "--quiet", "--collect", "--wait", "--pipe", "--service-type=exec", "--"},
			argv...))
}
