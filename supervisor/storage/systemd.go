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
	// jobLimit bounds one job of systemd. glusterd takes long without quorum.
	jobLimit = 3 * time.Minute
)

func systemdRuns() bool { return util.IsRunningSystemd() }

func (d *daemon) startUnit(ctx context.Context, restart bool) error {
	fresh, err := writeIfDifferent(dropIn, []byte(glusterctl.UnitDropIn(d.bricks, d.allowed)))
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

			// Debian's unit may be started six times an hour; this call resets the count. An error
			// means that the unit is not loaded.
			_ = c.ResetFailedUnitContext(ctx, daemonUnit)
			if restart {
				return c.RestartUnitContext(ctx, daemonUnit, "replace", r)
			}

			return c.StartUnitContext(ctx, daemonUnit, "replace", r)
		})
}

// mountUnitText is the format of a mount unit. Its arguments are glusterd's unit, the source, the
// mount point and the options.
const mountUnitText = `# Written by applianced.
[Unit]
Description=The cluster's shared volume
After=%s
DefaultDependencies=no
Conflicts=umount.target
Before=umount.target

[Mount]
What=%s
Where=%s
Type=glusterfs
Options=%s
TimeoutSec=90
LazyUnmount=yes
ForceUnmount=yes
`

func mountUnit(point string) string { return unit.UnitNamePathEscape(point) + ".mount" }

// detachUnit unmounts the file system that attachUnit has mounted.
func detachUnit(ctx context.Context, point string) error {
	return systemd.Stop(ctx, jobLimit, mountUnit(point))
}

// attachUnit mounts through a mount unit, so that the client's process belongs to systemd and
// survives a restart of this process.
func attachUnit(ctx context.Context, source, point, options string) error {
	name := mountUnit(point)
	opts := "_netdev"
	if options != "" {
		opts += "," + options
	}

	text := fmt.Sprintf(mountUnitText, daemonUnit, source, point, opts)
	fresh, err := writeIfDifferent(filepath.Join("/etc/systemd/system", name), []byte(text))
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
			_ = c.ResetFailedUnitContext(ctx, name) // an error means that the unit has not failed, or is not loaded
			return c.StartUnitContext(ctx, name, "replace", r)
		})
}
