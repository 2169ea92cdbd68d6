package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"
)

// options are the flags of suite.
type options struct {
	config, scenarios, only, out string
	repeats                      int
	conns, workers               int
	megabytes                    int
	casts                        int
	kept                         int
	length, rest                 time.Duration
	failRate, held               int
	timeout                      time.Duration
}

// config is what is compared.
type config struct {
	Backends []string     `json:"backends"` // addresses
	Hole     []string     `json:"hole"`     // commands: make backend 1 vanish, bring it back
	Proxies  []definition `json:"proxies"`
}

// runWait bounds one run.
const runWait = 150 * time.Second

// errTimeout is the cause of a suite that -timeout ended.
var errTimeout = errors.New("-timeout is over")

func parse(args []string, out io.Writer) (o options, err error) {
	f := flag.NewFlagSet("proxybench suite", flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.config, "config", "proxies.json", "file with the backends and proxies")
	f.StringVar(&o.scenarios, "scenarios", "rate,lat:2000,bulk:1,bulk:8,idle:1000",
		"comma list: rate, lat:RATE, bulk:STREAMS, idle:N, fail:kill, fail:stall, fail:hole")
	f.StringVar(&o.only, "only", "", "comma list of proxies (default: all)")
	f.StringVar(&o.out, "out", "results.jsonl", "file to which results are appended, one line of JSON a run")
	f.IntVar(&o.repeats, "reps", 3, "repeats; within each the proxies follow each other, in turns of order")
	f.IntVar(&o.conns, "conns", 10000, "rate: connections")
	f.IntVar(&o.workers, "workers", 32, "rate: clients at once")
	f.IntVar(&o.megabytes, "mb", 1500, "bulk: MiB each way, of all streams")
	f.IntVar(&o.casts, "casts", 10, "idle: broadcasts")
	f.IntVar(&o.kept, "kept", 100, "lat: kept connections")
	f.DurationVar(&o.length, "dur", 5*time.Second, "lat: length; fail takes four times as long")
	f.DurationVar(&o.rest, "rest", 2*time.Second, "idle: before memory is read, and while idle CPU is")
	f.IntVar(&o.failRate, "fail-rate", 200, "fail: short requests a second")
	f.IntVar(&o.held, "held", 150, "fail: held connections")
	f.DurationVar(&o.timeout, "timeout", 20*time.Minute, "end of the whole suite")

	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return o, err
		}
		return o, fmt.Errorf("%w: %w", errUsage, err)
	}

	if f.NArg() > 0 {
		return o, fmt.Errorf("%w: unexpected argument %q", errUsage, f.Arg(0))
	}
	if min(o.repeats, o.conns, o.workers, o.megabytes, o.casts, o.kept, o.failRate, o.held) < 1 ||
		min(o.length, o.rest) <= 0 {
		return o, fmt.Errorf("%w: numbers and lengths must be above 0", errUsage)
	}

	return o, nil
}

func readConfig(o options) (c config, err error) {
	b, err := os.ReadFile(o.config)
	if err == nil {
		err = json.Unmarshal(b, &c)
	}

	if err != nil {
		return c, fmt.Errorf("%s: %w", o.config, err)
	}

	if o.only != "" {
		names := strings.Split(o.only, ",")
		c.Proxies = slices.DeleteFunc(c.Proxies, func(d definition) bool { return !slices.Contains(names, d.Name) })
	}

	if len(c.Backends) <= victim || len(c.Proxies) == 0 || len(c.Hole) != 0 && len(c.Hole) != 2 {
		return c, fmt.Errorf("%s: two backends, a proxy, and two commands or none in hole are needed", o.config)
	}

	return c, nil
}

// suite runs all scenarios on all proxies. A run that fails is a result with
// the field error; standard error says so as well.
func suite(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}

	scenarios, err := parseScenarios(o.scenarios)
	if err != nil {
		return err
	}

	c, err := readConfig(o)
	if err != nil {
		return err
	}

	raiseDescriptors()
	file, err := os.OpenFile(o.out, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()

	lines := json.NewEncoder(io.MultiWriter(file, stdout))
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, errTimeout)
	defer cancel()

	for repeat := range o.repeats {
		turn := repeat % len(c.Proxies)
		order := slices.Concat(c.Proxies[turn:], c.Proxies[:turn])
		for _, s := range scenarios {
			for _, d := range order {
				r, err := one(ctx, c, o, d, s, stderr)
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}

				if err != nil {
					r = result{"error": err.Error()}
					fmt.Fprintf(stderr, "proxybench: %s through %s: %v\n", s.name, d.Name, err)
				}

				r["scenario"] = s.name
				r["proxy"] = d.Name
				r["rep"] = repeat
				if err := lines.Encode(r); err != nil {
					return err
				}
			}
		}
	}

	return nil
}

// one makes a run, with processes of its own.
func one(ctx context.Context, c config, o options, d definition, s scenario, stderr io.Writer) (result, error) {
	ctx, cancel := context.WithTimeout(ctx, runWait)
	defer cancel()
	back, err := startBackends(c.Backends, stderr)
	if err != nil {
		return nil, err
	}
	defer back.stop()

	p, err := startProxy(ctx, d)
	if err != nil {
		return nil, err
	}
	defer p.stop()

	warm(ctx, d.Listen)
	b := &bench{target: d.Listen, pid: p.cmd.Process.Pid, backends: back, o: o}
	copy(b.hole[:], c.Hole)
	before, err := readMachine()
	if err != nil {
		return nil, err
	}

	r, err := s.run(ctx, b)
	if err != nil {
		return nil, err
	}

	after, err := readMachine()
	if err == nil {
		r["machine_busy_pct"] = after.busySince(before)
	}

	return r, err
}

// raiseDescriptors allows as many connections as the system does.
func raiseDescriptors() {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
		l.Cur = l.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) // what is missing shows when it is needed
	}
}
