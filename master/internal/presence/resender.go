package presence

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"saltern/master/cluster"
	"saltern/master/internal/publish"
	"saltern/master/zmtp"
)

// times of what minions may have missed.
const (
	tellEvery  = 500 * time.Millisecond // who listens here, to the peers
	gatherCuts = 20 * time.Millisecond  // subscriptions that are cut at once are told at once
	// lossMargin is how long before a node was last heard its last publishes
	// may have been lost on the way.
	lossMargin = 2 * time.Second
	// cutMargin is how long before its master saw a subscription cut the last publishes
	// may have been lost: a load balancer that cuts throws away what it has not passed on,
	// and it waits for a second, or a little more, before it cuts the sessions to a virtual
	// address that has gone elsewhere (lbproxy, settleFor): nothing of them gets through.
	cutMargin = 3 * time.Second
	// deathMargin is the same where a load balancer has died, which is taken from the end of
	// all its sessions. It is short: a job that restarts all minions looks alike.
	deathMargin = 500 * time.Millisecond
	toldWithin  = cutMargin + 500*time.Millisecond // of a cut, to the peers
	maxComeBack = 1 << 16
)

// Peers are the other masters of the cluster.
type Peers interface {
	Subscribed(cluster.Subs)
	CutOff(s cluster.Subs, age time.Duration)
	CutBefore(peer string, s cluster.Subs, age time.Duration)
	Back(cluster.Subs)
}

// ResenderConfig of a Resender.
type ResenderConfig struct {
	// Recent are the last publications since a time, Resend gives one to a subscriber.
	Recent func(since time.Time) []publish.Recent
	Resend func(ctx context.Context, subscriber uint64, r publish.Recent) error
	// Narrow is a publication for some of its minions, Returned are those whose
	// returns of a job are kept; nil: that is not known.
	Narrow   func(r publish.Recent, ids []string) (publish.Recent, error)
	Returned func(ctx context.Context, jid string) (map[string]bool, error)
	Peers    Peers
	Now      func() time.Time
	Log      *slog.Logger
}

// Resender gives minions whose subscription was cut by us, by a load balancer or
// by the loss of a node what was published until they were back. It knows
// who listens here, and by the peers' reports who listened at a node that was
// lost. It is safe for concurrent use.
type Resender struct {
	cfg    ResenderConfig
	match  *Missed
	resent chan Arrival

	mu    sync.Mutex
	here  map[uint64]listener
	via   map[netip.Addr]int // subscriptions by load balancer
	peers map[string]peerReport
	dirty bool         // here has changed since the peers were told
	cut   cluster.Subs // not told yet
	back  cluster.Subs // not told yet
	ended []ending     // without a reason, lately
	greet []string     // peers that have just been connected
	wake  chan struct{}

	narrowed map[string]narrowed // by jid; of Run's goroutine
	asking   atomic.Bool         // who has returned
}

// listener is a subscription: where its minion is, and its load balancer.
type listener struct{ from, via netip.Addr }

// peerReport is who listens at a peer, and where its load balancer is.
type peerReport struct {
	from netip.Addr
	subs cluster.Subs
}

type ending struct {
	listener
	at time.Time
}

// NewResender makes a Resender.
func NewResender(cfg ResenderConfig) *Resender {
	return &Resender{cfg: cfg, match: newMissed(), resent: make(chan Arrival, maxComeBack), here: map[uint64]listener{},
		via: map[netip.Addr]int{}, peers: map[string]peerReport{}, wake: make(chan struct{}, 1), narrowed: map[string]narrowed{}}
}

// OnSubscribe is a hook of the publish port. The other topics of a connection
// with zmq_filtering do not count.
func (k *Resender) OnSubscribe(p zmtp.Peer, topic string) {
	if topic != "" && topic != "broadcast" {
		return
	}
	l := listener{p.Remote.Addr().Unmap(), p.Via.Unmap()}
	k.mu.Lock()
	_, again := k.here[p.ID]
	if !again {
		k.here[p.ID] = l
		k.via[l.via]++
		k.dirty = true
	}
	k.mu.Unlock()
	if again {
		return
	}
	var since time.Time
	if !p.Missing.IsZero() {
		since = p.Missing.Add(-lossMargin)
	}
	a, ok := k.match.Arrive(l.from, p.ID, since, k.cfg.Now())
	if ok || a.Moved {
		k.again(a)
	}
	if ok {
		k.isBack(l.from, 1)
	}
}

