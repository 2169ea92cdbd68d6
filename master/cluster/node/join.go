package node

import (
	"crypto/subtle"
	"maps"
	"net/netip"
	"time"

	"saltern/master/cluster/wire"
)

// attempt is one attempt to join the cluster through one master.
type attempt struct {
	target   string // master to which the discover was sent
	askedAt  time.Time
	peer     Peer   // the target, once it has proven that it belongs to the cluster
	own      bool   // the target is a Saltern master
	token    string // token of this master's join
	pub      string // public key of the cluster, from the target's proof
	admitted bool   // the target is a Salt master and has admitted us
}

// candidate is a master that has asked to join.
type candidate struct {
	pub, askedToken string    // the candidate's key, and the token of the candidate's discover
	token           string    // this master's token, which the candidate's join must contain
	own             bool      // the candidate is a Saltern master
	at              time.Time // time of the candidate's last discover
	failures        int       // number of wrong secrets that the candidate has sent
}

func (n *Node) startJoining(now time.Time) {
	n.phase = Joining
	n.nextJoin = now
	n.addNote("asking to join the cluster", n.cfg.ID, "")
}

// targets returns the masters that this master asks for admission.
func (n *Node) targets() []string {
	seen := map[string]bool{n.cfg.ID: true}
	var out []string
	for _, p := range n.cfg.Peers {
		if !seen[p.ID] {
			seen[p.ID] = true
			out = append(out, p.ID)
		}
	}

	for _, m := range n.rec.Members {
		if !seen[m.ID] {
			seen[m.ID] = true
			out = append(out, m.ID)
		}
	}

	return out
}

// askToJoin sends a discover to all targets, and repeats it when the next attempt is due.
func (n *Node) askToJoin(now time.Time) {
	if now.Before(n.nextJoin) {
		return
	}

	n.nextJoin = now.Add(n.joinWait + n.cfg.Random.Jitter(n.joinWait/4))
	n.joinWait = min(n.joinWait*5/4, joinSlow)

	// Accept late answers to the last requests, but not to older requests.
	maps.DeleteFunc(n.attempts,
		func(_ string, a *attempt) bool { return now.Sub(a.askedAt) > 2*joinSlow && !a.admitted })
	for _, id := range n.targets() {
		token := n.cfg.Random.Token()
		n.attempts[token] = &attempt{target: id, askedAt: now}
		n.addOutput(Send{
			To:  id,
			Pub: n.KeyOf(id),
			Msg: wire.Discover{PeerID: n.cfg.ID, Pub: n.cfg.Pub, Token: token, Own: true},
		})
	}
}

// onDiscoverReply verifies the proof in a peer's reply and sends the peer a join. It ignores
// replies that do not answer a request of this master, and all replies when this master is not
// joining.
func (n *Node) onDiscoverReply(now time.Time, d wire.DiscoverReply) {
	a := n.attempts[d.ReturnToken]
	if n.phase != Joining || a == nil || a.peer.ID != "" || d.PeerID == n.cfg.ID {
		return
	}

	switch {
	case n.cfg.Fingerprint != nil && !n.cfg.Fingerprint(d.ClusterPub):
		n.addWarning("refusing a peer", d.PeerID, "its cluster key does not have the pinned fingerprint")
		return
	case n.cfg.ClusterPub != "" && !samePEM(n.cfg.ClusterPub, d.ClusterPub):
		n.addWarning("refusing a peer", d.PeerID, "its cluster key is not the one in cluster_pki_dir")
		return
	case n.cfg.ClusterPub == "" && n.cfg.Fingerprint == nil:
		n.addWarning("refusing a peer", d.PeerID,
			"set cluster_pub_fingerprint, or share cluster_pki_dir, so that the cluster can prove itself")
		return
	}

	if known := n.KeyOf(d.PeerID); known != "" && !samePEM(known, d.Pub) {
		n.addWarning("refusing a peer", d.PeerID, "it has another key than the one in cluster_pki_dir")
		return
	}
	if !n.lastJoin.IsZero() && now.Sub(n.lastJoin) < joinEvery/2 {
		return // this master joins through one peer at a time; another reply follows the next request
	}

	secret := n.secretFor(d.Own)
	if secret == "" && !n.cfg.AllowEmptySecret {
		n.addOutput(Load{}) // the record has the secret; another reply follows the next request
		return
	}

	n.lastJoin = now
	a.peer = Peer{ID: d.PeerID, Pub: d.Pub}
	a.own = d.Own
	a.token = n.cfg.Random.Token()
	a.pub = d.ClusterPub
	n.addOutput(Send{To: d.PeerID, Pub: d.Pub, Msg: wire.Join{
		ReturnToken: d.Token,
		Token:       a.token,
		PeerID:      n.cfg.ID,
		Secret:      secret,
		SessionKey:  n.cfg.SessionKey,
		Pub:         n.cfg.Pub,
		Own:         true,
	}})
}

