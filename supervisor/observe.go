package supervisor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/supervisor/probe"
	"saltern/supervisor/service"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// facts are what one round of observation saw. All of it is plain data, so
// that what follows from it can be tested without a node.
type facts struct {
	now      time.Time
	services []service.Info
	blocked  map[string][]status.Finding
	front    error // ping through the front (or of the master, without a load balancer)
	observed bool  // front was looked at
	balancer *balancerFacts
	balErr   error
	slowAnswer
	clock    *bool
	insecure []string // allowed insecure options that are on, with their place
	// unbounded are children without a bound on their memory, and why.
	unbounded map[string]string
	asRoot    []string // services that run as root for want of an account
	stopping  bool
	volume    *storage.State // nil: this node keeps no shared volume
	role      string         // of this node
	address   string         // of this node, in the cluster's network
	node      string         // this node's name
	others    []status.Node  // of the cluster
	cluster   []status.Finding
	setup     status.Setup      // where the set-up stands; empty: it has nothing to do with this node
	step      *status.SetupStep // that is under way; nil: none
	virtual   *virtualFacts     // nil: there is no virtual address
}

// slowAnswer is what the file systems said when they were last asked.
type slowAnswer struct {
	disks   map[string]diskFact // by path
	keys    *probe.Keys
	keysErr error
	master  *masterStatus            // nil: none that can be used
	locked  bool                     // nobody can log in to this machine
	hang    map[string]time.Duration // path → for how long the file system has not answered
}

type diskFact struct {
	probe.Disk
	err error
}

// balancerFacts are what the load balancer says about itself.
type balancerFacts struct {
	backends int // configured
	up       int
	why      string // why the others are not
	sessions int    // on the publish port
	fdBudget int64  // descriptors for sessions
	fdFree   int64
	// down are the masters that it gives nobody because they fail its checks, and why.
	down    map[string]string
	limited string // the source that was refused most, "" for none
}

const (
	observeServing = 2 * time.Second
	observeWaiting = 500 * time.Millisecond
	// hiccupMost is for how long the front may fail until the node does not serve:
	// two pings, and what the load balancer needs to find out.
	hiccupMost = 8 * time.Second
	// balancerLags is how much later the load balancer may learn that a master is up.
	balancerLags = 5 * time.Second
)

