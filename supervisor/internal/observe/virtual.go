package observe

import (
	"slices"
	"strings"

	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
)

// Virtual holds what the node knows about the virtual address.
type Virtual struct {
	Address string
	Here    bool // this node has the address
}

// holders returns the nodes that have the address.
func holders(list []status.Node) []string {
	out := []string{}
	for _, n := range list {
		if n.Virtual {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

// virtualFindings returns the findings about the holders of the address, and about a crash of
// keepalived.
func virtualFindings(f facts) (found []status.Finding) {
	v := f.Virtual
	if v == nil {
		return nil
	}

	for _, i := range f.services {
		if i.Name == status.VirtualService &&
			(i.State == service.Pausing || i.State == service.Starting && i.Failures > 0) {
			found = append(found,
				status.Finding{Code: status.VirtualUnable, Subject: v.Address, Cause: "keepalived: " + crashText(i)})
		}
	}

	var have, away []string
	if v.Here {
		have = append(have, "this node")
	}

	for _, n := range f.Others {
		switch {
		case n.Virtual:
			have = append(have, n.Name)
		case n.Role == status.RoleArbiter: // an arbiter never has the address
		case n.State == "unreachable" || n.State == "?":
			away = append(away, n.Name)
		}
	}

	switch {
	case len(have) > 1:
		found = append(found,
			status.Finding{
				Code:    status.VirtualTwice,
				Subject: v.Address,
				Cause:   strings.Join(have, " and ") + " have it",
			})
	case len(have) == 0 && len(away) > 0:
		found = append(found,
			status.Finding{
				Code:    status.VirtualNobody,
				Subject: v.Address,
				Cause:   "of those that answer; not asked: " + strings.Join(away, ", "),
			})
	case len(have) == 0:
		found = append(found, status.Finding{Code: status.VirtualNobody, Subject: v.Address})
	}

	return found
}
