package life

import (
	"fmt"
	"net/netip"
	"time"

	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/internal/vip"
	"saltern/supervisor/nodes"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
)

// Look is the node as the set-up sees it.
func (n *Life) Look() setup.NodeLook {
	if n.member == nil {
		return setup.NodeLook{}
	}

	d, st := n.observer.Document(), n.member.State()
	l := setup.NodeLook{
		Running:        true,
		Serving:        d.ServingSince != nil,
		Table:          st.Table,
		Addresses:      d.Front.Addresses,
		Console:        d.Console,
		Storage:        st.Waits == "",
		StorageWaiting: st.Waits,
		Finger:         st.Finger,
	}

	switch v := n.volume.Facts(); {
	case l.Serving:
	case n.cfg.Settings.Arbiter && v != nil && v.Waiting != "":
		l.ServingWaiting = v.Waiting
	default:
		l.ServingWaiting = servingWaits(d)
	}

	return l
}

// servingWaits says what a node that does not serve yet waits for.
func servingWaits(d status.Document) string {
	for _, p := range d.Problems {
		// A master that has just started is not a fault of the set-up.
		if p.Code == status.MasterSilent && d.Time.Sub(p.Since) < time.Minute {
			return "salt-master, which is starting, to answer"
		}
		if p.Severity == status.Fatal && p.Code != status.SetupStopped {
			return status.Clip(fmt.Sprintf("%s to clear: %s (%s); next: %s", p.Code, p.Title, p.Cause, p.Next))
		}
	}

	for _, s := range d.Services {
		if s.State != "running" {
			return status.Clip(s.Name + ": " + s.Message)
		}
	}

	return "an answer through the front"
}

// setupFacts returns the set-up's state, and found with what is wrong in it; m is nil
// for a node that is alone.
func setupFacts(machine *setup.Machine, m *member.Member, found []status.Finding) (status.Setup, []status.Finding) {
	if machine == nil || !machine.Active() {
		return "", found
	}

	p := machine.Where()
	if p.Failure != nil {
		found = append(found, observe.SetupFinding(p))
	}

	if m == nil {
		return p.State, found
	}

	st := m.State()
	if st.Removed != "" {
		return status.SetupRemoved, append(found, status.Finding{Code: status.NodeRemoved, Cause: st.Removed})
	}
	if p.State == status.SetupReady && (st.Self.State == nodes.Draining || st.Self.State == nodes.Leaving) {
		return status.SetupDraining, found
	}

	return p.State, found
}

// AddressLost reports whether no interface has the address by which the nodes of
// the cluster know this one.
func (n *Life) AddressLost() (own string, lost bool) {
	if n.member == nil {
		return "", false
	}
	own = n.cfg.Settings.Peering.Address
	a, err := netip.ParseAddr(own)
	return own, err == nil && !a.IsLoopback() && !vip.Held(a)
}
