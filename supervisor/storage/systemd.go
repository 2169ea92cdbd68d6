package storage

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/go-systemd/v22/util"

	"saltern/glusterctl"
)

const (
	daemonUnit = "glusterd.service"
	dropIn     = "/etc/systemd/system/glusterd.service.d/saltern.conf"
	// jobLimit is for one job of systemd; glusterd without quorum takes long.
	jobLimit = 3 * time.Minute
)

func systemdRuns() bool { return util.IsRunningSystemd() }

// job waits for one job of systemd.
func job(ctx context.Context, what string, begin func(context.Context, *dbus.Conn, chan<- string) (int, error)) error {
	ctx, cancel := context.WithTimeout(ctx, jobLimit)
	defer cancel()
	c, err := dbus.NewSystemConnectionContext(ctx)
	if err != nil {
		return fmt.Errorf("%s: reach systemd: %w", what, err)
	}
	defer c.Close()
	result := make(chan string, 1)
	if _, err := begin(ctx, c, result); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	select {
	case r := <-result:
		if r != "done" {
			return fmt.Errorf("%s: systemd says %q", what, r)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s: %w", what, ctx.Err())
	}
}

func (d *daemon) startUnit(ctx context.Context, restart bool) error {
	fresh, err := configure(dropIn, []byte(glusterctl.UnitDropIn(d.bricks)))
	if err != nil {
		return fmt.Errorf("configure glusterd: %w", err)
	}
	return job(ctx, "start glusterd", func(ctx context.Context, c *dbus.Conn, r chan<- string) (int, error) {
		if fresh {
			if err := c.ReloadContext(ctx); err != nil {
				return 0, err
			}
		}
		if restart {
			return c.RestartUnitContext(ctx, daemonUnit, "replace", r)
		}
		return c.StartUnitContext(ctx, daemonUnit, "replace", r)
	})
}

func stopUnit(ctx context.Context, name string) error {
	return job(ctx, "stop "+name, func(ctx context.Context, c *dbus.Conn, r chan<- string) (int, error) {
		return c.StopUnitContext(ctx, name, "replace", r)
	})
}

func mountUnit(point string) string { return unit.UnitNamePathEscape(point) + ".mount" }

// detachUnit takes the mount of attachUnit away.
func detachUnit(ctx context.Context, point string) error { return stopUnit(ctx, mountUnit(point)) }

// attachUnit mounts through a mount unit, so that the client's process belongs
// to systemd and lives on when this one is started anew.
func attachUnit(ctx context.Context, source, point, options string) error {
	name := mountUnit(point)
	opts := "_netdev"
	if options != "" {
		opts += "," + options
	}
	text := fmt.Sprintf("# Written by applianced.\n[Unit]\nDescription=The cluster's shared volume\nAfter=%s\nDefaultDependencies=no\nConflicts=umount.target\nBefore=umount.target\n\n"+
		"[Mount]\nWhat=%s\nWhere=%s\nType=glusterfs\nOptions=%s\nTimeoutSec=30\nLazyUnmount=yes\nForceUnmount=yes\n", daemonUnit, source, point, opts)
	fresh, err := configure(filepath.Join("/etc/systemd/system", name), []byte(text))
	if err != nil {
		return fmt.Errorf("write the mount unit: %w", err)
	}
	return job(ctx, "mount "+point, func(ctx context.Context, c *dbus.Conn, r chan<- string) (int, error) {
		if fresh {
			if err := c.ReloadContext(ctx); err != nil {
				return 0, err
			}
		}
		_ = c.ResetFailedUnitContext(ctx, name) // a fault means that it did not fail, or is not loaded
		return c.StartUnitContext(ctx, name, "replace", r)
	})
}
