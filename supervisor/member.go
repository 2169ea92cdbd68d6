package supervisor

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"saltern/supervisor/firewall"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
)

// member is this node's part in its cluster: the node API, the table of nodes,
// what is known of the others, and the cluster's key on the shared storage.
type member struct {
	n      *node
	id     *nodeapi.Identity
	keeper *nodes.Keeper
	shared worker // looks at the shared storage, which may hang
	saying worker // tells the cluster that this node serves
	drains worker // keeps the load balancer in line with who is drained
	// life tells this supervisor from the one after the next restart.
	life      string
	returning worker // gives the turn back after a restart
	// drained are the masters that we had our load balancer drain; the drains
	// worker's alone.
	drained map[string]bool
	// applied is the version of the table that apply has seen; run's alone.
	applied uint64

	mu      sync.Mutex
	key     *nodeapi.ClusterKey // nil: not there yet
	waits   string              // for what, while key is nil
	founded bool                // the masters have made their record
	peers   map[string]*peerView
	side    sync.WaitGroup // tables under way to other nodes
	api     error          // why the node API does not listen
	removed string         // who said that this node was removed
	secrets secretNames    // that are on this node's disk
}

// peerView is what is known of another node.
type peerView struct {
	client  *nodeapi.Client
	pin     string
	address string
	summary nodeapi.Summary
	seen    time.Time // of summary
	err     error     // of the newest question; nil: it answered
	asking  bool
	since   time.Time     // of err
	ahead   time.Duration // of its clock, as of summary; 0 as well when that is within how exactly it can be told
}

const (
	memberTick = time.Second
	peerAsk    = 2 * time.Second // between questions to one node
	peerTakes  = 4 * time.Second
	// sharedEvery is between looks at the shared storage once the cluster's key was
	// found there. Nodes give each other new tables at once: a look is for who missed
	// one, and each is a question to all bricks of a volume.
	sharedEvery = 4 * time.Second
	listenWait  = time.Second
)

func newMember(n *node) (*member, error) {
	if !n.cfg.Peering.Enabled {
		return nil, nil
	}
	if err := os.MkdirAll(n.cfg.NodeDir(), 0o700); err != nil {
		return nil, fmt.Errorf("node directory: %w", err)
	}
	id, err := nodeapi.LoadIdentity(n.cfg.NodeDir())
	if err != nil {
		return nil, err
	}
	k, err := nodes.OpenKeeper(n.cfg.DataDir, n.cfg.SharedNodesDir())
	if err != nil {
		return nil, err
	}
	return &member{n: n, id: id, keeper: k, peers: map[string]*peerView{}, drained: map[string]bool{}, life: rand.Text(), waits: "the shared storage"}, nil
}

// settings are those of the node with the members of the cluster filled in.
func (n *node) settings() *settings.Settings {
	if n.member == nil {
		return n.cfg
	}
	c := *n.cfg
	t := n.member.keeper.Table()
	for _, o := range t.Present() {
		c.Members = append(c.Members, settings.Member{Name: o.Name, Address: o.Address, Draining: o.State == nodes.Draining || o.State == nodes.Leaving})
	}
	n.member.mu.Lock()
	c.Founds = !n.member.founded && n.member.first()
	n.member.mu.Unlock()
	return &c
}

