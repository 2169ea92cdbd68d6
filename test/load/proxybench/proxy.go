package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"
	"time"

	"saltern/test/load/proctree"
)

const (
	proxyWait = 5 * time.Second // for it to listen
	proxyStop = 2 * time.Second // for it to end by itself
	warmUps   = 50              // short connections, for what a proxy makes late
)

// definition is a proxy of the configuration.
type definition struct {
	Name    string   `json:"name"`
	Command []string `json:"cmd"`
	Listen  string   `json:"listen"` // where clients connect
}

// proxy is one that runs.
type proxy struct {
	cmd   *exec.Cmd
	ended chan struct{}
	log   *os.File
}

// startProxy runs a proxy and waits until it listens.
func startProxy(ctx context.Context, d definition) (*proxy, error) {
	if len(d.Command) == 0 {
		return nil, fmt.Errorf("proxy %s has no command", d.Name)
	}

	// Programs with SO_REUSEPORT would share the connections unseen.
	if c, err := net.DialTimeout("tcp", d.Listen, 300*time.Millisecond); err == nil {
		c.Close()
		return nil, fmt.Errorf("something else listens on %s already", d.Listen)
	}

	log, err := os.OpenFile("proxy-"+d.Name+".log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}

	p := &proxy{cmd: exec.Command(d.Command[0], d.Command[1:]...), ended: make(chan struct{}), log: log}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	if err := p.cmd.Start(); err != nil {
		log.Close()
		return nil, err
	}

	go func() { // until stop
		_ = p.cmd.Wait() // by a signal
		close(p.ended)
	}()

	if err := p.listens(ctx, d.Listen); err != nil {
		p.stop()
		return nil, fmt.Errorf("proxy %s: %w; see %s", d.Name, err, log.Name())
	}

	return p, nil
}

func (p *proxy) listens(ctx context.Context, addr string) error {
	for end := time.Now().Add(proxyWait); time.Now().Before(end); {
		if c, err := net.DialTimeout("tcp", addr, 200*time.Millisecond); err == nil {
			return c.Close()
		}
		select {
		case <-p.ended:
			return errors.New("it has ended")
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return fmt.Errorf("it does not listen on %s", addr)
}

// stop ends the proxy and all its processes.
func (p *proxy) stop() {
	defer p.log.Close()
	p.signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(proxyStop):
		p.signal(syscall.SIGKILL)
		<-p.ended
	}
}

func (p *proxy) signal(s syscall.Signal) {
	pids, err := proctree.Pids(p.cmd.Process.Pid)
	if err != nil {
		return // it has ended
	}
	for _, pid := range pids {
		_ = syscall.Kill(pid, s) // it may have ended just now
	}
}

// warm makes some requests, so that what a proxy makes late is there.
func warm(ctx context.Context, target string) {
	r := newRequester()
	for range warmUps {
		_, _ = r.short(target, 2*time.Second) // failures show when it counts
	}
	pause(ctx, 500*time.Millisecond)
}
