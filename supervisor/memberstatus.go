package supervisor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/glusterctl"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
)

// mostSkew is how far clocks of nodes may differ: leases, tokens and
// certificates need them to agree.
const mostSkew = 5 * time.Second

// ahead tells how far another node's clock is ahead of ours (or behind:
// negative), given the time it said in answer to a question of ours that began
// then and took that long. What the way there and back may have added is left out.
func ahead(theirs, began time.Time, round time.Duration) time.Duration {
	switch d := theirs.Sub(began); {
	case theirs.IsZero(): // a node that does not say
		return 0
	case d > round:
		return d - round
	case d < 0:
		return d
	}
	return 0
}

// words gives the nodes' lines and findings for the status.
func (m *member) words() (lines []status.Node, found []status.Finding) {
	if _, gone := m.gone(); gone {
		return nil, nil
	}
	t := m.keeper.Table()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.api != nil {
		found = append(found, status.Finding{Code: status.NodeAPIDown, Subject: m.n.cfg.NodeAddress(), Cause: m.api.Error()})
	}
	if m.secrets.next != "" {
		found = append(found, status.Finding{Code: status.SecretStaged, Cause: "the old one holds until all have it"})
	}
	if m.secrets.weak {
		found = append(found, status.Finding{Code: status.SecretWeak, Cause: "whoever reaches the node API could join in time"})
	}
	for _, n := range t.Peers(m.n.cfg.Node) {
		p := m.peers[n.Name]
		l := status.Node{Name: n.Name, Address: n.Address, Role: m.roleOf(n), State: "?", Master: "?", Proxy: "?", Storage: "?", Clock: "?"}
		if p != nil {
			l.Version = plain(p.summary.Version)
		}
		switch {
		case p == nil || p.seen.IsZero() && p.err == nil:
		case p.err != nil:
			l.State = "unreachable"
			if !p.seen.IsZero() {
				seen := p.seen
				l.LastSeen = &seen
			}
			found = append(found, status.Finding{Code: status.NodeUnreachable, Subject: n.Name, Cause: fmt.Sprintf("%s: %v", m.addressOf(n), p.err)})
		default:
			s := p.summary.Node
			l.State, l.Master, l.Proxy, l.Storage, l.Minions = plain(s.State), plain(s.Master), plain(s.Proxy), plain(s.Storage), s.Minions
			l.Clock, l.Virtual = plain(s.Clock), s.Virtual
			if clock := p.ahead.Abs().Round(time.Second); clock > mostSkew {
				word, sign := "ahead of", "+"
				if p.ahead < 0 {
					word, sign = "behind", "-"
				}
				l.Clock = sign + clock.String()
				found = append(found, status.Finding{Code: status.ClockSkew, Subject: n.Name, Cause: fmt.Sprintf("the clock of %s is %s %s ours", n.Name, clock, word)})
			}
			serves := s.State == "ready" || s.State == "starting"
			masterDown := s.Master == "down" || s.Master == "failing"
			if n.State != nodes.Joining && (!serves || !masterDown && hurt(p.summary)) {
				found = append(found, status.Finding{Code: status.NodeNotServing, Subject: n.Name, Cause: cause(p.summary)})
			} else if s.State == "ready" && masterDown {
				found = append(found, status.Finding{Code: status.NodeMasterDown, Subject: n.Name, Cause: "other masters serve its minions; " + cause(p.summary)})
			}
		}
		if n.State != nodes.Member && l.State != "unreachable" {
			l.State = string(n.State)
		}
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b status.Node) int { return strings.Compare(a.Name, b.Name) })
	return lines, found
}

// role is what this node is in its cluster.
func (m *member) role() string {
	t := m.keeper.Table()
	self, _ := t.Find(m.n.cfg.Node)
	return m.roleOf(self)
}

func (m *member) roleOf(n nodes.Node) string {
	switch role := glusterctl.Role(n.Storage); {
	case m.n.cfg.OnVolume() && role == glusterctl.Client:
		return status.RoleClient
	case m.n.cfg.OnVolume() && role == glusterctl.Arbiter:
		return status.RoleArbiter
	}
	return status.RoleVoter
}

// hurt tells whether another node says that something keeps it from serving.
func hurt(s nodeapi.Summary) bool {
	return slices.ContainsFunc(s.Problems, func(p status.Problem) bool { return p.Severity == status.Fatal })
}

// cause is what another node says is wrong with it.
func cause(s nodeapi.Summary) string {
	if len(s.Problems) == 0 {
		return "it says that it is " + plain(s.Node.State)
	}
	p := s.Problems[0]
	return clip(strings.Join(strings.Fields(string(p.Code)+" "+p.Title+": "+p.Cause), " "))
}

// plain bounds a word that another node says, and takes out of it what would
// not be one word on one line.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' || r == '+' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, s[:min(len(s), 200)])
	return s[:min(len(s), 40)]
}
