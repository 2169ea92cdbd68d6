package datadisk

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/go-systemd/v22/util"
	"golang.org/x/sys/unix"

	"saltern/internal/command"
	"saltern/internal/pause"
	"saltern/supervisor/layout"
	"saltern/supervisor/systemd"
)

// confined reports whether this process can never get the right to mount, and can ask systemd to
// mount instead.
func confined() bool {
	may, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, unix.CAP_SYS_ADMIN, 0, 0, 0)
	return err == nil && may == 0 && util.IsRunningSystemd()
}

// privileged returns a runner that runs commands with all of root's rights.
func privileged() command.Runner {
	if confined() {
		return systemd.Runner{}
	}
	return command.Exec{}
}

// mountTakes is the longest time for the mount of a data disk, which may have to read a journal.
const mountTakes = 5 * time.Minute

// mountUnit mounts a disk through a unit of systemd, so that all processes of the machine see it.
func mountUnit(ctx context.Context, dev, dir string) error {
	ctx, cancel := context.WithTimeout(ctx, mountTakes)
	defer cancel()
	name := unit.UnitNamePathEscape(dir) + ".mount"
	fresh, err := layout.WriteFile(filepath.Join("/etc/systemd/system", name), []byte(mountText(dev, dir)), 0o644)
	if err != nil {
		return fmt.Errorf("write the mount unit: %w", err)
	}

	commands := [][]string{{"systemctl", "reset-failed", name}, {"systemctl", "start", name}}
	if fresh {
		commands = append([][]string{{"systemctl", "daemon-reload"}}, commands...)
	}

	for _, c := range commands {
		_, err := command.Do(ctx, command.Exec{}, c...)
		if err != nil && c[1] != "reset-failed" { // reset-failed fails if there is nothing to reset
			return fmt.Errorf("mount %s on %s: %s: %w", dev, dir, strings.Join(c[:2], " "), err)
		}
	}

	// The mount appears to this process a moment later.
	for {
		there, err := mounted(dir)
		if err != nil || there {
			return err
		}
		if err := pause.For(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("mount %s on %s: this service does not see it: %w", dev, dir, err)
		}
	}
}

// unmountUnit stops and removes the unit that mountUnit has written.
func unmountUnit(ctx context.Context, dir string) error {
	name := unit.UnitNamePathEscape(dir) + ".mount"
	if err := systemd.Stop(ctx, mountTakes, name); err != nil {
		return err
	}
	if err := os.Remove(filepath.Join("/etc/systemd/system", name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the mount unit: %w", err)
	}
	return nil
}

// mountText returns the unit's file. systemd does not stop the unit at a shutdown: the process that
// serves the copy runs until all processes are killed, and the last step of the shutdown then
// unmounts the disk.
func mountText(dev, dir string) string {
	return fmt.Sprintf("# Written by applianced.\n[Unit]\nDescription=This node's copy of the shared "+
		"volume\nDefaultDependencies=no\nBefore=glusterd.service\n\n"+
		"[Mount]\nWhat=%s\nWhere=%s\nType=xfs\nOptions=noatime,nosuid,nodev\n", dev, dir)
}
