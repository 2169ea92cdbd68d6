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

// Times of resending. The margins can be large, because a minion ignores a job that it already has,
// and restarted minions are excluded.
const (
	// gatherCuts is how long lost subscriptions are collected before they are reported to the
	// peers.
	gatherCuts = 20 * time.Millisecond
	// lossMargin is subtracted from the time of the last message from a lost master or its load
	// balancer, because the last publications before that time may have been lost as well.
	lossMargin = 5 * time.Second
	// cutMargin is subtracted from the time at which a subscription ended, if the minion never
	// answered a PING, because the last publications before that time may have been lost. A load
	// balancer that closes a session drops the bytes that it has not forwarded. It waits a little
	// more than a second before it closes the sessions to a virtual address that has moved
	// (lbproxy, settleFor).
	cutMargin = 5 * time.Second
	// answerMargin is subtracted from the time of the last answered PING: a publication sent
	// shortly before that PING may not have reached the minion before the answer.
	answerMargin = time.Second
	// waitForStarts is how long an arrival waits for its resend while another master may not have
	// reported restarted minions to this master yet. waitStep is the interval of the checks.
	waitForStarts = 3 * time.Second
	waitStep      = 100 * time.Millisecond
	// givenWithin is the longest time in which an arrival gets the publications that it missed:
	// waitForStarts, and the time for resending to many arrivals at once (lbproxy, givenWithin).
	givenWithin = 15 * time.Second
	maxResends  = 1 << 16
)

// Peers are the other masters of the cluster.
type Peers interface {
	Subscribed(cluster.Subs)
	CutOff([]cluster.Cut)
	CutBefore(peer string, cuts []cluster.Cut)
	Bring(peer string, jobs []cluster.Job)
}

// PublishPort is the part of this master's publish port that a Resender uses.
type PublishPort interface {
	// Recent returns the publications since a time. Passed returns their number.
	Recent(since time.Time) []publish.Recent
	Passed(since time.Time) int
	// Resend sends a publication to one subscriber.
	Resend(ctx context.Context, subscriber uint64, r publish.Recent) error
	// Republish publishes replacement to all subscribers instead of r, and records r as a recent
	// publication.
	Republish(ctx context.Context, r, replacement publish.Recent) error
	// Narrow returns a publication with another target.
	Narrow(r publish.Recent, tgt any, typ string, ids []string) (publish.Recent, error)
	// Silent calls yield with each subscriber that has answered no PING since a time.
	Silent(since time.Time, yield func(zmtp.Peer) bool)
}

// ResenderConfig configures a Resender. All fields are required unless a comment says otherwise.
type ResenderConfig struct {
	Port PublishPort
	// Returned returns the minions that have returned for a job. It may be nil: no minion is
	// excluded for having returned.
	Returned func(ctx context.Context, jid string) (map[string]bool, error)
	// Started records which minions were restarted. It may be nil: no minion is excluded for having
	// been restarted.
	Started *Started
	// Resources knows the resources of minions. It may be nil: there are none.
	Resources Resources
	// Unheard reports whether there may be restarts of minions that Started has not recorded. It
	// may be nil: never.
	Unheard func() bool
	// SilentFor is how long a subscriber may leave PINGs unanswered before its subscription is
	// treated as lost.
	SilentFor time.Duration
	// Undelivered is called with the minions that may have missed a job and will not get it, and
	// with the reason. It must not block. It may be nil: nobody is informed.
	Undelivered func(load *value.Map, minions []string, why string)
	Peers       Peers
	Now         func() time.Time
	Log         *slog.Logger
}

// Resources knows the resources that minions manage.
type Resources interface {
	// Managed returns the ids of the resources of a minion.
	Managed(minion string) []string
}

// Resender sends publications again to minions whose subscription, at the time of publication, was
// lost or did not answer. It records which addresses have subscriptions at this master and, from
// the reports of peers, at the other masters, in case one of their nodes is lost. It is safe for
// concurrent use.
type Resender struct {
	cfg        ResenderConfig
	missed     *Missed
	resent     chan Arrival
	late       chan publish.Recent
	narrowings narrowings

	mu              sync.Mutex
	listeners       map[uint64]*listener
	listenersByAddr map[netip.Addr]int   // number of subscriptions by address
	owed            map[uint64]time.Time // time from which publications must be sent again, by connection
	reports         map[string]peerReport
	lostNodes       map[netip.Addr]absence // lost nodes, by the address of the node's load balancer
	changed         bool                   // listeners have changed since the last report to the peers
	untoldCuts      []cluster.Cut          // lost subscriptions not yet reported to the peers
	newPeers        []string               // peers that have just connected
	wake            chan struct{}
}

