package cluster

import (
	"context"
	"strings"
	"sync"
	"time"
)

// A job is answered when it is on this node's disk. Were the master lost a moment later, its
// minions would have the job and those of the others would not. So the caller's answer waits
// until the masters that are there have it, and for no longer than spreadFor: one that is cut off
// or frozen gets it late, see [Late].

const (
	// spreadFor is how long a caller waits at most until the peers have its job.
	spreadFor = time.Second
	// freshFor is how recently a peer must have been heard to be waited for.
	freshFor = 3 * time.Second
	// maxSpreading bounds the jobs that wait. Of more nobody waits: their callers are answered
	// as if there were no peers.
	maxSpreading = 512
)

// spreading is a job on its way to the peers.
type spreading struct {
	mu    sync.Mutex
	owed  int // peers, and one until all are known
	taken chan struct{}
}

func (s *spreading) addOwed(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed += n; s.owed == 0 {
		close(s.taken)
	}
}

// Spread prepares for the event that publishes a job. wait returns when all peers that are there
// have taken it, at the latest after a second; done ends it, and may be called at any time.
func (p *Pool) Spread(jid string) (wait func(context.Context), done func()) {
	s := &spreading{owed: 1, taken: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()

	if _, again := p.spreadings[jid]; again || len(p.spreadings) >= maxSpreading || len(p.freshPeers()) == 0 {
		return func(context.Context) {}, func() {}
	}

	p.spreadings[jid] = s
	done = func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.spreadings[jid] == s {
			delete(p.spreadings, jid)
		}
	}

	wait = func(ctx context.Context) {
		limit := time.NewTimer(spreadFor)
		defer limit.Stop()
		select {
		case <-s.taken:
		case <-limit.C:
			p.count.unspread.Add(1)
		case <-ctx.Done():
		case <-p.ctx.Done():
		}
	}

	return wait, done
}

// freshPeers are the peers of our kind that are there; p.mu is held.
func (p *Pool) freshPeers() map[string]bool {
	now := p.cfg.Now()
	out := map[string]bool{}
	for _, m := range p.node.Status(now).Members {
		l := p.links[m.ID]
		if l != nil && !l.plain && l.up.Load() && m.Alive && now.Sub(m.Heard) < freshFor {
			out[m.ID] = true
		}
	}
	return out
}

// watchSpread has the items of a job counted for whoever waits for it; p.mu is held. The
// second result is to be called when all items are queued.
func (p *Pool) watchSpread(tag string) (watch func(peer string, i *item), queued func()) {
	jid, _, _ := strings.Cut(strings.TrimPrefix(tag, "salt/job/"), "/")
	s := p.spreadings[jid]
	if s == nil {
		return func(string, *item) {}, func() {}
	}

	delete(p.spreadings, jid)
	fresh := p.freshPeers()
	watch = func(peer string, i *item) {
		if fresh[peer] {
			s.addOwed(1)
			i.acked = func() { s.addOwed(-1) }
		}
	}

	return watch, func() { s.addOwed(-1) }
}
