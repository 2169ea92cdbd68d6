package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"saltern/master/msgpack"
	"saltern/master/value"
)

// startJob publishes a job as the command salt does, with the key of the
// master's user, and returns its id and how many minions it is for.
func (s *swarm) startJob(ctx context.Context, l *line) (jid string, minions int, err error) {
	load := value.NewMap("cmd", "publish", "tgt", s.opts.target, "fun", s.opts.function, "arg", []any{}, "key", s.opts.rootKey,
		"tgt_type", "glob", "ret", "", "jid", "", "kwargs", value.NewMap("delimiter", ":", "show_timeout",
			true, "show_jid", false), "user", "root")
	payload, err := msgpack.Marshal(value.NewMap("enc", "clear", "load", load, "version", 3), msgpack.Raw)
	if err != nil {
		return "", 0, err
	}

	b, err := s.wire.exchange(ctx, l, payload)
	if err != nil {
		return "", 0, fmt.Errorf("start a job: %w", err)
	}

	v, err := msgpack.Decode(b, msgpack.DefaultLimits)
	if err != nil {
		return "", 0, fmt.Errorf("start a job: %w", err)
	}

	outer, _ := v.(*value.Map)
	answer := outer.Map("load")
	if jid = answer.Str("jid"); jid == "" {
		return "", 0, fmt.Errorf("start a job: answered %.100v", v)
	}

	if minions = len(answer.List("minions")); minions == 0 {
		return "", 0, errors.New("start a job: the master knows no minion that is meant")
	}

	return jid, minions, nil
}

// publish measures starts of jobs alone: nobody needs to listen.
func (s *swarm) publish(ctx context.Context) {
	lines := make(chan *line, s.opts.atOnce)
	for range s.opts.atOnce {
		lines <- newLine("publish")
	}

	var matched atomic.Int64
	s.watch(func() {
		for range s.opts.rounds {
			s.figures.add(s.crowd(ctx, s.opts.each, s.opts.atOnce, func(int) error {
				l := <-lines
				defer func() { lines <- l }()
				_, n, err := s.startJob(ctx, l)
				matched.Store(int64(n))
				return err
			}))
		}
	})

	s.report.Extra["matched"] = matched.Load()
	for range s.opts.atOnce {
		(<-lines).close()
	}
}
