package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

// options are the flags.
type options struct {
	master               string
	requests, publishes  int // ports
	minions, first       int
	prefix               string
	atOnce, each, rounds int
	timeout, answerTime  time.Duration
	tries, grainBytes    int
	connections          string
	keys                 string
	pairs                int
	state                string
	rootKey              string
	target, function     string
	tag                  string
	token, freshIDs      bool
	size                 int
	expect               string
	path, env            string
	drive, jobs          int
	stay, gap            time.Duration
	ready                string
	highstate            bool
	pid                  int
	json                 bool
}

// parse reads the flags of a mode. What is wrong with them is said on out.
func parse(mode string, args []string, out io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("swarm "+mode, flag.ContinueOnError)
	f.SetOutput(out)
	f.StringVar(&o.master, "master", "127.0.0.1", "address of the master")
	f.IntVar(&o.requests, "ret-port", 4506, "its port for requests")
	f.IntVar(&o.publishes, "pub-port", 4505, "its port for subscribers")
	f.IntVar(&o.minions, "n", 1, "minions, 1 to 20000")
	f.IntVar(&o.first, "first", 0, "number in the id of the first minion")
	f.StringVar(&o.prefix, "prefix", "sw-", "what ids begin with, before the number")
	f.IntVar(&o.atOnce, "c", 16, "requests at once; hold: while it sets up")
	f.IntVar(&o.each, "k", 10, "requests of each minion; publish: of all")
	f.IntVar(&o.rounds, "repeat", 1, "measured rounds")
	f.DurationVar(&o.timeout, "timeout", 55*time.Second, "end of the whole run")
	f.DurationVar(&o.answerTime, "req-timeout", 30*time.Second, "wait for one answer")
	f.IntVar(&o.tries, "tries", 1,
		"how often a question is asked when no answer comes within -req-timeout (real minions: 3)")
	f.IntVar(&o.grainBytes, "grain-size", 0, "pillar, hold -highstate: bytes of further grains (a real minion has some 15000)")
	f.StringVar(&o.connections, "req", "persist",
		"connections for requests: persist (one of each minion), fresh (one for each request), pool=K (K for all)")
	f.StringVar(&o.keys, "keys", "swarm-keys", "folder of the key pairs, made when missing")
	f.IntVar(&o.pairs, "nkeys", 16, "key pairs, which the minions use in turn")
	f.StringVar(&o.state, "state", "",
		"file that keeps session keys between runs, so that minions need not sign in again")
	f.StringVar(&o.rootKey, "root-key", "",
		"publish, returns, hold -drive: file with the key of the master's user (cachedir/.root_key)")
	f.StringVar(&o.target, "tgt", "",
		"publish, returns, hold -drive: glob of the minions that are meant (default: PREFIX*)")
	f.StringVar(&o.function, "fun", "test.ping",
		"publish, returns, hold -drive: function of the jobs; runner: the runner")
	f.StringVar(&o.tag, "tag", "swarm/event", "events: tag of the events")
	f.BoolVar(&o.token, "token", true, "auth, signin: send a token, as minions do that know the master's key")
	f.BoolVar(&o.freshIDs, "fresh-ids", false, "auth: other ids in each round")
	f.IntVar(&o.size, "ret-size", 0, "returns, hold: bytes of a returned value (0: true)")
	f.StringVar(&o.expect, "expect", "", "pillar, runner, hold -highstate: a key that must be there")
	f.StringVar(&o.path, "path", "", "file, hold -highstate: path below salt://; %d in it is the number of the request")
	f.StringVar(&o.env, "saltenv", "base", "file: environment")
	f.IntVar(&o.drive, "drive", 0, "hold: start so many jobs itself, one after the other (needs -root-key)")
	f.DurationVar(&o.gap, "gap", 200*time.Millisecond, "hold -drive: from the last return of a job to the next job")
	f.IntVar(&o.jobs, "jobs", 0, "hold: leave after so many complete jobs (0: at -for or -timeout)")
	f.DurationVar(&o.stay, "for", 0, "hold, tree: stay so long")
	f.StringVar(&o.ready, "ready-file", "", "hold: file that is written when all minions listen")
	f.BoolVar(&o.highstate, "highstate", false,
		"hold: ask for the pillar, with -expect and -grain-size, and read -path -k times, before a return to state.apply")
	f.IntVar(&o.pid, "pid", 0, "process of the master: report what its tree uses")
	f.BoolVar(&o.json, "json", false, "report as one line of JSON")

	if err := f.Parse(args); err != nil {
		return o, err
	}
	if f.NArg() > 0 {
		return o, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}

	return o, o.check(mode)
}

// check refuses what cannot be meant, and fills in what follows.
func (o *options) check(mode string) error {
	if o.minions < 1 || o.minions > 20000 {
		return fmt.Errorf("-n %d is not between 1 and 20000", o.minions)
	}
	if min(o.atOnce, o.each, o.rounds, o.pairs, o.tries) < 1 {
		return errors.New("-c, -k, -repeat, -nkeys and -tries must be at least 1")
	}

	if o.drive > 0 {
		o.jobs = o.drive
	}

	if o.target == "" {
		o.target = o.prefix + "*"
	}

	switch {
	case o.rootKey == "" && (mode == "publish" || o.drive > 0):
		return errors.New("to start jobs needs -root-key")
	case o.path == "" && mode == "file":
		return errors.New("file needs -path")
	case o.pid == 0 && mode == "tree":
		return errors.New("tree needs -pid")
	}

	if o.rootKey != "" {
		b, err := os.ReadFile(o.rootKey)
		if err != nil {
			return fmt.Errorf("read the key of the master's user: %w", err)
		}
		o.rootKey = strings.TrimSpace(string(b))
	}

	return nil
}

func (o *options) requestAddr() string {
	return net.JoinHostPort(o.master, strconv.Itoa(o.requests))
}

func (o *options) publishAddr() string {
	return net.JoinHostPort(o.master, strconv.Itoa(o.publishes))
}

// value is what jobs return.
func (o *options) value() any {
	if o.size > 0 {
		return strings.Repeat("x", o.size)
	}
	return true
}
