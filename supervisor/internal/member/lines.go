package member

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/glusterctl"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// clockLead returns how far another node's clock is ahead of ours (negative: behind). theirs is the
// time that the node sent in an answer; began is when we sent the request, and round is how long
// the answer took. A difference that the travel time of the messages could explain counts as 0.
func clockLead(theirs, began time.Time, round time.Duration) time.Duration {
	switch d := theirs.Sub(began); {
	case theirs.IsZero(): // the node's answer contains no time
		return 0
	case d > round:
		return d - round
	case d < 0:
		return d
	}
	return 0
}

// clockLeads returns how far the clocks of the other nodes that answer are ahead of ours (negative:
// behind).
func (p *peers) clockLeads() map[string]time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]time.Duration{}
	for name, v := range p.views {
		if v.err == nil && !v.summary.Time.IsZero() {
			out[name] = v.ahead
		}
	}
	return out
}

// statusLines returns the other nodes' lines for the status, and what is wrong with them.
func (p *peers) statusLines() (lines []status.Node, found []status.Finding) {
	t := p.keeper.Table()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range t.Peers(p.env.Settings.Node) {
		l, f := p.statusLine(n, p.views[n.Name])
		if n.State != nodes.Member && l.State != "unreachable" {
			l.State = string(n.State)
		}
		lines, found = append(lines, l), append(found, f...)
	}
	slices.SortFunc(lines, func(a, b status.Node) int { return strings.Compare(a.Name, b.Name) })
	return lines, found
}

// statusLine returns one node's line for the status, and what is wrong with the node. v may be nil:
// no request was sent to the node yet.
func (p *peers) statusLine(n nodes.Node, v *peerView) (l status.Node, found []status.Finding) {
	l = status.Node{
		Name:    n.Name,
		Address: n.Address,
		Role:    roleOf(p.env.Settings, n),
		State:   "?",
		Master:  "?",
		Proxy:   "?",
		Storage: "?",
		Clock:   "?",
	}

	if v == nil {
		return l, nil
	}

	l.Version = nodeapi.Word(v.summary.Version)
	if v.err != nil {
		l.State = "unreachable"
		if !v.seen.IsZero() {
			seen := v.seen
			l.LastSeen = &seen
		}

		return l, []status.Finding{{
			Code:    status.NodeUnreachable,
			Subject: n.Name,
			Cause:   fmt.Sprintf("%s: %v", address(p.env.Settings, n), v.err),
		}}
	}

	if v.seen.IsZero() {
		return l, nil
	}

	s := v.summary.Node
	l.State = nodeapi.Word(s.State)
	l.Master = nodeapi.Word(s.Master)
	l.Proxy = nodeapi.Word(s.Proxy)
	l.Storage = nodeapi.Word(s.Storage)
	l.Minions = s.Minions
	l.Clock = nodeapi.Word(s.Clock)
	l.Virtual = s.Virtual

	// Leases, tokens and certificates depend on clocks that agree.
	if clock := v.ahead.Abs().Round(time.Second); clock > 5*time.Second {
		word, sign := "ahead of", "+"
		if v.ahead < 0 {
			word, sign = "behind", "-"
		}

		l.Clock = sign + clock.String()
		found = append(found,
			status.Finding{
				Code:    status.ClockSkew,
				Subject: n.Name,
				Cause:   fmt.Sprintf("the clock of %s is %s %s ours", n.Name, clock, word),
			})
	}

	serves := s.State == "ready" || s.State == "starting"
	masterDown := s.Master == "down" || s.Master == "failing"
	switch {
	case n.IsArbiter():
		if n.State != nodes.Joining && s.State != "ready" {
			found = append(found, status.Finding{Code: status.ArbiterUnwell, Subject: n.Name, Cause: v.summary.Cause()})
		}
	case n.State != nodes.Joining && (!serves || !masterDown && v.summary.Fatal()):
		found = append(found, status.Finding{Code: status.NodeNotServing, Subject: n.Name, Cause: v.summary.Cause()})
	case s.State == "ready" && masterDown:
		found = append(found,
			status.Finding{
				Code:    status.NodeMasterDown,
				Subject: n.Name,
				Cause:   "other masters serve its minions; " + v.summary.Cause(),
			})
	}

	return l, found
}

// roleOf returns the role of a node in its cluster.
func roleOf(s *settings.Settings, n nodes.Node) string {
	switch role := glusterctl.Role(n.Storage); {
	case s.OnVolume() && role == glusterctl.Client:
		return status.RoleClient
	case s.OnVolume() && role == glusterctl.Arbiter:
		return status.RoleArbiter
	}
	return status.RoleVoter
}
