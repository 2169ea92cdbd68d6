package glusterctl

import (
	"saltern/glusterctl/cli"
	"slices"
	"strings"
)

// planPool plans the steps that bring the members together. It returns false if the other steps can
// be planned only after the pool has changed.
func (p *planner) planPool() bool {
	if p.observed.PoolError != "" {
		p.addStep(Step{
			ID:   "wait-pool",
			Kind: WaitPool,
			What: "wait until the list of pool members is settled",
			Why:  p.observed.PoolError,
		})

		p.plan.Incomplete = true
		return false
	}

	// Until glusterd notices that a machine was lost without closing its connections, every command
	// that needs the lock of the pool is delayed.
	for _, peer := range p.observed.Pool {
		if !peer.Self && peer.Connected && p.unreachable(peer) {
			p.addStep(Step{
				ID:      "wait-pool " + peer.Hostname,
				Kind:    WaitPool,
				What:    "wait until glusterd has noticed that " + peer.Hostname + " is away",
				Why:     "its port does not answer although glusterd counts it as connected; a change would hang",
				Targets: []string{peer.Hostname},
			})

			p.plan.Incomplete = true
		}
	}

	if p.plan.Incomplete {
		return false
	}

	if n := len(p.observed.Disowned); n > 0 && !slices.ContainsFunc(p.desired.others(), func(m Member) bool {
		return p.observed.Reachable[m.Address] && !slices.Contains(p.observed.Disowned, m.Name)
	}) {
		p.refuse("storage.disowned",
			"if this node was removed on purpose, reset its storage daemon and let it join as a new one",
			"%s no longer count(s) this node as a member", strings.Join(p.observed.Disowned, ", "))
		return false
	}

	p.joined = map[string]bool{p.desired.Self: true}
	p.present = map[string]bool{p.desired.Self: true}
	var wait []string
	for _, m := range p.desired.others() {
		peer, known := p.observed.peerNamed(m.Name, m.Address)
		reach := p.observed.Reachable[m.Address]
		switch {
		case known && peer.State == cli.PeerRejected:
			p.refuse("storage.peer_rejected",
				"on "+m.Name+", if it holds no copy that is needed: reset its storage daemon and let it join "+
					"as a new node",
				"%s is rejected: its configuration differs from the pool's", m.Name)
		case known && peer.State == cli.PeerInCluster && peer.Connected:
			p.joined[m.Name], p.present[m.Name] = true, true
			if slices.Contains(p.observed.Unsure, m.Name) {
				wait = append(wait, m.Name)
			}
		case known && reach:
			p.joined[m.Name], p.present[m.Name] = true, true
			wait = append(wait, m.Name)
		case known:
			p.joined[m.Name] = true
			p.addWarning("storage.peer_down", "bring it back, or remove it",
				"%s is away: its glusterd does not answer", m.Name)
		case reach:
			p.joined[m.Name], p.present[m.Name] = true, true
			p.addStep(Step{
				ID:      "probe " + m.Name,
				Kind:    Probe,
				What:    "take " + m.Name + " into the pool",
				Why:     "it is a member of the cluster and not in the pool yet",
				Command: []string{"peer", "probe", m.Name},
				Targets: []string{m.Name, m.Address},
			})

			wait = append(wait, m.Name)
		default:
			p.addWarning("storage.member_unreachable",
				"check that the machine is on, that glusterd runs on it, and that port 24007 is open between the nodes",
				"%s (%s) is not in the pool and does not answer", m.Name, m.Address)
		}
	}

	for _, peer := range p.observed.Pool {
		if !peer.Self && p.member(peer.UUID, peer.Hostname) == nil && !p.leaving(peer) {
			p.addWarning("storage.unknown_peer", "if it should not be there: name it as leaving",
				"the pool has a member that is not in the configuration: %s", peer.Hostname)
		}
	}

	if len(wait) > 0 {
		p.addStep(Step{
			ID:      "wait-peers " + strings.Join(wait, ","),
			Kind:    WaitPeers,
			What:    "wait until " + strings.Join(wait, ", ") + " and all others count each other as members",
			Why:     "commands are refused before that",
			Targets: wait,
		})
	}

	return true
}

func (p *planner) unreachable(peer cli.Peer) bool {
	for _, n := range append([]string{peer.Hostname}, peer.Names...) {
		if ok, tried := p.observed.Reachable[n]; tried {
			return !ok
		}
	}
	if m := p.member(peer.UUID, peer.Hostname); m != nil {
		if ok, tried := p.observed.Reachable[m.Address]; tried {
			return !ok
		}
	}
	return false
}

func (p *planner) leaving(peer cli.Peer) bool {
	return slices.ContainsFunc(p.desired.Leaving, func(l string) bool {
		return l == peer.Hostname || l == peer.UUID || slices.Contains(peer.Names, l)
	})
}

// member returns the member to which a brick or peer belongs, found by name or by the UUID of its
// glusterd. If there is none, it returns nil.
func (p *planner) member(uuid, host string) *Member {
	for i, m := range p.desired.Members {
		if host == m.Name || host == m.Address {
			return &p.desired.Members[i]
		}
		if uuid == "" {
			continue
		}

		if m.Name == p.desired.Self {
			if uuid == p.observed.selfUUID() {
				return &p.desired.Members[i]
			}
		} else if peer, ok := p.observed.peerNamed(m.Name, m.Address); ok && peer.UUID == uuid {
			return &p.desired.Members[i]
		}
	}

	return nil
}

func (p *planner) ownerOf(b cli.Brick) *Member {
	host, _, _ := cli.SplitBrick(b.Name)
	return p.member(b.HostUUID, host)
}

// quorum reports whether enough members are connected for changes. If not, it adds a refusal of all
// changes: without more than half of the pool, glusterd accepts no change and has stopped the
// bricks (cluster.server-quorum-type server).
func (p *planner) quorum() bool {
	if p.volume.Options["cluster.server-quorum-type"] != "server" {
		return true
	}

	up, away := 0, []string{}
	for _, peer := range p.observed.Pool {
		if peer.Self || peer.Connected {
			up++
		} else {
			away = append(away, peer.Hostname)
		}
	}

	if 2*up > len(p.observed.Pool) {
		return true
	}

	p.refuse("storage.no_quorum", "bring at least one of them back; the rest follows by itself",
		"only %d of %d pool members are there (%s away): the volume has stopped and cannot be changed", up,
		len(p.observed.Pool), strings.Join(away, ", "))
	return false
}

func (p *planner) detach() {
	for _, peer := range p.observed.Pool {
		if peer.Self || !p.leaving(peer) {
			continue
		}
		if slices.ContainsFunc(p.volume.Bricks, func(b cli.Brick) bool {
			host, _, _ := cli.SplitBrick(b.Name)
			return b.HostUUID == peer.UUID || host == peer.Hostname || slices.Contains(peer.Names, host)
		}) {
			continue // another finding says why the peer's brick stays
		}

		p.addStep(Step{
			ID:          "detach " + peer.Hostname,
			Kind:        Detach,
			What:        "let " + peer.Hostname + " go from the pool",
			Why:         "it is to leave",
			Command:     []string{"peer", "detach", peer.Hostname},
			Destructive: true,
			Proof:       "it holds no brick of the volume",
			Targets:     []string{peer.Hostname},
		})
	}
}
