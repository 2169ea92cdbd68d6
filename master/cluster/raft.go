package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"saltern/internal/durable"
	"saltern/master/cluster/internal/raft"
	"saltern/master/cluster/node"
	"saltern/master/cluster/wire"
)

// maxRaft bounds the messages of the consensus that wait for runNode. Further messages are dropped;
// their senders repeat them.
const maxRaft = 256

// raftRetry is how long runNode waits after it could not read or write a file, before it uses the
// file again.
const raftRetry = 10 * time.Second

// consensus runs this master's part in the consensus of Salt's masters, for as long as the cluster
// has a Salt master; see package raft.
type consensus struct {
	pool     *Pool
	messages chan wire.Raft
	status   atomic.Pointer[raft.Status] // nil while this master takes no part in the consensus
	// Only runNode uses the following fields.
	fileRemoved bool      // the state file was removed
	retryAt     time.Time // time before which runNode does not touch the file, after a failure
}

func newConsensus(p *Pool) *consensus {
	return &consensus{pool: p, messages: make(chan wire.Raft, maxRaft)}
}

// queueMessage queues a message of the consensus if the message comes from the address of the
// master that it names. Salt's masters do not sign these messages, so queueMessage can check only
// the address. Saltern bases no decision on the consensus.
func (c *consensus) queueMessage(k *conn, kind string, data []byte) error {
	m, err := wire.ParseRaft(kind, data)
	if err != nil {
		return err
	}

	from, ok := k.inbox.pool.view.Load().rec.Member(m.Src)
	if k.plain {
		ok = ok && k.inbox.fromSalt(from, k.address)
	} else {
		me, member := k.member()
		ok = ok && member && me.ID == from.ID
	}

	if !ok {
		return fmt.Errorf("%w: of %s", wire.ErrProof, m.Src)
	}

	select {
	case c.messages <- m:
	default:
		c.pool.count.dropped.Add(1)
	}

	return nil
}

func (c *consensus) filePath() string {
	return filepath.Join(c.pool.cfg.StateDir, ".cluster_raft."+c.pool.cfg.ID)
}

// runNode runs the consensus until the pool is closed.
func (c *consensus) runNode() {
	t := time.NewTicker(raft.Beat)
	defer t.Stop()
	var n *raft.Node
	for {
		var out []raft.Out
		select {
		case m := <-c.messages:
			if n == nil {
				continue
			}
			out = n.Step(time.Now(), m)
		case <-t.C:
			members := c.members()
			if members == nil {
				n = nil
				c.leaveGroup()
				continue
			}

			if n == nil {
				if time.Now().Before(c.retryAt) {
					continue
				}
				if n = c.restoreNode(); n == nil {
					c.retryAt = time.Now().Add(raftRetry)
					continue
				}
			}

			_, own := c.pool.Own()
			out = n.Tick(time.Now(), members, own)
			c.publishStatus(n.Status())
		case <-c.pool.ctx.Done():
			return
		}

		if st, dirty := n.Dirty(); dirty {
			if err := c.saveState(st); err != nil {
				c.pool.log.Error("what Salt's masters agree on cannot be kept", "path", c.filePath(), "error", err)
				n = nil // discard the node and its messages, which must not be sent before the state is on disk
				c.retryAt = time.Now().Add(raftRetry)
				continue
			}
		}

		c.pool.sendRaft(out)
	}
}

func (c *consensus) publishStatus(s raft.Status) {
	old := c.status.Swap(&s)
	changed := old == nil || old.Role != s.Role || old.Term != s.Term
	if changed && s.Role != "asking" {
		c.pool.log.Info(becoming(c.pool.cfg.ID, s.Role, uint64(s.Term)), "leader", s.Leader)
	}
	if old == nil || old.Leader != s.Leader || old.Role != s.Role || old.Commit != s.Commit {
		c.pool.log.Debug("consensus of Salt's masters",
			"role", s.Role, "leader", s.Leader, "term", s.Term, "index", s.Index, "commit", s.Commit,
			"voters", s.Voters, "learners", s.Learners)
	}
}

// members returns the masters of the cluster. It returns nil while none of them is a Salt master,
// or while this master is not a member.
func (c *consensus) members() []raft.Member {
	v := c.pool.view.Load()
	if v.phase != node.Active {
		return nil
	}

	var out []raft.Member
	mixed := false
	for _, m := range v.rec.Members {
		mixed = mixed || !m.Own
		out = append(out, raft.Member{ID: m.ID, Own: m.Own})
	}

	if !mixed {
		return nil
	}

	return out
}

// leaveGroup ends this master's part in the consensus after the last Salt master has left. It also
// removes the state file, so that a later group starts from an empty state.
func (c *consensus) leaveGroup() {
	if c.status.Swap(nil) != nil {
		c.pool.log.Info("no Salt master is left in the cluster")
	}
	if c.pool.view.Load().phase == node.Active && !c.fileRemoved {
		c.fileRemoved = true
		if err := os.Remove(c.filePath()); err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.pool.log.Warn("an old file cannot be removed", "path", c.filePath(), "error", err)
		}
	}
}

// restoreNode returns a consensus node with the promises that this master made earlier, or nil if
// the file of the promises cannot be read now.
func (c *consensus) restoreNode() *raft.Node {
	c.fileRemoved = false
	st, err := c.loadState()
	if err != nil {
		c.pool.log.Error("what Salt's masters agreed on cannot be read; remove the file to begin anew", "path",
			c.filePath(), "error", err)
		return nil
	}
	return raft.New(raft.Config{
		ID:     c.pool.cfg.ID,
		State:  st,
		Token:  newToken,
		Jitter: systemRandom{}.Jitter,
	})
}

// maxRaftFile bounds the state file in bytes.
const maxRaftFile = 8 << 20

func (c *consensus) loadState() (raft.State, error) {
	b, err := durable.Read(c.filePath(), maxRaftFile)
	if errors.Is(err, fs.ErrNotExist) {
		return raft.State{}, nil
	}
	if err != nil {
		return raft.State{}, err
	}
	return raft.ParseState(b)
}

func (c *consensus) saveState(st raft.State) error {
	b, err := st.Pack()
	if err != nil {
		return err
	}
	if len(b) > maxRaftFile {
		return fmt.Errorf("%d bytes are too many", len(b))
	}
	return durable.Replace(c.filePath(), b, 0o600)
}

func (p *Pool) sendRaft(messages []raft.Out) {
	if len(messages) == 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, o := range messages {
		if l := p.links[o.To]; l != nil && l.up.Load() {
			l.control(o.Msg)
		}
	}
}
