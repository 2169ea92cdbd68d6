package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"saltern/lbproxy"
)

// lab is the balancer and its masters.
type lab struct {
	self    string // our own program
	masters []string
	admin   *lbproxy.Client
	held    int
	c       *clients

	mu    sync.Mutex
	procs map[string]*exec.Cmd
	worst time.Duration // longest time to balance again
}

func name(i int) string { return fmt.Sprint("m", i+1) }

func (l *lab) startMaster(ip string) error {
	cmd := exec.Command(l.self, "-master", ip)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start master: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.procs[ip] = cmd
	return nil
}

func (l *lab) signal(ip string, s syscall.Signal) {
	l.mu.Lock()
	cmd := l.procs[ip]
	l.mu.Unlock()
	_ = cmd.Process.Signal(s)
	if s == syscall.SIGKILL {
		_ = cmd.Wait()
	}
}

// spread gives the publish sessions of each master.
func (l *lab) spread(ctx context.Context) ([]int64, error) {
	st, err := l.admin.Status(ctx)
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, b := range st.Backends {
		for _, p := range b.Ports {
			if p.Frontend == "publish" {
				out = append(out, p.Sessions)
			}
		}
	}
	return out, nil
}

// balanced waits until all subscribers are there and no master has more than
// 1.15 of the mean.
func (l *lab) balanced(ctx context.Context, limit time.Duration) (time.Duration, error) {
	began := time.Now()
	for {
		n, err := l.spread(ctx)
		if err == nil && len(n) == len(l.masters) {
			sum, most := int64(0), int64(0)
			for _, k := range n {
				sum += k
				most = max(most, k)
			}

			// Others than the held ones come and go.
			if sum >= int64(l.held) && float64(most) <= 1.15*float64(sum)/float64(len(n)) {
				return time.Since(began), nil
			}
		}

		if time.Since(began) > limit || !pause(ctx, 250*time.Millisecond) {
			return 0, fmt.Errorf("sessions %v not balanced within %s (%w)", n, limit, ctx.Err())
		}
	}
}

// faults breaks one master after the other, each in another way, until ctx ends.
func (l *lab) faults(ctx context.Context, report func(string, ...any)) {
	for i := 0; pause(ctx, 20*time.Second); i++ {
		ip, who := l.masters[i%len(l.masters)], name(i%len(l.masters))
		what := [...]string{"killed", "stopped", "drained", "flapping"}[i%4]
		l.c.fault(what != "drained") // draining loses nothing
		switch what {
		case "killed":
			l.signal(ip, syscall.SIGKILL)
			pause(ctx, 8*time.Second)
			l.again(ip, report)
		case "stopped":
			l.signal(ip, syscall.SIGSTOP)
			pause(ctx, 12*time.Second)
			l.signal(ip, syscall.SIGCONT)
		case "drained":
			if err := l.admin.Drain(ctx, who); err != nil && ctx.Err() == nil {
				report("drain %s: %v", who, err)
			}
			pause(ctx, 15*time.Second)
			if err := l.admin.Undrain(context.WithoutCancel(ctx), who); err != nil {
				report("undrain %s: %v", who, err)
			}
		case "flapping":
			for range 5 {
				l.signal(ip, syscall.SIGKILL)
				pause(ctx, time.Second)
				l.again(ip, report)
				pause(ctx, 1500*time.Millisecond)
			}
		}

		took, err := l.balanced(ctx, 2*time.Minute)
		l.c.fault(false)
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			l.c.wrong.Add(1)
			report("%s %s: %v", who, what, err)
			continue
		}

		l.mu.Lock()
		l.worst = max(l.worst, took)
		l.mu.Unlock()

		report("%s was %s; all back, and balanced %.1f s after it returned", who, what, took.Seconds())
	}
}

func (l *lab) again(ip string, report func(string, ...any)) {
	if err := l.startMaster(ip); err != nil {
		report("%v", err)
	}
}
