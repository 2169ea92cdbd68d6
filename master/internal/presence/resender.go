package presence

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"saltern/master/cluster"
	"saltern/master/internal/publish"
	"saltern/master/value"
	"saltern/master/zmtp"
)

// times of what minions may have missed. The margins may be generous: a minion that gets
// what it has had already ignores it, and one that was started anew is left out.
const (
	tellEvery  = 500 * time.Millisecond // who listens here, to the peers
	gatherCuts = 20 * time.Millisecond  // subscriptions that are cut at once are told at once
	// lossMargin is how long before a node, or a master by its load balancer, was last
	// heard its last publishes may have been lost on the way.
	lossMargin = 5 * time.Second
	// cutMargin is how long before its end the last publishes to a subscription may have
	// been lost that answers no PING: a load balancer that cuts throws away what it has not
	// passed on, and it waits for a second, or a little more, before it cuts the sessions to
	// a virtual address that has gone elsewhere (lbproxy, settleFor).
	cutMargin = 5 * time.Second
	// answerMargin is how long before a PING was made a publish may have been on its way
	// to the same connection that went out behind it.
	answerMargin = time.Second
	// backFor is how long after its return a node's load balancer may bring sessions that
	// have missed what was published in its absence.
	backFor = 15 * time.Second
	// earlyFor is how long who comes is not given what it missed while minions may have
	// started at another master of which nothing is known here, and earlyLook how often
	// that is looked at.
	earlyFor    = 3 * time.Second
	earlyLook   = 100 * time.Millisecond
	maxComeBack = 1 << 16
)

// Peers are the other masters of the cluster.
type Peers interface {
	Subscribed(cluster.Subs)
	CutOff([]cluster.Cut)
	CutBefore(peer string, cuts []cluster.Cut)
	Bring(peer string, jobs []cluster.Job)
}

// ResenderConfig of a Resender. All fields but those that say so are required.
type ResenderConfig struct {
	// Recent are the last publications since a time, Resend gives one to a subscriber,
	// Again publishes one to all, as another one if that is to be narrower, and remembers it.
	Recent func(since time.Time) []publish.Recent
	Resend func(ctx context.Context, subscriber uint64, r publish.Recent) error
	Again  func(ctx context.Context, r, as publish.Recent) error
	// Passed counts the publications since a time, Aim is one for other minions.
	Passed func(since time.Time) int
	Aim    func(r publish.Recent, tgt any, typ string, ids []string) (publish.Recent, error)
	// Returned are those whose returns of a job are kept; nil: that is not known.
	Returned func(ctx context.Context, jid string) (map[string]bool, error)
	// Started knows the minions that have been started anew; nil: that is not known, and
	// nobody is left out for it.
	Started *Started
	// Unheard reports whether minions may have started anew of which Started has not heard;
	// nil: never.
	Unheard func() bool
	// Silent yields the subscribers that have answered nothing since a time.
	Silent func(since time.Time, yield func(zmtp.Peer) bool)
	// SilentFor is how long that may be until they count as cut.
	SilentFor time.Duration
	// Undelivered hears of a job that is not given to minions that may have missed it, and
	// why. It must not block. nil: nobody does.
	Undelivered func(load *value.Map, minions []string, why string)
	Peers       Peers
	Now         func() time.Time
	Log         *slog.Logger
}

// Resender gives minions what was published while their subscription was cut, whoever cut
// it, or while it answered no more. It knows who listens here, and by the peers'
// reports who listened at a node that was lost. It is safe for concurrent use.
type Resender struct {
	cfg    ResenderConfig
	match  *Missed
	resent chan Arrival
	late   chan publish.Recent
	aims   aims

	mu    sync.Mutex
	here  map[uint64]*listener
	crowd map[netip.Addr]int   // subscriptions by address
	owed  map[uint64]time.Time // since when a subscription misses something that it is to be given
	peers map[string]peerReport
	lost  map[netip.Addr]absence // load balancers, by the nodes that are lost
	dirty bool                   // here has changed since the peers were told
	cut   []cluster.Cut          // not told yet
	greet []string               // peers that have just been connected
	wake  chan struct{}
}

