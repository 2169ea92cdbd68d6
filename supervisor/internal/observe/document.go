package observe

import (
	"net"
	"net/netip"
	"net/url"
	"slices"
	"time"

	"saltern/internal/control"
	"saltern/supervisor/status"
)

// compose builds the status document from the facts.
func (o *Observer) compose(f facts) status.Document {
	now := o.cfg.Now()
	o.mu.Lock()
	defer o.mu.Unlock()

	if f.front != nil && o.hiccup(f, now) {
		f.front = nil
	} else if f.front == nil {
		o.answered = now
	}

	f.Cluster = append(slices.Clip(f.Cluster), f.judgeOthers()...)
	serving := f.observed && f.front == nil && !f.Stopping
	if len(f.Others) == 0 && (f.settles(status.MasterService) || f.settles(status.BalancerService)) {
		serving = false // no other node answers minions
	}

	switch {
	case serving && o.since == nil:
		o.since = &now
		o.served = true
	case !serving:
		o.since = nil
	}

	d := o.blank(f, now)
	d.Setup = setupState(f.Setup, serving, o.served)
	d.SetupStep = f.Step
	o.countMinions(f, now, &d)
	d.Services = serviceDocuments(f)

	d.Problems = o.cfg.Board.Update(now, findings(o.cfg.Settings, f))
	d.Health = status.Worst(d.Problems)
	if serving && len(f.Others) > 0 { // the front also answers through the masters of other nodes
		d.Health = status.ServedElsewhere(d.Problems)
	}

	if d.Health == status.Healthy && slices.ContainsFunc(minionServices, f.settles) {
		d.Health = status.Degraded
	}

	if !serving {
		d.Health = status.NotServing
	}

	d.Exit = d.Health.Exit()
	d.Nodes = append([]status.Node{summary(f, d)}, f.Others...)

	entry := firstOf(d.Front.Addresses)
	if f.Virtual != nil {
		entry = f.Virtual.Address
		d.Virtual = &status.Virtual{Address: entry, Nodes: holders(d.Nodes)}
		d.Front.Addresses = slices.DeleteFunc(d.Front.Addresses, func(a string) bool { return a == entry })
	}

	d.Console = reached(f.Console, entry)
	d.Next = nextStep(d, entry, o.cfg.Settings.Arbiter)
	return d
}

// minionServices lists the services of a node whose answers minions and their administrators need.
// A node is healthy only if all of these services that it has are up.
var minionServices = []string{status.MasterService, status.BalancerService, status.APIService}

// blank returns a document that holds only what follows from the settings and the storage.
func (o *Observer) blank(f facts, now time.Time) status.Document {
	d := status.Document{
		Schema:       status.Schema,
		Time:         now,
		Version:      o.cfg.Version,
		Cluster:      o.cfg.Settings.Cluster,
		Node:         o.cfg.Settings.Node,
		Started:      o.cfg.Started,
		ServingSince: o.since,
		Setup:        status.SetupWaiting,
		Front: status.Front{
			Addresses:   frontAddresses(o.cfg.Settings.Front.Addresses),
			PublishPort: o.cfg.Settings.Front.PublishPort,
			RequestPort: o.cfg.Settings.Front.RequestPort,
		},
		Services: []status.Service{},
		Clock:    status.Clock{Synchronised: f.clock},
		Storage:  storageOf(o.cfg.Settings.Storage.Kind, o.cfg.Settings.StorageDir(), f.Volume),
		Backup:   f.Backup,
		Upgrade:  f.Upgrade,
	}

	disk, ok := f.disks[o.cfg.Settings.StorageDir()]
	if ok && disk.err == nil {
		d.Storage.Total = disk.Total
		d.Storage.Free = disk.Free
		d.Storage.FreePercent = disk.FreePercent
		d.Storage.InodesFree = disk.InodesPercent
	}

	if o.cfg.Settings.Arbiter { // an arbiter has no front
		d.Front.Addresses = []string{}
	}

	return d
}

// countMinions fills in the counts of keys and connections, and the reports of the master and the
// load balancer.
func (o *Observer) countMinions(f facts, now time.Time, d *status.Document) {
	if f.keys != nil {
		d.Minions.Accepted = f.keys.Accepted
		d.Minions.Pending = f.keys.Pending
		d.Minions.Rejected = f.keys.Rejected
		d.Minions.Denied = f.keys.Denied
	}

	if pid := pidOf(f, status.MasterService); f.master.Fresh(now, pid) {
		m := f.master
		// The master's index of keys is newer than the last count of files in the folders.
		d.Minions.Accepted = m.Accepted
		d.Minions.Pending = m.Pending
		d.Minions.Rejected = m.Rejected
		d.Minions.Denied = m.Denied
		d.Master = masterDocument(m)
	}

	if f.balancer != nil {
		d.Minions.Connected = &f.balancer.sessions
		d.Front.API = f.balancer.api.document(o.cfg.Settings, f)
	}
}

// serviceDocuments returns the services for the document.
func serviceDocuments(f facts) []status.Service {
	out := []status.Service{}
	for _, i := range f.services {
		if i.Name == status.VirtualService && f.Virtual == nil {
			continue // the cluster has no virtual address
		}

		s := status.Service{
			Name:     i.Name,
			State:    string(i.State),
			Message:  i.Message,
			Since:    i.Since,
			PID:      i.PID,
			Restarts: i.Restarts,
			LastExit: i.LastExit,
			LastLine: i.LastLine,
		}

		for _, e := range i.Events {
			s.Events = append(s.Events, status.Event{Time: e.Time, State: string(e.State), Message: e.Message})
		}

		out = append(out, s)
	}

	return out
}