// run keeps the node a member until ctx ends.
func (m *member) run(ctx context.Context) {
	var all sync.WaitGroup
	all.Go(func() { m.listen(ctx) })
	tick := time.NewTicker(memberTick)
	defer tick.Stop()
	var looked time.Time
	for {
		if ok, _ := m.ready(); !ok || time.Since(looked) >= sharedEvery {
			looked = time.Now()
			m.place(ctx)
		}
		m.follow(ctx, &all)
		m.announce(ctx)
		m.bringBack(ctx)
		m.drains.start(func() { m.drain(ctx) })
		changed := m.keeper.Changed()
		m.apply(ctx)
		select {
		case <-ctx.Done():
			all.Wait()
			m.side.Wait()
			m.shared.wait(2 * time.Second)
			m.saying.wait(2 * time.Second)
			m.drains.wait(2 * time.Second)
			m.returning.wait(2 * time.Second)
			for _, p := range m.peers {
				p.client.Close()
			}
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// listen serves the node API, again and again when that fails.
func (m *member) listen(ctx context.Context) {
	srv := nodeapi.NewServer(host{m}, m.id, m.n.opt.Version, m.n.opt.Log, m.n.opt.Now)
	for ctx.Err() == nil {
		var lc net.ListenConfig
		ln, err := lc.Listen(ctx, "tcp", m.n.cfg.NodeAddress())
		m.mu.Lock()
		m.api = err
		m.mu.Unlock()
		if err == nil {
			err = srv.Serve(ctx, ln)
		}
		if err != nil && ctx.Err() == nil {
			m.n.opt.Log.Error("node API", "error", err)
			select {
			case <-ctx.Done():
			case <-time.After(listenWait):
			}
		}
	}
}

// follow asks the other nodes how they do, and takes newer tables from them.
func (m *member) follow(ctx context.Context, all *sync.WaitGroup) {
	if _, gone := m.gone(); gone {
		return // they would only say so again
	}
	t := m.keeper.Table()
	now := m.n.opt.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	present := t.Peers(m.n.cfg.Node)
	for name, p := range m.peers {
		i := slices.IndexFunc(present, func(n nodes.Node) bool { return n.Name == name })
		if i < 0 || present[i].Certificate != p.pin || present[i].Address != p.address {
			p.client.Close()
			delete(m.peers, name)
		}
	}
	for _, n := range present {
		p := m.peers[n.Name]
		if p == nil {
			p = &peerView{client: nodeapi.NewClient(m.id, m.addressOf(n), n.Certificate), pin: n.Certificate, address: n.Address, since: now}
			m.peers[n.Name] = p
		}
		if p.asking || now.Sub(p.seen) < peerAsk && p.err == nil {
			continue
		}
		p.asking = true
		all.Go(func() { m.ask(ctx, n.Name, p) })
	}
}

func (m *member) addressOf(n nodes.Node) string {
	return net.JoinHostPort(n.Address, strconv.Itoa(m.n.cfg.Peering.NodePort))
}

// ask asks one node. A table that is newer there is fetched.
func (m *member) ask(ctx context.Context, name string, p *peerView) {
	ctx, cancel := context.WithTimeout(ctx, peerTakes)
	defer cancel()
	began := time.Now()
	s, err := p.client.Status(ctx)
	round := time.Since(began)
	if err == nil && s.Table > m.keeper.Table().Version {
		var t nodes.Table
		if t, err = p.client.Table(ctx); err == nil {
			_, err = m.keeper.Offer(t)
		}
	}
	now := m.n.opt.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	p.asking = false
	if errors.Is(err, nodeapi.ErrRemoved) {
		m.removed = name
	}
	if err != nil {
		if p.err == nil {
			p.since = now
		}
		p.err = err
		return
	}
	p.summary, p.seen, p.err, p.ahead = s, now, nil, ahead(s.Time, began, round)
}

// announce says that this node serves, once it does.
func (m *member) announce(ctx context.Context) {
	self, ok := m.self()
	if !ok || self.State != nodes.Joining || !m.n.serving() {
		return
	}
	m.saying.start(func() {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if _, err := m.keeper.Change(ctx, func(t *nodes.Table) error { return t.Set(self.Name, nodes.Member) }); err != nil {
			m.n.opt.Log.Warn("cannot tell the cluster that this node serves", "error", err)
		}
	})
}

// self is this node's line in the table.
func (m *member) self() (nodes.Node, bool) {
	t := m.keeper.Table()
	return t.ByCertificate(m.id.Hash)
}

// gone tells whether this node was removed, and by whom that is known.
func (m *member) gone() (string, bool) {
	if t := m.keeper.Table(); t.WasRemoved(m.id.Hash) {
		return "the table of nodes says so", true
	}
	if m.n.setup != nil && m.n.setup.Where().State == status.SetupRemoved {
		return "it was told so before", true
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.removed + " says so", m.removed != ""
}

// apply brings what depends on the table in line with it: the masters of the
// load balancer, and whom the firewall lets through. Our master learns of its peers by itself; what its
// configuration says about them counts at its next start.
func (m *member) apply(ctx context.Context) {
	t := m.keeper.Table()
	if t.Version == m.applied {
		return
	}
	m.applied = t.Version
	if m.n.cfg.LB.Enabled {
		if err := m.n.writeBalancer(); err != nil {
			m.n.opt.Log.Error("load balancer configuration", "error", err)
		}
	}
	if peers, err := firewall.Peers(t); err != nil {
		m.n.opt.Log.Error("firewall", "error", err)
	} else {
		m.side.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			if !firewall.There(ctx) {
				return
			}
			if err := firewall.Apply(ctx, peers); err != nil {
				m.n.opt.Log.Error("firewall: other nodes may be shut out", "error", err)
			}
		})
	}
}

// drain has our load balancer drain the masters of nodes that are drained or
// leave. What an administrator drained there by hand stays.
func (m *member) drain(ctx context.Context) {
	if !m.n.cfg.LB.Enabled {
		return
	}
	want := map[string]bool{}
	for _, o := range m.n.settings().Members {
		want[o.Name] = o.Draining
	}
	if len(m.drained) == 0 && !slices.Contains(slices.Collect(maps.Values(want)), true) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	st, err := m.n.balancer.Status(ctx)
	if err != nil {
		return // seen elsewhere
	}
	for _, b := range st.Backends {
		switch {
		case want[b.Name] && !b.Drain:
			err = m.n.balancer.Drain(ctx, b.Name)
		case !want[b.Name] && b.Drain && m.drained[b.Name]:
			err = m.n.balancer.Undrain(ctx, b.Name)
		}
		if err != nil {
			m.n.opt.Log.Warn("drain", "peer", b.Name, "error", err)
			return
		}
		if want[b.Name] {
			m.drained[b.Name] = true
		} else {
			delete(m.drained, b.Name)
		}
	}
}

// worker runs one thing at a time that may hang.
type worker struct {
	mu   sync.Mutex
	done chan struct{} // of what runs; nil: nothing
}

// start runs f unless something still runs.
func (w *worker) start(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.done != nil {
		select {
		case <-w.done:
		default:
			return
		}
	}
	done := make(chan struct{})
	w.done = done
	go func() {
		defer close(done)
		f()
	}()
}

// wait waits for what runs, at most for limit: it may hang in the kernel.
func (w *worker) wait(limit time.Duration) {
	w.mu.Lock()
	done := w.done
	w.mu.Unlock()
	if done == nil {
		return
	}
	select {
	case <-done:
	case <-time.After(limit):
	}
}

// spread gives the other nodes a new table at once; who cannot be reached asks
// for it later.
func (m *member) spread(t nodes.Table) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.peers {
		m.side.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), peerTakes)
			defer cancel()
			_ = p.client.Offer(ctx, t)
		})
	}
}
