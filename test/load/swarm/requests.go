package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"saltern/master/value"
	"saltern/test/minion"
)

// everyone has each player make -k requests. Request k of all comes before
// request k+1 of any.
func (s *swarm) everyone(ctx context.Context, players []*player, request func(p *player, k int) error) timing {
	n := len(players)
	t := s.crowd(ctx, n*s.opts.each, s.opts.atOnce, func(i int) error { return request(players[i%n], i/n) })
	s.figures.add(t)
	return t
}

// returns measures returns. A master takes one return of a minion for a job,
// so every round has jobs of its own, started before the clock; without the
// key for that the master makes a job of each return (jid req).
func (s *swarm) returns(ctx context.Context, players []*player) error {
	jids := make([]string, s.opts.each)
	l := newLine("swarm")
	defer l.close()

	for i := range jids {
		jids[i] = "req"
		if s.opts.rootKey != "" {
			var err error
			if jids[i], _, err = s.startJob(ctx, l); err != nil {
				return err
			}
		}
	}

	s.everyone(ctx, players, func(p *player, k int) error {
		return p.giveReturn(ctx, jids[k], s.opts.function, nil, s.opts.value())
	})
	return nil
}

// events measures events of minions.
func (s *swarm) events(ctx context.Context, players []*player) error {
	s.everyone(ctx, players, func(p *player, k int) error {
		return p.fire(ctx, s.opts.tag, value.NewMap("n", k, "text", "swarm"))
	})
	return nil
}

// pillar measures questions for the pillar.
func (s *swarm) pillar(ctx context.Context, players []*player) error {
	s.everyone(ctx, players, func(p *player, _ int) error { return p.askPillar(ctx) })
	return nil
}

// askPillar asks for the minion's pillar, which must be without errors and have the key -expect.
func (p *player) askPillar(ctx context.Context) error {
	var got *value.Map
	err := p.call(ctx, func(m *minion.Minion) (err error) {
		m.Grains = grains(p.id, p.s.opts.grainBytes)
		got, err = m.Pillar(ctx)
		return err
	})
	if err != nil {
		return err
	}

	if faults, ok := got.Get("_errors"); ok {
		return fmt.Errorf("the pillar has errors: %.100v", faults)
	}

	if _, ok := got.Get(p.s.opts.expect); !ok && p.s.opts.expect != "" {
		return fmt.Errorf("the pillar has no key %s", p.s.opts.expect)
	}

	return nil
}

// grains are as many as a small minion has that are used for targeting.
func grains(id string, more int) *value.Map {
	g := value.NewMap("id", id, "os", "Debian", "os_family", "Debian", "kernel", "Linux", "osmajorrelease", 12, "host", id, "fqdn", id+".test",
		"saltversion", "3008.3", "num_cpus", 2, "mem_total", 4096, "cpuarch", "x86_64", "localhost", id, "nodename", id, "virtual", "kvm",
		"roles", []any{"web", "db"}, "role", roleOf(id))
	for i := 0; i*grainLength < more; i++ {
		g.Set(fmt.Sprintf("grain%03d", i), strings.Repeat("x", grainLength-len("grain000")))
	}
	return g
}

// roleOf returns one of ten roles by the last digit of an id.
func roleOf(id string) string { return "role" + id[max(0, len(id)-1):] }

// grainLength is about what a grain of a real minion takes.
const grainLength = 48

// runner measures runners that minions call (salt/modules/publish.py runner). Each names
// itself in the argument. An empty answer is what who may not call it gets.
func (s *swarm) runner(ctx context.Context, players []*player) error {
	s.everyone(ctx, players, func(p *player, _ int) error {
		answer, err := p.ask(ctx, "minion_runner", "fun", s.opts.function, "arg", []any{p.id}, "tmo", 5)
		if err != nil {
			return err
		}

		got, isMap := answer.(*value.Map)
		switch {
		case isMap && got.Len() == 0 || answer == nil || answer == "":
			return fmt.Errorf("%s: answered with nothing", s.opts.function)
		case s.opts.expect == "":
			return nil
		}

		if v, ok := got.Get(s.opts.expect); !ok || v != p.id {
			return fmt.Errorf("%s: answered %.80v", s.opts.function, answer)
		}

		return nil
	})

	return nil
}

// files measures whole files.
func (s *swarm) files(ctx context.Context, players []*player) error {
	var bytes atomic.Int64
	t := s.everyone(ctx, players, func(p *player, k int) error {
		n, err := p.fetch(ctx, s.opts.pathOf(k), s.opts.env)
		bytes.Add(n)
		return err
	})
	s.figures.speeds = append(s.figures.speeds, float64(bytes.Load())/1e6/t.wall.Seconds())
	s.report.Extra["bytes_per_round"] = bytes.Load()
	return nil
}

// pathOf returns the path of the request k for a file.
func (o *options) pathOf(k int) string { return strings.ReplaceAll(o.path, "%d", fmt.Sprint(k)) }