// observeLoop observes until ctx ends. It is also the heartbeat towards the
// watchdog: nothing in it can block for longer than a few seconds.
func (n *node) observeLoop(ctx context.Context) {
	defer n.watchClock(ctx)()
	defer n.events.wait()
	told := conditions{path: n.cfg.ConditionsFile()}
	failed := ""
	for {
		f := n.observe(ctx)
		d := n.compose(f)
		n.doc.Store(&d)
		n.notify(d)
		n.events.note(d)
		text := ""
		if err := told.keep(n.opt.Now(), d.Problems); err != nil {
			text = err.Error()
		}
		if text != "" && text != failed {
			n.opt.Log.Warn(text)
		}
		failed = text
		pause := observeWaiting
		if d.ServingSince != nil && f.front == nil {
			pause = observeServing
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
}

func (n *node) observe(ctx context.Context) facts {
	f := facts{now: n.opt.Now(), node: n.cfg.Node, services: n.manager.Services(8), observed: true}
	var tasks sync.WaitGroup
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	tasks.Go(func() { f.front = n.pingFront(ctx) })
	if n.cfg.LB.Enabled {
		tasks.Go(func() { f.balancer, f.balErr = askBalancer(ctx, n.balancer) })
	}
	f.slowAnswer = n.slow.get(n.opt.Now())
	f.volume = n.volumeFacts()
	f.role, f.address = status.RoleSingle, n.cfg.Peering.Address
	if n.member != nil {
		f.others, f.cluster = n.member.words()
		f.role = n.member.role()
	}
	if f.setup, f.cluster = n.setupFacts(f.cluster); f.setup != "" {
		f.step = stepUnderWay(n.setup.Where())
	}
	f.virtual = n.virtualFacts()
	f.clock = n.clock.Load()
	if n.master.Missing && !n.opt.InImage {
		f.asRoot = append(f.asRoot, "salt-master")
	}
	if n.lb.Missing && !n.opt.InImage && n.cfg.LB.Enabled {
		f.asRoot = append(f.asRoot, "applianced lb")
	}
	n.mu.Lock()
	f.blocked = map[string][]status.Finding{}
	for k, v := range n.blocked {
		f.blocked[k] = v
	}
	f.unbounded = maps.Clone(n.unbounded)
	for _, u := range n.insecure {
		f.insecure = append(f.insecure, u.Option)
	}
	f.stopping = n.isDown
	n.mu.Unlock()
	tasks.Wait()
	return f
}

// pingFront asks for a ping where minions would ask.
func (n *node) pingFront(ctx context.Context) error {
	if !n.cfg.LB.Enabled {
		return probe.Ping(ctx, n.cfg.MasterRequest())
	}
	var last error
	for _, a := range n.cfg.FrontRequest() {
		if last = probe.Ping(ctx, reachable(a)); last == nil {
			return nil
		}
	}
	return last
}

// compose makes the document of what was seen.
func (n *node) compose(f facts) status.Document {
	now := n.opt.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	if f.front != nil && n.hiccup(f, now) {
		f.front = nil
	} else if f.front == nil {
		n.answered = now
	}
	f.cluster = append(slices.Clip(f.cluster), f.judgeOthers()...)
	serving := f.observed && f.front == nil && !f.stopping
	switch {
	case serving && n.since == nil:
		n.since, n.served = &now, true
	case !serving:
		n.since = nil
	}
	d := status.Document{
		Schema: status.Schema, Time: now, Version: n.opt.Version, Cluster: n.cfg.Cluster, Node: n.cfg.Node,
		Started: n.started, ServingSince: n.since, Setup: status.SetupWaiting,
		Front:    status.Front{Addresses: frontAddresses(n.cfg.Front.Addresses), PublishPort: n.cfg.Front.PublishPort, RequestPort: n.cfg.Front.RequestPort},
		Services: []status.Service{}, Clock: status.Clock{Synchronised: f.clock},
		Storage: storageOf(n.cfg.Storage.Kind, n.cfg.StorageDir(), f.volume),
	}
	d.Setup, d.SetupStep = setupState(f.setup, serving, n.served), f.step
	if disk, ok := f.disks[n.cfg.StorageDir()]; ok && disk.err == nil {
		d.Storage.Total, d.Storage.Free, d.Storage.FreePercent, d.Storage.InodesFree = disk.Total, disk.Free, disk.FreePercent, disk.InodesPercent
	}
	if f.keys != nil {
		d.Minions.Accepted, d.Minions.Pending, d.Minions.Rejected, d.Minions.Denied = f.keys.Accepted, f.keys.Pending, f.keys.Rejected, f.keys.Denied
	}
	if pid := pidOf(f, masterService); f.master.fresh(now, pid) {
		m := f.master
		// The master's index is newer than the last look at the folders.
		d.Minions.Accepted, d.Minions.Pending, d.Minions.Rejected, d.Minions.Denied = m.Accepted, m.Pending, m.Rejected, m.Denied
		d.Master = &status.Master{Written: m.Written, Requests: m.Requests, Returns: m.Returns, Jobs: m.Jobs,
			OldestRequestMillis: m.OldestMillis, PillarErrorMinions: m.PillarFaulty}
	}
	if f.balancer != nil {
		d.Minions.Connected = &f.balancer.sessions
	}
	for _, i := range f.services {
		if i.Name == vipService && f.virtual == nil {
			continue // it is not wanted here
		}
		s := status.Service{Name: i.Name, State: string(i.State), Message: i.Message, Since: i.Since, PID: i.PID, Restarts: i.Restarts,
			LastExit: i.LastExit, LastLine: i.LastLine}
		for _, e := range i.Events {
			s.Events = append(s.Events, status.Event{Time: e.Time, State: string(e.State), Message: e.Message})
		}
		d.Services = append(d.Services, s)
	}
	d.Problems = n.board.Update(now, findings(n.cfg, f))
	d.Health = status.Worst(d.Problems)
	if serving && len(f.others) > 0 { // the front answers
		d.Health = status.ServedElsewhere(d.Problems)
	}
	if !serving {
		d.Health = status.NotServing
	}
	d.Exit = d.Health.Exit()
	d.Nodes = append([]status.Node{summary(f, d)}, f.others...)
	entry := first(d.Front.Addresses)
	if f.virtual != nil {
		entry = f.virtual.address
		d.Virtual = &status.Virtual{Address: entry, Nodes: holders(d.Nodes)}
		d.Front.Addresses = slices.DeleteFunc(d.Front.Addresses, func(a string) bool { return a == entry })
	}
	if serving && d.Minions.Accepted+d.Minions.Pending == 0 {
		d.Next = "point minions here: master: " + entry + "; then: applianced keys"
	} else if serving && d.Minions.Pending > 0 {
		d.Next = "applianced keys shows the keys that wait for you; applianced keys accept MINION takes one"
	}
	return d
}

// hiccup reports whether a ping through the front may have failed although
// minions are served: the load balancer gave it to a master that has just hung,
// and gives nobody to that one from now on. n.mu is held.
func (n *node) hiccup(f facts, now time.Time) bool {
	if n.since == nil || now.Sub(n.answered) > hiccupMost {
		return false
	}
	if !n.cfg.LB.Enabled {
		return word(f, masterService) == "ok"
	}
	return f.balErr == nil && f.balancer != nil && f.balancer.up > 0
}

func first(list []string) string {
	if len(list) == 0 {
		return "this node"
	}
	return list[0]
}

// summary is this node's line in the table of nodes.
func summary(f facts, d status.Document) status.Node {
	s := status.Node{Name: d.Node, This: true, Address: f.address, Version: d.Version, Role: f.role, State: "starting", Master: masterWord(f, d.Node), Proxy: word(f, lbService),
		Storage: storageWord(f.volume), Minions: d.Minions.Connected, Clock: "?"}
	switch {
	case f.stopping:
		s.State = "stopping"
	case f.setup == status.SetupRemoved:
		s.State = "removed"
	case d.ServingSince != nil:
		s.State = "ready"
	case slices.ContainsFunc(d.Problems, func(p status.Problem) bool { return p.Severity == status.Fatal }):
		s.State = "not serving"
	}
	s.Virtual = f.virtual != nil && f.virtual.here
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

// pidOf gives the process of a service, 0 if there is none.
func pidOf(f facts, name string) int {
	for _, i := range f.services {
		if i.Name == name {
			return i.PID
		}
	}
	return 0
}

// masterWord says in one word how this node's master is: its supervisor knows
// whether it runs, the load balancer more quickly whether it answers.
func masterWord(f facts, name string) string {
	w := word(f, masterService)
	if w == "ok" && f.unanswered(name) != "" {
		return string(service.Failing)
	}
	return w
}

// unanswered is why the load balancer gives nobody to the master of that node;
// empty: it does, it was not asked, or that master has only just come up.
func (f facts) unanswered(name string) string {
	if f.balancer == nil {
		return ""
	}
	for _, i := range f.services {
		if i.Name == masterService && name == f.node && f.now.Sub(i.Since) < balancerLags {
			return ""
		}
	}
	return f.balancer.down[name]
}

// judgeOthers corrects what other nodes say of their masters by what this node's
// load balancer sees, and gives what is wrong then.
func (f facts) judgeOthers() (found []status.Finding) {
	for i, o := range f.others {
		why := f.unanswered(o.Name)
		if why == "" || o.State != "ready" || o.Master != "ok" {
			continue
		}
		f.others[i].Master = string(service.Failing)
		found = append(found, status.Finding{Code: status.NodeMasterDown, Subject: o.Name, Cause: "other masters serve its minions; the load balancer of this node gives it nobody: " + why})
	}
	return found
}

// word says in one word how a service is.
func word(f facts, name string) string {
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
	return "off"
}

func (n *node) notify(d status.Document) {
	state := "WATCHDOG=1"
	n.mu.Lock()
	ready := n.ready
	n.mu.Unlock()
	switch {
	case ready:
	case d.ServingSince != nil, n.opt.Now().Sub(n.started) > readyAnyway:
		state = "READY=1\nWATCHDOG=1"
		n.mu.Lock()
		n.ready = true
		n.mu.Unlock()
	default:
		state = extend + "\nWATCHDOG=1"
	}
	n.opt.Notify.Notify("STATUS=" + oneLine(headline(d)))
	for line := range strings.SplitSeq(state, "\n") {
		n.opt.Notify.Notify(line)
	}
}

// headline is the status in one line.
func headline(d status.Document) string {
	if len(d.Problems) > 0 {
		return fmt.Sprintf("%s: %s %s", d.Health, d.Problems[0].Code, d.Problems[0].Title)
	}
	return string(d.Health)
}

func (n *node) document() status.Document {
	d := *n.doc.Load()
	return d
}

// frontAddresses replaces a wildcard by the machine's own addresses, since
// "0.0.0.0" helps nobody who configures a minion.
func frontAddresses(configured []string) []string {
	const most = 8
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
	return out[:min(len(out), most)]
}

// slowFacts are those that touch a file system, which may hang. One goroutine
// at a time looks; its last answers are used meanwhile. A goroutine stuck in
// the kernel cannot be ended, but there is never more than one.
type slowFacts struct {
	paths  []string
	pki    string
	report string // the master's status file

	mu      sync.Mutex
	running bool
	since   time.Time // when the look under way began
	at      string    // what it is looking at
	last    time.Time
	answer  slowAnswer
}

const (
	slowEvery = 2 * time.Second
	slowHangs = 5 * time.Second // a look that takes longer is a problem
)

func newSlowFacts(cfg *settings.Settings) *slowFacts {
	s := &slowFacts{paths: []string{cfg.DataDir, cfg.StorageDir()}, pki: cfg.SharedPKIDir(), report: filepath.Join(cfg.CacheDir(), "status.json")}
	if cfg.OnVolume() { // nothing of this process touches it: the volume's manager and the master say how it is
		s.paths, s.pki = s.paths[:1], ""
	}
	return s
}

// get gives the last answers and starts a new look when they are old.
func (s *slowFacts) get(now time.Time) slowAnswer {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.answer
	switch {
	case s.running && now.Sub(s.since) > slowHangs:
		out.hang = map[string]time.Duration{s.at: now.Sub(s.since)}
	case !s.running && now.Sub(s.last) >= slowEvery:
		s.running, s.since = true, now
		go s.look()
	}
	return out
}

func (s *slowFacts) look() {
	disks := map[string]diskFact{}
	for _, p := range s.paths {
		s.mark(p)
		d, err := probe.StatDisk(p)
		disks[p] = diskFact{d, err}
	}
	var keys probe.Keys
	var err error
	if s.pki != "" {
		s.mark(s.pki)
		keys, err = probe.CountKeys(s.pki)
	}
	locked := setup.LockedOut()
	s.mark(s.report)
	master, merr := readMasterStatus(s.report)
	s.mu.Lock()
	defer s.mu.Unlock()
	if merr != nil && !errors.Is(merr, fs.ErrNotExist) {
		master = s.answer.master // half written, perhaps; it grows stale if that lasts
	}
	s.running, s.last, s.answer = false, s.since, slowAnswer{disks: disks, keys: &keys, keysErr: err, master: master, locked: locked}
}

// masterSpoke reports whether the master of that process id has written its status
// since then, or may have. One that does is busy, not hung: it asks most of its
// parts for it, every two seconds. Salt's own master writes none, so that nothing
// can be told of it.
func (s *slowFacts) masterSpoke(pid int, since time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last.Before(since) || s.running && time.Since(s.since) > slowHangs {
		return true // a file system hangs: nothing is known
	}
	m := s.answer.master
	return m == nil || m.PID != pid || m.Written.After(since)
}

func (s *slowFacts) mark(path string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = path
}
