package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"saltern/internal/audit"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/storage"
)

const (
	peerAsk   = 2 * time.Second // interval between requests to one node
	peerTakes = 4 * time.Second
)

// peers asks the other nodes for their state, and stores their answers.
type peers struct {
	env    Env
	id     *nodeapi.Identity
	keeper *nodes.Keeper
	uses   *keyWatch
	told   func(name string) // called when a node reports that this node was removed
	side   sync.WaitGroup    // counts goroutines that send a table to another node

	mu    sync.Mutex
	views map[string]*peerView
}

// peerView holds what this node knows of another node.
type peerView struct {
	client  *nodeapi.Client
	pin     string
	address string
	summary nodeapi.Summary
	seen    time.Time // when summary arrived
	err     error     // error of the newest request; nil: the node answered
	asking  bool
	since   time.Time     // since when requests have failed with err
	heard   time.Time     // when the node's machine last sent anything, even a refused connection
	ahead   time.Duration // lead of the node's clock when summary arrived; 0: too small to measure
}

// follow asks the other nodes for their state, and fetches newer tables from them.
func (p *peers) follow(ctx context.Context, all *sync.WaitGroup) {
	t := p.keeper.Table()
	now := p.env.Now()
	p.mu.Lock()
	defer p.mu.Unlock()

	present := t.Peers(p.env.Settings.Node)
	for name, v := range p.views {
		i := slices.IndexFunc(present, func(n nodes.Node) bool { return n.Name == name })
		if i < 0 || present[i].Certificate != v.pin || present[i].Address != v.address {
			v.client.Close()
			delete(p.views, name)
		}
	}

	for _, n := range present {
		v := p.views[n.Name]
		if v == nil {
			v = &peerView{client: p.clientFor(n), pin: n.Certificate, address: n.Address, since: now}
			p.views[n.Name] = v
		}

		if v.asking || now.Sub(v.seen) < peerAsk && v.err == nil {
			continue
		}

		v.asking = true
		all.Go(func() { p.askState(ctx, n.Name, v) })
	}
}

// clientFor returns a client for another node. It sends nothing yet.
func (p *peers) clientFor(n nodes.Node) *nodeapi.Client {
	return nodeapi.NewClient(p.id, address(p.env.Settings, n), n.Certificate)
}

func address(s *settings.Settings, n nodes.Node) string {
	return net.JoinHostPort(n.Address, strconv.Itoa(s.Peering.NodePort))
}

// askState asks one node for its state, and fetches its table of nodes if that is newer than ours.
func (p *peers) askState(ctx context.Context, name string, v *peerView) {
	ctx, cancel := context.WithTimeout(ctx, peerTakes)
	defer cancel()
	began := time.Now()
	s, err := v.client.Status(ctx)
	round := time.Since(began)

	if err == nil && s.Table > p.keeper.Table().Version {
		err = p.fetchTable(ctx, v)
	}

	if errors.Is(err, nodeapi.ErrRemoved) {
		p.told(name)
	}

	if err == nil {
		table := p.keeper.Table()
		from, _ := table.ByCertificate(v.pin)
		p.uses.takeReports(from, s.Uses)
	}

	now := p.env.Now()
	p.mu.Lock()
	defer p.mu.Unlock()

	v.asking = false
	if err == nil || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, nodeapi.ErrRemoved) {
		v.heard = now
	}

	if err != nil {
		if v.err == nil {
			v.since = now
		}
		v.err = err
		return
	}

	v.summary = s
	v.seen = now
	v.err = nil
	v.ahead = clockLead(s.Time, began, round)
}

// fetchTable accepts the newer table of another node. From a node that does not serve it accepts
// only changes that this node may make. Other changes come from the shared storage, or from another
// node.
func (p *peers) fetchTable(ctx context.Context, v *peerView) error {
	t, err := v.client.Table(ctx)
	if err != nil {
		return err
	}

	now := p.keeper.Table()
	from, known := now.ByCertificate(v.pin)
	if !known {
		return nil
	}

	if !from.Serves() {
		if err := nodes.CheckStep(from, now, t); err != nil {
			p.env.Log.Debug("the table of a node that does not serve is not taken", "peer", from.Name,
				"version", t.Version, "error", err)
			return nil
		}
	}

	_, err = p.keeper.Offer(t)
	return err
}

// change changes the table by f and sends the result to the other nodes, unless this machine may
// not act for its node.
func (p *peers) change(ctx context.Context, f func(*nodes.Table) error) (nodes.Table, error) {
	if err := p.uses.mayAct(); err != nil {
		return nodes.Table{}, err
	}
	t, err := p.keeper.Change(ctx, f)
	if err == nil {
		p.spread(t)
	}
	return t, err
}

// spread sends a new table to the other nodes. A node that is unreachable now asks for the table
// later.
func (p *peers) spread(t nodes.Table) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.views {
		p.side.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), peerTakes)
			defer cancel()
			_ = v.client.Offer(ctx, t)
		})
	}
}