// nextStep returns what an administrator can do next on a node that serves, or "". entry is the
// address for minions.
func nextStep(d status.Document, entry string, arbiter bool) string {
	switch {
	case !d.Serves():
		return ""
	case !arbiter && d.Minions.Accepted+d.Minions.Pending == 0:
		return "point minions here: master: " + entry + "; then: applianced keys"
	case d.Minions.Pending > 0:
		return "applianced keys shows the keys that wait for you; applianced keys accept MINION takes one"
	}
	return ""
}

// hiccup reports whether a ping through the front may have failed although minions are served. The
// load balancer may have sent the ping to a master that had just begun to hang, and may have
// stopped using that master since. The caller holds o.mu.
func (o *Observer) hiccup(f facts, now time.Time) bool {
	// The front may fail for two pings and for the time in which the load balancer notices.
	if o.since == nil || now.Sub(o.answered) > 8*time.Second {
		return false
	}
	if o.cfg.Settings.Arbiter {
		return true
	}
	if !o.cfg.Settings.LB.Enabled {
		return serviceWord(f, status.MasterService) == "ok"
	}
	return f.balErr == nil && f.balancer != nil && f.balancer.up+len(f.balancer.unwell) > 0
}

// reached returns the address of a page, with one of this node's own addresses in place of a
// wildcard. If page is not a valid address, it returns "".
func reached(page, own string) string {
	u, err := url.Parse(page)
	if err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" {
		return ""
	}
	at, err := netip.ParseAddrPort(u.Host)
	ip, ownErr := netip.ParseAddr(own)
	if err == nil && ownErr == nil && at.Addr().IsUnspecified() {
		u.Host = netip.AddrPortFrom(ip, at.Port()).String()
	}
	return u.String()
}

func firstOf(list []string) string {
	if len(list) == 0 {
		return "this node"
	}
	return list[0]
}

// summary returns this node's line of the table of nodes.
func summary(f facts, d status.Document) status.Node {
	s := status.Node{
		Name:    d.Node,
		This:    true,
		Address: f.Address,
		Version: d.Version,
		Role:    f.Role,
		State:   "starting",
		Master:  masterWord(f, d.Node),
		Proxy:   serviceWord(f, status.BalancerService),
		Storage: storageWord(f.Volume),
		Minions: d.Minions.Connected,
		Clock:   "?",
	}

	switch {
	case f.Stopping:
		s.State = "stopping"
	case f.Setup == status.SetupRemoved:
		s.State = "removed"
	case d.Serves():
		s.State = "ready"
	case slices.ContainsFunc(d.Problems, func(p status.Problem) bool { return p.Severity == status.Fatal }):
		s.State = "not serving"
	}

	s.Virtual = f.Virtual != nil && f.Virtual.Here
	if f.clock != nil && *f.clock {
		s.Clock = "synced"
	} else if f.clock != nil {
		s.Clock = "unsynced"
	}

	for _, p := range d.Problems {
		switch p.Code {
		case status.StorageUnusable:
			s.Storage = "down"
		case status.DiskFull:
			s.Storage = "full"
		case status.DiskLow:
			s.Storage = "low"
		}
	}

	return s
}

// frontAddresses replaces a wildcard by the machine's own addresses, because "0.0.0.0" is useless
// in a minion's configuration.
func frontAddresses(configured []string) []string {
	const maxAddresses = 8
	out := []string{}
	for _, a := range configured {
		ip, err := netip.ParseAddr(a)
		if err != nil || !ip.IsUnspecified() {
			out = append(out, a)
			continue
		}

		own, _ := net.InterfaceAddrs()
		for _, o := range own {
			p, err := netip.ParsePrefix(o.String())
			if err != nil || p.Addr().IsLoopback() || p.Addr().IsLinkLocalUnicast() || p.Addr().Is4() != ip.Is4() {
				continue
			}
			out = append(out, p.Addr().String())
		}
	}

	return out[:min(len(out), maxAddresses)]
}

// masterDocument returns the part of the document about the master, from the master's own report.
func masterDocument(m *control.Status) *status.Master {
	return &status.Master{
		Written:             m.Written,
		Requests:            m.Requests,
		Returns:             m.Returns,
		Jobs:                m.Jobs,
		OldestRequestMillis: m.OldestMillis,
		PillarErrorMinions:  m.PillarFaulty,
		PillarsUnanswered:   m.PillarUnable,
		Waiting:             waiting(m.Waiting),
		PillarMemo:          m.PillarMemo,
		Files:               m.Files,
		Runners:             m.Runners,
		Returners:           m.Returners,
		Postgres:            m.Postgres,
		Engines:             m.Engines,
		Resources:           m.Resources,
		Fleet:               m.Fleet,
		Notify:              m.Notify,
	}
}

// waiting returns the part of the document about waiting work.
func waiting(w control.Waiting) status.Waiting {
	show := func(q control.Queue) status.Queue { return status.Queue(q) }
	return status.Waiting{
		Pillars:   show(w.Pillars),
		Runners:   show(w.Runners),
		Reactions: show(w.Reactions),
		Scheduled: show(w.Scheduled),
	}
}
