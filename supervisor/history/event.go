// Package history keeps the events of a node and its cluster as this node saw them: the
// differences between one status and the next, in a file of bounded size that outlives the
// supervisor.
package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/supervisor/status"
)

// Event is one thing that happened.
type Event struct {
	Time    time.Time   `json:"time"`
	Kind    Kind        `json:"kind"`
	Code    status.Code `json:"code,omitempty"` // code of a problem; empty: the event concerns no problem
	Subject string      `json:"subject,omitempty"`
	Text    string      `json:"text"`
}

// Kind says what an event concerns.
type Kind string

// Values of Kind.
const (
	Started Kind = "start"   // the supervisor started, or the node started again after a reload
	Health  Kind = "health"  // the health in the status changed
	Problem Kind = "problem" // a problem began
	Over    Kind = "over"    // a problem ended
	Node    Kind = "node"    // another node changed
	Service Kind = "service" // one of this node's services changed
	Virtual Kind = "virtual" // the virtual address moved
	Backup  Kind = "backup"  // a scheduled backup was made, by any node
	Upgrade Kind = "upgrade" // this node began or ended an upgrade of all nodes in the upgrade window
)

// compare returns the events between two statuses of a node. old may be nil: the supervisor has
// just started.
func compare(old *status.Document, now status.Document) (out []Event) {
	add := func(k Kind, code status.Code, subject, format string, args ...any) {
		out = append(out, Event{now.Time, k, code, subject, fmt.Sprintf(format, args...)})
	}
	if old == nil {
		old = &status.Document{Health: now.Health, Nodes: now.Nodes, Virtual: now.Virtual}
		add(Started, "", now.Node, "started, version %s: %s", now.Version, now.Health)
	}

	if now.Health != old.Health {
		add(Health, "", now.Node, "%s (was %s)", now.Health, old.Health)
	}

	for _, p := range now.Problems {
		if !slices.ContainsFunc(old.Problems, sameAs(p)) {
			text := p.Title
			if p.Cause != "" {
				text += ": " + strings.ReplaceAll(p.Cause, "\n", "; ")
			}
			add(Problem, p.Code, p.Subject, "%s", text)
		}
	}

	for _, p := range old.Problems {
		if !slices.ContainsFunc(now.Problems, sameAs(p)) {
			add(Over, p.Code, p.Subject, "over after %s: %s", status.Age(now.Time.Sub(p.Since)), p.Title)
		}
	}

	compareNodes(old.Nodes, now.Nodes, add)
	if a, b := holders(old.Virtual), holders(now.Virtual); a != b {
		add(Virtual, "", "", "the virtual address is on %s (was on %s)", b, a)
	}

	if b := now.Backup; b != nil && b.Last != nil && old.Backup != nil &&
		(old.Backup.Last == nil || old.Backup.Last.Name != b.Last.Name) {
		add(Backup, "", b.Last.Node, "a backup was made: %s in %s, %s", b.Last.Name, b.Last.To,
			status.Size(uint64(max(b.Last.Bytes, 0))))
	}

	if u := now.Upgrade; u != nil && old.Upgrade != nil {
		if u.Doing != "" && u.Doing != old.Upgrade.Doing {
			add(Upgrade, "", now.Node, "the upgrade window is open: this node %s on all nodes", u.Doing)
		}
		if u.Result != "" && u.Result != old.Upgrade.Result {
			add(Upgrade, "", now.Node, "the upgrade by the window has ended: %s", u.Result)
		}
	}

	for _, s := range now.Services {
		out = append(out, serviceEvents(old, s)...)
	}

	// A service's events have the time at which they happened, not the time of the status.
	slices.SortStableFunc(out, func(a, b Event) int { return a.Time.Compare(b.Time) })
	return out
}

func sameAs(p status.Problem) func(status.Problem) bool {
	return func(o status.Problem) bool { return o.Code == p.Code && o.Subject == p.Subject }
}

func compareNodes(old, now []status.Node, add func(Kind, status.Code, string, string, ...any)) {
	named := func(list []status.Node, name string) (status.Node, bool) {
		i := slices.IndexFunc(list, func(n status.Node) bool { return n.Name == name })
		if i < 0 {
			return status.Node{}, false
		}
		return list[i], true
	}

	for _, n := range now {
		o, known := named(old, n.Name)
		switch {
		case !known:
			add(Node, "", n.Name, "belongs to the cluster: %s", n.State)
			continue
		case n.This: // the health of this node has its own events
		case n.State != o.State && o.State == "unreachable" && o.LastSeen != nil:
			add(Node, "", n.Name, "%s (was unreachable since %s)", n.State, o.LastSeen.UTC().Format("15:04:05 UTC"))
		case n.State != o.State:
			add(Node, "", n.Name, "%s (was %s)", n.State, o.State)
		}

		if n.Version != o.Version && n.Version != "" && o.Version != "" {
			add(Node, "", n.Name, "version %s (was %s)", n.Version, o.Version)
		}
	}

	for _, o := range old {
		if _, there := named(now, o.Name); !there {
			add(Node, "", o.Name, "belongs to the cluster no more")
		}
	}
}

func holders(v *status.Virtual) string {
	if v == nil || len(v.Nodes) == 0 {
		return "no node"
	}
	return strings.Join(v.Nodes, " and ")
}

// serviceEvents returns the events of a service that the old status does not have.
func serviceEvents(old *status.Document, s status.Service) (out []Event) {
	var last time.Time
	for _, o := range old.Services {
		if o.Name == s.Name && len(o.Events) > 0 {
			last = o.Events[len(o.Events)-1].Time
		}
	}
	for _, e := range s.Events {
		// Omit the steps of a service's start: they do not matter later.
		if e.Time.After(last) && e.State != "waiting" && e.State != "starting" {
			out = append(out, Event{e.Time, Service, "", s.Name, e.Message})
		}
	}
	return out
}
