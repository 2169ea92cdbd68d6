package node

import (
	"maps"
	"slices"
	"time"

	"saltern/master/cluster/wire"
)

// Node is the cluster logic of one master. Only one goroutine may use it.
type Node struct {
	cfg   Config
	phase Phase
	rec   Record
	out   []Output

	nextLoad time.Time
	nextBeat time.Time

	// fields used while joining
	nextJoin   time.Time
	joinWait   time.Duration
	attempts   map[string]*attempt // by token of our discover
	lastJoin   time.Time
	refusal    string
	joinedFrom bool // a Salt master has admitted us before there was a record

	// candidates, and the times of the last wrong secrets
	candidates map[string]*candidate
	failures   []time.Time

	// changes of the record that wait to be stored
	queue        []*intent
	inflight     *inflight
	opID         uint64
	retryAt      time.Time
	lowerVersion *uint64 // version of the stored record if the folder has lost newer records, otherwise nil

	// the lease of the owner
	leaseSeen  time.Time // when this master last saw the lease change
	leaseTries []leaseTry
	ownUntil   time.Time
	renewAt    time.Time
	leaving    bool // this master has given the lease back, or does so, and never takes it again

	peers map[string]*peerState
}

// peerState holds this master's information about one peer.
type peerState struct {
	linked    bool
	heard     time.Time
	inc       string
	version   uint64
	keyGen    uint64
	wanted    time.Time // when this master last asked the peer for the record
	session   string    // text of the Salt master's session key; "" while unknown
	announce  bool      // our session key must be sent to the peer
	announced time.Time
}

// New returns a Node. The first call of Tick starts it.
func New(cfg Config) *Node {
	return &Node{
		cfg:        cfg,
		attempts:   map[string]*attempt{},
		candidates: map[string]*candidate{},
		peers:      map[string]*peerState{},
		joinWait:   joinEvery,
	}
}

// Step handles an input and returns the outputs in order.
func (n *Node) Step(now time.Time, input Input) []Output {
	switch in := input.(type) {
	case Message:
		n.message(now, in.From, in.Msg)
	case Loaded:
		n.loaded(now, in)
	case Stored:
		n.stored(now, in)
	case Linked:
		p := n.stateOfPeer(in.Peer)
		p.linked, p.announce = true, true
		n.sendBeat(in.Peer)
	case Unlinked:
		n.stateOfPeer(in.Peer).linked = false
	case KeyFile:
		n.keyFile(now, in.Key)
	case Command:
		n.command(now, in)
	}

	n.startNextIntent(now)
	return n.takeOutputs()
}

// Tick performs the actions that are due at now and returns the outputs. The caller calls Tick a
// few times a second.
func (n *Node) Tick(now time.Time) []Output {
	if !now.Before(n.nextLoad) {
		n.nextLoad = now.Add(5 * time.Second)
		if n.phase != Active {
			n.nextLoad = now.Add(2 * time.Second)
		}
		n.addOutput(Load{})
	}

	switch n.phase {
	case Joining:
		n.askToJoin(now)
	case Active:
		n.expire(now)
		if !now.Before(n.nextBeat) {
			n.nextBeat = now.Add(beatEvery)
			for _, m := range n.rec.Members {
				n.sendBeat(m.ID)
			}
		}

		n.announceDue(now)
		if me, ok := n.rec.Member(n.cfg.ID); ok && !me.Own {
			// A Salt master had this name and key before; this Saltern master replaces its entry.
			n.admitMember(now, Member{ID: n.cfg.ID, Pub: n.cfg.Pub, Own: true}, nil, nil)
		}

		n.renewLease(now)
		if n.holdsLease(now) && n.cfg.PublishSession > 0 &&
			now.Sub(time.Unix(n.rec.KeyMade, 0)) >= n.cfg.PublishSession {
			n.rotate(now, 0)
		}
	}

	n.startNextIntent(now)
	return n.takeOutputs()
}

func (n *Node) addOutput(o Output) { n.out = append(n.out, o) }

func (n *Node) takeOutputs() []Output {
	out := n.out
	n.out = nil
	return out
}

func (n *Node) addNote(text, peer, reason string) {
	n.addOutput(Note{Text: text, Peer: peer, Reason: reason})
}
func (n *Node) addWarning(text, peer, reason string) {
	n.addOutput(Note{Text: text, Peer: peer, Reason: reason, Warn: true})
}

// maxPeers bounds the masters in Node.peers.
const maxPeers = 4 * maxMembers

func (n *Node) stateOfPeer(id string) *peerState {
	p := n.peers[id]
	if p == nil {
		if len(n.peers) >= maxPeers {
			n.forgetPeers()
		}
		p = &peerState{}
		n.peers[id] = p
	}
	return p
}

func (n *Node) forgetPeers() {
	maps.DeleteFunc(n.peers, func(id string, _ *peerState) bool {
		_, ok := n.rec.Member(id)
		return !ok
	})
}

