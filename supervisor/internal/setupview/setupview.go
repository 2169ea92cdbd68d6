// Package setupview shows a node to its set-up, and the set-up in the node's status.
package setupview

import (
	"fmt"
	"net/netip"
	"time"

	"saltern/supervisor/internal/member"
	"saltern/supervisor/internal/observe"
	"saltern/supervisor/internal/vip"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// Member is the node's part in its cluster.
type Member interface {
	State() member.State
}

// View shows one node. Its methods are safe for concurrent use.
type View struct {
	Settings *settings.Settings
	Setup    *setup.Machine         // may be nil: this node was configured by hand
	Member   Member                 // may be nil: this node has no cluster
	Document func() status.Document // returns the newest status of the node
	Volume   func() *storage.State  // returns the state of the shared volume, or nil if there is none
}

// Look returns the node as the set-up sees it.
func (v View) Look() setup.NodeLook {
	if v.Member == nil {
		return setup.NodeLook{}
	}

	document := v.Document()
	state := v.Member.State()
	look := setup.NodeLook{
		Running:        true,
		Serving:        document.ServingSince != nil,
		Table:          state.Table,
		Addresses:      document.Front.Addresses,
		Console:        document.Console,
		Storage:        state.Waits == "",
		StorageWaiting: state.Waits,
		Finger:         state.Finger,
	}

	switch volume := v.Volume(); {
	case look.Serving:
	case v.Settings.Arbiter && volume != nil && volume.Waiting != "":
		look.ServingWaiting = volume.Waiting
	default:
		look.ServingWaiting = servingWaits(document)
	}

	return look
}

// starting maps the codes of problems that every start shows for some seconds to what the node
// waits for at that time. Such a problem counts as a fault only after it has lasted for a minute.
var starting = map[status.Code]string{
	status.MasterDown:   "salt-master to start",
	status.MasterSilent: "salt-master, which is starting, to answer",
	status.NoBackend:    "the load balancer to find salt-master",
}

// servingWaits returns what a node that does not serve yet waits for.
func servingWaits(d status.Document) string {
	for _, p := range d.Problems {
		if what := starting[p.Code]; what != "" && d.Time.Sub(p.Since) < time.Minute {
			return status.Clip(fmt.Sprintf("%s (%s)", what, p.Cause))
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

// Report adds the state of the set-up and its problems to k. If no set-up is active, it adds
// nothing.
func (v View) Report(k *observe.Node) {
	if v.Setup == nil || !v.Setup.Active() {
		return
	}

	progress := v.Setup.Where()
	if progress.Failure != nil {
		k.Cluster = append(k.Cluster, observe.SetupFinding(progress))
	}

	k.Setup = progress.State
	if v.Member != nil {
		state := v.Member.State()
		switch {
		case state.Removed != "":
			k.Setup = status.SetupRemoved
			k.Cluster = append(k.Cluster, status.Finding{Code: status.NodeRemoved, Cause: state.Removed})
		case progress.State == status.SetupReady && isLeaving(state.Self):
			k.Setup = status.SetupDraining
		}
	}

	if k.Setup != "" {
		k.Step = observe.SetupStep(progress)
	}
}

// isLeaving reports whether a node is being drained or removed from its cluster.
func isLeaving(n nodes.Node) bool { return n.State == nodes.Draining || n.State == nodes.Leaving }

// AddressLost returns own, the address by which the other nodes know this one. lost reports whether
// no interface has that address any more.
func (v View) AddressLost() (own string, lost bool) {
	if v.Member == nil {
		return "", false
	}
	own = v.Settings.Peering.Address
	address, err := netip.ParseAddr(own)
	return own, err == nil && !address.IsLoopback() && !vip.Held(address)
}
