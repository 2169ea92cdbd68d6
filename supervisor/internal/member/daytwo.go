package member

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"saltern/internal/control"
	"saltern/internal/pause"
	"saltern/supervisor/api"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/setup"
)

// Verbs carries out what an administrator asks of a member through the local API.
type Verbs struct{ *Member }

// Drain stops sending new minions to a node. If end is set, it allows new minions again.
func (m Verbs) Drain(ctx context.Context, node string, end bool) error {
	if m.env.Settings.Arbiter {
		return m.peers.noMaster("drain a node")
	}

	from, to := nodes.Member, nodes.Draining
	if end {
		from, to = to, from
	}

	return m.Change(ctx, func(t *nodes.Table) error {
		n, ok := t.Find(node)
		switch {
		case !ok:
			return unknownNode(node, t)
		case n.IsArbiter():
			return fmt.Errorf("%w: %s is the cluster's arbiter: it serves no minions, so that there is nothing to drain; it may be restarted at any time while both copies are well",
				api.ErrState, node)
		case n.State == to:
			return nil
		case n.State != from:
			return fmt.Errorf("%w: %s is %s", api.ErrState, node, n.State)
		}

		return t.Set(node, to)
	})
}

func unknownNode(name string, t *nodes.Table) error {
	var names []string
	for _, n := range t.Present() {
		names = append(names, n.Name)
	}
	return fmt.Errorf("%w: there is no node %.70q; there are %s", api.ErrState, name, strings.Join(names, ", "))
}

// Change changes the table of nodes by f and sends the result to the other nodes.
func (m *Membership) Change(ctx context.Context, f func(*nodes.Table) error) error {
	_, err := m.peers.change(ctx, f)
	return err
}

// Remove removes another node from the cluster. After that the nodes refuse its key, its master is
// no longer a member, and the cluster has a new secret. Unless force is set, Remove returns an
// error if the node answers.
func (m Verbs) Remove(ctx context.Context, node string, force bool) error {
	t := m.keeper.Table()
	n, ok := t.Find(node)
	switch {
	case !ok || n.State == nodes.Removed:
		return unknownNode(node, &t)
	case node == m.env.Settings.Node:
		return fmt.Errorf("%w: this is %s itself; to take it out: applianced leave", api.ErrState, node)
	case m.env.Settings.Arbiter:
		return m.peers.noMaster("take a node out")
	case !force && m.peers.answers(node):
		return fmt.Errorf("%w: %s is alive; run applianced leave there, or remove it with --force", api.ErrState, node)
	}
	return m.Drop(ctx, node)
}

// Drop removes a node permanently. First it removes the node's master from the masters' record,
// which invalidates the secrets and keys that the node has. Then it removes the node from the table
// of nodes. Both removals identify the node by its key: another machine that has since taken over
// its name or address stays. If the node's master is not in the record, Drop replaces the secrets
// last, when the node can no longer get the new ones. If Drop is interrupted, any node finishes the
// removal, see [removals].
func (m *Member) Drop(ctx context.Context, node string) error {
	t := m.keeper.Table()
	n, ok := t.Find(node)
	switch {
	case !ok:
		return unknownNode(node, &t)
	case m.env.Settings.Arbiter:
		return m.peers.noMaster("take a node out")
	}

	if err := m.uses.mayAct(); err != nil {
		return fmt.Errorf("take %s out: %w", node, err)
	}

	r, err := control.ReadRecord(m.env.Settings.ClusterRecord())
	if _, in := r.Member(n.Address); err == nil && in && !n.IsArbiter() {
		err = takeOut(ctx, m.cfg.Master, control.Removal{ID: n.Address, Node: n.Certificate})
	}

	if err != nil {
		return fmt.Errorf("take the master of %s out of the cluster: %w; nothing was changed: try it again, here or on another node",
			node, err)
	}

	if err := m.Change(ctx, func(t *nodes.Table) error { return t.Remove(n.Certificate) }); err != nil {
		return fmt.Errorf("take %s out of the table of nodes: %w; its master is out already, and the nodes do the rest by themselves: applianced status",
			node, err)
	}

	if err := m.removals.finishNode(ctx, n.Certificate); err != nil {
		return fmt.Errorf("replace the secrets that %s knows: %w; it is out of the table of nodes, and the nodes do the rest by themselves: applianced status",
			node, err)
	}

	m.env.Log.Info("a node was removed", "peer", node)
	m.shared.look.Start(func() { m.shared.takeSecret(context.WithoutCancel(ctx)) })
	return nil
}

// RemoveMaster removes the master at an address from the masters' record. If the master is not in
// the record, that is no error.
func (m *Member) RemoveMaster(ctx context.Context, address string) error {
	return takeOut(ctx, m.cfg.Master, control.Removal{ID: address})
}

