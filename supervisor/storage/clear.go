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

// clearBrick removes GlusterFS's extended attributes from a brick directory. That needs the
// capability CAP_SYS_ADMIN. The appliance's service lacks this capability, so clearBrick asks
// systemd to run the helper "clear".
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
