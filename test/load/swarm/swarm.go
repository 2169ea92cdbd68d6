package main

import (
	"context"
	"crypto/rsa"
	"fmt"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"saltern/test/load/proctree"
	"saltern/test/load/spread"
)

// swarm is what all players share.
type swarm struct {
	opts      options
	pairs     []pair
	wire      *wire
	masterKey *rsa.PublicKey // nil until a first sign-in; not written while players work
	kept      session        // of -state
	players   []*player      // whose keys -state keeps
	errs      tally
	report    report
	figures   figures

	again atomic.Int64 // sign-ins because a master refused
	lost  atomic.Int64 // subscriptions that ended
}

// gather prepares a run; nothing is sent yet.
func gather(o options) (*swarm, error) {
	raiseDescriptors()
	s := &swarm{opts: o, report: report{Setup: map[string]any{}, Extra: map[string]any{}}}
	var err error
	if s.wire, err = newWire(o.requestAddr(), o.connections, o.answerTime, o.tries); err != nil {
		return nil, err
	}
	if s.pairs, err = loadPairs(o.keys, min(o.pairs, o.minions)); err != nil {
		return nil, fmt.Errorf("keys of minions: %w", err)
	}
	return s, s.load()
}

// raiseDescriptors allows as many connections as the system does.
func raiseDescriptors() {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) == nil {
		l.Cur = l.Max
		_ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &l) // what is missing shows when it is needed
	}
}

func (s *swarm) close() { s.wire.close() }

// id names a minion. Rounds above 0 have ids of their own.
func (s *swarm) id(round, i int) string {
	if round > 0 {
		return fmt.Sprintf("%sr%d-%d", s.opts.prefix, round, s.opts.first+i)
	}
	return s.opts.prefix + strconv.Itoa(s.opts.first+i)
}

// muster makes the players of a round.
func (s *swarm) muster(round int) ([]*player, error) {
	players := make([]*player, s.opts.minions)
	for i := range players {
		var err error
		if players[i], err = s.player(s.id(round, i), s.pairs[i%len(s.pairs)]); err != nil {
			return nil, err
		}
	}
	return players, nil
}

// trust takes the master's key from a player that has signed in.
func (s *swarm) trust(first *player, all []*player) {
	s.masterKey = first.minion.Master
	for _, p := range all {
		p.minion.Master = s.masterKey
	}
}

// asked makes a mode of what signed-in minions do each round.
func asked(round func(s *swarm, ctx context.Context, players []*player) error) func(*swarm, context.Context) {
	return func(s *swarm, ctx context.Context) {
		s.signInAll(ctx)
		if s.errs.count() > 0 {
			return
		}
		defer func() {
			for _, p := range s.players {
				p.close()
			}
		}()

		s.watch(func() {
			for range s.opts.rounds {
				s.errs.add(round(s, ctx, s.players))
			}
		})
	}
}

// watch runs work and notes what it cost the generator, and the master.
func (s *swarm) watch(work func()) {
	own := ownCPU()
	before := s.look()
	work()
	if after := s.look(); before != nil && after != nil {
		s.report.Master = &cost{Before: *before, After: *after, CPU: after.CPU - before.CPU}
	}
	s.report.Extra["swarm_cpu_measured_s"] = ownCPU() - own
}

// tree watches and does nothing.
func (s *swarm) tree(ctx context.Context) {
	s.watch(func() { pause(ctx, s.opts.stay) })
}

// pause waits, and reports whether ctx lasted.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *swarm) look() *proctree.Usage {
	if s.opts.pid == 0 {
		return nil
	}
	u, err := proctree.Look(s.opts.pid)
	s.errs.add(err)
	return &u
}

// ownCPU is the processor time of this process in seconds.
func ownCPU() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()).Seconds()
}

// figures are what the rounds measured.
type figures struct{ latency, walls, rates, speeds []float64 }

func (f *figures) add(t timing) {
	f.latency = append(f.latency, t.latency...)
	f.walls = append(f.walls, t.wall.Seconds())
	f.rates = append(f.rates, float64(len(t.latency))/t.wall.Seconds())
}

// finish sums the run up.
func (s *swarm) finish(mode string) *report {
	r := &s.report
	r.Mode = mode
	r.Minions = s.opts.minions
	r.AtOnce = s.opts.atOnce
	r.Requests += len(s.figures.latency)

	for to, values := range map[**spread.Summary][]float64{
		&r.Rate: s.figures.rates, &r.Speed: s.figures.speeds, &r.Wall: s.figures.walls, &r.Latency: s.figures.latency,
	} {
		if len(values) > 0 {
			sum := spread.Of(values)
			*to = &sum
		}
	}

	r.Failed, r.Errors = s.errs.sum()
	r.Extra["asked_again"] = s.wire.again.Load()
	r.Again, r.Lost, r.CPU = s.again.Load(), s.lost.Load(), ownCPU()
	return r
}