// takeOut asks the master to remove a member. If there is no such member, that is no error.
func takeOut(ctx context.Context, master Master, r control.Removal) error {
	if err := master.RemoveMember(ctx, r); err != nil && !errors.Is(err, control.ErrNoSuchMember) {
		return err
	}
	return nil
}

// Leave asks another node to remove this node from the cluster. This node stops serving when it
// learns that it was removed.
func (m Verbs) Leave(ctx context.Context) error {
	self, _ := m.Self()
	t := m.keeper.Table()

	// An arbiter removes no nodes.
	others := slices.DeleteFunc(t.Peers(self.Name), func(n nodes.Node) bool { return n.IsArbiter() })
	if len(others) == 0 {
		return fmt.Errorf("%w: this is the only node that serves minions; there is nobody to leave the cluster to (applianced reset ends it)",
			api.ErrState)
	}
	if self.State == nodes.Removed {
		return fmt.Errorf("%w: this node was removed already", api.ErrState)
	}

	if err := m.beOnly(ctx); err != nil {
		return fmt.Errorf("take %s out: %w", self.Name, err)
	}

	leaving := func(t *nodes.Table) error {
		if n, ok := t.ByCertificate(self.Certificate); !ok || n.State == nodes.Removed {
			return fmt.Errorf("%w: this node was removed already", api.ErrState)
		}
		return t.Set(self.Name, nodes.Leaving)
	}

	if err := m.Change(ctx, leaving); err != nil {
		return fmt.Errorf("say that this node leaves: %w", err)
	}

	for {
		last := m.peers.askOut(ctx, others)
		if last == nil {
			return nil
		}
		if !errors.Is(last, nodeapi.ErrStorage) {
			return fmt.Errorf("no other node took this one out: %w; try again: applianced leave", last)
		}
		if pause.For(ctx, time.Second) != nil {
			return fmt.Errorf("%w: the storage is still being moved: %w; run applianced leave again when applianced storage status on another node shows no copy of this one",
				api.ErrState, last)
		}
	}
}

// Ping tries all connections that this node needs to another one.
func (m Verbs) Ping(ctx context.Context, node string) ([]setup.Check, error) {
	t := m.keeper.Table()
	n, ok := t.Find(node)
	if !ok {
		return nil, unknownNode(node, &t)
	}

	at := address(m.env.Settings, n)
	c := setup.Check{Name: "node", What: "speak with " + node + " at " + at, Result: setup.Pass}
	client := m.peers.clientFor(n)
	defer client.Close()

	began := time.Now()
	sum, err := client.Status(ctx)
	round := time.Since(began)
	var out []setup.Check
	if err != nil {
		c.Result, c.Detail = setup.Fail, err.Error()
		c.Hint = pingHint(err, node)
		out = append(out, c)
	} else {
		c.Detail = fmt.Sprintf("%s in %s, version %s", sum.Setup, round.Round(100*time.Microsecond), sum.Version)
		clock := setup.Check{Name: "clock", What: "compare the clocks", Result: setup.Pass}
		skew := clockLead(sum.Time, began, round).Abs()
		clock.Detail = fmt.Sprintf("differ by %s", skew.Round(time.Millisecond))
		if skew > time.Second {
			clock.Detail = fmt.Sprintf("differ by %s", skew.Round(time.Second))
		}

		if skew > 2*time.Second {
			clock.Result, clock.Hint = setup.Warn, "check the time service on both: timedatectl"
		}

		out = append(out, c, clock)
	}

	var ports []int
	if !n.IsArbiter() && !m.env.Settings.Arbiter { // an arbiter has no master, so it does not use these ports
		ports = []int{m.env.Settings.Peering.PoolPort, m.env.Settings.Master.PublishPort,
			m.env.Settings.Master.RequestPort}
	}

	if m.env.Settings.Storage.Kind == settings.VolumeStorage {
		ports = append(ports, 24007)
	}

	for _, p := range ports {
		c := setup.Check{
			Name:   "port",
			What:   "connect to " + net.JoinHostPort(n.Address, strconv.Itoa(p)),
			Result: setup.Pass,
		}

		var d net.Dialer
		dctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		conn, err := d.DialContext(dctx, "tcp", net.JoinHostPort(n.Address, strconv.Itoa(p)))
		cancel()

		if err != nil {
			c.Result = setup.Fail
			c.Detail = err.Error()
			c.Hint = "check that the service runs there (applianced status on " + node + "), and firewalls between"
		} else {
			_ = conn.Close()
		}

		out = append(out, c)
	}

	return out, nil
}

func pingHint(err error, node string) string {
	switch {
	case errors.Is(err, nodeapi.ErrRemoved):
		return "it says that we were removed: applianced status"
	case errors.Is(err, nodeapi.ErrPin):
		return "another machine has that address, or " + node + " was set up again: applianced replace " + node
	}
	return "check that the machine runs, its network, and firewalls; if it is gone for good: applianced remove " + node
}
