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
	"saltern/supervisor/systemd"
)

const (
	daemonUnit = "glusterd.service"
	dropIn     = "/etc/systemd/system/glusterd.service.d/saltern.conf"
	// jobLimit is for one job of systemd; glusterd without quorum takes long.
	jobLimit = 3 * time.Minute
)

func systemdRuns() bool { return util.IsRunningSystemd() }

func (d *daemon) startUnit(ctx context.Context, restart bool) error {
	fresh, err := configure(dropIn, []byte(glusterctl.UnitDropIn(d.bricks, d.allowed)))
	if err != nil {
		return fmt.Errorf("configure glusterd: %w", err)
	}

	return systemd.Job(ctx, jobLimit, "start glusterd",
		func(ctx context.Context, c *dbus.Conn, r chan<- string) (int, error) {
			if fresh {
				if err := c.ReloadContext(ctx); err != nil {
					return 0, err
				}
			}

			// Debian's unit may be started six times an hour. A fault means that it is not loaded.
			_ = c.ResetFailedUnitContext(ctx, daemonUnit)
			if restart {
				return c.RestartUnitContext(ctx, daemonUnit, "replace", r)
			}

			return c.StartUnitContext(ctx, daemonUnit, "replace", r)
		})
}

func mountUnit(point string) string { return unit.UnitNamePathEscape(point) + ".mount" }

// detachUnit takes the mount of attachUnit away.
func detachUnit(ctx context.Context, point string) error {
	return systemd.Stop(ctx, jobLimit, mountUnit(point))
}

// attachUnit mounts through a mount unit, so that the client's process belongs
// to systemd and lives on when this one is started anew.
func attachUnit(ctx context.Context, source, point, options string) error {
	name := mountUnit(point)
	opts := "_netdev"
	if options != "" {
		opts += "," + options
	}

	text := fmt.Sprintf("# Written by applianced.\n[Unit]\nDescription=The cluster's shared volume\nAfter=%s\nDefaultDependencies=no\nConflicts=umount.target\nBefore=umount.target\n\n"+
		"[Mount]\nWhat=%s\nWhere=%s\nType=glusterfs\nOptions=%s\nTimeoutSec=90\nLazyUnmount=yes\nForceUnmount=yes\n", daemonUnit, source, point, opts)
	fresh, err := configure(filepath.Join("/etc/systemd/system", name), []byte(text))
	if err != nil {
		return fmt.Errorf("write the mount unit: %w", err)
	}

	return systemd.Job(ctx, jobLimit, "mount "+point,
		func(ctx context.Context, c *dbus.Conn, r chan<- string) (int, error) {
			if fresh {
				if err := c.ReloadContext(ctx); err != nil {
					return 0, err
				}
			}
			_ = c.ResetFailedUnitContext(ctx, name) // a fault means that it did not fail, or is not loaded
			return c.StartUnitContext(ctx, name, "replace", r)
		})
}
