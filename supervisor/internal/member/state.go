package member

import (
	"context"
	"errors"
	"fmt"
	"time"

	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodeapi"
	"saltern/supervisor/nodes"
	"saltern/supervisor/settings"
	"saltern/supervisor/status"
	"saltern/supervisor/storage"
)

// State is what a [Member] knows, as plain data.
type State struct {
	Table   nodes.Table
	Self    nodes.Node // this node's line in the table
	Role    string     // as in [status.Node]
	Removed string     // who says that this node was removed; empty: it belongs to the cluster
	// Waits is what the shared storage lacks; empty: nothing.
	Waits  string
	Finger string // of the cluster's key; empty: not known, or no longer ours to know
	// Others and Findings are the other nodes' lines in the status, and what is wrong
	// in the cluster.
	Others   []status.Node
	Findings []status.Finding
}

// State gives what is known now.
func (m *Member) State() State {
	st := State{Table: m.keeper.Table()}
	st.Self, _ = st.Table.ByCertificate(m.id.Hash)
	named, _ := st.Table.Find(m.cfg.Settings.Node)
	st.Role = roleOf(m.cfg.Settings, named)

	if ok, waits := m.shared.ready(); !ok {
		st.Waits = waits
	}

	if key, err := (host{m}).ClusterKey(); err == nil {
		st.Finger = key.Finger()
	}

	if st.Removed = m.Removed(); st.Removed != "" {
		return st
	}

	if err := m.api.fault(); err != nil {
		st.Findings = append(st.Findings,
			status.Finding{Code: status.NodeAPIDown, Subject: m.cfg.Settings.NodeAddress(), Cause: err.Error()})
	}

	st.Findings = append(st.Findings, m.halves.findings()...)
	st.Findings = append(st.Findings, m.marks.findings()...)
	st.Findings = append(st.Findings, m.uses.findings()...)
	st.Findings = append(st.Findings, m.wall.findings()...)
	names := m.shared.names()
	if names.next != "" {
		st.Findings = append(st.Findings,
			status.Finding{Code: status.SecretStaged, Cause: "the old one holds until all have it"})
	}

	if names.weak {
		st.Findings = append(st.Findings,
			status.Finding{Code: status.SecretWeak, Cause: "whoever reaches the node API could join in time"})
	}

	lines, found := m.peers.lines()
	st.Others, st.Findings = lines, append(st.Findings, found...)
	return st
}

// Changed is closed at the next change of the table of nodes.
func (m *Member) Changed() <-chan struct{} { return m.keeper.Changed() }

// Belongs is what the services of a node of a cluster wait for: that it was not
// removed.
func (m *Member) Belongs() service.Condition {
	return service.Poll("this node to belong to the cluster", time.Second, time.Second, func(context.Context) error {
		if why := m.Removed(); why != "" {
			return fmt.Errorf("it was removed: %s", why)
		}
		return nil
	})
}

// Ready is what the master waits for: the cluster's key on the shared storage.
func (m *Member) Ready() service.Condition {
	return service.Poll("the shared storage", 200*time.Millisecond, time.Second, func(context.Context) error {
		if ok, waits := m.shared.ready(); !ok {
			return errors.New(waits)
		}
		return nil
	})
}

// Settings are those of the node with the members of the cluster filled in.
func (m *Member) Settings() *settings.Settings {
	c := *m.cfg.Settings
	t := m.keeper.Table()
	for _, o := range t.Serving() {
		c.Members = append(c.Members,
			settings.Member{
				Name:     o.Name,
				Address:  o.Address,
				Draining: o.State == nodes.Draining || o.State == nodes.Leaving,
			})
	}
	c.Founds = m.shared.founds()
	return &c
}

// Peers are the clients of the other nodes that serve minions, by name.
func (m *Member) Peers() map[string]*nodeapi.Client { return m.peers.serving() }

// Key is this node's in the table of nodes.
func (m *Member) Key() string { return m.id.Hash }

// Heads are what the other nodes said of their audit records when they answered last, by
// name, with their keys in the table of nodes.
func (m *Member) Heads() map[string]Heads { return m.peers.heads() }

// Authority asks the other nodes for the authority of the storage's certificates.
func (m *Member) Authority(ctx context.Context) (storage.Authority, error) {
	return m.peers.authority(ctx)
}

// SignStorage has this node's certificate for the shared volume signed by another node.
func (m *Member) SignStorage(ctx context.Context, request []byte) (storage.Signed, error) {
	return m.peers.signStorage(ctx, request)
}

// WriteSecret writes the part of the master's configuration that holds the
// cluster's secret, for the master alone to read.
func (m *Member) WriteSecret() error { return m.shared.writeSecret() }

// Copied says why this machine may not act for the node whose key it has, "" when it may.
func (m *Member) Copied() string { return m.uses.standing().refusal }

// MayServe reports whether this node's copy of the shared volume may be served, and what
// that waits for.
func (m *Member) MayServe() (may bool, why string) {
	if s := m.uses.standing(); s.copied {
		return false, "this machine to be the node's own: " + s.refusal
	}
	return m.marks.mayServe()
}

// Table is the table of nodes.
func (m *Member) Table() nodes.Table { return m.keeper.Table() }

// Answers reports whether another node spoke with us just now.
func (m *Member) Answers(node string) bool { return m.peers.answers(node) }