// listener is one subscription: the address of its minion, and the address of the load balancer
// through which the subscription came.
type listener struct {
	from, via netip.Addr
	silent    bool // the subscription is already treated as lost
}

// peerReport is the subscriptions that a peer has reported, and the address of the peer's load
// balancer.
type peerReport struct {
	from netip.Addr
	subs cluster.Subs
}

// absence is the period during which a node was lost.
type absence struct {
	peer        string
	heard, back time.Time // back is zero while the node is away
}

// NewResender returns a Resender.
func NewResender(cfg ResenderConfig) *Resender {
	if cfg.Undelivered == nil {
		cfg.Undelivered = func(*value.Map, []string, string) {}
	}

	return &Resender{
		cfg:             cfg,
		missed:          newMissed(),
		resent:          make(chan Arrival, maxResends),
		late:            make(chan publish.Recent, maxLateJobs),
		narrowings:      narrowings{byJID: map[string]narrowing{}, reported: map[string]int{}},
		listeners:       map[uint64]*listener{},
		listenersByAddr: map[netip.Addr]int{},
		owed:            map[uint64]time.Time{},
		reports:         map[string]peerReport{},
		lostNodes:       map[netip.Addr]absence{},
		wake:            make(chan struct{}, 1),
	}
}

// OnSubscribe records a subscription on the publish port; call it for each subscription. For a
// connection with zmq_filtering it records only the topic "broadcast", not the minion's own topic.
func (k *Resender) OnSubscribe(p zmtp.Peer, topic string) {
	if topic != "" && topic != "broadcast" {
		return
	}

	l := &listener{from: p.Remote.Addr().Unmap(), via: p.Via.Unmap()}
	now := k.cfg.Now()
	k.mu.Lock()
	_, again := k.listeners[p.ID]
	if !again {
		k.listeners[p.ID] = l
		k.listenersByAddr[l.from]++
		k.changed = true
	}

	away, absent := k.lostNodes[l.via]
	k.mu.Unlock()
	if again {
		return
	}

	a, missed := k.arrive(p, l.from, now)
	if heard := away.heard.Add(-lossMargin); absent && heard.Before(a.Since) {
		a.Since, missed = heard, true // the load balancer was cut off from this master as well
	}

	if missed {
		k.queueResend(a)
	}
}

// arrive returns the arrival of a new subscription, and reports whether the subscription may have
// missed publications.
func (k *Resender) arrive(p zmtp.Peer, from netip.Addr, now time.Time) (a Arrival, missed bool) {
	if p.Missing.IsZero() {
		return k.missed.Arrive(from, p.ID, now, now)
	}

	a = Arrival{ID: p.ID, At: now, Since: p.Missing.Add(-lossMargin)}
	if now.Sub(p.Began) < givenWithin {
		// The subscription was at another master before. That master may have stopped before it
		// resent the publications that the subscription had missed there.
		before, owed := k.missed.Arrive(from, p.ID, p.Began, now)
		if owed {
			a.Since = minTime(a.Since, before.Since)
		}
	}

	return a, true
}

// OnDisconnect adds a mark for a closed connection on the publish port; call it for each closed
// connection. It does not matter which side closed the connection: a restart of the minion is
// recognised at its sign-in.
func (k *Resender) OnDisconnect(p zmtp.Peer, _ error) {
	now := k.cfg.Now()
	k.mu.Lock()
	l, ok := k.listeners[p.ID]
	if !ok {
		k.mu.Unlock()
		return
	}

	crowd := k.listenersByAddr[l.from]
	delete(k.listeners, p.ID)
	k.listenersByAddr[l.from]--
	if k.listenersByAddr[l.from] <= 0 {
		delete(k.listenersByAddr, l.from)
	}

	k.changed = true
	owed, owes := k.owed[p.ID]
	delete(k.owed, p.ID)
	k.mu.Unlock()

	since := now.Add(-cutMargin)
	if !p.Answered.IsZero() {
		since = p.Answered.Add(-answerMargin)
	}

	if owes {
		since = minTime(since, owed) // the subscription ended before its resend was done
	}

	k.markEverywhere(l.from, Mark{Since: since, Until: now.Add(returnWithin), Crowd: crowd}, now)
}

// markEverywhere adds a mark at this master and at the peers.
func (k *Resender) markEverywhere(from netip.Addr, m Mark, now time.Time) {
	k.mu.Lock()
	if len(k.untoldCuts) < maxMarks {
		k.untoldCuts = append(k.untoldCuts, cluster.Cut{From: from, Since: m.Since, Until: m.Until, Crowd: m.Crowd})
	}
	k.wakeTeller()
	k.mu.Unlock()
	k.markHere(from, m, now)
}