// listener is a subscription: where its minion is, and its load balancer.
type listener struct {
	from, via netip.Addr
	silent    bool // it counts as cut already
}

// peerReport is who listens at a peer, and where its load balancer is.
type peerReport struct {
	from netip.Addr
	subs cluster.Subs
}

// absence is that of a node.
type absence struct {
	peer        string
	heard, back time.Time // back is zero as long as it is away
}

// NewResender makes a Resender.
func NewResender(cfg ResenderConfig) *Resender {
	if cfg.Undelivered == nil {
		cfg.Undelivered = func(*value.Map, []string, string) {}
	}

	return &Resender{
		cfg:    cfg,
		match:  newMissed(),
		resent: make(chan Arrival, maxComeBack),
		late:   make(chan publish.Recent, maxLate),
		aims:   aims{kept: map[string]keptAim{}, told: map[string]int{}},
		here:   map[uint64]*listener{},
		crowd:  map[netip.Addr]int{},
		owed:   map[uint64]time.Time{},
		peers:  map[string]peerReport{},
		lost:   map[netip.Addr]absence{},
		wake:   make(chan struct{}, 1),
	}
}

// OnSubscribe is a hook of the publish port. The other topics of a connection
// with zmq_filtering do not count.
func (k *Resender) OnSubscribe(p zmtp.Peer, topic string) {
	if topic != "" && topic != "broadcast" {
		return
	}

	l := &listener{from: p.Remote.Addr().Unmap(), via: p.Via.Unmap()}
	now := k.cfg.Now()
	k.mu.Lock()
	_, again := k.here[p.ID]
	if !again {
		k.here[p.ID] = l
		k.crowd[l.from]++
		k.dirty = true
	}

	away, absent := k.lost[l.via]
	k.mu.Unlock()
	if again {
		return
	}

	var a Arrival
	missed := !p.Missing.IsZero()
	if missed {
		a = Arrival{ID: p.ID, At: now, Since: p.Missing.Add(-lossMargin)}
	} else {
		a, missed = k.match.Arrive(l.from, p.ID, now)
	}

	if heard := away.heard.Add(-lossMargin); absent && heard.Before(a.Since) {
		a.Since, missed = heard, true // its load balancer did not hear us either
	}

	if missed {
		k.again(a)
	}
}

// OnDisconnect is a hook of the publish port. It does not matter who has ended a
// subscription: a minion that is started anew is known by its sign-in.
func (k *Resender) OnDisconnect(p zmtp.Peer, _ error) {
	now := k.cfg.Now()
	k.mu.Lock()
	l, ok := k.here[p.ID]
	if !ok {
		k.mu.Unlock()
		return
	}

	crowd := k.crowd[l.from]
	delete(k.here, p.ID)
	k.crowd[l.from]--
	if k.crowd[l.from] <= 0 {
		delete(k.crowd, l.from)
	}

	k.dirty = true
	owed, owes := k.owed[p.ID]
	delete(k.owed, p.ID)
	k.mu.Unlock()

	since := now.Add(-cutMargin)
	if !p.Answered.IsZero() {
		since = p.Answered.Add(-answerMargin)
	}

	if owes {
		since = minTime(since, owed) // it has gone before it was given that
	}

	k.mark(l.from, Mark{Since: since, Until: now.Add(returnWithin), Crowd: crowd}, now)
}

// mark makes a mark here and at the peers.
func (k *Resender) mark(from netip.Addr, m Mark, now time.Time) {
	k.mu.Lock()
	if len(k.cut) < maxMarks {
		k.cut = append(k.cut, cluster.Cut{From: from, Since: m.Since, Until: m.Until, Crowd: m.Crowd})
	}
	k.poke()
	k.mu.Unlock()
	k.note(from, m, now)
}

// note makes a mark here, and gives what is missing by it to who has come already.
func (k *Resender) note(from netip.Addr, m Mark, now time.Time) {
	for _, a := range k.match.Mark(from, m, now) {
		k.again(a)
	}
}