// sendBeat sends a Saltern master a beat with the versions that this master knows.
func (n *Node) sendBeat(id string) {
	m, ok := n.rec.Member(id)
	if ok && m.Own && id != n.cfg.ID && n.phase == Active {
		n.addOutput(Send{To: id, Pub: m.Pub, Msg: Beat{Inc: n.cfg.Inc, Version: n.rec.Version, KeyGen: n.rec.KeyGen}})
	}
}

func (n *Node) message(now time.Time, from Source, msg any) {
	switch m := msg.(type) {
	case wire.Discover:
		n.onDiscover(now, from, m)
		return
	case wire.DiscoverReply:
		n.onDiscoverReply(now, m)
		return
	case wire.Join:
		n.onJoin(now, m)
		return
	case wire.JoinReply:
		n.onJoinReply(now, m)
		return
	case Refused:
		n.onRefused(m)
		return
	}

	// Accept all other messages only from members.
	member, ok := n.rec.Member(from.ID)
	if from.ID == "" || !ok || n.phase == Removed {
		return
	}

	p := n.stateOfPeer(from.ID)
	p.heard = now
	switch m := msg.(type) {
	case wire.JoinNotify:
		n.onJoinNotify(now, m)
	case SessionKey:
		n.onSessionKey(now, from.ID, m)
	case Beat:
		if !member.Own {
			return
		}

		p.inc = m.Inc
		p.version = m.Version
		p.keyGen = m.KeyGen
		if m.Version > n.rec.Version && now.Sub(p.wanted) >= beatEvery {
			p.wanted = now
			n.addOutput(Send{To: from.ID, Pub: member.Pub, Msg: Want{}})
		}
	case Want:
		if n.phase == Active {
			n.addOutput(Send{To: from.ID, Pub: member.Pub, Msg: State{n.rec.clone()}})
		}
	case State:
		if member.Own && m.Record.Check() == nil {
			n.adoptRecord(now, m.Record)
		}
	case Gone:
		if n.phase == Active {
			n.remove(now, "a peer says that this master was removed from the cluster")
		}
	}
}

func (n *Node) remove(_ time.Time, why string) {
	n.phase, n.ownUntil = Removed, time.Time{}
	n.failIntents(ErrInactive)
	n.addWarning("this master was removed from the cluster and serves no more", n.cfg.ID, why)
	n.addOutput(Apply{Record: n.rec.clone(), Phase: n.phase})
}

// loaded handles the record that the caller has read from the shared folder.
func (n *Node) loaded(now time.Time, input Loaded) {
	if input.Err != nil {
		return
	}
	if input.Exists {
		if err := input.Record.Check(); err != nil {
			n.addWarning("the shared record of the cluster cannot be used", "", err.Error())
			return
		}
		n.adoptRecord(now, input.Record)
		return
	}

	if n.phase == Starting && n.rec.Version == 0 {
		if n.cfg.Found || n.joinedFrom {
			n.foundCluster(now)
			return
		}
		n.startJoining(now)
	}

	if n.phase == Joining && n.joinedFrom {
		n.foundCluster(now)
	}
}

// adoptRecord replaces the record by a newer one, and sends the messages that the differences
// require.
func (n *Node) adoptRecord(now time.Time, r Record) {
	if r.Version <= n.rec.Version {
		if n.phase == Starting && r.Version == n.rec.Version {
			n.locateSelf(now)
		}
		return
	}

	old := n.rec
	n.rec, n.lowerVersion = r.clone(), nil
	if r.Owner != old.Owner {
		n.leaseSeen = now
		n.seeLease()
	}

	n.locateSelf(now)
	for _, m := range r.Members {
		if was, ok := old.Member(m.ID); (!ok || was.Pub != m.Pub) && m.ID != n.cfg.ID {
			p := n.stateOfPeer(m.ID)
			p.announce = true
			if old.Version > 0 {
				n.addNote("a master has joined the cluster", m.ID, "")
			}
		}
	}

	for _, m := range old.Members {
		if _, ok := r.Member(m.ID); !ok && m.ID != n.cfg.ID {
			n.addNote("a master was removed from the cluster", m.ID, "")
			if n.phase == Active && m.Own {
				n.addOutput(Send{To: m.ID, Pub: m.Pub, Msg: Gone{}})
			}
			delete(n.peers, m.ID)
		}
	}

	if old.Version > 0 && r.KeyGen != old.KeyGen {
		n.addNote("the cluster key was rotated", "", "")
	}

	n.addOutput(Apply{Record: n.rec.clone(), Phase: n.phase})
}

