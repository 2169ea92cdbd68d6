package observe

import (
	"cmp"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// Node is the node's knowledge of itself. It needs no observation.
type Node struct {
	Blocked  map[string][]status.Finding // why a service is not started, by service
	Insecure []string                    // allowed insecure options that are on, with their place
	LastGood string                      // why the master runs with its last good options, or ""
	Trouble  string                      // the trouble that the master reports of itself, or ""
	Audit    string                      // why acts are not recorded, or ""
	Packages string                      // why the Python packages are not in service, or ""
	// Unbounded has the children without a bound on their memory, with the reason.
	Unbounded map[string]string
	AsRoot    []string // services that run as root for want of an account
	Stopping  bool
	Volume    *storage.State // nil: this node keeps no shared volume
	Role      string
	Address   string        // in the cluster's network
	Others    []status.Node // of the cluster
	Cluster   []status.Finding
	Setup     status.Setup      // state of the set-up; empty: it does not concern this node
	Step      *status.SetupStep // the step under way; nil: none
	Console   string            // the address of the console for browsers; "": there is none
	Virtual   *Virtual          // nil: there is no virtual address
	Backup    *status.Backup    // nil: this node makes none, or their state is unknown yet
	Upgrade   *status.Upgrade   // nil: this node has no upgrade window
	Own       []status.Finding  // findings of other parts of the node
}

// facts are the observations of one round. They are plain data, so that tests can judge them
// without a node.
type facts struct {
	Node
	now      time.Time
	name     string // of this node
	services []service.Info
	front    error         // ping through the front (or of the master, without a load balancer)
	observed bool          // front was looked at
	round    time.Duration // that the ping took
	balancer *balancerFacts
	balErr   error
	slowAnswer
	unwritable map[string]error // folders that take no writes, and why
	network    []status.Finding // about this node's address in the cluster
	clock      *bool
}

// slowAnswer is the last answer of the file systems.
type slowAnswer struct {
	disks   map[string]diskFact // by path
	keys    *probe.Keys
	keysErr error
	master  *control.Status          // nil: none that can be used
	locked  bool                     // nobody can log in to this machine
	hang    map[string]time.Duration // path → for how long the file system has not answered
}

type diskFact struct {
	probe.Disk
	err error
}

// pidOf returns the process ID of a service, or 0.
func pidOf(f facts, name string) int {
	for _, i := range f.services {
		if i.Name == name {
			return i.PID
		}
	}
	return 0
}

// masterWord returns the state of this node's master in one word. The supervisor knows whether it
// runs; the load balancer learns first whether it answers.
func masterWord(f facts, name string) string {
	w := serviceWord(f, status.MasterService)
	if w == "ok" && (f.Trouble != "" || f.unanswered(name) != "") {
		return string(service.Failing)
	}
	return w
}

// unanswered returns why the load balancer does not use the master of that node. It returns "" if
// it does, if it was not asked, or if that master has only just come up.
func (f facts) unanswered(name string) string {
	if f.balancer == nil {
		return ""
	}
	for _, i := range f.services {
		// The load balancer learns a little later that a master is up.
		if i.Name == status.MasterService && name == f.name && f.now.Sub(i.Since) < 5*time.Second {
			return ""
		}
	}
	return cmp.Or(f.balancer.down[name], f.balancer.unwell[name])
}

// cannotKeep returns why the master of this node, with that name, cannot keep jobs, as it reports
// to us or to the load balancer, or "".
func (f facts) cannotKeep(name string) string {
	if f.Trouble == "" && f.balancer != nil {
		return f.balancer.unwell[name]
	}
	return f.Trouble
}

// judgeOthers corrects the reports of other nodes about their masters by what this node's load
// balancer sees. It returns the findings that follow.
func (f facts) judgeOthers() (found []status.Finding) {
	for i, o := range f.Others {
		why := f.unanswered(o.Name)
		if why == "" || o.State != "ready" || o.Master != "ok" {
			continue
		}

		f.Others[i].Master = string(service.Failing)
		found = append(found,
			status.Finding{
				Code:    status.NodeMasterDown,
				Subject: o.Name,
				Cause:   "other masters serve its minions; the load balancer of this node gives it nobody: " + why,
			})
	}

	return found
}

// serviceWord returns the state of a service in one word.
func serviceWord(f facts, name string) string {
	for _, i := range f.services {
		if i.Name != name {
			continue
		}

		switch i.State {
		case service.Running:
			return "ok"
		case service.Starting, service.Stopping:
			return string(i.State)
		case service.Failing:
			return "failing"
		}

		return "down"
	}

	if f.Role == status.RoleArbiter {
		return "-"
	}

	return "off"
}
