package supervisor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"saltern/supervisor/firewall"
	"saltern/supervisor/layout"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
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
	since   time.Time // of err
}

const (
	memberTick = time.Second
	peerAsk    = 2 * time.Second // between questions to one node
	peerTakes  = 4 * time.Second
	listenWait = time.Second
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
	return &member{n: n, id: id, keeper: k, peers: map[string]*peerView{}, drained: map[string]bool{}, waits: "the shared storage"}, nil
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
	for {
		m.place(ctx)
		m.follow(ctx, &all)
		m.announce(ctx)
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

// place looks for the cluster's key on the shared storage and, on the node that
// formed the cluster, puts it there.
func (m *member) place(ctx context.Context) {
	m.mu.Lock()
	have := m.key != nil
	m.mu.Unlock()
	if have {
		m.shared.start(func() {
			_ = m.keeper.Look(ctx)
			m.isFounded()
			m.takeSecret()
		})
		return
	}
	if m.n.volume != nil {
		if st := m.n.volume.State(); !st.Ready {
			m.setWaits(st.Waiting)
			return
		}
	}
	m.shared.start(func() {
		key, err := m.lookForKey(ctx)
		if err == nil && !m.isFounded() && !m.first() {
			err = errors.New("the master of the first node to begin")
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		if err != nil {
			m.waits = err.Error()
			return
		}
		m.key, m.waits = key, ""
	})
}

// isFounded looks for the masters' record on the shared storage.
func (m *member) isFounded() bool {
	_, err := os.Stat(filepath.Join(m.n.cfg.SharedPKIDir(), clusterRecord))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.founded = m.founded || err == nil
	return m.founded
}

// first tells whether this node's master is the one that makes the record: of
// several that wait for each other nobody would.
func (m *member) first() bool {
	t := m.keeper.Table()
	p := t.Present()
	return len(p) > 0 && p[0].Certificate == m.id.Hash
}

func (m *member) setWaits(s string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waits = s
}

// lookForKey runs in the worker of the shared storage.
func (m *member) lookForKey(ctx context.Context) (*nodeapi.ClusterKey, error) {
	cfg := m.n.cfg
	pki := cfg.SharedPKIDir()
	path := filepath.Join(pki, "cluster.pem")
	staged := filepath.Join(cfg.NodeDir(), setup.StagedKey)
	t := m.keeper.Table()
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		own, serr := os.ReadFile(staged)
		if serr != nil {
			return nil, fmt.Errorf("the cluster's key %s (is the shared storage mounted?)", path)
		}
		if err := m.makeShared(); err != nil {
			return nil, fmt.Errorf("the shared storage: %w", err)
		}
		if err := m.putKey(pki, own); err != nil {
			return nil, fmt.Errorf("the shared storage: %w", err)
		}
		text, err = own, nil
	}
	if err != nil {
		return nil, fmt.Errorf("the cluster's key: %w", err)
	}
	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		return nil, err
	}
	if t.KeyHash != "" && key.Hash != t.KeyHash {
		return nil, fmt.Errorf("%s to hold the key of this cluster: it is that of another one", path)
	}
	if _, err := os.Stat(staged); err == nil {
		// The table goes to the shared storage before the staged key is given up.
		if _, err := m.keeper.Change(ctx, func(*nodes.Table) error { return nil }); err != nil {
			return nil, err
		}
		if err := os.Remove(staged); err != nil {
			return nil, err
		}
	}
	return key, nil
}

// makeShared makes what the shared storage needs before masters use it. Only
// the node that forms the cluster does so.
func (m *member) makeShared() error {
	cfg := m.n.cfg
	for _, d := range []struct {
		path string
		mode os.FileMode
		own  bool
	}{{cfg.StorageDir(), 0o755, false}, {cfg.SharedPKIDir(), 0o700, true}, {cfg.SharedNodesDir(), 0o700, false}} {
		err := os.Mkdir(d.path, d.mode)
		if err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		if err == nil && d.own && m.n.master.Credential != nil {
			if err := os.Chown(d.path, m.n.master.UID, m.n.master.GID); err != nil {
				return err
			}
		}
	}
	return nil
}

// putKey writes the cluster's key pair, the public half first: who finds the
// private one finds both.
func (m *member) putKey(pki string, text []byte) error {
	key, err := nodeapi.ParseClusterKey(text)
	if err != nil {
		return err
	}
	for _, f := range []struct {
		name string
		text []byte
	}{{"cluster.pub", []byte(key.Public)}, {"cluster.pem", text}} {
		tmp := filepath.Join(pki, "."+f.name+".new")
		if _, err := layout.WriteFile(tmp, f.text, 0o400); err != nil {
			return err
		}
		if m.n.master.Credential != nil {
			if err := os.Chown(tmp, m.n.master.UID, m.n.master.GID); err != nil {
				return err
			}
		}
		if err := os.Rename(tmp, filepath.Join(pki, f.name)); err != nil {
			return err
		}
	}
	return nil
}

// ready tells whether the shared storage is there, and what is missing.
func (m *member) ready() (bool, string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.key != nil, m.waits
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
	s, err := p.client.Status(ctx)
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
	p.summary, p.seen, p.err = s, now, nil
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
			if !firewalled(ctx) {
				return
			}
			if err := firewall.Apply(ctx, peers); err != nil {
				m.n.opt.Log.Error("firewall: other nodes may be shut out", "error", err)
			}
		})
	}
}