func (k *Resender) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// again has a subscription given what it missed. Overflow policy: it misses it.
func (k *Resender) again(a Arrival) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.here[a.ID] == nil {
		return // it has gone
	}
	select {
	case k.resent <- a:
		k.owed[a.ID] = a.Since
	default:
	}
}

// paid notes that a subscription was given what it missed.
func (k *Resender) paid(a Arrival) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.owed[a.ID].Equal(a.Since) {
		delete(k.owed, a.ID)
	}
}

// Run tells the peers and sends again, until ctx ends.
func (k *Resender) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.tell(ctx) })
	var early []Arrival
	look := time.NewTimer(earlyLook)
	defer look.Stop()

	for {
		select {
		case a := <-k.resent:
			if !k.early(a) || len(early) >= maxComeBack {
				k.resend(ctx, a)
				continue
			}
			early = append(early, a)
			look.Reset(earlyLook)
		case <-look.C:
			early = k.resendSome(ctx, early)
			if len(early) > 0 {
				look.Reset(earlyLook)
			}
		case r := <-k.late:
			k.publishLate(ctx, r)
		case <-ctx.Done():
			return
		}
	}
}

// early reports whether a subscription is not given yet what it missed. It may be one of a
// minion that was started anew at a master that was cut off, and is the first to come from
// there: that master tells of it a moment later. In vain we wait for a host that has vanished.
func (k *Resender) early(a Arrival) bool {
	return k.young(a) && k.unheard()
}

func (k *Resender) young(a Arrival) bool { return k.cfg.Now().Sub(a.At) < earlyFor }

func (k *Resender) unheard() bool { return k.cfg.Unheard != nil && k.cfg.Unheard() }

// resendSome gives what they missed to those that need not wait any more, and returns the others.
func (k *Resender) resendSome(ctx context.Context, early []Arrival) []Arrival {
	unheard := k.unheard()
	return slices.DeleteFunc(early, func(a Arrival) bool {
		if unheard && k.young(a) {
			return false
		}
		k.resend(ctx, a)
		return true
	})
}

func (k *Resender) resend(ctx context.Context, a Arrival) {
	for _, r := range k.cfg.Recent(a.Since) {
		if r.At.After(a.At) {
			break // that and what follows it has got
		}

		as, given := k.aim(ctx, r)
		if !given {
			continue
		}
		if k.cfg.Resend(ctx, a.ID, as) != nil {
			return // it has gone again: OnDisconnect remembers what it is owed
		}

		k.cfg.Log.Debug("job sent again to a minion that was cut off", "jid", r.JID)
	}

	k.paid(a)
}

func (k *Resender) tell(ctx context.Context) {
	t := time.NewTicker(tellEvery)
	defer t.Stop()
	for {
		select {
		case <-k.wake:
			select { // more is coming
			case <-time.After(gatherCuts):
			case <-ctx.Done():
				return
			}
		case <-t.C:
			k.look()
		case <-ctx.Done():
			return
		}

		k.tellPeers()
	}
}

// tellPeers tells what the peers do not know yet.
func (k *Resender) tellPeers() {
	k.mu.Lock()
	cut := k.cut
	subs := k.report()
	greet := k.greet
	k.cut, k.greet = nil, nil
	k.mu.Unlock()

	if len(greet) > 0 {
		if out := k.pending(); len(out) > 0 {
			jobs := k.since(out)
			for _, peer := range greet {
				k.cfg.Peers.CutBefore(peer, out)
				k.cfg.Peers.Bring(peer, jobs)
			}
		}
	}

	if cut != nil {
		k.cfg.Peers.CutOff(cut)
	}

	if subs != nil {
		k.cfg.Peers.Subscribed(subs)
	}
}

// pending is what a peer is told that has just come.
func (k *Resender) pending() (out []cluster.Cut) {
	for from, list := range k.match.Pending(k.cfg.Now()) {
		for _, m := range list {
			out = append(out, cluster.Cut{From: from, Since: m.Since, Until: m.Until, Crowd: m.Crowd})
		}
	}
	return out
}

