package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"saltern/master/cluster/raft"
	"saltern/master/cluster/wire"
	"saltern/master/event"
	"saltern/master/msgpack"
)

// dutyOf sorts events by what waits for them.
func dutyOf(tag string) Duty {
	if tag == "salt/key" || tag == "salt/auth" {
		return Jobs
	}
	if rest, ok := strings.CutPrefix(tag, "salt/job/"); ok {
		switch _, kind, _ := strings.Cut(rest, "/"); {
		case kind == "publish", kind == "new":
			return Jobs
		case strings.HasPrefix(kind, "ret/"):
			return Returns
		}
	}
	return Events
}

// Forward sends an event of the local bus to all peers. It never blocks.
// Events of peers and of the cluster itself stay here.
func (p *Pool) Forward(e event.Event) {
	if e.Origin == event.Peer || strings.HasPrefix(e.Tag, "cluster/") {
		return
	}
	body, err := e.Body()
	if err != nil {
		p.count.dropped.Add(1)
		return
	}
	_, packed, ok := bytes.Cut(body, []byte("\n\n"))
	if !ok {
		return
	}
	p.spread(e.Tag, packed, e.Data, nil)
}

// spread puts an event into the queues of all peers and returns how many
// took it. acked is called for each of our own kind that has handled it.
func (p *Pool) spread(tag string, packed []byte, data *msgpack.Map, acked func()) int {
	now := p.cfg.Now()
	sealed := sync.OnceValue(func() []byte {
		blob, err := wire.SealEvent(data, p.session)
		if err != nil {
			return nil
		}
		b, err := wire.Blob(blob)
		if err != nil {
			return nil
		}
		return b
	})
	d, n := dutyOf(tag), 0
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, l := range p.links {
		i := &item{at: now, tag: tag, packed: packed, sealed: sealed}
		if !l.plain {
			i.acked = acked
		}
		if l.put(d, i) && !l.plain && l.up.Load() {
			n++
		}
	}
	return n
}

// ErrAlone says that no peer is there that could keep a return.
var ErrAlone = errors.New("no other master is connected")

// Keep hands a return to all peers and waits until one of them has kept
// it, so that it survives the loss of this master. ErrAlone says that there is
// nobody; the return is queued nevertheless.
func (p *Pool) Keep(ctx context.Context, tag string, load *msgpack.Map) error {
	packed, err := msgpack.Marshal(load, msgpack.Modern)
	if err != nil {
		return fmt.Errorf("packing a return for the peers: %w", err)
	}
	acked := make(chan struct{}, 1)
	accompanied := p.accompanied()
	if p.spread(tag, packed, load, func() {
		select {
		case acked <- struct{}{}:
		default:
		}
	}) == 0 || !accompanied {
		return ErrAlone
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for alone := 0; ; {
		select {
		case <-acked:
			return nil
		case <-look.C:
			if alone++; p.accompanied() {
				alone = 0
			}
			if alone >= maxLooks {
				return ErrAlone // the last one has gone meanwhile
			}
		case <-ctx.Done():
			return fmt.Errorf("waiting for a peer to keep a return: %w", ctx.Err())
		case <-p.ctx.Done():
			return ErrAlone
		}
	}
}

// A connection that breaks is back within maxLooks times lookEvery, unless
// the peer has gone.
const (
	lookEvery = 100 * time.Millisecond
	maxLooks  = 10
)

// accompanied tells whether another master of our kind is connected and
// lives.
func (p *Pool) accompanied() bool {
	now := p.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.node.Status(now).Members {
		if l := p.links[m.ID]; l != nil && !l.plain && l.up.Load() && m.Alive {
			return true
		}
	}
	return false
}

// deliver hands an event of a peer to the master.
func (in *inbox) deliver(ctx context.Context, peer, tag string, data *msgpack.Map) error {
	select {
	case <-in.p.served:
	case <-ctx.Done():
		return ctx.Err()
	}
	h := in.p.handler.Load()
	if strings.HasPrefix(tag, "cluster/") || event.CheckTag(tag) != nil {
		return nil // the cluster's own tags never come as events
	}
	data.Delete(wire.PeerField)
	switch tag {
	case wire.RotateTag:
		in.p.load() // Salt's masters have changed the file
		return nil
	case "salt/key", "salt/auth":
		if id, st := wire.KeyEvent(tag, data); st != wire.KeyNone {
			(*h).KeyChanged(id, st, data.Str("pub"))
		}
	}
	_, kind, _ := strings.Cut(strings.TrimPrefix(tag, "salt/job/"), "/")
	job := strings.HasPrefix(tag, "salt/job/")
	switch {
	case job && kind == "publish":
		load := data.Clone()
		load.Delete("_stamp")
		if err := (*h).Publish(ctx, peer, load); err != nil {
			return err
		}
	case job && strings.HasPrefix(kind, "ret/"):
		if err := (*h).Return(ctx, peer, tag, data); err != nil {
			return err
		}
	}
	marked := data.Clone()
	marked.Set(wire.PeerField, peer)
	return (*h).Event(ctx, peer, tag, marked)
}

// PeerStatus is one peer with what waits for it.
type PeerStatus struct {
	ID        string
	Own       bool
	Connected bool
	Alive     bool
	Heard     time.Time
	Version   uint64
	KeyGen    uint64
	Error     string // of the last attempt to connect
	Queues    map[string]QueueStatus
	Lost      uint64 // control messages
}

// Status is the state of the cluster as this master sees it.
type Status struct {
	ID, Phase     string
	Version       uint64
	KeyGen        uint64
	SeedGen       uint64
	Owner         string
	Fence         uint64
	Owns          bool
	SecretChanged bool // cluster_secret is not the secret any more
	Peers         []PeerStatus
	Refused       uint64 // connections
	Strangers     uint64 // messages of strangers beyond the rate
	Bad           uint64 // messages that were not proven or not readable
	Dropped       uint64 // for lack of room
	Handled       uint64
	Repeated      uint64 // handled before
	// Consensus is our part in that of Salt's masters; nil when there are none.
	Consensus *raft.Status `json:",omitempty"`
}

// Status tells what people want to know.
func (p *Pool) Status() Status {
	now := p.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.node.Status(now)
	s := Status{ID: p.cfg.ID, Phase: n.Phase.String(), Version: n.Version, KeyGen: n.KeyGen, SeedGen: n.SeedGen, Owner: n.Owner, Fence: n.Token,
		Owns: n.Owns, SecretChanged: p.view.Load().rec.Secret != "", Refused: p.count.refused.Load(), Strangers: p.count.strangers.Load(),
		Bad: p.count.bad.Load(), Dropped: p.count.dropped.Load(), Handled: p.count.handled.Load(), Repeated: p.count.repeated.Load()}
	if p.consensus != nil {
		s.Consensus = p.consensus.status.Load()
	}
	for _, m := range n.Members {
		if m.Self {
			continue
		}
		ps := PeerStatus{ID: m.ID, Own: m.Own, Connected: m.Linked, Alive: m.Alive, Heard: m.Heard, Version: m.Version, KeyGen: m.KeyGen,
			Queues: map[string]QueueStatus{}}
		if l := p.links[m.ID]; l != nil {
			for d := range l.queues {
				ps.Queues[Duty(d).String()] = l.queues[d].status(now)
			}
			if e := l.lastErr.Load(); e != nil {
				ps.Error = *e
			}
			l.mu.Lock()
			ps.Lost = l.lost
			l.mu.Unlock()
		}
		s.Peers = append(s.Peers, ps)
	}
	return s
}