// firewalled tells whether this machine has a firewall of ours.
func firewalled(ctx context.Context) bool {
	nft, err := exec.LookPath("nft")
	return err == nil && exec.CommandContext(ctx, nft, "list", "table", "inet", firewall.Table).Run() == nil
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

// words gives the nodes' lines and findings for the status.
func (m *member) words() (lines []status.Node, found []status.Finding) {
	if _, gone := m.gone(); gone {
		return nil, nil
	}
	t := m.keeper.Table()
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.api != nil {
		found = append(found, status.Finding{Code: status.NodeAPIDown, Subject: m.n.cfg.NodeAddress(), Cause: m.api.Error()})
	}
	for _, n := range t.Peers(m.n.cfg.Node) {
		p := m.peers[n.Name]
		l := status.Node{Name: n.Name, Role: "voter", State: "?", Master: "?", Proxy: "?", Storage: "?", Clock: "?"}
		if m.n.cfg.OnVolume() && n.Storage == "client" {
			l.Role = "client"
		}
		switch {
		case p == nil || p.seen.IsZero() && p.err == nil:
		case p.err != nil:
			l.State = "unreachable"
			if !p.seen.IsZero() {
				seen := p.seen
				l.LastSeen = &seen
			}
			found = append(found, status.Finding{Code: status.NodeUnreachable, Subject: n.Name, Cause: fmt.Sprintf("%s: %v", m.addressOf(n), p.err)})
		default:
			s := p.summary.Node
			l.State, l.Master, l.Proxy, l.Storage, l.Minions = plain(s.State), plain(s.Master), plain(s.Proxy), plain(s.Storage), s.Minions
			l.Clock = plain(s.Clock)
			if s.State != "ready" && s.State != "starting" && n.State != nodes.Joining {
				found = append(found, status.Finding{Code: status.NodeNotServing, Subject: n.Name, Cause: cause(p.summary)})
			}
		}
		if n.State != nodes.Member && l.State != "unreachable" {
			l.State = string(n.State)
		}
		lines = append(lines, l)
	}
	slices.SortFunc(lines, func(a, b status.Node) int { return strings.Compare(a.Name, b.Name) })
	return lines, found
}

// cause is what another node says is wrong with it.
func cause(s nodeapi.Summary) string {
	if len(s.Problems) == 0 {
		return "it says that it is " + plain(s.Node.State)
	}
	p := s.Problems[0]
	return clip(strings.Join(strings.Fields(string(p.Code)+" "+p.Title+": "+p.Cause), " "))
}

// plain bounds a word that another node says, and takes out of it what would
// not be one word on one line.
func plain(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == ' ' || r == '-' || r == '+' || r == '.' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return -1
	}, s[:min(len(s), 200)])
	return s[:min(len(s), 40)]
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