// JoinToken returns the token that the join-reply of a peer must contain, or "" if this master has
// sent that peer no join.
func (n *Node) JoinToken(peer string) string {
	var newest *attempt
	for _, a := range n.attempts {
		if a.peer.ID == peer && a.token != "" && (newest == nil || a.askedAt.After(newest.askedAt)) {
			newest = a
		}
	}
	if newest == nil {
		return ""
	}
	return newest.token
}

func (n *Node) onJoinReply(now time.Time, j wire.JoinReply) {
	if n.phase != Joining {
		return
	}

	for _, a := range n.attempts {
		if a.peer.ID != j.PeerID || a.token == "" ||
			subtle.ConstantTimeCompare([]byte(a.token), []byte(j.ReturnToken)) != 1 {
			continue
		}
		if !samePEM(a.pub, j.ClusterPub) {
			n.addWarning("refusing the answer of a peer", j.PeerID, "another cluster key than before")
			return
		}

		n.nextLoad = now
		n.addNote("a peer has let this master in", j.PeerID, "")
		if a.own {
			n.addOutput(Load{}) // the record now contains this master
			return
		}

		a.admitted, n.joinedFrom = true, true
		n.cfg.Key = j.ClusterKey.String()
		n.addOutput(Install{Reply: j})
		n.cfg.Peers = append(n.cfg.Peers, j.Peers...)

		if n.rec.Version == 0 {
			n.foundCluster(now)
			return
		}

		n.admitMember(now, Member{ID: n.cfg.ID, Pub: n.cfg.Pub, Own: true}, nil, nil)
		return
	}
}

func (n *Node) onRefused(r Refused) {
	if n.phase != Joining {
		return
	}

	for token, a := range n.attempts {
		if subtle.ConstantTimeCompare([]byte(token), []byte(r.ReturnToken)) == 1 ||
			a.token != "" && subtle.ConstantTimeCompare([]byte(a.token), []byte(r.ReturnToken)) == 1 {
			reason := r.Reason
			if reason == reasonWrongSecret && n.cfg.Secret == "" {
				reason = "cluster_secret is not set on this master, but at the peer it is"
			}
			if n.refusal != reason {
				n.refusal = reason
				n.addWarning("a peer does not let this master in", a.target, reason)
			}
			n.joinWait = joinSlow
			return
		}
	}
}

// expire drops the candidates that have not sent a join in time, and stops counting wrong secrets
// after a minute.
func (n *Node) expire(now time.Time) {
	maps.DeleteFunc(n.candidates, func(_ string, c *candidate) bool { return now.Sub(c.at) > candidateFor })
	for len(n.failures) > 0 && now.Sub(n.failures[0]) > time.Minute {
		n.failures = n.failures[1:]
	}
}

// reachable reports whether this master may dial a master that asks to join: one that the record or
// the configuration names, or one whose name is the address from which it asks. Without this check
// anybody could make this master connect to any address.
func (n *Node) reachable(from Source, id string) bool {
	if _, ok := n.rec.Member(id); ok {
		return true
	}
	for _, p := range n.cfg.Peers {
		if p.ID == id {
			return true
		}
	}
	a, err1 := netip.ParseAddr(from.Addr)
	b, err2 := netip.ParseAddr(id)
	return err1 == nil && err2 == nil && a.Unmap() == b.Unmap()
}

