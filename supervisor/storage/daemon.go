package storage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"saltern/command"
	"saltern/glusterctl"
	"saltern/pause"
	"saltern/supervisor/layout"
	"saltern/supervisor/systemd"
)

// Where Debian's GlusterFS looks.
const (
	daemonConfig = "/etc/glusterfs/glusterd.vol"
	daemonPID    = "/run/glusterd.pid"
)

// daemon is the local glusterd.
type daemon struct {
	runner command.Runner
	// drop is the directory of the unit's drop-ins; bricks the directory whose
	// file system glusterd waits for.
	bricks string
}

// start configures and starts glusterd, and starts it anew when it runs with
// another configuration or has to take a certificate (fresh). Bricks and mounts go on meanwhile. That it answers is
// the caller's to wait for.
func (d *daemon) start(ctx context.Context, fresh bool) error {
	changed, err := configure(daemonConfig, glusterctl.DaemonConfig(0))
	if err != nil {
		return fmt.Errorf("configure glusterd: %w", err)
	}
	changed = changed || fresh
	if err := os.MkdirAll(glusterctl.DaemonState, 0o755); err != nil {
		return fmt.Errorf("configure glusterd: %w", err)
	}
	if systemdRuns() {
		return d.startUnit(ctx, changed)
	}
	pid := runningDaemon()
	if pid > 0 && !changed {
		return nil
	}
	if pid > 0 {
		if err := d.stop(ctx); err != nil {
			return err
		}
	}
	// Not cut short: one that is just starting has no PID file to be stopped by.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), jobLimit)
	defer cancel()
	if _, err := command.Do(ctx, d.runner, "glusterd", "-p", daemonPID); err != nil {
		return fmt.Errorf("start glusterd: %w", err)
	}
	return nil
}

// stop ends glusterd, not its bricks.
func (d *daemon) stop(ctx context.Context) error {
	if systemdRuns() {
		return systemd.Stop(ctx, jobLimit, daemonUnit)
	}
	pid := runningDaemon()
	if pid == 0 {
		return nil
	}
	_ = syscall.Kill(pid, syscall.SIGTERM) // it may be gone
	for range 100 {
		if runningDaemon() != pid {
			return nil
		}
		if err := pause.For(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return fmt.Errorf("stop glusterd: process %d does not end", pid)
}

// runningDaemon gives the process of glusterd, 0 when there is none.
func runningDaemon() int {
	b, err := os.ReadFile(daemonPID)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 2 {
		return 0
	}
	comm, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
	if err != nil || strings.TrimSpace(string(comm)) != "glusterd" {
		return 0
	}
	return pid
}

// configure writes a file when it differs. A file that is mounted itself cannot
// be replaced and is written in place.
func configure(path string, content []byte) (changed bool, err error) {
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, content) {
		return false, nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return false, err
	}
	_, err = layout.WriteFile(path, content, 0o644)
	if errors.Is(err, syscall.EBUSY) {
		err = os.WriteFile(path, content, 0o644)
	}
	return err == nil, err
}

const (
	hostsPath  = "/etc/hosts"
	hostsBegin = "# begin of the cluster's nodes, kept by applianced"
	hostsEnd   = "# end of the cluster's nodes"
)

// setHosts keeps the block of the cluster's nodes in a hosts file. It comes
// first, so that it wins over a line that gives this node's name 127.0.1.1.
func setHosts(path, block string) error {
	have, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("names of the nodes: %w", err)
	}
	rest := string(have)
	if before, after, ok := strings.Cut(rest, hostsBegin+"\n"); ok {
		if _, end, ok := strings.Cut(after, hostsEnd+"\n"); ok {
			rest = before + end
		}
	}
	text := rest
	if block != "" {
		text = hostsBegin + "\n" + block + hostsEnd + "\n" + rest
	}
	if _, err := configure(path, []byte(text)); err != nil {
		return fmt.Errorf("names of the nodes: %w", err)
	}
	return nil
}