// since are the jobs that may be missing by cuts.
func (k *Resender) since(cuts []cluster.Cut) (jobs []cluster.Job) {
	now := k.cfg.Now()
	first := now
	for _, c := range cuts {
		first = minTime(first, c.Since)
	}
	for _, r := range k.cfg.Recent(first) {
		jobs = append(jobs, cluster.Job{Load: r.Load, Age: now.Sub(r.Born)})
	}
	return jobs
}

// report is who listens here, nil when the peers know; mu is held.
func (k *Resender) report() cluster.Subs {
	if !k.dirty {
		return nil
	}
	k.dirty = false
	s := cluster.Subs{}
	for from, n := range k.crowd {
		s[from] = n
	}
	return s
}

// look finds subscriptions that answer no more: their load balancer is frozen, or their
// minion cannot be reached. The connection stays, so that nobody else tells.
func (k *Resender) look() {
	now := k.cfg.Now()
	k.match.Prune(now)
	k.aims.prune(now)
	k.mu.Lock()
	for via, a := range k.lost {
		if !a.back.IsZero() && now.Sub(a.back) > backFor {
			delete(k.lost, via)
		}
	}
	k.mu.Unlock()

	if k.cfg.Silent == nil {
		return
	}

	silent := map[uint64]time.Time{}
	k.cfg.Silent(now.Add(-k.cfg.SilentFor), func(p zmtp.Peer) bool {
		silent[p.ID] = p.Answered
		return true
	})

	marks := map[netip.Addr]Mark{}
	k.mu.Lock()
	for id, l := range k.here {
		answered, is := silent[id]
		if is && !l.silent {
			m := Mark{Since: answered.Add(-answerMargin), Until: now.Add(returnWithin), Crowd: k.crowd[l.from]}
			if old, ok := marks[l.from]; ok && old.Since.Before(m.Since) {
				m.Since = old.Since
			}
			marks[l.from] = m
		}

		l.silent = is
	}
	k.mu.Unlock()

	for from, m := range marks {
		k.mark(from, m, now)
	}
}

// PeerHas takes a peer's report.
func (k *Resender) PeerHas(peer string, from netip.Addr, s cluster.Subs) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.peers[peer] = peerReport{from.Unmap(), s}
}

// HeldBy returns the number of subscriptions from an address by a peer's report.
func (k *Resender) HeldBy(peer string, from netip.Addr) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.peers[peer].subs[from]
}

// PeerConnected has a peer told who is not back yet of those that were cut: it may be one
// that has just come, and they may come to it.
func (k *Resender) PeerConnected(peer string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := false
	for _, p := range k.greet {
		found = found || p == peer
	}

	if !found {
		k.greet = append(k.greet, peer)
	}

	for via, a := range k.lost {
		if a.peer == peer && a.back.IsZero() {
			a.back = k.cfg.Now()
			k.lost[via] = a
		}
	}

	k.poke()
}

// PeerCut takes the marks of a peer.
func (k *Resender) PeerCut(cuts []cluster.Cut) {
	now := k.cfg.Now()
	for _, c := range cuts {
		k.note(c.From.Unmap(), Mark{Since: c.Since, Until: c.Until, Crowd: c.Crowd}, now)
	}
}

// PeerLost makes marks for those that listened at a node, or here by way of its load
// balancer, which may still have some.
func (k *Resender) PeerLost(peer string, heard time.Time) {
	now := k.cfg.Now()
	k.mu.Lock()
	report := k.peers[peer]
	delete(k.peers, peer)
	here := cluster.Subs{}
	if report.from.IsValid() {
		k.lost[report.from] = absence{peer: peer, heard: heard}
		for _, l := range k.here {
			if l.via == report.from {
				here[l.from]++
			}
		}
	}
	k.mu.Unlock()

	mark := Mark{Since: heard.Add(-lossMargin), Until: heard.Add(returnWithin)}
	all := 0
	for from, n := range report.subs {
		mark.Crowd = n
		k.note(from, mark, now) // the others know it as well
		all += n
	}

	for from, n := range here {
		mark.Crowd = n
		k.mark(from, mark, now)
		all += n
	}

	if all > 0 {
		k.cfg.Log.Info("minions of a node that was lost get what they miss when they are back", "peer", peer,
			"minions", all)
	}
}
