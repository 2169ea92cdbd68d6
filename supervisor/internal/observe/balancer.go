package observe

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/lbproxy"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// balancerFacts holds the facts that the load balancer reports about itself.
type balancerFacts struct {
	backends int // number of configured backends
	up       int
	why      string // why the other backends are not up
	sessions int    // sessions on the publish port
	fdBudget int64  // file descriptors that sessions may use
	fdFree   int64
	// down holds, for each master that fails the load balancer's checks and so gets no minions, the
	// reason.
	down map[string]string
	// unwell holds, for each master that reports that it cannot store jobs, the reason. Such a
	// master gets minions only while no other master is up.
	unwell  map[string]string
	limited string // the source address that was refused most often; "": none
	api     *apiFront
}

// apiFront describes the front of Salt's API.
type apiFront struct {
	listens bool
	unheard string            // why the load balancer does not listen on all of its addresses
	serving []string          // nodes whose salt-api is up
	down    map[string]string // for each node whose salt-api is not up, the reason
}

// askBalancer asks the load balancer for its state.
func askBalancer(ctx context.Context, c *lbproxy.Client) (*balancerFacts, error) {
	st, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	return fromBalancer(st), nil
}

// fromBalancer selects the facts that the node's status needs. A backend counts as up if it is up
// on all of its ports.
func fromBalancer(st lbproxy.Status) *balancerFacts {
	f := &balancerFacts{
		backends: len(st.Backends),
		fdBudget: st.FDs.Budget,
		fdFree:   st.FDs.Free,
		down:     map[string]string{},
		unwell:   map[string]string{},
	}

	var why []string
	for _, b := range st.Backends {
		up := len(b.Ports) > 0
		down := ""
		unwell := ""
		for _, p := range b.Ports {
			if st.ForAPI(p) {
				continue // apiOf handles Salt's API, which minions do not need
			}
			if p.State == lbproxy.Up {
				continue
			}

			up = false
			reason := fmt.Sprintf("%s %s is %s", b.Name, p.Frontend, p.State)
			if p.LastError != "" {
				reason += ": " + p.LastError
			}

			switch p.State {
			case lbproxy.Down:
				down = reason
			case lbproxy.Unwell:
				unwell = reason
			}

			why = append(why, reason)
		}

		switch {
		case up:
			f.up++
		case down != "" && !b.Maint && !b.Removing:
			f.down[b.Name] = down
		case unwell != "" && !b.Maint && !b.Removing:
			f.unwell[b.Name] = unwell
		}
	}

	worst, others := uint64(0), 0
	for _, fe := range st.Frontends {
		for _, l := range fe.Limited[:min(1, len(fe.Limited))] {
			others += fe.LimitedSources
			if l.Refused > worst {
				worst = l.Refused
				f.limited = fmt.Sprintf("%s has %d sessions on the %s port and was refused %d times",
					l.Source, l.Sessions, fe.Mode, l.Refused)
			}
		}

		if fe.Mode == lbproxy.Publish {
			f.sessions += int(fe.Sessions)
		}
	}

	if others > 1 {
		f.limited += fmt.Sprintf("; %d more", others-1)
	}

	f.why = status.Clip(strings.Join(why, "; "))
	f.api = apiOf(st)
	return f
}

// apiOf selects the facts about Salt's API. If the load balancer has no front for the API, it
// returns nil.
func apiOf(st lbproxy.Status) *apiFront {
	i := slices.IndexFunc(st.Frontends, func(fe lbproxy.FrontendStatus) bool { return fe.Mode == lbproxy.API })
	if i < 0 {
		return nil
	}

	a := &apiFront{
		listens: len(st.Frontends[i].Listen) > 0,
		unheard: st.Frontends[i].Unheard,
		serving: []string{},
		down:    map[string]string{},
	}

	for _, b := range st.Backends {
		for _, p := range b.Ports {
			switch {
			case !st.ForAPI(p):
			case p.State == lbproxy.Up:
				a.serving = append(a.serving, b.Name)
			default:
				a.down[b.Name] = fmt.Sprintf("%s is %s: %s", p.Address, p.State, p.LastError)
			}
		}
	}

	return a
}

