package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// options are the flags.
type options struct {
	bin, swarm string
	port       int
	requests   int64
	clients    int
	readers    int
	warm       time.Duration
	grow       float64
	bound      float64
	fds        int
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "folder of salt-master and salt-api")
	flag.StringVar(&o.swarm, "swarm", "bin/swarm", "the program that plays the minion")
	flag.IntVar(&o.port, "port", 27820, "first of three ports on 127.0.0.1")
	flag.Int64Var(&o.requests, "n", 1_000_000, "requests")
	flag.IntVar(&o.clients, "clients", 32, "connections that are kept")
	flag.IntVar(&o.readers, "readers", 6, "readers of events that come and go")
	flag.DurationVar(&o.warm, "warm", 11*time.Minute,
		"load before the first reading: the master remembers answers to minions for ten minutes")
	flag.Float64Var(&o.grow, "grow", 10,
		"percent by which the memory in the last quarter may exceed that in the second")
	flag.Float64Var(&o.bound, "slack", 2, "MiB that it may exceed it by besides")
	flag.IntVar(&o.fds, "fds", 4, "descriptors that may be more in the last quarter than in the second")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()

	if err := soak(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

func soak(ctx context.Context, o options) (err error) {
	l, err := start(ctx, o)
	defer func() { err = errors.Join(err, l.stop()) }()
	if err != nil {
		return err
	}

	f := newFleet(o, fmt.Sprintf("127.0.0.1:%d", o.port+2))
	if err := f.open(ctx); err != nil {
		return err
	}
	defer f.close()

	before, err := f.served(ctx)
	if err != nil {
		return err
	}

	for end := time.Now().Add(o.warm); time.Now().Before(end) && ctx.Err() == nil; {
		if err := f.round(ctx, f.sent.Load()+o.requests/100); err != nil && ctx.Err() == nil {
			return err
		}
	}

	warmed := f.sent.Load()
	fmt.Println("| requests | a second | salt-api MiB PSS | threads | descriptors | salt-master MiB PSS | threads | descriptors |\n| --- | --- | --- | --- | --- | --- | --- | --- |")
	var rows []row
	const parts = 20
	for i := int64(1); i <= parts; i++ {
		began, had := time.Now(), f.sent.Load()
		err := f.round(ctx, warmed+o.requests*i/parts)
		cut := ctx.Err() != nil // what was done until then is told
		if err != nil && !cut {
			return err
		}

		if cut {
			ctx, i = context.WithoutCancel(ctx), parts
		}

		r := row{requests: f.sent.Load()}
		r.rate = float64(r.requests-had) / time.Since(began).Seconds()
		if r.api, err = least(ctx, l.api.Process.Pid); err != nil {
			return err
		}

		if r.master, err = least(ctx, l.master.Process.Pid); err != nil {
			return err
		}

		rows = append(rows, r)
		fmt.Println(r)
	}

	after, err := f.served(ctx)
	if err != nil {
		return err
	}

	fmt.Print("\n", f.count)
	return errors.Join(f.verdict(after-before), verdict(o, rows))
}