// markHere adds a mark at this master, and schedules resends for the recent arrivals that it
// affects.
func (k *Resender) markHere(from netip.Addr, m Mark, now time.Time) {
	for _, a := range k.missed.Mark(from, m, now) {
		k.queueResend(a)
	}
}

func (k *Resender) wakeTeller() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// queueResend schedules a resend. Overflow policy: if the queue is full, the subscriber loses those
// jobs.
func (k *Resender) queueResend(a Arrival) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.listeners[a.ID] == nil {
		return // the subscription has ended
	}
	select {
	case k.resent <- a:
		k.owed[a.ID] = a.Since
	default:
	}
}

// clearOwed records that the resend to an arrival is done.
func (k *Resender) clearOwed(a Arrival) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.owed[a.ID].Equal(a.Since) {
		delete(k.owed, a.ID)
	}
}

// Run sends reports to the peers and resends publications to minions, until ctx ends.
func (k *Resender) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { k.runTeller(ctx) })
	var early []Arrival
	look := time.NewTimer(waitStep)
	defer look.Stop()

	for {
		select {
		case a := <-k.resent:
			if !k.mustWait(a) || len(early) >= maxResends {
				k.resend(ctx, a)
				continue
			}
			early = append(early, a)
			look.Reset(waitStep)
		case <-look.C:
			early = k.resendSome(ctx, early)
			if len(early) > 0 {
				look.Reset(waitStep)
			}
		case r := <-k.late:
			k.publishNarrowed(ctx, r)
		case <-ctx.Done():
			return
		}
	}
}

// mustWait reports whether the resend to an arrival must be delayed. Its minion may have been
// restarted at a master that was cut off and that reports the restart a moment later. (If the host
// of that master is down, no report comes, and the delay is useless.)
func (k *Resender) mustWait(a Arrival) bool {
	return k.isYoung(a) && k.startsUnheard()
}

func (k *Resender) isYoung(a Arrival) bool { return k.cfg.Now().Sub(a.At) < waitForStarts }

func (k *Resender) startsUnheard() bool { return k.cfg.Unheard != nil && k.cfg.Unheard() }

// resendSome sends publications again to those arrivals in early that need not wait, and returns
// the other arrivals.
func (k *Resender) resendSome(ctx context.Context, early []Arrival) []Arrival {
	unheard := k.startsUnheard()
	return slices.DeleteFunc(early, func(a Arrival) bool {
		if unheard && k.isYoung(a) {
			return false
		}
		k.resend(ctx, a)
		return true
	})
}

func (k *Resender) resend(ctx context.Context, a Arrival) {
	for _, r := range k.cfg.Port.Recent(a.Since) {
		if r.At.After(a.At) {
			break // the subscription received this publication and all later ones
		}

		narrowed, given := k.narrowed(ctx, r)
		if !given {
			continue
		}
		if k.cfg.Port.Resend(ctx, a.ID, narrowed) != nil {
			return // the subscription has ended: OnDisconnect has added a mark for the publications that must still be sent
		}

		k.cfg.Log.Debug("job sent again to a minion that was cut off", "jid", r.JID)
	}

	k.clearOwed(a)
}

func (k *Resender) runTeller(ctx context.Context) {
	t := time.NewTicker(500 * time.Millisecond)
	defer t.Stop()
	for {
		select {
		case <-k.wake:
			select { // more arrivals may follow immediately
			case <-time.After(gatherCuts):
			case <-ctx.Done():
				return
			}
		case <-t.C:
			k.checkSilent()
		case <-ctx.Done():
			return
		}

		k.tellPeers()
	}
}