// authority fetches the authority of the storage's certificates from the first node that has it.
func (p *peers) authority(ctx context.Context) (a storage.Authority, err error) {
	err = p.firstOf(ctx, func(ctx context.Context, c *nodeapi.Client) error {
		got, err := c.StorageAuthority(ctx)
		a = storage.Authority{Cert: got.Cert, Key: got.Key}
		return err
	})
	return a, err
}

// signStorage asks one other node after another to sign this node's certificate for the storage.
func (p *peers) signStorage(ctx context.Context, request []byte) (signed storage.Signed, err error) {
	err = p.firstOf(ctx, func(ctx context.Context, c *nodeapi.Client) error {
		got, err := c.SignStorage(ctx, request)
		signed = storage.Signed{Cert: got.Cert, Authority: got.Authority}
		return err
	})
	return signed, err
}

// firstOf asks the other nodes in turn until one answers without an error.
func (p *peers) firstOf(ctx context.Context, ask func(context.Context, *nodeapi.Client) error) error {
	t := p.keeper.Table()
	others := t.Peers(p.env.Settings.Node)
	if len(others) == 0 {
		return errors.New("no other node is known")
	}

	var faults []error
	for _, o := range others {
		c := p.clientFor(o)
		ctx, cancel := context.WithTimeout(ctx, peerTakes)
		err := ask(ctx, c)
		cancel()
		c.Close()

		if err == nil {
			return nil
		}

		faults = append(faults, fmt.Errorf("%s: %w", o.Name, err))
	}

	return errors.Join(faults...)
}

// answers reports whether another node answered this node's last request.
func (p *peers) answers(node string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := p.views[node]
	return v != nil && v.err == nil && !v.seen.IsZero()
}

// answeredSince reports whether another node that serves has answered since start.
func (p *peers) answeredSince(start time.Time) bool {
	t := p.keeper.Table()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, n := range t.Peers(p.env.Settings.Node) {
		if v := p.views[n.Name]; v != nil && n.Serves() && v.err == nil && v.seen.After(start) {
			return true
		}
	}
	return false
}

// lastHeard returns the number of other nodes, and the time at which one of their machines last
// sent anything. The time is zero if none has.
func (p *peers) lastHeard() (others int, last time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.views {
		if v.heard.After(last) {
			last = v.heard
		}
	}
	return len(p.views), last
}

// askOut asks the other nodes, one after the other, to remove this node. While the volume needs
// this node's copy of the data, they answer with [nodeapi.ErrStorage].
func (p *peers) askOut(ctx context.Context, others []nodes.Node) (last error) {
	last = errors.New("none was spoken with yet")
	clients := p.clients()
	for _, o := range others {
		c := clients[o.Name]
		if c == nil {
			continue
		}

		_, last = c.SetState(ctx, nodes.Removed)
		switch {
		case last == nil, errors.Is(last, nodeapi.ErrRemoved):
			p.told(o.Name)
			return nil
		case errors.Is(last, nodeapi.ErrStorage):
			return last
		}
	}

	return last
}

// clients returns the clients of the other nodes, by name.
func (p *peers) clients() map[string]*nodeapi.Client {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]*nodeapi.Client{}
	for name, v := range p.views {
		out[name] = v.client
	}
	return out
}

// secrets returns the fingerprints of the secrets that the other nodes have, by name, and the names
// of nodes that do not answer. waits names a node that has not had time to answer yet, or is "".
func (p *peers) secrets() (have map[string]secretNames, away []string, waits string) {
	t := p.keeper.Table()
	p.mu.Lock()
	defer p.mu.Unlock()

	have = map[string]secretNames{}
	for _, n := range t.Peers(p.env.Settings.Node) {
		v := p.views[n.Name]
		switch {
		case n.State == nodes.Joining && (v == nil || v.err != nil):
			away = append(away, n.Name)
		case v == nil || v.seen.IsZero() && v.err == nil:
			waits = n.Name + " to answer"
		case v.err != nil:
			away = append(away, n.Name)
		default:
			have[n.Name] = secretNames{own: v.summary.Secret, next: v.summary.NextSecret}
		}
	}

	return have, away, waits
}

// Heads holds the heads of a node's audit record, and the node's key in the table of nodes.
type Heads struct {
	Key   string
	Heads []audit.Head
}

// auditHeads returns the heads of the other nodes' audit records, by name.
func (p *peers) auditHeads() map[string]Heads {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]Heads{}
	for name, v := range p.views {
		if heads := audit.ParseHeads(v.summary.Heads); len(heads) > 0 {
			out[name] = Heads{v.pin, heads}
		}
	}
	return out
}

// close waits for tables that are being sent, and closes the connections.
func (p *peers) close() {
	p.side.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, v := range p.views {
		v.client.Close()
	}
}
