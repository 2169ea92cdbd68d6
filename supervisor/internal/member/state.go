package member

import (
	"saltern/supervisor/nodes"
	"saltern/supervisor/status"
)

// State is a snapshot of a [Member], as plain data.
type State struct {
	Table   nodes.Table
	Self    nodes.Node // this node's entry in the table
	Role    string     // one of the roles in [status.Node]
	Removed string     // source that says that this node was removed; empty: no source does
	// Waits is what the shared storage still lacks. Empty: it lacks nothing.
	Waits  string
	Finger string // fingerprint of the cluster's key; empty: not known, or not to be shown to a removed node
	// Others holds the other nodes' lines of the status. Findings holds the problems of the
	// cluster.
	Others   []status.Node
	Findings []status.Finding
}

// State returns what the member knows now.
func (m *Member) State() State {
	st := State{Table: m.keeper.Table()}
	st.Self, _ = st.Table.ByCertificate(m.id.Hash)
	named, _ := st.Table.Find(m.env.Settings.Node)
	st.Role = roleOf(m.env.Settings, named)

	if ok, waits := m.shared.holdsKey(); !ok {
		st.Waits = waits
	}

	if key, err := (host{m}).ClusterKey(); err == nil {
		st.Finger = key.Finger()
	}

	if st.Removed = m.Removed(); st.Removed != "" {
		return st
	}

	if err := m.api.listenFault(); err != nil {
		st.Findings = append(st.Findings,
			status.Finding{Code: status.NodeAPIDown, Subject: m.env.Settings.NodeAddress(), Cause: err.Error()})
	}

	st.Findings = append(st.Findings, m.removals.findings()...)
	st.Findings = append(st.Findings, m.marks.findings()...)
	st.Findings = append(st.Findings, m.uses.findings()...)
	st.Findings = append(st.Findings, m.firewall.findings()...)
	names := m.shared.fingerprints()
	if names.next != "" {
		st.Findings = append(st.Findings,
			status.Finding{Code: status.SecretStaged, Cause: "the old one holds until all have it"})
	}

	if names.weak {
		st.Findings = append(st.Findings,
			status.Finding{Code: status.SecretWeak, Cause: "whoever reaches the node API could join in time"})
	}

	lines, found := m.peers.statusLines()
	st.Others, st.Findings = lines, append(st.Findings, found...)
	return st
}