// locateSelf determines from the record whether this master is joining, active or removed.
func (n *Node) locateSelf(now time.Time) {
	me, ok := n.rec.Member(n.cfg.ID)
	switch {
	case ok && samePEM(me.Pub, n.cfg.Pub):
		if n.phase != Active {
			n.phase, n.refusal = Active, ""
			n.attempts = map[string]*attempt{}
			n.nextBeat = now
			n.leaseSeen = now
			n.addNote("this master belongs to the cluster", n.cfg.ID, "")
		}
	case n.rec.removed(n.cfg.Pub):
		if n.phase != Removed {
			n.phase, n.ownUntil = Removed, time.Time{}
			n.failIntents(ErrInactive)
			n.addWarning("this master was removed from the cluster and serves no more", n.cfg.ID, "")
		}
	case n.phase == Active:
		n.phase, n.ownUntil = Removed, time.Time{}
		n.failIntents(ErrInactive)
		n.addWarning("this master is no member of the cluster any more", n.cfg.ID, "")
	case n.phase == Starting:
		n.startJoining(now)
	}
}

// Phase returns the phase of this master.
func (n *Node) Phase() Phase { return n.phase }

// Record returns the newest known record. The caller must not change it.
func (n *Node) Record() Record { return n.rec }

// KeyOf returns the PEM that verifies messages of a master: of a member, or of a peer that this
// master has asked to join. It returns "" for any other master.
func (n *Node) KeyOf(id string) string {
	if m, ok := n.rec.Member(id); ok {
		return m.Pub
	}

	for _, a := range n.attempts {
		if a.peer.ID == id {
			return a.peer.Pub
		}
	}

	for _, p := range n.cfg.Peers {
		if p.ID == id {
			return p.Pub
		}
	}

	return ""
}

// Tombstoned reports whether a key belongs to a removed master.
func (n *Node) Tombstoned(pub string) bool { return n.rec.removed(pub) }

// Own reports whether this master owns the duties that only one master may do, and returns the
// fencing token. An earlier owner had a lower token.
func (n *Node) Own(now time.Time) (token uint64, ok bool) {
	if !n.holdsLease(now) {
		return 0, false
	}
	return n.rec.Owner.Token, true
}

// Status is the state of a Node for administrators.
type Status struct {
	Phase   Phase
	Version uint64
	KeyGen  uint64
	SeedGen uint64
	Owner   string
	Token   uint64
	Owns    bool
	Refusal string // why a peer has not admitted this master; "" for none
	Changes int    // number of changes of the record that are queued or in progress
	Members []MemberStatus
}

// MemberStatus is one member as this master sees it.
type MemberStatus struct {
	ID      string
	Own     bool
	Self    bool
	Linked  bool // this master has a connection to the member
	Alive   bool
	Heard   time.Time
	Version uint64 // version of the newest record that the member knows
	KeyGen  uint64
	Inc     string // incarnation of the member; "" while unknown
}

// Status returns the state of the node for administrators.
func (n *Node) Status(now time.Time) Status {
	s := Status{
		Phase:   n.phase,
		Version: n.rec.Version,
		KeyGen:  n.rec.KeyGen,
		SeedGen: n.rec.SeedGen,
		Owner:   n.rec.Owner.ID,
		Token:   n.rec.Owner.Token,
		Owns:    n.holdsLease(now),
		Refusal: n.refusal,
		Changes: len(n.queue),
	}

	if n.inflight != nil {
		s.Changes++
	}

	for _, m := range n.rec.Members {
		ms := MemberStatus{ID: m.ID, Own: m.Own, Self: m.ID == n.cfg.ID}
		if ms.Self {
			ms.Linked = true
			ms.Alive = true
			ms.Heard = now
			ms.Version = n.rec.Version
			ms.KeyGen = n.rec.KeyGen
		} else if p := n.peers[m.ID]; p != nil {
			ms.Linked = p.linked
			ms.Alive = n.isAlive(now, m)
			ms.Heard = p.heard
			ms.Version = p.version
			ms.KeyGen = p.keyGen
			ms.Inc = p.inc
		}

		s.Members = append(s.Members, ms)
	}

	return s
}

// isAlive reports whether this master has received something from a member recently. Salt's masters
// send no beats, so for them only the connection counts.
func (n *Node) isAlive(now time.Time, m Member) bool {
	if m.ID == n.cfg.ID {
		return true
	}
	p := n.peers[m.ID]
	if p == nil {
		return false
	}
	if !m.Own {
		return p.linked
	}
	return !p.heard.IsZero() && now.Sub(p.heard) < aliveFor
}

// rankAmongAlive returns the index of this master in the list, sorted by name, of the Saltern
// masters that are alive. After the lease was given back, it leaves out the master that did so, and
// those whose connection has ended: they may have left as well.
func (n *Node) rankAmongAlive(now time.Time) int {
	left := n.rec.Owner.Left
	var ids []string
	for _, m := range n.rec.Members {
		gone := left != "" && m.ID != n.cfg.ID && (m.ID == left || !n.stateOfPeer(m.ID).linked)
		if m.Own && !gone && n.isAlive(now, m) {
			ids = append(ids, m.ID)
		}
	}
	return max(slices.Index(ids, n.cfg.ID), 0)
}
