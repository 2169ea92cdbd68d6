package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"saltern/lbproxy"
)

// options are the flags.
type options struct {
	program  string
	net      string
	held     int
	warm     time.Duration
	duration time.Duration
	rest     time.Duration
	keep     float64
}

func main() {
	var o options
	master := flag.String("master", "", "run as a master on this address (used by the program itself)")
	flag.StringVar(&o.program, "program", "bin/applianced", "the program under test")
	flag.StringVar(&o.net, "net", "127.0.40", "loopback network to use: .1 is the balancer, .11 to .13 are masters")
	flag.IntVar(&o.held, "held", 2000, "subscribers held (at most 9500: the descriptor limit)")
	flag.DurationVar(&o.warm, "warm", 3*time.Minute, "load before the first measurement")
	flag.DurationVar(&o.duration, "duration", 30*time.Minute, "load between the measurements")
	flag.DurationVar(&o.rest, "rest", 150*time.Second,
		"silence in which the memory is measured; collections without need are two minutes apart")
	flag.Float64Var(&o.keep, "within", 2, "percent that descriptors and PSS may differ")
	flag.Parse()
	var err error
	if *master != "" {
		err = runMaster(*master)
	} else {
		ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer cancel()
		err = soak(ctx, o)
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func report(format string, args ...any) {
	fmt.Printf("%s  %s\n", time.Now().Format(time.TimeOnly), fmt.Sprintf(format, args...))
}

// soak runs the whole story.
func soak(ctx context.Context, o options) error {
	dir, err := os.MkdirTemp("", "soak-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)

	self, err := os.Executable()
	if err != nil {
		return err
	}

	l := &lab{
		self:  self,
		held:  o.held,
		procs: map[string]*exec.Cmd{},
		admin: lbproxy.NewClient(filepath.Join(dir, "admin.sock")),
		c:     &clients{publish: o.net + ".1:24505", request: o.net + ".1:24506"},
	}

	conf := fmt.Sprintf("frontends:\n- {name: publish, mode: publish, bind: [%q]}\n- {name: request, mode: request, bind: [%q]}\nbackends:\n",
		l.c.publish, l.c.request)
	for i := range 3 {
		ip := fmt.Sprintf("%s.%d", o.net, 11+i)
		l.masters = append(l.masters, ip)
		conf += fmt.Sprintf("- {name: %s, address: %s, publish_port: %s, request_port: %s}\n", name(i), ip,
			publishPort, requestPort)

		if err := l.startMaster(ip); err != nil {
			return err
		}
		defer func() { l.signal(ip, syscall.SIGKILL) }()
	}

	// One loop throughout, so that a burst does not leave a second one behind.
	conf += fmt.Sprintf("log: {sessions: publish}\nmax_loops: 1\nadmin: {socket: %s}\n",
		filepath.Join(dir, "admin.sock"))
	file := filepath.Join(dir, "lb.yaml")
	if err := os.WriteFile(file, []byte(conf), 0o600); err != nil {
		return err
	}

	log, err := os.Create(filepath.Join(dir, "lb.log"))
	if err != nil {
		return err
	}
	defer log.Close()

	lb := exec.Command(o.program, "lb", "--config", file, "--log-format", "json")
	lb.Stdout, lb.Stderr = log, log
	lb.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := lb.Start(); err != nil {
		return fmt.Errorf("start the balancer: %w", err)
	}

	gone := make(chan error, 1)
	go func() { gone <- lb.Wait() }()
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { cancel(fmt.Errorf("the balancer ended: %w", <-gone)) }()
	defer func() { _ = lb.Process.Kill() }()

	var holders sync.WaitGroup
	hctx, release := context.WithCancel(ctx)
	defer func() { release(); holders.Wait() }()

	for range o.held {
		holders.Go(func() { l.c.hold(hctx) })
	}

	before, err := l.round(ctx, lb.Process.Pid, o.warm, o.rest)
	if err != nil {
		return err
	}

	report("before: %s", before)
	after, err := l.round(ctx, lb.Process.Pid, o.duration, o.rest)
	if err != nil {
		return err
	}

	report("after:  %s", after)
	return l.verdict(o, before, after)
}

// round loads the balancer for a time, lets it rest and measures it.
func (l *lab) round(ctx context.Context, pid int, load, rest time.Duration) (usage, error) {
	if _, err := l.balanced(ctx, 3*time.Minute); err != nil {
		return usage{}, errors.Join(err, context.Cause(ctx))
	}

	report("%d subscribers held; load for %s", l.c.subscribed.Load(), load)
	l.c.fault(false)
	lctx, cancel := context.WithTimeout(ctx, load)
	defer cancel()

	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { l.c.keep(lctx, 4) })
	}

	for range 4 {
		wg.Go(func() { l.c.short(lctx, 5) })
	}

	for range 40 {
		wg.Go(func() { l.c.abuse(lctx) })
	}

	wg.Go(func() { l.c.bulk(lctx) })
	wg.Go(func() { l.faults(lctx, report) })
	wg.Wait()
	if ctx.Err() != nil {
		return usage{}, context.Cause(ctx)
	}

	if err := l.whole(ctx); err != nil {
		return usage{}, err
	}

	report("rest for %s", rest)
	u, err := resting(ctx, pid, rest)
	if err != nil {
		return usage{}, err
	}

	return u, l.whole(ctx)
}

// whole waits until the held subscribers are there and nothing else is.
func (l *lab) whole(ctx context.Context) error {
	for end := time.Now().Add(3 * time.Minute); ; {
		st, err := l.admin.Status(ctx)
		if err == nil && st.Sessions == int64(l.held) && st.Pending == 0 {
			return nil
		}
		if time.Now().After(end) || !pause(ctx, time.Second) {
			return fmt.Errorf("%d sessions, %d bytes pending; %d were held (%w)", st.Sessions, st.Pending,
				l.held, errors.Join(err, context.Cause(ctx)))
		}
	}
}

func (l *lab) verdict(o options, before, after usage) error {
	c := l.c
	report("%d requests answered, %d not, %d answers wrong; %d jobs taken; %d redials; %d abuses; slowest to balance %.1f s",
		c.asked.Load(), c.failed.Load(), c.wrong.Load(), c.jobs.Load(), c.redials.Load()-int64(o.held), c.abused.Load(), l.worst.Seconds())
	var errs []error
	if d := differs(before.fds, after.fds); d > o.keep || d < -o.keep {
		errs = append(errs, fmt.Errorf("descriptors differ by %+.1f %%", d))
	}

	d := differs(before.pss, after.pss)
	report("PSS differs by %+.1f %%, anonymous memory by %+.1f %%", d, differs(before.anon, after.anon))
	if d > o.keep {
		errs = append(errs, fmt.Errorf("memory grew by %.1f %%", d))
	}

	if n := c.wrong.Load(); n > 0 {
		errs = append(errs, fmt.Errorf("%d wrong answers or unbalanced ends", n))
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.lost {
		errs = append(errs, fmt.Errorf("request lost while nothing was broken: %s", s))
	}

	return errors.Join(errs...)
}