// onDiscover answers a discover with the proof that this master belongs to the cluster.
func (n *Node) onDiscover(now time.Time, from Source, d wire.Discover) {
	if n.phase != Active || d.PeerID == n.cfg.ID {
		return
	}
	if !n.reachable(from, d.PeerID) {
		n.addWarning("ignoring a master that asks to join", d.PeerID,
			"its id is not the address it comes from, nor in cluster_peers")
		return
	}

	refuse := func(reason string) {
		n.addWarning("not letting a master in", d.PeerID, reason)
		if d.Own {
			n.addOutput(Send{To: d.PeerID, Pub: d.Pub, Msg: Refused{d.Token, reason}})
		}
	}

	if n.rec.removed(d.Pub) {
		refuse("this key was removed from the cluster")
		return
	}

	if m, ok := n.rec.Member(d.PeerID); ok && !samePEM(m.Pub, d.Pub) {
		refuse("the id belongs to a member with another key; remove that member first")
		return
	}

	c := n.candidates[d.PeerID]

	// Salt sends each discover several times. Give equal discovers the same token, so that an
	// earlier reply remains valid.
	if c == nil || c.askedToken != d.Token || !samePEM(c.pub, d.Pub) {
		if c == nil && len(n.candidates) >= maxCandidates {
			n.dropOldest()
		}

		c = &candidate{
			pub:        d.Pub,
			askedToken: d.Token,
			token:      n.cfg.Random.Token(),
			own:        d.Own,
			at:         now,
		}

		n.candidates[d.PeerID] = c
	}

	n.addOutput(Send{To: d.PeerID, Pub: d.Pub, Msg: wire.DiscoverReply{
		ReturnToken: d.Token,
		Token:       c.token,
		PeerID:      n.cfg.ID,
		Pub:         n.cfg.Pub,
		ClusterPub:  n.cfg.ClusterPub,
		Own:         true,
	}})
}

func (n *Node) dropOldest() {
	oldest := ""
	for id, c := range n.candidates {
		if oldest == "" || c.at.Before(n.candidates[oldest].at) || c.at.Equal(n.candidates[oldest].at) && id < oldest {
			oldest = id
		}
	}
	delete(n.candidates, oldest)
}

// onJoin admits a candidate that presents the secret, or refuses it.
func (n *Node) onJoin(now time.Time, j wire.Join) {
	if n.phase != Active {
		return
	}

	c := n.candidates[j.PeerID]
	if c == nil || now.Sub(c.at) > candidateFor || !samePEM(c.pub, j.Pub) ||
		subtle.ConstantTimeCompare([]byte(c.token), []byte(j.ReturnToken)) != 1 {
		return // the join does not answer our last reply; the candidate will ask again
	}

	refuse := func(reason string) {
		n.addWarning("not letting a master in", j.PeerID, reason)
		if c.own {
			n.addOutput(Send{To: j.PeerID, Pub: j.Pub, Msg: Refused{j.Token, reason}})
		}
	}

	n.expire(now)
	if len(n.failures) >= maxFailures {
		refuse("too many wrong secrets; try again in a minute")
		return
	}

	want := n.secret(&n.rec)
	if want == "" && !n.cfg.AllowEmptySecret {
		refuse("cluster_secret is not set here")
		return
	}

	if !n.acceptsSecret(&n.rec, j.Secret) {
		n.failures = append(n.failures, now)
		c.failures++
		if c.failures >= perCandidate {
			delete(n.candidates, j.PeerID)
		}
		if n.cfg.Secret == "" && !n.cfg.AllowEmptySecret && n.rec.Secret == "" {
			refuse(reasonWrongSecret + "; it is not set here, where a master proves itself by reading cluster_pki_dir")
			return
		}
		refuse(reasonWrongSecret)
		return
	}

	still := func(r *Record) bool { return n.acceptsSecret(r, j.Secret) }
	n.admitMember(now, Member{ID: j.PeerID, Pub: c.pub, Own: c.own}, still, func() {
		var peers []Peer
		for _, m := range n.rec.Members {
			if m.ID != j.PeerID && m.ID != n.cfg.ID {
				peers = append(peers, Peer{ID: m.ID, Pub: m.Pub})
			}
		}

		n.addOutput(Send{To: j.PeerID, Pub: c.pub, Msg: wire.JoinReply{
			ReturnToken: j.Token,
			PeerID:      n.cfg.ID,
			SessionKey:  n.cfg.SessionKey,
			ClusterPub:  n.cfg.ClusterPub,
			Peers:       peers,
		}})

		for _, m := range n.rec.Members {
			if !m.Own && m.ID != j.PeerID {
				n.addOutput(Send{
					To:  m.ID,
					Pub: m.Pub,
					Msg: wire.JoinNotify{PeerID: n.cfg.ID, JoinPeerID: j.PeerID, Pub: c.pub, SessionKey: j.SessionKey},
				})
			}
		}

		if !c.own {
			n.onSessionKey(now, j.PeerID, SessionKey{j.SessionKey})
		}
	})
}

