package mastertest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"saltern/master"
	"saltern/master/conf"
	"saltern/test/await"
	"saltern/test/check"
)

// processConfig is the environment variable with the configuration file of a master that has a process of its own.
const processConfig = "SALTERN_TEST_MASTER"

// RunProcess runs the master of StartProcesses in its process. In the process of the test it does nothing.
func RunProcess(t *testing.T) {
	path := os.Getenv(processConfig)
	if path == "" {
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	cfg, err := conf.Load(path)
	check.Must(t, err)
	m, err := master.New(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, nil)))
	check.Must(t, err)
	check.Must(t, m.Run(ctx))
}

// StartProcesses works like StartCluster, but each master has a process of its own, which Kill ends. The masters have
// no Parts. The test must have a function that only calls RunProcess; name is its name.
func StartProcesses(t *testing.T, name string, n int, more ...string) []*Master {
	t.Helper()
	return startCluster(t, n, func(r *Master, options string) error {
		cfg := r.writeConfig(options)
		r.RequestAddress = net.JoinHostPort(r.Host, fmt.Sprint(cfg.RetPort))
		r.PublishAddress = net.JoinHostPort(r.Host, fmt.Sprint(cfg.PublishPort))
		r.process = name
		r.StartAgain()
		return nil
	}, more...)
}

// StartAgain starts the process of a master that was killed, with the same files, and waits until it is ready.
func (r *Master) StartAgain() {
	t := r.T
	t.Helper()
	ready := r.Path("cache", "health", "ready")
	if err := os.Remove(ready); err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^"+r.process+"$", "-test.timeout=0")
	cmd.Env = append(os.Environ(), processConfig+"="+r.Path("master"))
	cmd.Stdout = io.Discard
	cmd.Stderr = r.Log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	check.Must(t, cmd.Start())

	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	end := func(sig syscall.Signal) error {
		_ = cmd.Process.Signal(sig)
		select {
		case err := <-ended:
			return err
		case <-time.After(30 * time.Second):
			_ = cmd.Process.Kill()
			return errors.Join(errors.New("it does not stop"), <-ended)
		}
	}
	r.Signal = func(sig syscall.Signal) { check.Must(t, cmd.Process.Signal(sig)) }
	var once sync.Once
	r.Kill = func() { once.Do(func() { _ = end(syscall.SIGKILL) }) }
	r.Stop = func() {
		once.Do(func() {
			if err := end(syscall.SIGTERM); err != nil {
				t.Errorf("the master %s ended with %v:\n%s", r.Host, err, r.Log.String())
			}
		})
	}

	if !await.Within(time.Minute, func() bool {
		_, err := os.Stat(ready)
		return err == nil
	}) {
		t.Fatalf("the master %s is not ready:\n%s", r.Host, r.Log.String())
	}
	r.readKey()
}
