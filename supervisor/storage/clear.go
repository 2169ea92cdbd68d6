package storage

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"saltern/glusterctl/disk"
	"saltern/internal/command"
	"saltern/supervisor/systemd"
)

// clearBrick removes glusterd's marks from a brick directory. The attributes need
// CAP_SYS_ADMIN, which the appliance's service does not have: it asks systemd then.
func (m *Manager) clearBrick(ctx context.Context, dir string) error {
	err := disk.ClearBrick(dir)
	if !errors.Is(err, unix.EPERM) || !systemdRuns() {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := command.Do(ctx, systemd.Runner{}, m.helper("clear", dir)...); err != nil {
		return fmt.Errorf("by systemd: %w", err)
	}
	return nil
}