// admitMember queues a change that adds a master to the record, and calls admitted after the
// change. The record may change before that, so permit, if not nil, must accept each record to
// which the change is applied.
func (n *Node) admitMember(now time.Time, m Member, permit func(*Record) bool, admitted func()) {
	name := "admit " + m.ID
	if n.wanted(name) {
		return
	}

	n.queueIntent(now, &intent{name: name, apply: func(r *Record) (bool, error) {
		if r.removed(m.Pub) || permit != nil && !permit(r) {
			return false, ErrNotMember
		}

		old, ok := r.Member(m.ID)
		if ok && samePEM(old.Pub, m.Pub) && old.Own == m.Own {
			return false, nil
		}
		if ok && !samePEM(old.Pub, m.Pub) {
			return false, ErrNotMember
		}
		if !ok && len(r.Members) >= maxMembers {
			return false, errBusy
		}

		r.putMember(m)
		return true, nil
	}, done: func(_ time.Time, err error) {
		if err == nil && admitted != nil {
			admitted()
		}
		if err != nil {
			n.addWarning("a master could not be let in", m.ID, err.Error())
		}
	}})
}

// onJoinNotify handles a message that the member j.PeerID has admitted another master.
func (n *Node) onJoinNotify(now time.Time, j wire.JoinNotify) {
	if n.phase != Active || j.JoinPeerID == n.cfg.ID {
		return
	}

	if m, ok := n.rec.Member(j.JoinPeerID); ok {
		if !samePEM(m.Pub, j.Pub) {
			n.addWarning("a peer has let a master in that is known with another key", j.JoinPeerID, "")
			return
		}

		if p := n.peers[m.ID]; !m.Own || j.PeerID != n.cfg.ID || p != nil && p.linked {
			return
		}

		n.addNote("a Salt master has taken the place of ours", j.JoinPeerID, "")
	}

	if n.rec.removed(j.Pub) {
		n.addWarning("a peer has let a master in that was removed", j.JoinPeerID, "")
		return
	}

	n.admitMember(now, Member{ID: j.JoinPeerID, Pub: j.Pub}, nil, nil)
}

// onSessionKey stores a Salt master's session key. It answers a new session key once with this
// master's own.
func (n *Node) onSessionKey(_ time.Time, from string, k SessionKey) {
	p := n.stateOfPeer(from)
	if text := k.Key.String(); text != p.session {
		p.session, p.announce = text, true
		n.addOutput(PeerKey{Peer: from, Key: k.Key})
	}
}

// announceDue sends this master's session key to the Salt masters that need it: once for each
// reason, and not twice within announceGap. It does not send a key again after sending has failed.
func (n *Node) announceDue(now time.Time) {
	for _, m := range n.rec.Members {
		p := n.peers[m.ID]
		if m.Own || m.ID == n.cfg.ID || p == nil || !p.announce || !p.linked || now.Sub(p.announced) < announceGap {
			continue
		}
		p.announce, p.announced = false, now
		n.addOutput(Send{To: m.ID, Pub: m.Pub, Msg: SessionKey{n.cfg.SessionKey}})
	}
}
