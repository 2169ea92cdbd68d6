package life

import (
	"saltern/supervisor/api"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/salttools"
)

// Parts adds what this life serves by the local API to p.
func (n *Life) Parts(p api.Parts) api.Parts {
	p.Services, p.Logs, p.Events, p.Recovery = services{n.manager, n.master.choice}, logs{n.manager, n.children.logs}, n.observer, n.recoverer
	p.Options = n.rolls
	minions := salttools.Cluster{Node: n.Settings.Node, Own: n.master.tools()}
	if n.volume != nil {
		p.Storage = n.volume
	}
	if n.member != nil {
		verbs := member.Verbs{Member: n.member}
		p.Turns, p.Virtual = verbs, n.virtual
		minions.Peers = n.member.Peers
		p.Cluster = clusterVerbs{verbs, n.Setup.JoinString}
	}
	minions.Masterless = n.Settings.Arbiter
	p.Minions, p.Git = minions, minions
	if n.Settings.Arbiter {
		p.Minions = noMinions{n.member}
	}
	return p
}

// clusterVerbs are a member's, and the line with which another node joins.
type clusterVerbs struct {
	member.Verbs
	joinString func() (string, error)
}

// JoinString implements api.Cluster. Another node may just have changed the
// cluster's secret, and this one not have looked since.
func (v clusterVerbs) JoinString() (string, error) {
	v.LookForSecret()
	return v.joinString()
}
