package supervisor

import (
	"context"
	"fmt"
	"strings"

	"saltern/lbproxy"
)

// askBalancer asks the load balancer how it is.
func askBalancer(ctx context.Context, c *lbproxy.Client) (*balancerFacts, error) {
	st, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	return fromBalancer(st), nil
}

// fromBalancer picks what the node's status needs. A backend counts as up
// when it is up on all of its ports.
func fromBalancer(st lbproxy.Status) *balancerFacts {
	f := &balancerFacts{backends: len(st.Backends), fdBudget: st.FDs.Budget, fdFree: st.FDs.Free}
	var why []string
	for _, b := range st.Backends {
		up := len(b.Ports) > 0
		for _, p := range b.Ports {
			if p.State == lbproxy.Up {
				continue
			}
			up = false
			reason := fmt.Sprintf("%s %s is %s", b.Name, p.Frontend, p.State)
			if p.LastError != "" {
				reason += ": " + p.LastError
			}
			why = append(why, reason)
		}
		if up {
			f.up++
		}
	}
	for _, fe := range st.Frontends {
		if fe.Mode == lbproxy.Publish {
			f.sessions += int(fe.Sessions)
		}
	}
	f.why = clip(strings.Join(why, "; "))
	return f
}
