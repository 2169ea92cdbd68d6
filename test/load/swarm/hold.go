package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"saltern/master/value"
	"saltern/master/zmtp"
	"saltern/test/load/spread"
)

const (
	linger   = 500 * time.Millisecond // after the last job, for what is still on its way
	settling = 200 * time.Millisecond // subscriptions travel one way
	lostFor  = time.Second            // before a minion subscribes again

	remembered = 100 // jobs, as with Salt's minion_jid_queue_hwm
)

// hold is a swarm that listens. group holds every goroutine of it.
type hold struct {
	s      *swarm
	ledger *ledger
	opener opener
	group  sync.WaitGroup
}

// hold keeps the minions subscribed; they return to every job.
func (s *swarm) hold(ctx context.Context) {
	s.signInAll(ctx)
	if s.errs.count() > 0 {
		return
	}

	ids := make([]string, len(s.players))
	for i, p := range s.players {
		ids[i] = p.id
	}

	h := &hold{s: s, ledger: newLedger(ids, s.opts.jobs), opener: opener{master: s.masterKey}}
	listening, hangUp := context.WithCancel(ctx)
	h.subscribe(ctx, listening)
	if pause(ctx, settling) {
		h.ready()
	}

	s.watch(func() {
		if s.opts.drive > 0 {
			h.group.Go(func() { h.drive(ctx) })
		}
		h.stay(ctx)
	})

	hangUp()
	h.group.Wait()
	for _, p := range s.players {
		p.close()
	}

	var faults []error
	s.report.Jobs, faults = h.ledger.sum()
	for _, err := range faults {
		s.errs.add(err)
	}

	for _, j := range s.report.Jobs {
		s.report.Requests += j.Returned
	}
}

// subscribe connects all minions, which then listen until listening ends.
func (h *hold) subscribe(ctx, listening context.Context) {
	t := h.s.crowd(ctx, len(h.s.players), h.s.opts.atOnce, func(i int) error {
		sub, err := h.dial(ctx)
		if err != nil {
			return err
		}
		h.group.Go(func() { h.listen(listening, ctx, h.s.players[i], sub) })
		return nil
	})
	h.s.report.Setup["subscribe_s"], h.s.report.Setup["subscribe_ms"] = t.wall.Seconds(), spread.Of(t.latency)
}

func (h *hold) dial(ctx context.Context) (*zmtp.Sub, error) {
	ctx, cancel := context.WithTimeout(ctx, h.s.opts.answerTime)
	defer cancel()
	return zmtp.DialSub(ctx, h.s.opts.publishAddr(),
		zmtp.DialConfig{Limits: zmtp.Limits{Handshake: h.s.opts.answerTime}}, "")
}

// ready tells whoever waits that all minions listen.
func (h *hold) ready() {
	fmt.Fprintf(os.Stderr, "swarm: %d minions listen\n", len(h.s.players))
	if h.s.opts.ready != "" {
		h.s.errs.add(os.WriteFile(h.s.opts.ready, []byte(strconv.Itoa(len(h.s.players))+"\n"), 0o644))
	}
}

// stay returns when there is nothing to wait for any more. A signal ends it as
// well.
func (h *hold) stay(ctx context.Context) {
	var over <-chan time.Time
	if h.s.opts.stay > 0 {
		over = time.After(h.s.opts.stay)
	}

	select {
	case <-h.ledger.done:
		pause(ctx, linger)
		return
	case <-over:
	case <-ctx.Done():
		if !errors.Is(context.Cause(ctx), errTimeout) {
			return
		}
	}

	if h.s.opts.jobs > 0 {
		h.s.errs.add(errors.New("the time was over before all jobs were complete"))
	}
}

// drive starts jobs one after the other; each waits for the one before.
func (h *hold) drive(ctx context.Context) {
	l := newLine("drive")
	defer l.close()
	for range h.s.opts.drive {
		asked := time.Now()
		jid, _, err := h.s.startJob(ctx, l)
		if err != nil {
			h.s.errs.add(err)
			return
		}

		select {
		case <-h.ledger.begun(jid, asked, time.Now()):
		case <-ctx.Done():
			return
		}

		if !pause(ctx, h.s.opts.gap) {
			return
		}
	}
}

// listen is the life of one minion. Returns are given until ctx ends.
func (h *hold) listen(listening, ctx context.Context, p *player, sub *zmtp.Sub) {
	defer func() { sub.Close() }()
	var running sync.Map // functions by jid, until their return is acknowledged
	var recent []string  // jids; a master that lost sight of a minion sends jobs again
	for {
		frames, err := sub.Next(listening)
		for err != nil {
			sub.Close()
			if !pause(listening, lostFor) {
				return
			}

			h.s.lost.Add(1)
			var again *zmtp.Sub
			if again, err = h.dial(listening); err == nil {
				sub = again
				frames, err = sub.Next(listening)
			}
		}

		o, err := h.opener.open(ctx, p, frames[len(frames)-1])
		if err != nil {
			h.s.errs.add(err)
			continue
		}
		if !o.meant(p.id) || slices.Contains(recent, o.jid) {
			continue
		}

		recent = append(recent[max(0, len(recent)-remembered+1):], o.jid)
		h.ledger.heard(o, time.Now())
		if o.fun != findJob {
			running.Store(o.jid, o.fun)
		}

		h.group.Go(func() { h.answer(ctx, p, o, &running) })
	}
}

// answer gives the return of one minion.
func (h *hold) answer(ctx context.Context, p *player, o *order, running *sync.Map) {
	result := h.s.opts.value()
	if o.fun == findJob {
		result = found(o, running)
	}
	began := time.Now()
	var err error
	if h.s.opts.highstate && o.fun == stateApply {
		err = p.prepareStates(ctx)
	}
	if err == nil {
		err = p.giveReturn(ctx, o.jid, o.fun, o.args, result)
	}
	now := time.Now()
	running.Delete(o.jid)
	h.s.errs.add(err)
	h.ledger.returned(o, now.Sub(began), now, err)
}

// found is what saltutil.find_job returns: the job, if it is running.
func found(o *order, running *sync.Map) *value.Map {
	if len(o.args) == 0 {
		return value.NewMap()
	}
	jid, _ := o.args[0].(string)
	fun, ok := running.Load(jid)
	if !ok {
		return value.NewMap()
	}
	return value.NewMap("jid", jid, "fun", fun, "pid", os.Getpid(), "tgt", o.target)
}

const stateApply = "state.apply"

// prepareStates asks the master what a minion needs for state.apply: a new pillar, and -k files
// (salt/state.py HighState).
func (p *player) prepareStates(ctx context.Context) error {
	if err := p.askPillar(ctx); err != nil || p.s.opts.path == "" {
		return err
	}

	for k := range p.s.opts.each {
		if _, err := p.fetch(ctx, p.s.opts.pathOf(k), p.s.opts.env); err != nil {
			return err
		}
	}

	return nil
}