// tellPeers sends the peers the lost subscriptions and the subscription counts that they do not
// know yet.
func (k *Resender) tellPeers() {
	k.mu.Lock()
	cut := k.untoldCuts
	subs := k.takeReport()
	greet := k.newPeers
	k.untoldCuts, k.newPeers = nil, nil
	k.mu.Unlock()

	if len(greet) > 0 {
		if out := k.pendingCuts(); len(out) > 0 {
			jobs := k.jobsMissedBy(out)
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

// pendingCuts returns the valid marks, in the form for a peer that has just connected.
func (k *Resender) pendingCuts() (out []cluster.Cut) {
	for from, list := range k.missed.Pending(k.cfg.Now()) {
		for _, m := range list {
			out = append(out, cluster.Cut{From: from, Since: m.Since, Until: m.Until, Crowd: m.Crowd})
		}
	}
	return out
}

// jobsMissedBy returns the jobs that the given lost subscriptions may have missed.
func (k *Resender) jobsMissedBy(cuts []cluster.Cut) (jobs []cluster.Job) {
	now := k.cfg.Now()
	first := now
	for _, c := range cuts {
		first = minTime(first, c.Since)
	}
	for _, r := range k.cfg.Port.Recent(first) {
		jobs = append(jobs, cluster.Job{Load: r.Load, Age: now.Sub(r.Born)})
	}
	return jobs
}

// takeReport returns the number of subscriptions by address, or nil if nothing has changed since
// the last report. The caller holds mu.
func (k *Resender) takeReport() cluster.Subs {
	if !k.changed {
		return nil
	}
	k.changed = false
	s := cluster.Subs{}
	for from, n := range k.listenersByAddr {
		s[from] = n
	}
	return s
}

// checkSilent adds marks for subscriptions that have stopped answering, because their load balancer
// hangs or their minion is unreachable. The connection of such a subscription remains open, so
// OnDisconnect is not called.
func (k *Resender) checkSilent() {
	now := k.cfg.Now()
	k.missed.Prune(now)
	k.narrowings.dropExpired(now)
	k.mu.Lock()
	for via, a := range k.lostNodes {
		// For some time after a node has recovered, its load balancer may forward sessions that
		// missed publications while the node was away.
		if !a.back.IsZero() && now.Sub(a.back) > 15*time.Second {
			delete(k.lostNodes, via)
		}
	}
	k.mu.Unlock()

	silent := map[uint64]time.Time{}
	k.cfg.Port.Silent(now.Add(-k.cfg.SilentFor), func(p zmtp.Peer) bool {
		silent[p.ID] = p.Answered
		return true
	})

	marks := map[netip.Addr]Mark{}
	k.mu.Lock()
	for id, l := range k.listeners {
		answered, is := silent[id]
		if is && !l.silent {
			m := Mark{Since: answered.Add(-answerMargin), Until: now.Add(returnWithin), Crowd: k.listenersByAddr[l.from]}
			if old, ok := marks[l.from]; ok && old.Since.Before(m.Since) {
				m.Since = old.Since
			}
			marks[l.from] = m
		}

		l.silent = is
	}
	k.mu.Unlock()

	for from, m := range marks {
		k.markEverywhere(from, m, now)
	}
}

// PeerSubscribed stores a peer's report of its subscriptions.
func (k *Resender) PeerSubscribed(peer string, from netip.Addr, s cluster.Subs) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.reports[peer] = peerReport{from.Unmap(), s}
}

// HeldBy returns how many subscriptions from an address a peer has, by its last report.
func (k *Resender) HeldBy(peer string, from netip.Addr) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.reports[peer].subs[from]
}

// PeerConnected schedules a message with the valid marks to a new peer, because minions that lost
// their subscription elsewhere may connect to that peer.
func (k *Resender) PeerConnected(peer string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	found := false
	for _, p := range k.newPeers {
		found = found || p == peer
	}

	if !found {
		k.newPeers = append(k.newPeers, peer)
	}

	for via, a := range k.lostNodes {
		if a.peer == peer && a.back.IsZero() {
			a.back = k.cfg.Now()
			k.lostNodes[via] = a
		}
	}

	k.wakeTeller()
}

// PeerCutOff adds the marks that a peer has sent.
func (k *Resender) PeerCutOff(cuts []cluster.Cut) {
	now := k.cfg.Now()
	for _, c := range cuts {
		k.markHere(c.From.Unmap(), Mark{Since: c.Since, Until: c.Until, Crowd: c.Crowd}, now)
	}
}

// PeerLost adds marks for the subscriptions at a lost node, and for the subscriptions at this
// master that came through the load balancer of that node.
func (k *Resender) PeerLost(peer string, heard time.Time) {
	now := k.cfg.Now()
	k.mu.Lock()
	report := k.reports[peer]
	delete(k.reports, peer)
	here := cluster.Subs{}
	if report.from.IsValid() {
		k.lostNodes[report.from] = absence{peer: peer, heard: heard}
		for _, l := range k.listeners {
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
		k.markHere(from, mark, now) // add the mark only here, because each master adds it itself
		all += n
	}

	for from, n := range here {
		mark.Crowd = n
		k.markEverywhere(from, mark, now)
		all += n
	}

	if all > 0 {
		k.cfg.Log.Info("minions of a node that was lost get what they miss when they are back", "peer", peer,
			"minions", all)
	}
}
