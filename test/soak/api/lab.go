package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"
)

// lab is the programs under test and the minion.
type lab struct {
	dir                 string
	master, api, minion *exec.Cmd
}

// masterConf: jobs are kept for some seconds, so that the lists of them do not grow for as
// long as it takes.
const masterConf = `root_dir: %[1]s
user: root
interface: 127.0.0.1
publish_port: %[2]d
ret_port: %[3]d
auto_accept: True
pki_dir: pki
cachedir: cache
sock_dir: sock
log_file: log
pidfile: pid
timeout: 5
keep_jobs_seconds: 20
loop_interval: 5
external_auth: {sharedsecret: {ann: ['.*', '@runner', '@wheel', '@jobs']}}
sharedsecret: right
netapi_enable_clients: [local, local_async, runner, wheel]
rest_cherrypy:
  host: 127.0.0.1
  port: %[4]d
  disable_ssl: true
`

// start starts all and waits until the API answers and the minion listens. The lab is to
// be stopped in any case.
func start(ctx context.Context, o options) (*lab, error) {
	l := &lab{}
	dir, err := os.MkdirTemp("", "soak")
	if err != nil {
		return l, fmt.Errorf("make a folder: %w", err)
	}

	l.dir = dir
	etc := filepath.Join(dir, "etc")
	conf := fmt.Sprintf(masterConf, dir, o.port, o.port+1, o.port+2)
	if err := errors.Join(os.MkdirAll(etc, 0o755),
		os.WriteFile(filepath.Join(etc, "master"), []byte(conf), 0o600)); err != nil {
		return l, fmt.Errorf("write the configuration: %w", err)
	}

	ready := filepath.Join(dir, "ready")
	if l.master, err = l.run(filepath.Join(o.bin, "salt-master"), "-c", etc, "-l", "error"); err != nil {
		return l, err
	}

	if l.api, err = l.run(filepath.Join(o.bin, "salt-api"), "-c", etc, "-l", "error"); err != nil {
		return l, err
	}

	if err := await(ctx, "the API does not answer", func() bool {
		r, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", o.port+2))
		if err != nil {
			return false
		}
		return r.Body.Close() == nil && r.StatusCode == http.StatusOK
	}); err != nil {
		return l, err
	}

	if l.minion, err = l.run(o.swarm, "hold", "-master", "127.0.0.1", "-pub-port", fmt.Sprint(o.port), "-ret-port", fmt.Sprint(o.port+1), "-keys", filepath.Join(dir, "keys"),
		"-n", "1", "-prefix", "m", "-timeout", "12h", "-ready-file", ready); err != nil {
		return l, err
	}

	return l, await(ctx, "the minion does not connect", func() bool { _, err := os.Stat(ready); return err == nil })
}

func (l *lab) run(program string, args ...string) (*exec.Cmd, error) {
	out, err := os.OpenFile(filepath.Join(l.dir, filepath.Base(program)+".out"), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the log: %w", err)
	}
	defer out.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", program, err)
	}
	return cmd, nil
}

// stop ends what was started. A program under test that does not end well is a fault.
func (l *lab) stop() error {
	var errs []error
	for _, cmd := range []*exec.Cmd{l.minion, l.api, l.master} {
		if cmd == nil {
			continue
		}

		late := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil && cmd != l.minion {
			errs = append(errs, fmt.Errorf("%s: %w", cmd.Path, err))
		}

		late.Stop()
	}

	if l.dir != "" && len(errs) == 0 {
		errs = append(errs, os.RemoveAll(l.dir))
	}

	return errors.Join(errs...)
}

// await waits for at most a minute.
func await(ctx context.Context, fault string, ok func() bool) error {
	for end := time.Now().Add(time.Minute); !ok(); {
		if time.Now().After(end) {
			return errors.New(fault)
		}
		if err := rest(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

func rest(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return fmt.Errorf("interrupted: %w", context.Cause(ctx))
	case <-time.After(d):
		return nil
	}
}
