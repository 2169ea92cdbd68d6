package observe

import (
	"cmp"
	"slices"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/internal/probe"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// Node holds what the node knows about itself without the observer's checks.
type Node struct {
	Blocked map[string][]status.Finding // why a service is not started, by the service's name
	// Insecure lists the insecure options that the administrator has allowed and that are on, with their place
	Insecure []string
	// LastGood is the reason why the master runs with its last good options; "": it runs with the
	// present options
	LastGood string
	Trouble  string // the trouble that the master reports about itself; "": none
	Audit    string // why actions are not recorded for the audit; "": actions are recorded
	Packages string // why the Python packages are not used; "": the packages are used
	// Unbounded holds, for each child without a memory limit, the reason.
	Unbounded map[string]string
	AsRoot    []string // services that run as root because their account is missing
	Stopping  bool
	Volume    *storage.State // nil: this node uses no shared volume
	Role      string
	Address   string        // this node's address in the cluster's network
	Others    []status.Node // the other nodes of the cluster
	Cluster   []status.Finding
	Setup     status.Setup      // state of the set-up; empty: it does not concern this node
	Step      *status.SetupStep // the step under way; nil: none
	Console   string            // address of the console for browsers; "": there is none
	Virtual   *Virtual          // nil: there is no virtual address
	Backup    *status.Backup    // nil: this node makes no backups, or their state is not known yet
	Upgrade   *status.Upgrade   // nil: this node has no upgrade window
	Own       []status.Finding  // findings of parts of the supervisor other than the observer
}

// facts holds the observations of one round. It is plain data, so that tests can create it without
// a node.
type facts struct {
	Node
	now      time.Time
	name     string // this node's name
	services []service.Info
	front    error         // error of a ping through the front, or of the master without a load balancer
	observed bool          // whether the front was pinged
	round    time.Duration // duration of the last ping
	balancer *balancerFacts
	balErr   error
	slowAnswer
	unwritable map[string]error // why folders take no writes, by folder
	network    []status.Finding // findings about this node's address in the cluster
	clock      *bool
}

// slowAnswer holds the last results of checks that read a file system.
type slowAnswer struct {
	disks   map[string]diskFact // the key is the path
	keys    *probe.Keys
	keysErr error
	master  *control.Status          // nil: there is no usable report
	locked  bool                     // this machine has no account that can log in
	hang    map[string]time.Duration // how long each file system has not answered, by path
}

type diskFact struct {
	probe.Disk
	err error
}

// service returns a service of this node. ok is false if the node does not have the service.
func (f facts) service(name string) (info service.Info, ok bool) {
	i := slices.IndexFunc(f.services, func(info service.Info) bool { return info.Name == name })
	if i < 0 {
		return service.Info{}, false
	}
	return f.services[i], true
}

// pidOf returns the process ID of a service, or 0.
func pidOf(f facts, name string) int {
	info, _ := f.service(name)
	return info.PID
}

// masterWord returns the state of a node's master in one word. The supervisor knows whether the
// process runs; the load balancer notices first whether the master answers.
func masterWord(f facts, name string) string {
	w := serviceWord(f, status.MasterService)
	if w == "ok" && (f.Trouble != "" || f.unanswered(name) != "") {
		return string(service.Failing)
	}
	return w
}

// unanswered returns why the load balancer does not use the master of the node name. It returns ""
// if the load balancer uses the master or was not asked, or if the master has only just come up.
func (f facts) unanswered(name string) string {
	if f.balancer == nil {
		return ""
	}
	// The load balancer learns a few seconds later that a master is up.
	own, ok := f.service(status.MasterService)
	if ok && name == f.name && f.now.Sub(own.Since) < 5*time.Second {
		return ""
	}
	return cmp.Or(f.balancer.down[name], f.balancer.unwell[name])
}

// cannotKeep returns why this node's master cannot keep jobs, as the master reports to the
// supervisor or to the load balancer, or "". name is this node's name.
func (f facts) cannotKeep(name string) string {
	if f.Trouble == "" && f.balancer != nil {
		return f.balancer.unwell[name]
	}
	return f.Trouble
}

// judgeOthers corrects other nodes' reports about their masters with the observations of this
// node's load balancer. It returns the findings that follow.
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

// settles reports whether a service of this node starts, stops, or waits for its start. None of
// these is a finding, because a start is not a fault. If the node does not have the service,
// settles returns false.
func (f facts) settles(name string) bool {
	info, ok := f.service(name)
	return ok && slices.Contains([]service.State{service.Waiting, service.Starting, service.Stopping}, info.State)
}

// serviceWord returns the state of a service in one word.
func serviceWord(f facts, name string) string {
	if info, ok := f.service(name); ok {
		switch info.State {
		case service.Running:
			return "ok"
		case service.Starting, service.Stopping:
			return string(info.State)
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