// OnDisconnect is a hook of the publish port. A load balancer resets what it
// cuts; a minion that ends says so in good order.
func (k *Resender) OnDisconnect(p zmtp.Peer, err error) {
	now := k.cfg.Now()
	k.mu.Lock()
	l, ok := k.here[p.ID]
	if !ok {
		k.mu.Unlock()
		return
	}
	delete(k.here, p.ID)
	if k.via[l.via]--; k.via[l.via] <= 0 {
		delete(k.via, l.via)
	}
	k.dirty = true
	wasCut := isReset(err) && l.via.IsValid()
	if wasCut {
		k.addCut(l.from)
	} else if err == nil && l.via.IsValid() && len(k.ended) < maxComeBack {
		k.ended = append(k.ended, ending{l, now})
	}
	k.mu.Unlock()
	if wasCut {
		k.came(l.from, k.match.Cut(l.from, 1, now, cutMargin, now)...)
	}
}

// isReset reports whether the other end has reset a connection: which of the two errors it is
// depends on whether it was being read or written.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// addCut has the peers told of a subscription that was cut here; mu is held.
func (k *Resender) addCut(from netip.Addr) { k.add(&k.cut, from, 1) }

func (k *Resender) add(to *cluster.Subs, from netip.Addr, n int) {
	if *to == nil {
		*to = cluster.Subs{}
	}
	(*to)[from] += n
	k.poke()
}

func (k *Resender) poke() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// came has subscriptions that were here before it was known why given what they missed, but
// for those that were moved, which have been given it.
func (k *Resender) came(from netip.Addr, back ...Arrival) {
	if len(back) == 0 {
		return
	}
	k.isBack(from, len(back))
	for _, a := range back {
		if !a.Moved {
			k.again(a)
		}
	}
}

// isBack has the peers told that n subscriptions that were cut are here.
func (k *Resender) isBack(from netip.Addr, n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.add(&k.back, from, n)
}

// again has a subscription given what it missed. Overflow policy: it misses it.
func (k *Resender) again(a Arrival) {
	select {
	case k.resent <- a:
	default:
	}
}

// Run tells the peers and sends again, until ctx ends.
func (k *Resender) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.tell(ctx) })
	for {
		select {
		case a := <-k.resent:
			k.resend(ctx, a)
		case <-ctx.Done():
			return
		}
	}
}

func (k *Resender) resend(ctx context.Context, a Arrival) {
	for _, r := range k.cfg.Recent(a.Since) {
		if r.At.After(a.At) {
			return // that and what follows it has got
		}
		r, needed := k.narrow(ctx, r)
		if !needed {
			continue
		}
		if k.cfg.Resend(ctx, a.ID, r) != nil {
			return // it has gone again
		}
		k.cfg.Log.Debug("job sent again to a minion that was cut off", "jid", r.JID)
	}
}

// bounds of narrowing.
const (
	narrowFor = time.Second // how long what has returned is not looked at again
	maxNarrow = 500         // minions; a publication for more is sent as it was
	slowDisk  = 500 * time.Millisecond
)

// narrowed is a publication as it is to be sent now, for those that have not returned.
type narrowed struct {
	until  time.Time
	recent publish.Recent
	needed bool
}

// narrow leaves out of a publication whoever has returned its job, and reports whether
// anybody is left: a minion that was restarted meanwhile does not know any more what it
// has done, and a subscription does not say whose it is. Only ids can be left out: of
// other targets the list of minions may lack some. It is called by Run's goroutine.
func (k *Resender) narrow(ctx context.Context, r publish.Recent) (publish.Recent, bool) {
	now := k.cfg.Now()
	if n, ok := k.narrowed[r.JID]; ok && now.Before(n.until) {
		return n.recent, n.needed
	}
	maps.DeleteFunc(k.narrowed, func(_ string, n narrowed) bool { return !now.Before(n.until) })
	n := narrowed{until: now.Add(narrowFor), recent: r, needed: true}
	typ := r.Load.Str("tgt_type")
	if k.cfg.Returned != nil && len(r.Matched) > 0 && slices.Contains([]string{"glob", "list", "pcre"}, typ) {
		done, err := k.returned(ctx, r.JID)
		left := slices.DeleteFunc(slices.Clone(r.Matched), func(id string) bool { return done[id] })
		n.needed = len(left) > 0
		if err == nil && n.needed && len(left) < len(r.Matched) && len(left) <= maxNarrow {
			n.recent, err = k.cfg.Narrow(r, left)
		}
		if err != nil {
			n.recent, n.needed = r, true
			k.cfg.Log.Warn("job is sent again also to those that have returned", "jid", r.JID, "error", err)
		}
	}
	k.narrowed[r.JID] = n
	return n.recent, n.needed
}

