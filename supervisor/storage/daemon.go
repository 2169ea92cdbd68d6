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

	"saltern/glusterctl"
	"saltern/internal/command"
	"saltern/internal/pause"
	"saltern/supervisor/layout"
	"saltern/supervisor/systemd"
)

// Paths of Debian's GlusterFS.
const (
	daemonConfig = "/etc/glusterfs/glusterd.vol"
	daemonPID    = "/run/glusterd.pid"
)

// daemon is the local glusterd.
type daemon struct {
	runner command.Runner
	// bricks is the directory whose file system glusterd waits for.
	bricks string
	// allowed is the path of a file without which systemd does not start glusterd. A reboot removes
	// the file. The node writes it again once it knows that it may serve its copy. Empty: there is
	// no such condition.
	allowed string
}

// start configures and starts glusterd. It restarts a glusterd that runs with another
// configuration. If fresh is set, it restarts any running glusterd, for example because the
// certificate is new. Bricks and mounts keep running during a restart of glusterd. start does not
// wait until glusterd answers: the caller does.
func (d *daemon) start(ctx context.Context, fresh bool) error {
	changed, err := writeIfDifferent(daemonConfig, glusterctl.DaemonConfig(0))
	if err != nil {
		return fmt.Errorf("configure glusterd: %w", err)
	}

	changed = changed || fresh
	if err := os.MkdirAll(glusterctl.DaemonState, 0o755); err != nil {
		return fmt.Errorf("configure glusterd: %w", err)
	}

	if err := d.allowStart(); err != nil {
		return fmt.Errorf("configure glusterd: %w", err)
	}

	// Neither a new table of nodes nor the end of this process must interrupt the start: a glusterd
	// that is just starting cannot be stopped cleanly, and would be restarted at once. A start
	// takes a second or two, but some minutes while other nodes are unreachable.
	ctx, cancel := withGrace(ctx, jobLimit, 30*time.Second)
	defer cancel()
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

	if _, err := command.Do(ctx, d.runner, "glusterd", "-p", daemonPID); err != nil {
		return fmt.Errorf("start glusterd: %w", err)
	}

	return nil
}

// allowStart creates the file that permits systemd to start glusterd until the next reboot.
func (d *daemon) allowStart() error {
	if d.allowed == "" {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(d.allowed), 0o755); err != nil {
		return err
	}
	return os.WriteFile(d.allowed, nil, 0o600)
}

// withGrace returns a context that ends after limit, or grace after ctx has ended, or when its
// cancel function is called.
func withGrace(ctx context.Context, limit, grace time.Duration) (context.Context, context.CancelFunc) {
	out, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	stop := context.AfterFunc(ctx, func() {
		select {
		case <-time.After(grace):
			cancel()
		case <-out.Done():
		}
	})
	return out, func() {
		stop()
		cancel()
	}
}

// stop ends glusterd. Its bricks keep running.
func (d *daemon) stop(ctx context.Context) error {
	if err := remove(d.allowed); err != nil {
		return fmt.Errorf("stop glusterd: %w", err)
	}
	if systemdRuns() {
		return systemd.Stop(ctx, jobLimit, daemonUnit)
	}

	pid := runningDaemon()
	if pid == 0 {
		return nil
	}

	_ = syscall.Kill(pid, syscall.SIGTERM) // the process may have ended
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

// runningDaemon returns the process ID of glusterd, or 0.
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

// writeIfDifferent writes a file if its content differs, and reports whether it did. A file that is
// itself a mount point cannot be replaced, so writeIfDifferent writes it in place.
func writeIfDifferent(path string, content []byte) (changed bool, err error) {
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

// setHosts keeps the block of the cluster's nodes at the head of a hosts file. There it has
// precedence over a line that resolves this node's name to 127.0.1.1.
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

	if _, err := writeIfDifferent(path, []byte(text)); err != nil {
		return fmt.Errorf("names of the nodes: %w", err)
	}

	return nil
}
