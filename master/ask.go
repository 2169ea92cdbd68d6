package master

import (
	"context"
	"strings"
	"time"

	"saltern/master/event"
	"saltern/master/msgpack"
	"saltern/master/runner"
)

// askMinions lets runners ask minions.
type askMinions struct{ m *Master }

// Ask publishes a job and gathers returns; minions that are silent after the
// timeout are asked whether they are still at it (find_job) until none is.
func (a askMinions) Ask(ctx context.Context, q runner.Question) (runner.Answer, error) {
	m := a.m
	timeout, gather := q.Timeout, q.Gather
	if timeout <= 0 {
		timeout = m.cfg.Timeout
	}
	if gather <= 0 {
		gather = m.cfg.GatherJobTimeout
	}
	arg := q.Arg
	if arg == nil {
		arg = []any{}
	}
	j, err := m.newJob(ctx, msgpack.NewMap("fun", q.Fun, "arg", arg, "tgt", q.Target, "tgt_type", q.TargetType, "ret", "", "user", m.cfg.User))
	ans := runner.Answer{Returns: map[string]*msgpack.Map{}}
	if err != nil || len(j.minions) == 0 {
		return ans, err
	}
	sub := m.bus.Subscribe("runner", 2*len(j.minions)+1024, event.Prefix("salt/job/"))
	defer sub.Close()
	if err := m.start(ctx, j); err != nil {
		return ans, err
	}
	ans.Expected = j.minions
	g := gathering{sub: sub, jid: j.jid, answer: &ans}
	for wait := timeout; ; wait = gather {
		if g.until(ctx, wait) || ctx.Err() != nil {
			return ans, ctx.Err()
		}
		if busy, err := a.stillAt(ctx, &g, gather); err != nil || !busy {
			return ans, err
		}
	}
}

// gathering collects the returns of one job.
type gathering struct {
	sub    *event.Subscription
	jid    string
	answer *runner.Answer
	// probe is the jid of a find_job; found are those who still run the job.
	probe string
	found map[string]bool
	asked int
}

// until gathers for a time; it is true when all have answered.
func (g *gathering) until(ctx context.Context, wait time.Duration) bool {
	t := time.NewTimer(wait)
	defer t.Stop()
	for len(g.answer.Returns) < len(g.answer.Expected) {
		select {
		case e, ok := <-g.sub.C:
			if !ok {
				return true
			}
			g.take(e)
			if g.probe != "" && len(g.found) == g.asked {
				return false
			}
		case <-t.C:
			return false
		case <-ctx.Done():
			return false
		}
	}
	return true
}

func (g *gathering) take(e event.Event) {
	if id, ok := strings.CutPrefix(e.Tag, event.Tag("job", g.jid, "ret")+"/"); ok {
		g.answer.Returns[id] = e.Data
	}
	if id, ok := strings.CutPrefix(e.Tag, event.Tag("job", g.probe, "ret")+"/"); ok && g.probe != "" {
		running := e.Data.Map("return")
		g.found[id] = running.Len() > 0
	}
}

// stillAt asks the silent minions whether they are at the job.
func (a askMinions) stillAt(ctx context.Context, g *gathering, wait time.Duration) (bool, error) {
	var silent []any
	for _, id := range g.answer.Expected {
		if g.answer.Returns[id] == nil {
			silent = append(silent, id)
		}
	}
	j, err := a.m.newJob(ctx, msgpack.NewMap("fun", "saltutil.find_job", "arg", []any{g.jid}, "tgt", silent, "tgt_type", "list", "ret", "", "user", a.m.cfg.User))
	if err != nil || len(j.minions) == 0 {
		return false, err
	}
	if err := a.m.start(ctx, j); err != nil {
		return false, err
	}
	g.probe, g.found, g.asked = j.jid, map[string]bool{}, len(silent)
	defer func() { g.probe = "" }()
	if g.until(ctx, wait) {
		return false, nil
	}
	for _, running := range g.found {
		if running {
			return true, nil
		}
	}
	return false, nil
}