var errSlow = errors.New("the job cache does not answer")

// returned asks for the returns of a job, and gives up on a disk that hangs.
func (k *Resender) returned(ctx context.Context, jid string) (done map[string]bool, err error) {
	if !k.asking.CompareAndSwap(false, true) {
		return nil, errSlow
	}
	answer := make(chan struct{})
	var late map[string]bool
	var lateErr error
	go func() { // on a disk that hangs nobody waits for it
		late, lateErr = k.cfg.Returned(ctx, jid)
		k.asking.Store(false) // before the answer: the next job is asked about at once
		close(answer)
	}()
	select {
	case <-answer:
		return late, lateErr
	case <-time.After(slowDisk):
		return nil, errSlow
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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
			k.balancers()
			k.match.Prune(k.cfg.Now())
		case <-ctx.Done():
			return
		}
		k.mu.Lock()
		cut, back, subs, greet := k.cut, k.back, k.report(), k.greet
		k.cut, k.back, k.greet = nil, nil, nil
		k.mu.Unlock()
		if len(greet) > 0 {
			if out, age := k.match.Pending(k.cfg.Now()); len(out) > 0 {
				for _, peer := range greet {
					k.cfg.Peers.CutBefore(peer, out, age)
				}
			}
		}
		if cut != nil {
			k.cfg.Peers.CutOff(cut, toldWithin)
		}
		if back != nil {
			k.cfg.Peers.Back(back)
		}
		if subs != nil {
			k.cfg.Peers.Subscribed(subs)
		}
	}
}

// report is who listens here, nil when the peers know; mu is held.
func (k *Resender) report() cluster.Subs {
	if !k.dirty {
		return nil
	}
	k.dirty = false
	s := cluster.Subs{}
	for _, l := range k.here {
		s[l.from]++
	}
	return s
}

// balancers finds load balancers that have died: several of their
// connections ended within a moment, and none is left.
func (k *Resender) balancers() {
	now := k.cfg.Now()
	k.mu.Lock()
	count := map[netip.Addr]int{}
	for _, e := range k.ended {
		count[e.via]++
	}
	cut := map[netip.Addr]time.Time{}
	n := cluster.Subs{}
	rest := k.ended[:0]
	for _, e := range k.ended {
		switch {
		case count[e.via] > 1 && k.via[e.via] == 0:
			if at, ok := cut[e.from]; !ok || e.at.Before(at) {
				cut[e.from] = e.at
			}
			n[e.from]++
			k.addCut(e.from)
		case now.Sub(e.at) < 2*tellEvery:
			rest = append(rest, e)
		}
	}
	k.ended = rest
	k.mu.Unlock()
	for from, at := range cut {
		k.came(from, k.match.Cut(from, n[from], at, deathMargin, now)...)
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
	if !slices.Contains(k.greet, peer) {
		k.greet = append(k.greet, peer)
	}
	k.poke()
}

// PeerCut takes what a peer has seen cut, and within which time something may be missing.
func (k *Resender) PeerCut(s cluster.Subs, age time.Duration) {
	now := k.cfg.Now()
	for from, n := range s {
		k.came(from, k.match.Cut(from, n, now.Add(-age), 0, now)...)
	}
}

// PeerBack takes who of those that were cut off is back at a peer.
func (k *Resender) PeerBack(s cluster.Subs) {
	for from, n := range s {
		k.match.Back(from, n, k.cfg.Now())
	}
}

// PeerLost has those come back that listened at a node, or here by way of its
// load balancer.
func (k *Resender) PeerLost(peer string, heard time.Time) {
	now := k.cfg.Now()
	k.mu.Lock()
	report := k.peers[peer]
	there := report.subs
	delete(k.peers, peer)
	here := cluster.Subs{}
	if report.from.IsValid() {
		for _, l := range k.here {
			if l.via == report.from {
				here[l.from]++
			}
		}
		k.ended = slices.DeleteFunc(k.ended, func(e ending) bool { // with it, not by the minion
			if e.via != report.from {
				return false
			}
			here[e.from]++
			return true
		})
	}
	k.mu.Unlock()
	all := 0
	for _, s := range []cluster.Subs{there, here} {
		for from, n := range s {
			all += n
			k.came(from, k.match.Cut(from, n, heard, lossMargin, now)...)
		}
	}
	if len(here) > 0 {
		k.cfg.Peers.CutOff(here, now.Sub(heard)+lossMargin)
	}
	if all > 0 {
		k.cfg.Log.Info("minions of a node that was lost get what they miss when they are back", "peer", peer, "minions", all)
	}
}