// host is the member as the node API sees it.
type host struct{ m *member }

// Table implements nodeapi.Host.
func (h host) Table() nodes.Table { return h.m.keeper.Table() }

// Secret implements nodeapi.Host.
func (h host) Secret() (string, error) { return setup.ReadSecret(h.m.n.cfg.NodeDir()) }

// ClusterKey implements nodeapi.Host.
func (h host) ClusterKey() (*nodeapi.ClusterKey, error) {
	h.m.mu.Lock()
	defer h.m.mu.Unlock()
	if h.m.key == nil {
		return nil, fmt.Errorf("this node waits for %s", h.m.waits)
	}
	if self, ok := h.m.self(); !ok || self.State == nodes.Removed || h.m.removed != "" {
		return nil, errors.New("this node does not belong to the cluster any more")
	}
	return h.m.key, nil
}

// Storage implements nodeapi.Host.
func (h host) Storage() nodeapi.Storage {
	return nodeapi.Storage{Kind: h.m.n.cfg.Storage.Kind, Path: h.m.n.cfg.Storage.Path}
}

// Summary implements nodeapi.Host.
func (h host) Summary() nodeapi.Summary {
	d := h.m.n.document()
	s := nodeapi.Summary{Setup: d.Setup, Version: d.Version, Time: h.m.n.opt.Now(), Table: h.m.keeper.Table().Version, Problems: d.Problems[:min(len(d.Problems), 8)]}
	for _, n := range d.Nodes {
		if n.Name == h.m.n.cfg.Node {
			s.Node = n
		}
	}
	return s
}

// Offer implements nodeapi.Host.
func (h host) Offer(t nodes.Table) error {
	_, err := h.m.keeper.Offer(t)
	return err
}

const changeTakes = 20 * time.Second

// Admit implements nodeapi.Host.
func (h host) Admit(ctx context.Context, n nodes.Node) (nodes.Table, error) {
	if h.m.n.cfg.Storage.Kind == settings.LocalStorage {
		return nodes.Table{}, fmt.Errorf("%w: this cluster keeps everything in a local directory of its first node", nodeapi.ErrStorage)
	}
	if ip, err := netip.ParseAddr(n.Address); err == nil && ip.IsLoopback() {
		if own, err := netip.ParseAddr(h.m.n.cfg.Peering.Address); err == nil && !own.IsLoopback() {
			return nodes.Table{}, fmt.Errorf("%w: %s is a loopback address", nodeapi.ErrName, n.Address)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, changeTakes)
	defer cancel()
	t, err := h.m.keeper.Change(ctx, func(t *nodes.Table) error {
		err := nodes.Admit(t, n)
		switch {
		case errors.Is(err, nodes.ErrRemoved):
			return fmt.Errorf("%w: %w", nodeapi.ErrRemoved, err)
		case err != nil:
			return fmt.Errorf("%w: %w", nodeapi.ErrName, err)
		}
		return nil
	})
	if err == nil {
		h.m.spread(t)
	}
	return t, err
}

// SetState implements nodeapi.Host. A node that goes is taken out here.
func (h host) SetState(ctx context.Context, name string, s nodes.State) (nodes.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, changeTakes)
	defer cancel()
	if s == nodes.Removed {
		err := h.m.drop(ctx, name)
		return h.Table(), err
	}
	t, err := h.m.keeper.Change(ctx, func(t *nodes.Table) error { return t.Set(name, s) })
	if err == nil {
		h.m.spread(t)
	}
	return t, err
}

// SetSecret implements nodeapi.Host.
func (h host) SetSecret(secret string) error {
	if err := setup.WriteSecret(h.m.n.cfg.NodeDir(), secret); err != nil {
		return err
	}
	return h.m.n.writeSecret()
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
