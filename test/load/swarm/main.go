package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
)

// Exit statuses.
const (
	exitOK     = 0
	exitFailed = 1 // a request failed or had a wrong answer
	exitUsage  = 2 // or the run could not begin
)

// A mode is what the minions do.
type mode struct {
	name, about string
	run         func(s *swarm, ctx context.Context)
}

func modes() []mode {
	return []mode{
		{"auth", "sign in", (*swarm).auth},
		{"signin", "sign in who is not yet, and keep the session keys in -state", (*swarm).signInAll},
		{"returns", "return to jobs", asked((*swarm).returns)},
		{"events", "fire events", asked((*swarm).events)},
		{"pillar", "ask for pillars", asked((*swarm).pillar)},
		{"runner", "call a runner of the master, as publish.runner does", asked((*swarm).runner)},
		{"file", "fetch a file and compare its hash", asked((*swarm).files)},
		{"publish", "start jobs as the command salt does", (*swarm).publish},
		{"hold", "stay subscribed and return to each job", (*swarm).hold},
		{"tree", "only watch the processes below -pid", (*swarm).tree},
	}
}

func main() {
	// The generator shares the machine: fewer collections for more memory.
	debug.SetGCPercent(200)
	// A signal ends the run; what was measured so far is reported.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

func usage(w io.Writer) {
	fmt.Fprintln(w,
		"Usage: swarm MODE [flags]\n\nPlays minions against a Salt master and checks every answer.\n\nModes:")
	for _, m := range modes() {
		fmt.Fprintf(w, "  %-8s %s\n", m.name, m.about)
	}
	fmt.Fprintln(w,
		"\nswarm MODE --help lists the flags. Exit status: 0, 1 when a request failed or had a wrong answer, 2 for bad usage.")
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		usage(stderr)
		return exitUsage
	}

	for _, m := range modes() {
		if m.name == args[0] {
			return m.perform(ctx, args[1:], stdout, stderr)
		}
	}

	if args[0] == "-h" || args[0] == "--help" || args[0] == "help" {
		usage(stdout)
		return exitOK
	}

	fmt.Fprintf(stderr, "swarm: there is no mode %q\n\n", args[0])
	usage(stderr)
	return exitUsage
}

func (m mode) perform(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	o, err := parse(m.name, args, stderr)
	if errors.Is(err, flag.ErrHelp) {
		return exitOK
	}

	var s *swarm
	if err == nil {
		s, err = gather(o)
	}

	if err != nil {
		fmt.Fprintln(stderr, "swarm:", err)
		return exitUsage
	}
	defer s.close()

	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
	defer cancel()
	m.run(s, ctx)
	s.errs.add(s.save())
	r := s.finish(m.name)
	if err := r.write(stdout, o.json); err != nil {
		fmt.Fprintln(stderr, "swarm:", err)
		return exitFailed
	}

	for text, n := range r.Errors {
		fmt.Fprintf(stderr, "swarm: %d times: %s\n", n, text)
	}

	if r.Failed > 0 {
		return exitFailed
	}

	return exitOK
}

// errTimeout is the cause of a run that -timeout ended.
var errTimeout = errors.New("-timeout is over")
