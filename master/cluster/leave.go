package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"saltern/internal/pause"
	"saltern/master/cluster/node"
)

// Leave ends this master's ownership for good. Another master owns the duties at once, instead of after
// the term of the lease. All duties of this master must have ended. Leave waits until another master
// has taken over, or there is none, or ctx ends.
func (p *Pool) Leave(ctx context.Context) error {
	_, owned := p.Own()
	if err := p.command(ctx, node.Command{Leave: true}); err != nil && owned {
		return fmt.Errorf("give the lease of the cluster back: %w", err)
	}

	for owned && p.view.Load().rec.Owner.ID == "" && p.hasSuccessor() {
		if pause.For(ctx, leavePoll) != nil {
			return nil // it is given back; the others read that from the folder
		}
	}
	return nil
}

// leavePoll is how often Leave looks whether another master has taken over.
const leavePoll = 20 * time.Millisecond

// hasSuccessor reports whether another Saltern master is alive and connected.
func (p *Pool) hasSuccessor() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.node.Status(p.cfg.Now()).Members, func(m node.MemberStatus) bool {
		return m.Own && !m.Self && m.Alive && m.Linked
	})
}
