package cluster

import (
	"context"
	"strings"
	"sync"
	"time"
)

// The master answers the caller of a job once the job is on this node's disk. If this master died a
// moment later, its own minions would have the job and the minions of its peers would not. So the
// answer also waits, for at most spreadFor, until the connected peers have the job. A master that
// is cut off or frozen receives the job late; see [Late].

const (
	// spreadFor is how long the answer to a job's caller waits for the peers to receive the job.
	spreadFor = time.Second
	// freshFor bounds the time since the last message of a peer. Callers do not wait for a peer
	// that has been silent for longer.
	freshFor = 3 * time.Second
	// maxSpreading bounds the jobs whose callers wait. Further callers are answered without waiting
	// for peers.
	maxSpreading = 512
)

// spreading is a registered job that the peers have not all received yet.
type spreading struct {
	mu    sync.Mutex
	owed  int // number of peers that have not received the job, plus one until the job is queued for all peers
	taken chan struct{}
}

func (s *spreading) addOwed(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.owed += n; s.owed == 0 {
		close(s.taken)
	}
}

// Spread registers a job before its publish event is fired. wait blocks until all connected peers
// have received the job, at most for spreadFor. done ends the registration; the caller may call
// done at any time.
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

// freshPeers returns the Saltern peers that are connected and sent something recently. The caller
// holds p.mu.
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

// watchSpread prepares the wait of Spread for the job of a tag. The caller must hold p.mu, call
// watch for each item that it queues, and call queued after the last item.
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
