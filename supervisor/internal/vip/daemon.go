package vip

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"saltern/internal/command"
	"saltern/internal/durable"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/layout"
)

// errMissing means that keepalived is not installed.
var errMissing = errors.New("keepalived is not installed (apt-get install keepalived)")

// Daemon runs keepalived. If systemd has the [unit] for keepalived, Daemon starts that unit, which
// has rights that the supervisor lacks. Otherwise keepalived is a child, and gives up the address
// when the supervisor dies. Daemon implements [service.Runner]. Its methods are safe for concurrent
// use.
type Daemon struct {
	// Dir is the folder of the configuration. Only this account may be able to write to it.
	Dir string
	Log io.Writer // gets the output of a child
	Env []string  // environment of a child

	mu    sync.Mutex
	child *os.Process // nil: keepalived does not run as a child
	unit  bool        // keepalived runs as a unit of systemd
}

const (
	confFile = "keepalived.conf"
)

// Conf returns the path of the configuration.
func (d *Daemon) Conf() string { return filepath.Join(d.Dir, confFile) }

// Program returns the path of keepalived, or errMissing.
func Program() (string, error) {
	path, err := exec.LookPath("keepalived")
	if err != nil {
		return "", errMissing
	}
	return path, nil
}

// Write asks keepalived to check a configuration, and then saves the configuration. It reports
// whether the configuration has changed.
func (d *Daemon) Write(ctx context.Context, text []byte) (changed bool, err error) {
	if err := os.MkdirAll(d.Dir, 0o700); err != nil {
		return false, fmt.Errorf("virtual address: %w", err)
	}

	if old, err := os.ReadFile(d.Conf()); err == nil && bytes.Equal(old, text) {
		return false, nil
	}

	tried := filepath.Join(d.Dir, ".new")
	if _, err := layout.WriteFile(tried, text, 0o600); err != nil {
		return false, err
	}
	defer os.Remove(tried)

	if err := testConfig(ctx, tried); err != nil {
		return false, err
	}

	if err := os.Rename(tried, d.Conf()); err != nil {
		return false, err
	}

	return true, durable.SyncDir(d.Dir)
}

// testConfig asks keepalived to check a configuration without using it.
func testConfig(ctx context.Context, path string) error {
	program, err := Program()
	if err != nil {
		return err
	}
	_, err = command.Do(ctx, command.Exec{Limit: 20 * time.Second, Cut: true}, program, "--vrrp",
		"--config-test", "--use-file", path)
	if err != nil {
		return fmt.Errorf("keepalived refuses its configuration: %w", err)
	}
	return nil
}

// Run implements [service.Runner].
func (d *Daemon) Run(ctx context.Context, started func(pid int)) error {
	if d.hasUnit(ctx) {
		return d.runUnit(ctx, started)
	}

	p, err := d.process()
	if err == nil {
		err = d.forgetProcesses()
	}

	if err != nil {
		return err
	}
	defer d.setProcess(nil)

	return p.Run(ctx, func(pid int) {
		if c, err := os.FindProcess(pid); err == nil { // still our child: it is not reaped before this function returns
			d.setProcess(c)
		}
		started(pid)
	})
}

func (d *Daemon) setProcess(p *os.Process) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.child != nil {
		_ = d.child.Release()
	}
	d.child = p
}

func (d *Daemon) process() (*service.Process, error) {
	program, err := Program()
	if err != nil {
		return nil, err
	}

	return &service.Process{
		Path: program,
		Args: []string{"--dont-fork", "--vrrp", "--log-console", "--no-syslog", "--use-file", d.Conf(),
			"--pid", filepath.Join(d.Dir, pidFiles[0]), "--vrrp_pid", filepath.Join(d.Dir, pidFiles[1])},
		Env:         d.Env,
		Dir:         "/",
		PIDFile:     filepath.Join(d.Dir, "child"),
		StopTimeout: 10 * time.Second,
		Log:         d.Log,
	}, nil
}

// pidFiles lists the names of the PID files of keepalived's first process and of its VRRP process.
// A PID file of an earlier life may contain the ID of another program's process. keepalived would
// then assume that it runs already, and would not start (lib/pidfile.c, kill with signal 0). With
// the unit the PID files are in its RuntimeDirectory, which systemd removes at each stop.
var pidFiles = [...]string{"keepalived.pid", "vrrp.pid"}

// forgetProcesses removes the PID files of an earlier life, whose processes [Daemon.KillStale] has
// killed.
func (d *Daemon) forgetProcesses() error {
	for _, name := range pidFiles {
		if err := os.Remove(filepath.Join(d.Dir, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove the pid file of an earlier keepalived: %w", err)
		}
	}
	return nil
}

// KillStale kills a child of an earlier life.
func (d *Daemon) KillStale(ctx context.Context) error {
	return (&service.Process{PIDFile: filepath.Join(d.Dir, "child")}).KillStale(ctx)
}

// Reload asks a running keepalived to load its configuration again. A node with the virtual address
// keeps the address.
func (d *Daemon) Reload(ctx context.Context) error {
	d.mu.Lock()
	child, unit := d.child, d.unit
	if child != nil {
		defer d.mu.Unlock()
		return child.Signal(syscall.SIGHUP)
	}
	d.mu.Unlock()
	if unit {
		return reloadUnit(ctx)
	}
	return nil
}
