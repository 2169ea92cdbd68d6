package cluster

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"saltern/master/cluster/internal/raft"
	"saltern/master/cluster/wire"
	"saltern/master/event"
	"saltern/master/value"
)

// dutyOf returns the duty whose queue carries events with this tag.
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

// isJob reports whether an event with this tag publishes a job.
func isJob(tag string) bool {
	rest, ok := strings.CutPrefix(tag, "salt/job/")
	if !ok {
		return false
	}
	_, kind, _ := strings.Cut(rest, "/")
	return kind == "publish"
}

// isQuestion reports whether an event with this tag asks other masters, and its maker waits for answers.
func isQuestion(tag string) bool { return tag == event.TagBatchAsk || tag == event.TagRunPause }

// Forward sends an event of the local bus to all peers. It never blocks. It does not send events
// that came from peers, nor events of the cluster itself.
func (p *Pool) Forward(e event.Event) {
	if own, salt := MayForward(e); !own && !salt {
		if e.Origin != event.Internal && e.Origin != event.Peer {
			p.count.withheld.Add(1)
		}
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

	p.spread(outgoing{event: e.AtPeer(), packed: packed})
}

// outgoing is an event on its way to the peers.
type outgoing struct {
	event  event.Event // the event as peers see it; its Data is sent to Salt's masters
	packed []byte      // the packed data, which is sent to Saltern's masters
	acked  func()      // called by the link for each Saltern master that has handled the event; may be nil
	ours   bool        // Salt's masters do not get the event
}

// MayForward reports whether an event of the local bus may be sent to other Saltern masters
// (saltern) and to Salt's masters (salt).
func MayForward(e event.Event) (saltern, salt bool) {
	if e.Origin == event.Peer {
		return false, false
	}
	return (&outgoing{event: e.AtPeer()}).harmless()
}

// harmless reports whether Saltern's masters (saltern) and Salt's masters (salt) may get the event.
// That depends on which actions the maker of the event may trigger on those masters.
func (o *outgoing) harmless() (saltern, salt bool) {
	saltern = event.Travels(o.event)
	return saltern, saltern && !o.ours && o.harmlessToSalt()
}

// harmlessToSalt reports whether Salt's masters may get the event. They do not check who made an
// event. Saltern trusts a minion's return because its tag names that minion, but Salt's masters
// interpret other parts of the tag first: they publish the return of a minion called "publish" as a
// job, and read the list of a job's minions from the return of a minion called "new...".
func (o *outgoing) harmlessToSalt() bool {
	act := wire.ActOf(o.event.Tag)
	switch o.event.Maker {
	case event.Internal:
		return true
	case event.Socket:
		// A Salt master continues a batch if an event contains the state of the batch. It does not
		// check who made the event.
		ofTool := act == wire.ActBatch && o.event.Data.Map("state").Str("driver") == "cli"
		return act == wire.ActNone || event.MayOrder(o.event, event.KeyChange) || ofTool
	case event.Minion:
		if !event.MayOrder(o.event, event.JobReturn) || o.event.Data.Str("id") != o.event.Minion {
			return act == wire.ActNone
		}

		if act == wire.ActNew {
			if _, ok := o.event.Data.Get("minions"); ok {
				o.event.Data = o.event.Data.Clone()
				o.event.Data.Delete("minions")
			}
		}

		return act == wire.ActReturn || act == wire.ActNew
	}

	return act == wire.ActNone
}

// spread queues an event for all peers and returns how many Saltern masters' queues had room for
// it.
func (p *Pool) spread(o outgoing) int {
	own, salt := o.harmless()
	if !own || !salt {
		p.count.withheld.Add(1)
	}

	now := p.cfg.Now()
	sealed := sync.OnceValue(func() []byte {
		blob, err := wire.SealEvent(o.event.Data, p.session)
		if err != nil {
			return nil
		}

		b, err := wire.Blob(blob)
		if err != nil {
			return nil
		}

		return b
	})

	d, n := dutyOf(o.event.Tag), 0
	job := isJob(o.event.Tag)
	p.mu.Lock()
	defer p.mu.Unlock()

	watch, queued := func(string, *item) {}, func() {}
	if job {
		watch, queued = p.watchSpread(o.event.Tag)
	}

	defer queued()
	for id, l := range p.links {
		if l.plain && !salt || !l.plain && !own {
			continue
		}

		i := &item{
			queuedAt: now,
			tag:      o.event.Tag,
			maker:    makerText(o.event),
			packed:   o.packed,
			sealed:   sealed,
			isJob:    job,
		}

		if d == Jobs && !strings.HasPrefix(o.event.Tag, "salt/job/") {
			i.keepFor = keyFor
		}
		if isQuestion(o.event.Tag) {
			i.keepFor = QuestionFor
		}

		if !l.plain {
			i.acked = o.acked
			watch(id, i)
		}

		if l.queueItem(d, i) && !l.plain && l.up.Load() {
			n++
		}
	}

	return n
}

// Copy sends the result of a function that ran on this master to the other Saltern masters. It never
// blocks. load is the complete load of the result.
func (p *Pool) Copy(load *value.Map) error {
	packed, err := wire.Pack(load)
	if err != nil {
		return fmt.Errorf("pack the result of a function for the peers: %w", err)
	}

	e := event.Event{
		Tag:    event.TagRunKept,
		Data:   load,
		Origin: event.Internal,
	}
	p.spread(outgoing{event: e.AtPeer(), packed: packed, ours: true})
	return nil
}

// ErrRefused is the error with which Handler.Return rejects a return permanently. The pool then
// acknowledges the return to the peer, so that the peer does not send it again, and fires no event.
var ErrRefused = errors.New("the return is refused")

// ErrNoPeer reports that no other Saltern master is connected that could store a return.
var ErrNoPeer = errors.New("no other master is connected")

// Keep sends a return to all peers and waits until one of them has stored it, so that the return
// survives the loss of this master. It returns ErrNoPeer when no peer is connected; in that case,
// too, the return remains queued for the peers.
func (p *Pool) Keep(ctx context.Context, tag string, load *value.Map) error {
	packed, err := wire.Pack(load)
	if err != nil {
		return fmt.Errorf("pack a return for the peers: %w", err)
	}

	acked := make(chan struct{}, 1)
	accompanied := p.accompanied()
	ret := event.Event{
		Tag:    tag,
		Data:   load,
		Origin: event.Peer,
		Maker:  event.Minion,
		Minion: event.Returner(tag),
	}
	if p.spread(outgoing{event: ret, packed: packed, acked: func() {
		select {
		case acked <- struct{}{}:
		default:
		}
	}}) == 0 || !accompanied {
		return ErrNoPeer
	}

	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for alone := 0; ; {
		select {
		case <-acked:
			return nil
		case <-look.C:
			alone++
			if p.accompanied() {
				alone = 0
			}
			if alone >= maxLooks {
				return ErrNoPeer // the last connected peer has disconnected meanwhile
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for a peer to keep a return: %w", ctx.Err())
		case <-p.ctx.Done():
			return ErrNoPeer
		}
	}
}

// A link makes a broken connection again within maxLooks times lookEvery, unless the peer is down.
const (
	lookEvery = 100 * time.Millisecond
	maxLooks  = 10
)

// accompanied reports whether another Saltern master is connected and alive.
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

// deliver passes an event of a peer to the handler. It drops an event whose maker has no right to
// trigger the event's effect. Saltern's masters already filter out such events before they send.
func (in *inbox) deliver(ctx context.Context, peer string, late Late, e event.Event) error {
	select {
	case <-in.pool.handlerSet:
	case <-ctx.Done():
		return ctx.Err()
	}

	h := in.pool.handler.Load()
	if event.CheckTag(e.Tag) != nil || strings.HasPrefix(e.Tag, "cluster/") {
		return nil // no master sends tags of the cluster itself as events
	}

	if own, _ := (&outgoing{event: e}).harmless(); !own {
		in.pool.count.withheld.Add(1)
		return nil
	}

	e.Data.Delete(wire.PeerField)
	switch {
	case event.MayOrder(e, event.KeyRotate):
		in.pool.loadRecord() // Salt's masters have written a new AES key to the folder
		return nil
	case event.MayOrder(e, event.KeyChange):
		if id, st := wire.KeyEvent(e.Tag, e.Data); st != wire.KeyNone {
			(*h).KeyChanged(id, st, e.Data.Str("pub"))
		}
	case event.MayOrder(e, event.JobPublish):
		load := e.Data.Clone()
		load.Delete("_stamp")
		if err := (*h).Publish(ctx, peer, load, late); err != nil || late.Retold {
			return err
		}
	case event.MayOrder(e, event.JobReturn):
		if err := (*h).Return(ctx, peer, e.Tag, e.Data); errors.Is(err, ErrRefused) {
			return nil
		} else if err != nil {
			return err
		}
	}

	e.Data = e.Data.Clone()
	e.Data.Set(wire.PeerField, peer)
	return (*h).Event(ctx, peer, e)
}

// PeerStatus describes one peer and the messages that wait for it.
type PeerStatus struct {
	ID        string
	Own       bool
	Connected bool
	Alive     bool
	Heard     time.Time
	Version   uint64
	KeyGen    uint64
	Error     string // why the last attempt to connect failed; "" after success
	Through   string // name of the master that relays the connection; "" when it is direct
	Queues    map[string]QueueStatus
	Lost      uint64 // control messages dropped because the queue was full
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
	SecretChanged bool // the cluster's secret differs from the option cluster_secret
	Peers         []PeerStatus
	Refused       uint64 // refused connections
	Strangers     uint64 // messages over the rate limit from senders that are not members
	Bad           uint64 // messages without a valid proof or with bad content
	Dropped       uint64 // messages dropped because the queue was full
	Unspread      uint64 // jobs whose callers were answered before every connected peer had them
	// events that no peer got, because their makers may not trigger the actions that these events trigger
	Withheld uint64
	Handled  uint64
	Repeated uint64 // messages received again after they were handled
	// Consensus is this master's state in the consensus of Salt's masters. It is nil when the
	// cluster admits no Salt masters.
	Consensus *raft.Status `json:",omitempty"`
}

// Status returns the state of the cluster for administrators.
func (p *Pool) Status() Status {
	now := p.cfg.Now()
	p.mu.Lock()
	defer p.mu.Unlock()

	n := p.node.Status(now)
	s := Status{
		ID:            p.cfg.ID,
		Phase:         n.Phase.String(),
		Version:       n.Version,
		KeyGen:        n.KeyGen,
		SeedGen:       n.SeedGen,
		Owner:         n.Owner,
		Fence:         n.Token,
		Owns:          n.Owns,
		SecretChanged: p.view.Load().rec.Secret != "",
		Refused:       p.count.refused.Load(),
		Strangers:     p.count.strangers.Load(),
		Bad:           p.count.bad.Load(),
		Dropped:       p.count.dropped.Load(),
		Withheld:      p.count.withheld.Load(),
		Unspread:      p.count.unspread.Load(),
		Handled:       p.count.handled.Load(),
		Repeated:      p.count.repeated.Load(),
	}

	if p.consensus != nil {
		s.Consensus = p.consensus.status.Load()
	}

	for _, m := range n.Members {
		if m.Self {
			continue
		}

		ps := PeerStatus{
			ID:        m.ID,
			Own:       m.Own,
			Connected: m.Linked,
			Alive:     m.Alive,
			Heard:     m.Heard,
			Version:   m.Version,
			KeyGen:    m.KeyGen,
			Queues:    map[string]QueueStatus{},
		}

		if l := p.links[m.ID]; l != nil {
			for d := range l.queues {
				ps.Queues[Duty(d).String()] = l.queues[d].status(now)
			}

			if e := l.lastErr.Load(); e != nil {
				ps.Error = *e
			}

			if l.up.Load() {
				ps.Through = l.relayPeer()
			}

			l.mu.Lock()
			ps.Lost = l.lostControl
			l.mu.Unlock()
		}

		s.Peers = append(s.Peers, ps)
	}

	return s
}