// document returns the part of the status about the front of Salt's API, or nil.
func (a *apiFront) document(cfg *settings.Settings, f facts) *status.FrontAPI {
	if a == nil {
		return nil
	}
	return &status.FrontAPI{Port: cfg.Front.APIPort, Nodes: a.serving, Starting: len(a.serving) == 0 && f.apiStarts()}
}

// apiFrontFindings returns the findings about the front of Salt's API of this node.
func apiFrontFindings(cfg *settings.Settings, f facts) []status.Finding {
	a := f.balancer.api
	switch {
	case a == nil:
		return nil
	case !a.listens:
		return []status.Finding{{
			Code: status.APIFront,
			Cause: fmt.Sprintf("nothing listens on port %d: %s", cfg.Front.APIPort,
				cmp.Or(a.unheard, "the load balancer does not say why")),
		}}
	case a.down[cfg.Node] != "" && !f.apiStarts():
		return []status.Finding{{Code: status.APIFront, Cause: status.Clip(a.down[cfg.Node])}}
	}

	return nil
}

// apiLags is how much later than the supervisor the load balancer may learn that salt-api is up.
const apiLags = 20 * time.Second

// apiStarts reports whether salt-api may still be starting, so that the load balancer does not see
// it as up: salt-api starts after the master. Other findings say what prevents its start.
func (f facts) apiStarts() bool {
	i := slices.IndexFunc(f.services, func(i service.Info) bool { return i.Name == status.APIService })
	if i < 0 {
		return false
	}
	switch api := f.services[i]; api.State {
	case service.Waiting:
		return true
	case service.Starting:
		return api.Failures == 0 && f.now.Sub(api.Since) <= slowAPI
	case service.Running:
		return f.now.Sub(api.Since) < apiLags
	}
	return false
}

func balancerDown(i service.Info, blocked bool) []status.Finding {
	switch {
	case blocked && i.State == service.Waiting:
		return nil
	case i.State == service.Waiting, i.State == service.Stopped:
		return []status.Finding{{Code: status.BalancerDown, Cause: i.Message}}
	case i.State == service.Pausing, i.State == service.Starting && i.Failures > 0:
		return append(fromLastLine(i), status.Finding{Code: status.BalancerDown, Cause: crashText(i)})
	case i.State == service.Failing:
		return []status.Finding{{Code: status.BalancerDown, Cause: i.Message}}
	}
	return nil
}

func balancerFindings(cfg *settings.Settings, f facts) (found []status.Finding) {
	if !cfg.LB.Enabled {
		return nil
	}

	if b := f.balancer; b != nil && b.fdBudget > 0 && b.fdFree < b.fdBudget/20 {
		found = append(found,
			status.Finding{
				Code:  status.DescriptorsShort,
				Cause: fmt.Sprintf("%d of %d are free", b.fdFree, b.fdBudget),
			})
	}

	if b := f.balancer; b != nil && b.limited != "" {
		found = append(found, status.Finding{Code: status.SourceLimited, Cause: b.limited})
	}

	if f.balancer != nil {
		found = append(found, apiFrontFindings(cfg, f)...)
	}

	switch {
	case f.balErr != nil:
		found = append(found, status.Finding{Code: status.BalancerSilent, Cause: f.balErr.Error()})
		if f.front != nil {
			found = append(found,
				status.Finding{Code: status.NoBackend, Cause: "ping through the front: " + f.front.Error()})
		}
		return found
	case f.balancer != nil && f.balancer.up == 0 && len(f.balancer.unwell) == 0:
		return append(found,
			status.Finding{
				Code:  status.NoBackend,
				Cause: fmt.Sprintf("0 of %d up; %s", f.balancer.backends, f.balancer.why),
			})
	case f.front != nil:
		return append(found, status.Finding{Code: status.NoBackend, Cause: "ping through the front: " + f.front.Error()})
	}

	return found
}
